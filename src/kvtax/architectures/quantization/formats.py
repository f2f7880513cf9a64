"""What each usual format stores in place of a weight [out, in]."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Part(NamedTuple):
    """One tensor that a format stores.

    Args:
        suffix: in place of `.weight`.
        shape: [elements].
        dtype: as stored.
        scale: whether it holds scales, zero points or orders rather than weights.
        counted: False for what is neither a weight nor a scale (a shape, a table that is the same everywhere).
        along: `out` or `in` where it has one element for each row or column only, and is whole on every rank of a split the other way.
    """

    suffix: str
    shape: tuple[int, ...]
    dtype: str
    scale: bool = False
    counted: bool = True
    along: str = ""


class Format(NamedTuple):
    """A way to store weights.

    Args:
        name: as a deployment names it.
        bits: of one weight [bit].
        group_size: weights along the input that share a scale, 0 for a row or a tensor [elements].
        parts: (out, in, dtype of the model) -> what is stored.
        stacked: whether the experts of a layer stay in one tensor.
    """

    name: str
    bits: int
    group_size: int
    parts: Callable[[int, int, str], tuple[Part, ...]]
    stacked: bool = False


def ceil_div(number: int, divisor: int) -> int:
    """number / divisor, rounded up."""
    return -(-number // divisor)


def with_group(name: str, group_size: int, usual: int) -> str:
    """The name with its group size where that is not the usual one."""
    return name if group_size == usual else f"{name}-g{group_size}" if group_size > 0 else f"{name}-channel"


def half(dtype: str) -> str:
    """A 16-bit dtype for scales: the model's, or float16."""
    return dtype if dtype in ("float16", "bfloat16") else "float16"


# ---- 8-bit floats ----


def fp8_block(
    rows: int = 128, columns: int = 128, *, scale: str = "weight_scale_inv", scale_dtype: str = "float32", dims: int = 2
) -> Format:
    """weight fp8 [out, in], one scale for a block of rows x columns (ModelOpt writes them with four dimensions)."""

    def parts(out: int, inner: int, dtype: str) -> tuple[Part, ...]:
        blocks = (ceil_div(out, rows), ceil_div(inner, columns))
        shape = blocks if dims == 2 else (blocks[0], 1, blocks[1], 1)
        return (
            Part(".weight", (out, inner), "fp8_e4m3"),
            Part(f".{scale}", shape, scale_dtype or dtype, scale=True),
        )

    name = "fp8-block" if (rows, columns) == (128, 128) else f"fp8-block-g{columns}"
    return Format(name, 8, columns, parts)


def fp8_tensor(
    *,
    static: bool = False,
    scale: str = "weight_scale",
    input_scale: str = "input_scale",
    shape: tuple[int, ...] = (1,),
) -> Format:
    """weight fp8 [out, in], one float32 scale, another for the input where it is static."""

    def parts(out: int, inner: int, _dtype: str) -> tuple[Part, ...]:
        found = (Part(".weight", (out, inner), "fp8_e4m3"), Part(f".{scale}", shape, "float32", scale=True))
        return (*found, Part(f".{input_scale}", shape, "float32", scale=True)) if static else found

    return Format("fp8", 8, 0, parts)


def fp8_channel(*, scale_dtype: str = "", static: bool = False, dims: int = 2) -> Format:
    """weight fp8 [out, in], one scale a row, in the model's dtype unless said otherwise."""

    def parts(out: int, inner: int, dtype: str) -> tuple[Part, ...]:
        shape = (out, 1) if dims == 2 else (out,)
        found = (
            Part(".weight", (out, inner), "fp8_e4m3"),
            Part(".weight_scale", shape, scale_dtype or dtype, scale=True, along="out"),
        )
        return (*found, Part(".input_scale", (1,), scale_dtype or dtype, scale=True)) if static else found

    return Format("fp8-channel", 8, 0, parts)


def mxfp8(group_size: int = 32, *, scale: str = "weight_scale") -> Format:
    """weight fp8 [out, in], one 8-bit exponent for 32 of them."""

    def parts(out: int, inner: int, _dtype: str) -> tuple[Part, ...]:
        return (
            Part(".weight", (out, inner), "fp8_e4m3"),
            Part(f".{scale}", (out, ceil_div(inner, group_size)), "uint8", scale=True),
        )

    return Format(with_group("mxfp8", group_size, 32), 8, group_size, parts)


# ---- 4-bit floats ----


def nvfp4(group_size: int = 16, *, style: str = "modelopt", static: bool = True, pre_scale: bool = False) -> Format:
    """Two weights to a byte, an fp8 scale for 16, a float32 scale for the tensor and one for its input.

    Args:
        group_size: [elements].
        style: whose names: `modelopt` (weight, weight_scale_2, input_scale) or `compressed-tensors`.
        static: whether there is a scale for the input.
        pre_scale: whether the input is scaled channel by channel before (AWQ).
    """
    ours = style == "modelopt"

    def parts(out: int, inner: int, dtype: str) -> tuple[Part, ...]:
        one: tuple[int, ...] = () if ours else (1,)
        found = [
            Part(".weight" if ours else ".weight_packed", (out, ceil_div(inner, 2)), "uint8"),
            Part(".weight_scale", (out, ceil_div(inner, group_size)), "fp8_e4m3", scale=True),
            Part(".weight_scale_2" if ours else ".weight_global_scale", one, "float32", scale=True),
        ]
        if static:
            found.append(Part(".input_scale" if ours else ".input_global_scale", one, "float32", scale=True))
        if pre_scale:
            found.append(Part(".pre_quant_scale", (inner,), half(dtype), scale=True, along="in"))
        return tuple(found)

    return Format(with_group("nvfp4", group_size, 16), 4, group_size, parts)


def mxfp4(
    group_size: int = 32,
    *,
    weight: str = "weight_packed",
    scale: str = "weight_scale",
    dtypes: tuple[str, str] = ("uint8", "uint8"),
) -> Format:
    """Two weights to a byte, one 8-bit exponent for 32 of them."""

    def parts(out: int, inner: int, _dtype: str) -> tuple[Part, ...]:
        return (
            Part(f".{weight}", (out, ceil_div(inner, 2)), dtypes[0]),
            Part(f".{scale}", (out, ceil_div(inner, group_size)), dtypes[1], scale=True),
        )

    return Format(with_group("mxfp4", group_size, 32), 4, group_size, parts)


def mxfp4_blocks() -> Format:
    """gpt-oss: the experts of a layer in one tensor of blocks [experts, out, in / 32, 16], an exponent for each block."""

    def parts(out: int, inner: int, _dtype: str) -> tuple[Part, ...]:
        groups = ceil_div(inner, 32)
        return (Part("_blocks", (out, groups, 16), "uint8"), Part("_scales", (out, groups), "uint8", scale=True))

    return Format("mxfp4", 4, 32, parts, stacked=True)


# ---- integers, packed into int32 ----


def awq(bits: int = 4, group_size: int = 128, *, version: str = "gemm") -> Format:
    """qweight int32 [in, out x bits / 32], zeros packed in the same way and a 16-bit scale for each group of each column.

    `gemv` keeps rows instead: qweight [out, in x bits / 32], with zeros padded to whole words.
    """

    def parts(out: int, inner: int, dtype: str) -> tuple[Part, ...]:
        groups = ceil_div(inner, group_size) if group_size > 0 else 1
        along = "out" if groups == 1 else ""
        if version == "gemv":
            step = {64: 2, 32: 4}.get(group_size, 1)
            words = ceil_div(ceil_div(groups * bits, 32), step) * step
            shapes = (out, ceil_div(inner * bits, 32)), (out, words), (out, words * 32 // bits)
        else:
            shapes = (inner, ceil_div(out * bits, 32)), (groups, ceil_div(out * bits, 32)), (groups, out)
        return (
            Part(".qweight", shapes[0], "int32"),
            Part(".qzeros", shapes[1], "int32", scale=True, along=along),
            Part(".scales", shapes[2], half(dtype), scale=True, along=along),
        )

    return Format(with_group(f"awq-int{bits}", group_size, 128), bits, max(group_size, 0), parts)


def gptq(bits: int = 4, group_size: int = 128, *, order: bool = True, marlin: bool = False) -> Format:
    """qweight int32 [in x bits / 32, out], zeros int32 [groups, out x bits / 32], 16-bit scales [groups, out], g_idx int32 [in].

    Marlin's own layout: B int32 [in / 16, out x 16 x bits / 32] and 16-bit scales, no zeros.
    """

    def parts(out: int, inner: int, dtype: str) -> tuple[Part, ...]:
        groups = ceil_div(inner, group_size) if group_size > 0 else 1
        along = "out" if groups == 1 else ""
        if marlin:
            return (
                Part(".B", (ceil_div(inner, 16), out * 16 * bits // 32), "int32"),
                Part(".s", (groups, out), half(dtype), scale=True, along=along),
            )
        found = (
            Part(".qweight", (ceil_div(inner * bits, 32), out), "int32"),
            Part(".qzeros", (groups, ceil_div(out * bits, 32)), "int32", scale=True, along=along),
            Part(".scales", (groups, out), half(dtype), scale=True, along=along),
        )
        return (*found, Part(".g_idx", (inner,), "int32", scale=True, along="in")) if order else found

    return Format(with_group(f"gptq-int{bits}", group_size, 128), bits, max(group_size, 0), parts)


def packed(bits: int = 4, group_size: int = 128, *, symmetric: bool = True, order: bool = False) -> Format:
    """compressed-tensors pack-quantized: weight_packed int32 [out, in x bits / 32], a scale for each group, the shape as int64."""

    def parts(out: int, inner: int, dtype: str) -> tuple[Part, ...]:
        groups = ceil_div(inner, group_size) if group_size > 0 else 1
        along = "out" if groups == 1 else ""
        found = [
            Part(".weight_packed", (out, ceil_div(inner * bits, 32)), "int32"),
            Part(".weight_scale", (out, groups), dtype, scale=True, along=along),
            Part(".weight_shape", (2,), "int64", counted=False),
        ]
        if not symmetric:
            found.append(
                Part(".weight_zero_point", (ceil_div(out * bits, 32), groups), "int32", scale=True, along=along)
            )
        if order:
            found.append(Part(".weight_g_idx", (inner,), "int32", scale=True, along="in"))
        return tuple(found)

    name = f"ct-int{bits}-g{group_size}" if group_size > 0 else f"ct-int{bits}-channel"
    return Format(name, bits, max(group_size, 0), parts)


# ---- 8-bit integers ----


def int8(
    *, scale: str = "channel", scale_dtype: str = "", symmetric: bool = True, static: bool = False, group_size: int = 0
) -> Format:
    """weight int8 [out, in], a scale for a row (`channel`), a `group` or the `tensor`."""

    def parts(out: int, inner: int, dtype: str) -> tuple[Part, ...]:
        along = "out" if scale == "channel" else ""
        shape = {"channel": (out, 1), "group": (out, ceil_div(inner, group_size or inner)), "tensor": (1,)}[scale]
        found = [
            Part(".weight", (out, inner), "int8"),
            Part(".weight_scale", shape, scale_dtype or dtype, scale=True, along=along),
        ]
        if not symmetric:
            found.append(Part(".weight_zero_point", shape, "int8", scale=True, along=along))
        if static:
            found.append(Part(".input_scale", (1,), scale_dtype or dtype, scale=True))
            found.append(Part(".input_zero_point", (1,), "int8", scale=True))
        return tuple(found)

    return Format("w8a8-int8" if scale == "channel" else f"w8a8-int8-{scale}", 8, group_size, parts)


# ---- bitsandbytes ----


def bnb_4bit(kind: str = "nf4", *, double: bool = True, block: int = 64) -> Format:
    """Two weights to a byte, one absmax for 64: float32, or 8 bit with a float32 for 256 of these where it is quantised too.

    The tables of the code are the same everywhere; `quant_state` (a short JSON text) is left out, since its length depends on values.
    """

    def parts(out: int, inner: int, _dtype: str) -> tuple[Part, ...]:
        blocks = ceil_div(out * inner, block)
        found = [
            Part(".weight", (ceil_div(out * inner, 2), 1), "uint8"),
            Part(".weight.absmax", (blocks,), "uint8" if double else "float32", scale=True),
            Part(".weight.quant_map", (16,), "float32", scale=True, counted=False),
        ]
        if double:
            found.append(Part(".weight.nested_absmax", (ceil_div(blocks, 256),), "float32", scale=True))
            found.append(Part(".weight.nested_quant_map", (256,), "float32", scale=True, counted=False))
        return tuple(found)

    return Format(f"bnb-{kind}", 4, block, parts)


def bnb_int8() -> Format:
    """weight int8 [out, in], one float32 a row (SCB), a byte that names the layout."""

    def parts(out: int, inner: int, _dtype: str) -> tuple[Part, ...]:
        return (
            Part(".weight", (out, inner), "int8"),
            Part(".SCB", (out,), "float32", scale=True, along="out"),
            Part(".weight_format", (), "uint8", counted=False),
        )

    return Format("bnb-int8", 8, 0, parts)
