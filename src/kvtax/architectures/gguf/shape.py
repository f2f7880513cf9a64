"""A model as llama.cpp sees it: the hyper-parameters of a GGUF file, whether read from one or worked out from a config.json."""

from __future__ import annotations

from typing import NamedTuple


class Layer(NamedTuple):
    """One block.

    Args:
        attends: whether it owns keys and values (not: it has none, or reads those of an earlier layer).
        windowed: whether these live in the sliding-window cache.
        head_count: query heads [heads].
        head_count_kv: key/value heads [heads].
        key_length: width of a key [elements].
        value_length: width of a value, 0 where the value is a part of the key (latent attention) [elements].
        feed_forward_length: width of the dense MLP [elements].
        conv_elements: convolution state or token shift of one sequence (R) [elements].
        state_elements: recurrent state of one sequence (S) [elements].
        indexer_length: indexer keys of one token [elements].
        compress_ratio: tokens that share a compressed row, 0 without compression [tokens].
        compressor_elements: float32 state of the compressors of one slot [elements].
    """

    attends: bool = True
    windowed: bool = False
    head_count: int = 0
    head_count_kv: int = 0
    key_length: int = 0
    value_length: int = 0
    feed_forward_length: int = 0
    conv_elements: int = 0
    state_elements: int = 0
    indexer_length: int = 0
    compress_ratio: int = 0
    compressor_elements: int = 0

    @property
    def recurrent(self) -> bool:
        """Whether it keeps a state of fixed size."""
        return bool(self.conv_elements or self.state_elements)

    @property
    def key_width(self) -> int:
        """Keys of one token, all heads [elements]."""
        return self.key_length * self.head_count_kv

    @property
    def value_width(self) -> int:
        """Values of one token, all heads [elements]."""
        return self.value_length * self.head_count_kv


class Shape(NamedTuple):
    """Hyper-parameters of a model, under the names of their GGUF keys.

    Args:
        arch: `general.architecture`.
        layers: the blocks of the main model, without those for multi-token prediction.
        embedding_length: width of the residual stream [elements].
        vocab_size: [tokens].
        context_length: longest context that it was trained for [tokens].
        sliding_window: tokens that windowed layers see, 0 without [tokens].
        expert_count: [experts].
        expert_used_count: [experts].
        expert_feed_forward_length: width of one expert [elements].
        expert_shared_feed_forward_length: width of the shared experts together [elements].
        leading_dense_block_count: layers before the first with experts [layers].
        key_length: of full-attention layers [elements].
        value_length: the same for values, also where they are not kept [elements].
        key_length_mla: width of a head's key before absorption, 0 without latent attention [elements].
        value_length_mla: the same for values [elements].
        kv_lora_rank: [elements].
        q_lora_rank: [elements].
        rope_dimension_count: [elements].
        embedding_length_per_layer_input: [elements].
        indexer_head_count: [heads].
        ssm_conv_kernel: [tokens].
        ssm_inner_size: [elements].
        ssm_state_size: [elements].
        ssm_time_step_rank: [elements].
        ssm_group_count: [groups].
        kda_head_dim: [elements].
        shortconv_l_cache: [tokens].
        gated: whether the MLP has a gate.
        next_layers: blocks for multi-token prediction [layers].
    """

    arch: str
    layers: tuple[Layer, ...]
    embedding_length: int
    vocab_size: int
    context_length: int = 0
    sliding_window: int = 0
    expert_count: int = 0
    expert_used_count: int = 0
    expert_feed_forward_length: int = 0
    expert_shared_feed_forward_length: int = 0
    leading_dense_block_count: int = 0
    key_length: int = 0
    value_length: int = 0
    key_length_mla: int = 0
    value_length_mla: int = 0
    kv_lora_rank: int = 0
    q_lora_rank: int = 0
    rope_dimension_count: int = 0
    embedding_length_per_layer_input: int = 0
    indexer_head_count: int = 0
    ssm_conv_kernel: int = 0
    ssm_inner_size: int = 0
    ssm_state_size: int = 0
    ssm_time_step_rank: int = 0
    ssm_group_count: int = 0
    kda_head_dim: int = 0
    shortconv_l_cache: int = 0
    gated: bool = True
    next_layers: int = 0

    @property
    def head_count(self) -> int:
        """Query heads of the layer that has most [heads]."""
        return max((layer.head_count for layer in self.layers), default=0)

    @property
    def head_count_kv(self) -> int:
        """Key/value heads of the layer that has most [heads]."""
        return max((layer.head_count_kv for layer in self.layers), default=0)

    @property
    def feed_forward_length(self) -> int:
        """Width of the widest dense MLP [elements]."""
        return max((layer.feed_forward_length for layer in self.layers), default=0)

    @property
    def attends(self) -> bool:
        """Whether any layer keeps keys and values."""
        return any(layer.attends for layer in self.layers)

    @property
    def windowed(self) -> bool:
        """Whether any layer has a window (its cache may be shared)."""
        return self.sliding_window > 0 and any(layer.windowed for layer in self.layers)

    @property
    def latent(self) -> bool:
        """Whether keys and values are one latent."""
        return self.key_length_mla > 0
