"""What vLLM's profile run feeds a vision tower: the largest batch of items that the encoder budget allows.

A tower is read from the inventory of tensors, so that no config is needed here. The sizes of images that a processor lets through stand in
preprocessor_config.json, which is not part of a config.json: those of the families' published processors are taken.
"""

from __future__ import annotations

from typing import NamedTuple

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.tensors import Tensor
from kvtax.deployment import Deployment
from kvtax.engines.base import Version
from kvtax.engines.vllm.rules import rule
from kvtax.units import ceil_div

LARGEST_IMAGE_TOKENS = 16_384
"""Qwen-VL processors: max_pixels of 12,845,056 at 28 x 28 and longest_edge of 16,777,216 at 32 x 32 pixels a token."""
LARGEST_VIDEO_TOKENS = 12_288
"""Qwen3-VL's video processor: longest_edge 25,165,824 pixels over all frames, two frames and 32 x 32 pixels a token."""
PIXTRAL_IMAGE_SIZE = 1540
"""Side of the largest image of Pixtral and Mistral 3 processors [pixels]."""
LLAMA4_TILES = 17
"""Llama 4: at most 16 tiles and the whole image, 144 tokens each (vllm model_executor/models/mllama4.py)."""
LLAMA4_TILE_TOKENS = 144
INTERNVL_TILES = 13
"""InternVL: at most 12 tiles and a thumbnail (max_dynamic_patch)."""
GEMMA3_IMAGE_TOKENS = 256
GEMMA4_VIDEO_TOKENS = 2496
"""Gemma 4's largest item: starts of vllm 0.19 and later raise max_num_batched_tokens to it."""
GEMMA4_PATCHES_PER_TOKEN = 9
CROSS_ATTENTION_TILES = 4
"""Llama 3.2 Vision: at most four tiles an image, each padded to a multiple of eight patches."""


class Tower(NamedTuple):
    """A vision tower: the widths that its activations have, and the largest item that it is profiled with."""

    hidden_size: int
    mlp_width: int
    """Of one token in the MLP: input and output of its activation, gate and up where it is gated [elements]."""
    patch_elements: int
    out_width: int
    """Of one embedding, deepstack features included [elements]."""
    item_patches: int
    item_tokens: int
    placeholder_tokens: int
    """Tokens that the engine counts for the item: its embeddings are padded to as many rows [tokens]."""


class EncoderRun(NamedTuple):
    """The batch that a vision tower is profiled with."""

    tower: Tower
    items: int

    @property
    def patches(self) -> int:
        """Patches of all items."""
        return self.items * self.tower.item_patches

    @property
    def tokens(self) -> int:
        """Embeddings of all items."""
        return self.items * self.tower.item_tokens

    @property
    def padded_tokens(self) -> int:
        """Rows that are added where embeddings are padded to the tokens that the engine counts."""
        return (
            self.items * self.tower.placeholder_tokens if self.tower.placeholder_tokens > self.tower.item_tokens else 0
        )


def encoder_run(
    architecture: Architecture,
    deployment: Deployment,
    version: Version,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    max_model_len: int,
) -> EncoderRun | None:
    """The batch of the profile run; None where there is no vision tower, or it is not profiled.

    items = max(1, min(max(max_num_batched_tokens, item) // item, max_num_seqs * max(1, max_model_len // item))).

    Source: vllm 0.12.0 v1/worker/utils.py MultiModalBudget, 0.32.0 multimodal/encoder_budget.py.
    """
    if deployment.language_model_only or deployment.skip_mm_profiling:
        return None
    limits = deployment.limit_mm_per_prompt
    images = limits is None or limits.get("image", 1) > 0
    videos = limits is None or limits.get("video", 1) > 0
    if not images and not videos:
        return None
    tower = vision_tower(architecture, version, max_model_len, images=images, videos=videos)
    if tower is None:
        return None
    item = max(tower.placeholder_tokens, 1)
    most = max_num_seqs * max(1, max_model_len // item)
    return EncoderRun(tower, max(1, min(max(max_num_batched_tokens, item) // item, most)))


def least_batched_tokens(architecture: Architecture, deployment: Deployment) -> int:
    """Tokens that a step has at least by default: one item of a model that attends to images both ways.

    Source: vllm 0.32.0 engine/arg_utils.py (_get_min_mm_batched_tokens).
    """
    if deployment.language_model_only or not _vision(architecture):
        return 0
    return GEMMA4_VIDEO_TOKENS if _find(_vision(architecture), "patch_embedder.input_proj") else 0


def vision_tower(
    architecture: Architecture, version: Version, max_model_len: int, *, images: bool = True, videos: bool = True
) -> Tower | None:
    """The vision tower of a model, and the item with most tokens; None where it has none, or one of an unknown kind."""
    vision = _vision(architecture)
    if not vision or architecture.kind != "decoder" or _crosses(architecture):
        return None
    if (patch := _find(vision, "patch_embed.proj.weight")) is not None and len(patch.shape) == 5:
        return _qwen_tower(
            vision, patch, architecture.hidden_size, version, max_model_len, images=images, videos=videos
        )
    if (patch := _find(vision, "patch_conv.weight")) is not None:
        return _pixtral_tower(vision, patch, architecture.hidden_size)
    if (patch := _find(vision, "patch_embedder.input_proj.weight")) is not None:
        hidden, tokens = patch.shape[0], GEMMA4_VIDEO_TOKENS
        widths = (hidden, _mlp_width(vision, hidden), patch.shape[1], architecture.hidden_size)
        return Tower(*widths, tokens * GEMMA4_PATCHES_PER_TOKEN, tokens, tokens)
    if (patch := _find(vision, "vision_model.patch_embedding.linear.weight")) is not None:
        table = _find(vision, "positional_embedding_vlm")
        patches = (table.shape[0] if table else 577) * LLAMA4_TILES
        hidden, tokens = patch.shape[0], LLAMA4_TILES * LLAMA4_TILE_TOKENS
        widths = (hidden, _mlp_width(vision, hidden), patch.shape[1], architecture.hidden_size)
        return Tower(*widths, patches, tokens, tokens)
    if (patch := _find(vision, "patch_embedding.weight")) is not None and len(patch.shape) == 4:
        return _clip_tower(architecture, vision, patch)
    return None


def cross_attention_elements(architecture: Architecture) -> tuple[int, int]:
    """Patches that the encoder of one request has, and elements of activation of one patch; zeros without cross-attention.

    The hidden states of six layers stand twice (stacked, then joined), beside the projection into the text model and the tower's own four widths.

    Source: vllm 0.6 model_executor/models/mllama.py; 36.6 GiB for 128 requests of Llama-3.2-11B-Vision.
    """
    if not _crosses(architecture):
        return 0, 0
    patch = _find(_vision(architecture), "patch_embedding.weight")
    table = _find(_vision(architecture), "gated_positional_embedding.embedding")
    if patch is None or table is None:
        return 0, 0
    hidden, patches = patch.shape[0], ceil_div(table.shape[0], 8) * 8
    return CROSS_ATTENTION_TILES * patches, 2 * 6 * hidden + architecture.hidden_size + 4 * hidden


def _vision(architecture: Architecture) -> list[Tensor]:
    return [tensor for tensor in architecture.tensors if tensor.component == "vision" and tensor.loaded]


def _crosses(architecture: Architecture) -> bool:
    return any(cache.kind == "cross_attention" for cache in architecture.caches)


def _find(tensors: list[Tensor], ending: str) -> Tensor | None:
    return next(
        (tensor for tensor in tensors if tensor.name.removesuffix(".weight").endswith(ending.removesuffix(".weight"))),
        None,
    )


def _mlp_width(vision: list[Tensor], hidden: int) -> int:
    """Twice the widest linear layer of a block (before and after the activation), three times where gate and up stand beside each other."""
    blocks = [
        tensor
        for tensor in vision
        if tensor.layers and len(tensor.shape) == 2 and ("mlp" in tensor.name or "feed_forward" in tensor.name)
    ]
    gated = any("gate_proj" in tensor.name for tensor in blocks)
    width = max((max(tensor.shape) for tensor in blocks), default=4 * hidden)
    return width * (3 if gated else 2)


def _qwen_tower(
    vision: list[Tensor], patch: Tensor, out: int, version: Version, max_model_len: int, *, images: bool, videos: bool
) -> Tower:
    hidden = patch.shape[0]
    mergers = [tensor for tensor in vision if "merger" in tensor.name and len(tensor.shape) == 2]
    joined = max((tensor.shape[1] for tensor in mergers), default=4 * hidden)
    deepstack = max((len(tensor.layers) for tensor in mergers if "deepstack" in tensor.name), default=0)
    merged = joined // hidden
    tokens = placeholder = LARGEST_IMAGE_TOKENS
    if patch.shape[-1] >= 16:  # frames of a video share one limit of pixels
        spelled = LARGEST_VIDEO_TOKENS * rule("video_placeholder_factor", version)
        if videos and (spelled > tokens or not images):
            tokens, placeholder = LARGEST_VIDEO_TOKENS, int(spelled)
    elif videos:  # each pair of frames may be as large as an image
        tokens = placeholder = tokens * max(1, min(max_model_len // tokens, rule("video_grid_steps", version)))
    elements = patch.shape[1] * patch.shape[2] * patch.shape[3] * patch.shape[4]
    return Tower(
        hidden, _mlp_width(vision, hidden), elements, out * (1 + deepstack), tokens * merged, tokens, placeholder
    )


def _pixtral_tower(vision: list[Tensor], patch: Tensor, out_width: int) -> Tower:
    hidden, side = patch.shape[0], PIXTRAL_IMAGE_SIZE // patch.shape[-1]
    merger = _find(vision, "patch_merger.merging_layer.weight")
    merge = 2 if merger is not None and merger.shape[1] == 4 * hidden else 1
    tokens = (side // merge) * (side // merge + 1)
    elements = patch.shape[1] * patch.shape[2] * patch.shape[3]
    return Tower(hidden, _mlp_width(vision, hidden), elements, out_width, side * side, tokens, tokens)


def _clip_tower(architecture: Architecture, vision: list[Tensor], patch: Tensor) -> Tower:
    """A tower over images of one size: all patches become tokens, but for families that pool them."""
    hidden = patch.shape[0]
    table = _find(vision, "position_embedding.weight")
    patches = table.shape[0] if table is not None else 576
    tokens, tiles = patches, 1
    if architecture.model_type.startswith("gemma3"):
        tokens = GEMMA3_IMAGE_TOKENS
    elif architecture.model_type.startswith("internvl"):
        tokens, tiles = patches // 4, INTERNVL_TILES
    elements = patch.shape[1] * patch.shape[2] * patch.shape[3]
    widths = (hidden, _mlp_width(vision, hidden), elements, architecture.hidden_size)
    return Tower(*widths, tiles * patches, tiles * tokens, tiles * tokens)
