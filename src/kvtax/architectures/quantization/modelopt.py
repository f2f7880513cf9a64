"""NVIDIA ModelOpt: hf_quant_config.json, or the same within config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvtax.architectures.config import describe
from kvtax.architectures.quantization import formats
from kvtax.architectures.quantization.formats import Format
from kvtax.architectures.quantization.modules import MAXIMUM_ENTRIES
from kvtax.architectures.quantization.scheme import Rule, Scheme
from kvtax.architectures.quantization.section import Section

MIXED = "MIXED_PRECISION"
EXCLUDES = ("exclude_modules", "ignore", "modules_to_not_convert")


def read_modelopt(section: Section) -> Scheme | None:
    """The scheme of a ModelOpt config; None for quant_algo null (only the cache is quantised).

    Source: vllm 0.33.0 quantization/modelopt.py (names and shapes of what is stored, what is excluded).
    """
    inner = section.inner("quantization") or section
    algo = inner.values.get("quant_algo")
    if algo is None or algo == "":
        return None
    if not isinstance(algo, str):
        inner.config.fail("quant_algo", f"must be a string, not {describe(algo)}")
    rules = [Rule(inner.modules(*EXCLUDES), None), *layer_rules(inner)]
    default = None if algo.upper() == MIXED else algorithm(inner, algo)
    if default is None and len(rules) == 1:
        inner.config.fail("quantized_layers", "is missing, but quant_algo is MIXED_PRECISION")
    return Scheme(
        section.method, default, rules, kv_cache_dtype=section.kv_cache_dtype, hidden_size=section.hidden_size
    )


def layer_rules(section: Section) -> list[Rule]:
    """One rule for each format in quantized_layers (module -> {quant_algo, group_size})."""
    layers = section.inner("quantized_layers")
    if layers is None:
        return []
    if len(layers.values) > MAXIMUM_ENTRIES:
        section.config.fail("quantized_layers", f"has more than {MAXIMUM_ENTRIES} entries")
    known: dict[tuple[str, Any], Format] = {}
    found: list[tuple[str, Format | None]] = []
    for name, value in layers.values.items():
        if not isinstance(value, Mapping) or not isinstance(value.get("quant_algo"), str):
            section.config.fail("quantized_layers", f"must give {describe(name)} a quant_algo")
        key = (value["quant_algo"], str(value.get("group_size"))[:32])
        if key not in known:
            known[key] = algorithm(layers.below(name[:64], value), value["quant_algo"])
        found.append((name, known[key]))
    return section.rules("quantized_layers", found)


def algorithm(section: Section, algo: str) -> Format:
    """The format of a quant_algo.

    Raises:
        UnsupportedArchitectureError: one that is not known.
    """
    name = algo.upper()
    make = _ALGORITHMS.get(name)
    if make is None:
        section.unsupported("quant_algo", f"{describe(algo)} is not known")
    return make(section)


def _positive(section: Section, default: int) -> int:
    return section.config.integer("group_size", default=default)


def _int4_awq(group_size: int, fp8_input: bool) -> Format:
    """Two weights to a byte along the output, a 16-bit scale for each group and one for each input channel."""

    def parts(out: int, inner: int, dtype: str) -> tuple[formats.Part, ...]:
        found = [
            formats.Part(".weight", (formats.ceil_div(out, 2), inner), "uint8"),
            formats.Part(".weight_scale", (out, formats.ceil_div(inner, group_size)), formats.half(dtype), scale=True),
            formats.Part(".pre_quant_scale", (inner,), formats.half(dtype), scale=True, along="in"),
        ]
        if fp8_input:
            found.append(formats.Part(".weight_scale_2", (), "float32", scale=True))
            found.append(formats.Part(".input_scale", (), "float32", scale=True))
        return tuple(found)

    return Format(formats.with_group("awq-int4", group_size, 128), 4, group_size, parts)


def _int8_smooth() -> Format:
    """weight int8, a float32 scale for each row, one for the input, and one for each input channel."""

    def parts(out: int, inner: int, dtype: str) -> tuple[formats.Part, ...]:
        return (
            formats.Part(".weight", (out, inner), "int8"),
            formats.Part(".weight_scale", (out,), "float32", scale=True, along="out"),
            formats.Part(".pre_quant_scale", (inner,), formats.half(dtype), scale=True, along="in"),
            formats.Part(".input_scale", (), "float32", scale=True),
        )

    return Format("w8a8-int8", 8, 0, parts)


def _nvfp4(*, static: bool = True, pre_scale: bool = False) -> Callable[[Section], Format]:
    return lambda section: formats.nvfp4(_positive(section, 16), static=static, pre_scale=pre_scale)


def _same(chosen: Format) -> Callable[[Section], Format]:
    return lambda _: chosen


_FP8_ROWS = _same(formats.fp8_channel(scale_dtype="float32", dims=1))
_FP8_BLOCKS = _same(formats.fp8_block(scale="weight_scale", dims=4))
_ALGORITHMS: dict[str, Callable[[Section], Format]] = {
    "FP8": _same(formats.fp8_tensor(static=True, shape=())),
    "FP8_PER_CHANNEL_PER_TOKEN": _FP8_ROWS,
    "FP8_PC_PT": _FP8_ROWS,
    "FP8_PB_WO": _FP8_BLOCKS,
    "FP8_PB_REAL": _FP8_BLOCKS,
    "FP8_2D_BLOCKWISE_WEIGHT_ONLY": _FP8_BLOCKS,
    "NVFP4": _nvfp4(),
    "W4A4_NVFP4": _nvfp4(),
    "NVFP4_AWQ": _nvfp4(pre_scale=True),
    "W4A8_NVFP4_FP8": _nvfp4(),
    "W4A16_NVFP4": _nvfp4(static=False),
    "MXFP8": lambda section: formats.mxfp8(_positive(section, 32)),
    "W8A8_MXFP8": lambda section: formats.mxfp8(_positive(section, 32)),
    "MXFP4": lambda section: formats.mxfp4(_positive(section, 32), weight="weight"),
    "W4A8_MXFP4_FP8": lambda section: formats.mxfp4(_positive(section, 32), weight="weight"),
    "W4A16_AWQ": lambda section: _int4_awq(_positive(section, 128), False),
    "INT4_AWQ": lambda section: _int4_awq(_positive(section, 128), False),
    "W4A8_AWQ": lambda section: _int4_awq(_positive(section, 128), True),
    "INT8_SQ": lambda _: _int8_smooth(),
    "W8A8_SQ_PER_CHANNEL": lambda _: _int8_smooth(),
    "W8A16": _same(formats.int8(scale_dtype="float32")),
    "INT8_WO": _same(formats.int8(scale_dtype="float32")),
}
