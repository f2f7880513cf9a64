"""Two models of model type `git`: Microsoft's GIT, which writes captions, and Grok 2 (class Grok1ForCausalLM)."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention
from kvtax.architectures.config import Config, describe
from kvtax.architectures.families import grok
from kvtax.architectures.tensors import COLUMN, HEADS, ROW, Tensor, embedding, linear, lm_head, norm
from kvtax.architectures.towers import clip_vision, patch_grid


def _layers(config: Config, layers: tuple[int, ...], hidden_size: int) -> list[Tensor]:
    """BERT's layers: each part followed by a sum and a LayerNorm."""
    heads, width = config.integer("num_attention_heads"), config.integer("intermediate_size")
    if hidden_size % heads:
        config.fail("num_attention_heads", f"{heads} does not divide hidden_size {hidden_size}")
    layer = "git.encoder.layer.*"
    found: list[Tensor] = []
    for name in ("query", "key", "value"):
        shard = COLUMN if name == "query" else HEADS
        found += linear(
            f"{layer}.attention.self.{name}", hidden_size, hidden_size, "attention", layers,
            bias=True, shard=shard, heads=(0, heads) if shard == HEADS else (0, 0),
        )  # fmt: skip
    found += linear(
        f"{layer}.attention.output.dense", hidden_size, hidden_size, "attention", layers, bias=True, shard=ROW
    )
    found += norm(f"{layer}.attention.output.LayerNorm", hidden_size, layers, bias=True)
    found += linear(f"{layer}.intermediate.dense", width, hidden_size, "mlp", layers, bias=True, shard=COLUMN)
    found += linear(f"{layer}.output.dense", hidden_size, width, "mlp", layers, bias=True, shard=ROW)
    return [*found, *norm(f"{layer}.output.LayerNorm", hidden_size, layers, bias=True)]


def _captions(config: Config, prefix: str) -> Architecture:
    """A BERT-like decoder that sees the patches of the image as tokens before the text."""
    hidden_size, vocab_size = config.integer("hidden_size"), config.integer("vocab_size")
    heads, positions = config.integer("num_attention_heads"), config.integer("max_position_embeddings")
    layers = tuple(range(config.integer("num_hidden_layers")))
    vision = config.sub("vision_config")
    vision_width = vision.integer("hidden_size")
    patch_grid(vision)
    tensors = [
        *embedding(vocab_size, hidden_size, name="git.embeddings.word_embeddings"),
        Tensor("git.embeddings.position_embeddings.weight", (positions, hidden_size), "embedding"),
        *norm("git.embeddings.LayerNorm", hidden_size, bias=True),
        *_layers(config, layers, hidden_size),
        *clip_vision(vision, "git.image_encoder."),
        *linear("git.visual_projection.visual_projection.0", hidden_size, vision_width, "vision", bias=True),
        *norm("git.visual_projection.visual_projection.1", hidden_size, bias=True, component="vision"),
    ]
    frames = config.optional_integer("num_image_with_embedding", minimum=0, maximum=65_536)
    if frames:
        tensors.append(Tensor("git.img_temporal_embedding.*", (1, 1, vision_width), "vision", tuple(range(frames))))
    if config.architecture != "GitModel":
        tensors += lm_head(vocab_size, hidden_size, config.tie_word_embeddings(), name="output", bias=True)
    head_dim = hidden_size // heads
    return Architecture(
        model_type=config.model_type,
        name=config.architecture or config.model_type,
        tensors=[tensor._replace(name=prefix + tensor.name) for tensor in tensors],
        caches=[FullAttention(heads, head_dim, head_dim)] * len(layers),
        num_hidden_layers=len(layers),
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        intermediate_size=config.integer("intermediate_size"),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=head_dim,
        max_position_embeddings=positions,
        dtype=config.dtype() or "bfloat16",
        dtype_stated=bool(config.dtype()),
        defaults_used=config.defaults_used,
    )


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Grok 2 where the class is Grok's, else GIT.

    Source: transformers 5.24.0 models/git/modeling_git.py.
    """
    name = config.architecture
    if name.startswith("Grok"):
        return grok.build(config, prefix=prefix)
    if name not in ("", "GitForCausalLM", "GitModel"):
        config.unsupported("architectures", f"the class {describe(name)} is not understood")
    return _captions(config, prefix)
