"""The anatomy of a model as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kvtax.planning.anatomy import Anatomy
from kvtax.sources.resolve import COUNTED
from kvtax.terms import Notice
from kvtax.units import format_bytes, format_count, format_share
from kvtax.views.inspect_kv import formats_block, growth_block, layers_block, ranks_block
from kvtax.views.inspect_weights import tensors_block, weights_block
from kvtax.views.page import Block, Fact, Facts, Page

if TYPE_CHECKING:
    from kvtax.sources.resolve import Model


def inspect_page(model: Model, anatomy: Anatomy, notices: Sequence[Notice] = (), *, tensors: bool = False) -> Page:
    """Everything about a model.

    Args:
        model: as it was found.
        anatomy: of its architecture.
        notices: what the reader should know.
        tensors: whether every group of tensors is listed too.
    """
    blocks: list[Block] = [_about(model, anatomy), layers_block(anatomy), weights_block(anatomy)]
    if tensors:
        blocks.append(tensors_block(anatomy))
    blocks += growth_block(anatomy)
    if anatomy.formats:
        blocks.append(formats_block(anatomy))
    blocks += [ranks_block(anatomy), _sources(model, anatomy)]
    shown = tuple(notice for notice in notices if notice.code != "class-defaults")  # these have a line of their own
    return Page(model.id, tuple(blocks), shown)


# ---- what it is ----


def _about(model: Model, anatomy: Anatomy) -> Facts:
    architecture = anatomy.architecture
    quantization = architecture.quantization
    stored = f"{quantization.name} weights, {architecture.dtype}" if quantization is not None else architecture.dtype
    size, files = architecture.weight_bytes(), architecture.checkpoint_bytes
    facts = [
        Fact(
            "architecture",
            "architecture",
            f"{architecture.name} ({architecture.model_type}), {architecture.kind}",
            architecture.name,
        ),
        Fact("parameters", "parameters", format_count(architecture.parameters), architecture.parameters),
        *_active(anatomy),
        Fact("weight_bytes", "weights", f"{format_bytes(size)} as loaded, {stored}", size),
    ]
    if files is not None:
        text = f"{format_bytes(files)}, {format_count(architecture.checkpoint_parameters or 0)} elements in the files"
        facts.append(Fact("checkpoint_bytes", "checkpoint", text, files))
        kinds = architecture.dtype_bytes()
        if len(kinds) > 1:
            shown = [f"{dtype} {format_bytes(held)}" for dtype, held in list(kinds.items())[:6]]
            facts.append(Fact("dtypes", "formats", ", ".join(shown)))
    facts.append(Fact("shape", "shape", _shape(anatomy)))
    limit = architecture.max_position_embeddings
    facts.append(
        Fact(
            "max_position_embeddings",
            "context",
            "no limit in the config" if limit is None else f"{limit:,} tokens",
            limit,
        )
    )
    if model.limits:
        limits = ", ".join(f"{key} {value:,}" for key, value in model.limits.items())
        facts.append(Fact("generation_limits", "generation", f"{limits} (generation_config.json)"))
    facts += _kv_facts(anatomy)
    facts += _image_facts(anatomy)
    facts.append(Fact("source", "config", model.source))
    return Facts("model", "", tuple(facts))


def _active(anatomy: Anatomy) -> Iterator[Fact]:
    architecture = anatomy.architecture
    active = architecture.active_parameters
    share = format_share(active / max(architecture.parameters, 1))
    text = "" if active == architecture.parameters else f"{format_count(active)} a token uses ({share})"
    yield Fact("active_parameters", "active", text, active)


def _shape(anatomy: Anatomy) -> str:
    architecture = anatomy.architecture
    parts = [f"{architecture.num_hidden_layers:,} layers", f"hidden size {architecture.hidden_size:,}"]
    if architecture.num_attention_heads:
        parts.append(f"{architecture.num_attention_heads:,} query heads")
    if architecture.num_experts:
        parts.append(f"{architecture.num_experts_per_tok:,} of {architecture.num_experts:,} experts")
    parts.append(f"vocabulary {architecture.vocab_size:,}")
    return ", ".join(parts)


def _kv_facts(anatomy: Anatomy) -> Iterator[Fact]:
    architecture, dtype = anatomy.architecture, anatomy.kv_dtype
    early, late = architecture.kv_bytes_per_token(dtype, 1), architecture.kv_bytes_per_token(dtype)
    state, source = architecture.state_bytes(), anatomy.source_bytes
    if early or late:
        text = (
            f"{format_bytes(late)}, {format_bytes(early)} before windows are full"
            if early != late
            else format_bytes(late)
        )
        yield Fact("kv_bytes_per_token", "KV per token", f"{text} ({dtype})", late)
        if early != late:
            yield Fact("kv_bytes_per_token_early", "", "", early)
    if state:
        yield Fact("state_bytes", "fixed state", f"{format_bytes(state)} per sequence, whatever its length", state)
    held = architecture.kv_bytes(anatomy.tokens, dtype)
    if held:
        yield Fact("request_bytes", "one request", f"{format_bytes(held)} at {anatomy.tokens:,} tokens", held)
        yield Fact("request_tokens", "", "", anatomy.tokens)
    if source:
        yield Fact(
            "cross_attention_bytes",
            "cross-attention",
            f"{format_bytes(source)} besides, for the longest source",
            source,
        )
    if not (early or late or state or source):
        yield Fact("kv_bytes_per_token", "KV", "none: this model keeps nothing between steps", 0)


def _image_facts(anatomy: Anatomy) -> Iterator[Fact]:
    image = anatomy.image
    if image is None:
        return
    size = f"{image.width:,} x {image.height:,} pixels"
    if image.tokens is None or image.bytes is None:
        yield Fact("image_tokens", "one image", f"how many tokens {size} take is not known for this family")
        return
    text = f"{image.tokens:,} tokens, {format_bytes(image.bytes)} of KV, for {size}"
    yield Fact("image_tokens", "one image", text, image.tokens)
    yield Fact("image_bytes", "", "", image.bytes)


def _sources(model: Model, anatomy: Anatomy) -> Facts:
    entry, facts = model.entry, []
    if entry is not None and entry.config_from:
        facts.append(Fact("config_from", "config", f"of {entry.config_from}, which has the same shapes"))
    if entry is not None and (entry.parameters is not None or entry.parameters_note):
        total = f"{format_count(entry.parameters)} parameters: " if entry.parameters is not None else ""
        facts.append(
            Fact(
                "published_parameters",
                "published",
                f"{total}{entry.parameters_note or 'not compared'}",
                entry.parameters,
            )
        )
    if entry is not None and entry.licence:
        # of the file, not of the model: weights are under their maker's licence
        facts.append(Fact("licence", "licence", f"{entry.licence}, of the project that republishes the config"))
    defaults = ", ".join(f"{key}={_default_text(value)}" for key, value in model.architecture.defaults_used.items())
    facts.append(Fact("defaults_used", "class defaults", defaults or "none were needed"))
    facts.append(
        Fact(
            "weights_rule",
            "weights",
            "counted tensor by tensor from the shapes in the config; nothing is looked up"
            if model.weights_source == COUNTED
            else model.weights_source,
        )
    )
    facts.append(
        Fact(
            "kv_rule",
            "KV",
            f"what the layers need, in {anatomy.kv_dtype}; engines round it up to blocks (kvtax budget)",
        )
    )
    if model.architecture.state_bytes():
        facts.append(
            Fact("state_rule", "state", "in the dtype of the config, else float32; an engine may keep it in another")
        )
    facts.append(Fact("ranks_rule", "ranks", "tensors and heads split as vllm 0.33 splits them"))
    return Facts("sources", "Where it comes from", tuple(facts))


def _default_text(value: Any) -> str:
    import json

    try:
        return json.dumps(value)[:200]
    except (TypeError, ValueError):
        return str(value)[:200]
