"""The inventory of weights: groups of equal tensors with the names, shapes and dtypes that a checkpoint has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

COMPONENTS = (
    "embedding",
    "attention",
    "linear_or_ssm",
    "mlp",
    "router",
    "routed_experts",
    "shared_experts",
    "norms",
    "lm_head",
    "vision",
    "audio",
    "other",
    "mtp",
)
COLUMN, ROW, VOCAB, EXPERT, HEADS, REPLICATED = "column", "row", "vocab", "expert", "heads", "replicated"
GROUPS = "groups"


class Tensor(NamedTuple):
    """One tensor of a layer, for all layers that have it, before quantisation.

    Args:
        name: as in the checkpoint, `*` for the layer and a second `*` for the expert.
        shape: of one tensor [elements].
        component: one of COMPONENTS.
        layers: indices that the first `*` takes; empty for a tensor that stands once.
        per_layer: tensors of this name in a layer (experts) [tensors].
        shard: how tensor parallelism splits it: column (output), row (input), vocab, expert, heads or groups (see `heads`) or replicated.
        heads: for shard `heads`: query heads (0 for none) and key/value heads that the output dimension is made of;
            for shard `groups`: groups and the output rows of one, which every rank has at least one of (Mamba 2's B and C).
        linear: the weight of a linear layer, which quantisation methods touch unless told otherwise.
        parameter: False for a persistent buffer, which is in the file but is no parameter.
        loaded: False for what is in the file but not loaded for serving (MTP layers, a stored copy of a tied head).
        dtype: where the checkpoint keeps it in another dtype than the model's (`float32`), else empty.
        stored: False for what is loaded but not in the file.
    """

    name: str
    shape: tuple[int, ...]
    component: str
    layers: tuple[int, ...] = ()
    per_layer: int = 1
    shard: str = REPLICATED
    heads: tuple[int, int] = (0, 0)
    linear: bool = False
    parameter: bool = True
    loaded: bool = True
    dtype: str = ""
    stored: bool = True

    @property
    def copies(self) -> int:
        """How many tensors of this name the model has."""
        return (len(self.layers) or 1) * self.per_layer

    @property
    def elements(self) -> int:
        """Elements of all of them: product of the shape x count."""
        total = self.copies
        for size in self.shape:
            total *= size
        return total


def numel(shape: Iterable[int]) -> int:
    """Product of a shape [elements]."""
    total = 1
    for size in shape:
        total *= size
    return total


def linear(
    name: str,
    out_features: int,
    in_features: int,
    component: str,
    layers: tuple[int, ...] = (),
    *,
    bias: bool = False,
    shard: str = REPLICATED,
    heads: tuple[int, int] = (0, 0),
    per_layer: int = 1,
    loaded: bool = True,
) -> list[Tensor]:
    """`name.weight` [out_features, in_features] and, where asked for, `name.bias` [out_features].

    A bias is split with the output dimension, so it is replicated where the input is split.
    """
    found = [
        Tensor(
            f"{name}.weight",
            (out_features, in_features),
            component,
            layers,
            per_layer,
            shard,
            heads,
            True,
            loaded=loaded,
        )
    ]
    if bias:
        bias_shard = REPLICATED if shard == ROW else shard
        found.append(
            Tensor(f"{name}.bias", (out_features,), component, layers, per_layer, bias_shard, heads, loaded=loaded)
        )
    return found


def norm(
    name: str,
    width: int,
    layers: tuple[int, ...] = (),
    *,
    bias: bool = False,
    component: str = "norms",
    shard: str = REPLICATED,
    loaded: bool = True,
) -> list[Tensor]:
    """`name.weight` [width] and, for a LayerNorm, `name.bias` [width]."""
    found = [Tensor(f"{name}.weight", (width,), component, layers, shard=shard, loaded=loaded)]
    if bias:
        found.append(Tensor(f"{name}.bias", (width,), component, layers, shard=shard, loaded=loaded))
    return found


def embedding(
    vocab_size: int, hidden_size: int, *, name: str = "model.embed_tokens", component: str = "embedding"
) -> list[Tensor]:
    """`name.weight` [vocab_size, hidden_size]."""
    return [Tensor(f"{name}.weight", (vocab_size, hidden_size), component, shard=VOCAB)]


def lm_head(
    vocab_size: int, hidden_size: int, tied: bool, *, name: str = "lm_head", bias: bool = False
) -> list[Tensor]:
    """The output projection [vocab_size, hidden_size]; none where it is tied to the embedding (a bias stays)."""
    if tied:
        return [Tensor(f"{name}.bias", (vocab_size,), "lm_head", shard=VOCAB)] if bias else []
    return linear(name, vocab_size, hidden_size, "lm_head", bias=bias, shard=VOCAB)


def prefixed(tensors: Iterable[Tensor], prefix: str) -> list[Tensor]:
    """The same tensors below another module."""
    return [tensor._replace(name=prefix + tensor.name) for tensor in tensors]


def not_loaded(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The same tensors as part of the file that serving does not load; counted under `mtp`."""
    return [tensor._replace(loaded=False, component="mtp") for tensor in tensors]


def rank_elements(shape: tuple[int, ...], tensor: Tensor, tp: int) -> int:
    """Elements of one tensor of `shape` on one of `tp` ranks; never less than its share.

    column, expert: ceil(elements / tp) along the split dimension; vocab: rows padded to a multiple of 64, then split;
    heads: query heads / tp + key/value heads max(1, num_key_value_heads / tp); groups: max(1, groups / tp) of them and
    the other rows / tp; replicated: all.

    Args:
        shape: of what is stored for the tensor (a packed weight, a scale) [elements].
        tensor: the tensor before quantisation, which says how it is split.
        tp: tensor_parallel_size [ranks].

    Returns:
        Elements on the fullest rank.

    Source: vllm 0.33.0 model_executor/layers/linear.py, vocab_parallel_embedding.py.
    """
    total = numel(shape)
    if tp == 1 or tensor.shard == REPLICATED or total <= 1:
        return total
    if tensor.shard == VOCAB:
        rows = tensor.shape[0]
        padded = -(-rows // 64) * 64
        per_rank = -(-padded // tp)
        return total // rows * per_rank if total % rows == 0 else -(-total // tp)
    if tensor.shard == HEADS:
        query_heads, kv_heads = tensor.heads
        parts = query_heads + 2 * kv_heads if query_heads else kv_heads
        on_rank = max(1, -(-kv_heads // tp))
        held = -(-query_heads // tp) + 2 * on_rank if query_heads else on_rank
        return -(-total * held // parts)
    if tensor.shard == GROUPS:
        groups, width = tensor.heads
        rows = tensor.shape[0]
        held = -(-(rows - groups * width) // tp) + max(1, -(-groups // tp)) * width
        return -(-total * held // rows)
    return -(-total // tp)
