"""What the formats that few checkpoints have store in place of a weight [out, in]."""

from __future__ import annotations

from kvtax.architectures.quantization.formats import Format, Part, ceil_div, half


def quanto(kind: str, group_size: int = 128) -> Format:
    """A row scale for 8 bit; for 4 and 2 bit packed groups with a scale and a shift each; scales of input and output."""
    bits = {"int8": 8, "float8": 8, "int4": 4, "int2": 2}[kind]

    def parts(out: int, inner: int, dtype: str) -> tuple[Part, ...]:
        found = [Part(".input_scale", (1,), dtype, scale=True), Part(".output_scale", (1,), dtype, scale=True)]
        if bits == 8:
            found.append(Part(".weight._data", (out, inner), "int8" if kind == "int8" else "fp8_e4m3"))
            found.append(Part(".weight._scale", (out, 1), dtype, scale=True, along="out"))
        else:
            groups = ceil_div(out * inner, group_size)
            found.append(Part(".weight._data", (ceil_div(group_size * bits, 8), groups), "uint8"))
            found.append(Part(".weight._scale", (1, groups), dtype, scale=True))
            found.append(Part(".weight._shift", (1, groups), dtype, scale=True))
        return tuple(found)

    return Format(f"quanto-{kind}", bits, 0 if bits == 8 else group_size, parts)


def hqq(bits: int, group_size: int) -> Format:
    """Groups packed to bytes (3 bit: ten to an int32), a scale and a zero for each."""

    def parts(out: int, inner: int, dtype: str) -> tuple[Part, ...]:
        groups = ceil_div(out * inner, group_size)
        packed = (ceil_div(groups, 10), group_size) if bits == 3 else (ceil_div(groups * bits, 8), group_size)
        return (
            Part(".W_q", packed, "int32" if bits == 3 else "uint8"),
            Part(".scale", (groups, 1), dtype, scale=True),
            Part(".zero", (groups, 1), dtype, scale=True),
        )

    return Format(f"hqq-int{bits}-g{group_size}", bits, group_size, parts)


def eetq() -> Format:
    """weight int8 [in, out], a float16 scale for each column."""

    def parts(out: int, inner: int, _dtype: str) -> tuple[Part, ...]:
        return (
            Part(".weight", (inner, out), "int8"),
            Part(".weight_scales", (out,), "float16", scale=True, along="out"),
        )

    return Format("eetq-int8", 8, 0, parts)


def aqlm(codebooks: int, code_bits: int, in_group: int, out_group: int) -> Format:
    """Codes for groups of weights, codebooks, a scale for each output group."""

    def parts(out: int, inner: int, dtype: str) -> tuple[Part, ...]:
        rows = ceil_div(out, out_group)
        return (
            Part(".codes", (rows, ceil_div(inner, in_group), codebooks), "int8" if code_bits <= 8 else "int16"),
            Part(".codebooks", (codebooks, 2**code_bits, out_group, in_group), half(dtype)),
            Part(".scales", (rows, 1, 1, 1), half(dtype), scale=True),
        )

    bits = max(1, codebooks * code_bits // (in_group * out_group))
    return Format("aqlm", bits, in_group, parts)


def vptq(
    vector: int,
    centroids: int,
    residual: int,
    groups: int,
    group_size: int,
    outliers: tuple[int, int, int],
    norm: bool,
    order: bool,
) -> Format:
    """Indices into centroids for vectors along the output, packed to int32, with residual centroids, outliers, norm and order.

    Args:
        vector: length of a vector [elements].
        centroids: in a codebook.
        residual: centroids of the second codebook, 0 for none.
        groups: codebooks.
        group_size: columns of a codebook [elements].
        outliers: vector length, centroids and columns of the outliers; zeros for none.
        norm: whether the input has a scale and a shift.
        order: whether the columns are in another order.
    """
    index_bits = (centroids.bit_length() - 1) + (residual.bit_length() - 1 if residual else 0)

    def parts(out: int, inner: int, dtype: str) -> tuple[Part, ...]:
        kind = half(dtype)
        shape = (groups, ceil_div(out, vector), ceil_div(group_size * index_bits, 32))
        found = [Part(".indices", shape, "int32"), Part(".centroids.weight", (groups, centroids * vector), kind)]
        if residual:
            found.append(Part(".res_centroids.weight", (groups, residual * vector), kind))
        length, count, columns = outliers
        if length:
            found.append(Part(".outlier_centroids.weight", (1, count * length), kind))
            found.append(Part(".outlier_indices", (1, ceil_div(out, length), columns), "int16"))
        if norm:
            found.append(Part(".weight_scale", (inner,), kind, scale=True, along="in"))
            found.append(Part(".weight_bias", (inner,), kind, scale=True, along="in"))
        if order:
            found.append(Part(".perm", (inner,), "int16", scale=True, along="in"))
        return tuple(found)

    return Format("vptq", max(1, index_bits // vector), 0, parts)


def bitnet() -> Format:
    """Four ternary weights to a byte, one scale for the tensor."""

    def parts(out: int, inner: int, dtype: str) -> tuple[Part, ...]:
        return (
            Part(".weight", (ceil_div(out, 4), inner), "uint8"),
            Part(".weight_scale", (1,), dtype, scale=True),
        )

    return Format("bitnet", 2, 0, parts)


def higgs(bits: int, group_size: int) -> Format:
    """Weights packed to int16, a scale for each group, tables of the code."""

    def parts(out: int, inner: int, dtype: str) -> tuple[Part, ...]:
        return (
            Part(".weight", (ceil_div(out * bits, 16), inner), "int16"),
            Part(".scales", (out, ceil_div(inner, group_size)), dtype, scale=True),
            Part(".tables", (2**bits,), dtype, scale=True, counted=False),
            Part(".tables2", (2**bits, 2**bits, 2), dtype, scale=True, counted=False),
        )

    return Format(f"higgs-int{bits}", bits, group_size, parts)


def fp_quant(kind: str, hadamard: int) -> Format:
    """qweight and scales of MXFP4 or NVFP4 in bytes, and the two rotations, which are the same everywhere."""
    group = 16 if kind == "nvfp4" else 32

    def parts(out: int, inner: int, dtype: str) -> tuple[Part, ...]:
        found = [
            Part(".qweight", (out, ceil_div(inner, 2)), "uint8"),
            Part(".scales", (out, ceil_div(inner, group)), "uint8", scale=True),
            Part(".forward_hadamard_matrix", (hadamard, hadamard), dtype, counted=False),
            Part(".backward_hadamard_matrix", (hadamard, hadamard), dtype, counted=False),
        ]
        if kind == "nvfp4":
            found.append(Part(".weight_global_scale", (1,), "float32", scale=True))
        return tuple(found)

    return Format(kind, 4, group, parts)


def torchao_int4(group_size: int) -> Format:
    """Two weights to a byte, a scale and a zero for each group."""

    def parts(out: int, inner: int, dtype: str) -> tuple[Part, ...]:
        groups = ceil_div(inner, group_size)
        return (
            Part(".weight_qdata", (out, ceil_div(inner, 2)), "uint8"),
            Part(".weight_scale", (groups, out), dtype, scale=True),
            Part(".weight_zero_point", (groups, out), dtype, scale=True),
        )

    return Format(f"torchao-int4-g{group_size}", 4, group_size, parts)


def torchao_int8(group_size: int = 0) -> Format:
    """A byte for each weight, a scale for each row, or a scale and a zero for each group (4-bit values held in bytes)."""

    def parts(out: int, inner: int, dtype: str) -> tuple[Part, ...]:
        found = (Part(".weight_qdata", (out, inner), "int8"),)
        if not group_size:
            return (*found, Part(".weight_scale", (out, 1), dtype, scale=True, along="out"))
        shape = (out, ceil_div(inner, group_size))
        return (
            *found,
            Part(".weight_scale", shape, dtype, scale=True),
            Part(".weight_zero_point", shape, "int8", scale=True),
        )

    return Format("torchao-int8", 8, group_size, parts)


def torchao_fp8(rows: bool) -> Format:
    """fp8 weights with float32 scales for rows or for the tensor."""

    def parts(out: int, inner: int, _dtype: str) -> tuple[Part, ...]:
        shape = (out, 1) if rows else (1, 1)
        scale = Part(".weight_scale", shape, "float32", scale=True, along="out")
        return (Part(".weight_qdata", (out, inner), "fp8_e4m3"), scale)

    return Format("fp8-channel" if rows else "fp8", 8, 0, parts)
