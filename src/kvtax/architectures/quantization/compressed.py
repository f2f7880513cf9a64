"""compressed-tensors: groups of modules, each with the format of its weights."""

from __future__ import annotations

from typing import Any

from kvtax.architectures.config import describe
from kvtax.architectures.quantization import formats
from kvtax.architectures.quantization.formats import Format
from kvtax.architectures.quantization.scheme import Rule, Scheme
from kvtax.architectures.quantization.section import Section

_CLASSES = frozenset(("Linear", "FusedMoE", "MoE", "Experts", "RoutedExperts"))
_SPARSE = ("sparse-bitmask", "sparse-24-bitmask", "marlin-24", "dense-sparse")
_PLAIN = ("dense", "frozen", "")
_FLOAT, _INTEGER = ("float",), ("int", "uint")


def read_compressed(section: Section) -> Scheme | None:
    """The scheme of a compressed-tensors config; None where it leaves the weights as they are.

    Source: compressed-tensors compressors (names, shapes), quantization/lifecycle/initialize.py (scales);
    vllm 0.33.0 compressed_tensors (what a target matches).
    """
    config = section.config
    sparsity = section.inner("sparsity_config")
    if sparsity is not None and sparsity.config.string("format", default="dense") not in _PLAIN:
        section.unsupported("sparsity_config", f"format {describe(sparsity.values.get('format'))} is not understood")
    groups = section.inner("config_groups")
    overall = config.string("format")
    if overall in _SPARSE:
        section.unsupported("format", f"{describe(overall)} is not understood")
    if groups is None or not groups.values:
        if overall in _PLAIN:
            return None
        config.fail("config_groups", f"is missing, but format is {describe(overall)}")
    rules = [Rule(section.modules("ignore"), None)]
    default: Format | None = None
    named: list[Rule] = []
    for key in groups.values:
        group = groups.inner(key)
        if group is None:
            continue
        chosen = _format(group, overall)
        if chosen is None:
            continue
        targets = group.config.optional_list("targets")
        classes = [target for target in targets or ("Linear",) if isinstance(target, str) and target in _CLASSES]
        modules = [target for target in targets or () if target not in classes]
        if classes:
            default = default or chosen
        if modules:
            named.append(Rule(group.named("targets", modules), chosen))
    if default is None and not named:
        return None
    return Scheme(
        section.method,
        default,
        [*rules, *named],
        kv_cache_dtype=section.kv_cache_dtype,
        hidden_size=section.hidden_size,
    )


def _format(group: Section, overall: str) -> Format | None:
    """The format of a group: `format` of the group or the whole, else what bits and type stand for."""
    weights = group.inner("weights")
    if weights is None:
        return None
    config = weights.config
    bits = config.integer("num_bits", default=8, maximum=64)
    kind = config.string("type", default="int")
    if kind not in _FLOAT + _INTEGER:
        config.fail("type", f"must be int or float, not {describe(kind)}")
    stated = group.config.string("format") or overall
    size = config.optional_integer("group_size", minimum=-1)
    strategy = config.string("strategy") or ("group" if size and size > 0 else "channel" if size == -1 else "tensor")
    inputs = group.inner("input_activations")
    dynamic: Any = None if inputs is None else inputs.values.get("dynamic", False)
    if kind == "float" and bits == 4:
        return _four_bit_float(weights, stated, size or 16, dynamic)
    if kind == "float":
        return _eight_bit_float(weights, stated, strategy, size, dynamic is False)
    if bits not in (2, 3, 4, 5, 6, 7, 8):
        config.fail("num_bits", f"must be from 2 to 8, not {bits}")
    symmetric = config.boolean("symmetric", default=True)
    if stated == "pack-quantized" or (
        stated not in ("int-quantized", "naive-quantized") and (bits < 8 or inputs is None)
    ):
        order = config.get("actorder") in ("group", True)
        if strategy == "group" and not (size and size > 0):
            config.fail("group_size", f"must be from 1 on where strategy is group, not {describe(size)}")
        return formats.packed(bits, size if strategy == "group" and size else -1, symmetric=symmetric, order=order)
    if strategy not in ("channel", "group", "tensor"):
        weights.unsupported("strategy", f"{describe(strategy)} is not understood for integers")
    group_size = max(size or 0, 0) if strategy == "group" else 0
    return formats.int8(scale=strategy, symmetric=symmetric, static=dynamic is False, group_size=group_size)


def _four_bit_float(weights: Section, stated: str, size: int, dynamic: Any) -> Format:
    if size < 1:
        weights.config.fail("group_size", f"must be from 1 on, not {size}")
    if stated == "mxfp4-pack-quantized" or (stated != "nvfp4-pack-quantized" and size == 32):
        return formats.mxfp4(size)
    # `local` means: the scale of a group is found as it comes, that of the tensor is stored
    return formats.nvfp4(size, style="compressed-tensors", static=dynamic in (False, "local"))


def _eight_bit_float(weights: Section, stated: str, strategy: str, size: int | None, static: bool) -> Format:
    config = weights.config
    if config.integer("num_bits", maximum=64) != 8:
        config.fail("num_bits", "must be 4 or 8 where type is float")
    if strategy not in ("tensor", "channel", "block", "group"):
        weights.unsupported("strategy", f"{describe(strategy)} is not understood for floats")
    if stated.startswith("mxfp8") or (strategy == "group" and size == 32):
        return formats.mxfp8(size if size and size > 0 else 32)
    if strategy == "tensor":
        return formats.fp8_tensor(static=static)
    if strategy == "channel":
        return formats.fp8_channel(static=static)
    if strategy == "block":
        block = config.integers("block_structure", length=2, minimum=1) or [128, 128]
        return formats.fp8_block(block[0], block[1], scale="weight_scale", scale_dtype="")
    if not size or size < 1:
        config.fail("group_size", f"must be from 1 on where strategy is group, not {describe(size)}")
    return formats.fp8_block(1, size, scale="weight_scale", scale_dtype="")
