"""Reading the methods that few checkpoints use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvtax.architectures.config import describe
from kvtax.architectures.quantization import formats, rare_formats
from kvtax.architectures.quantization.formats import Format
from kvtax.architectures.quantization.scheme import USUAL, Rule, Scheme
from kvtax.architectures.quantization.section import Section

_SKIPPED = ("modules_to_not_convert", "skip_modules", "linear_weights_not_to_quantize", "exclude")
_HEAD = ("lm_head",)
_INT8 = ("int8_weight_only", "int8_dynamic_activation_int8_weight", "int8weightonly", "int8dynamicactivationint8weight")
_INT4_IN_BYTES = ("int8_dynamic_activation_int4_weight", "int8dynamicactivationint4weight")
_FP8 = ("float8_weight_only", "float8weightonly")
_FP8_DYNAMIC = (
    "float8_dynamic_activation_float8_weight", "float8dynamicactivationfloat8weight", "float8_dynamic_activation",
)  # fmt: skip


def _scheme(section: Section, default: Format | None, *rules: Rule, untouched: tuple[str, ...] = _HEAD) -> Scheme:
    return Scheme(
        section.method, default, [Rule(section.modules(*_SKIPPED), None), *rules], untouched=untouched,
        kv_cache_dtype=section.kv_cache_dtype, hidden_size=section.hidden_size,
    )  # fmt: skip


def _quanto(section: Section) -> Scheme:
    """Source: optimum-quanto tensor (weights, packed, grouped)."""
    kind = section.config.string("weights", default="int8")
    if kind not in ("int8", "float8", "int4", "int2"):
        section.unsupported("weights", f"{describe(kind)} is not known")
    return _scheme(section, rare_formats.quanto(kind))


def _hqq_format(section: Section) -> Format:
    numbers = section.inner("weight_quant_params") or section
    bits = numbers.bits("nbits", (1, 2, 3, 4, 8), default=4)
    return rare_formats.hqq(bits, numbers.config.integer("group_size", default=64))


def _hqq(section: Section) -> Scheme:
    """One setting for all, or one for each kind of module. Source: hqq core/quantize.py, core/bitpack.py."""
    chosen = section.inner("quant_config") or section
    if "weight_quant_params" in chosen.values or "nbits" in chosen.values:
        return _scheme(section, _hqq_format(chosen))
    found: list[tuple[str, Format | None]] = []
    for name in chosen.values:
        own = chosen.inner(name)
        if own is not None:
            found.append((name, _hqq_format(own)))
    return _scheme(section, None, *section.rules("quant_config", found))


def _eetq(section: Section) -> Scheme:
    """Source: transformers 5.24.0 integrations/eetq.py."""
    return _scheme(section, rare_formats.eetq())


def _aqlm(section: Section) -> Scheme:
    """Source: aqlm inference.QuantizedLinear."""
    config = section.config
    default = rare_formats.aqlm(
        config.integer("num_codebooks", default=1, maximum=64),
        config.integer("nbits_per_codebook", default=16, maximum=16),
        config.integer("in_group_size", default=8, maximum=4096),
        config.integer("out_group_size", default=1, maximum=4096),
    )
    return _scheme(section, default)


def _vptq(section: Section) -> Scheme:
    """A setting for each module, or for all modules of a name. Source: vptq layers/vqlinear.py."""
    by_format: dict[tuple[Any, ...], tuple[Format, list[str]]] = {}
    for key in ("config_for_layers", "shared_layer_config"):
        layers = section.inner(key)
        if layers is None:
            continue
        for name in layers.values:
            own = layers.inner(name)
            if own is None:
                continue
            numbers = _vptq_numbers(own)
            by_format.setdefault(numbers, (rare_formats.vptq(*numbers), []))[1].append(name)
    if not by_format:
        section.config.fail("config_for_layers", "is missing")
    rules = [Rule(section.named("config_for_layers", names), chosen) for chosen, names in by_format.values()]
    return _scheme(section, None, *rules)


def _vptq_numbers(own: Section) -> tuple[Any, ...]:
    config = own.config
    pairs = []
    for key in ("vector_lens", "num_centroids", "num_res_centroids"):
        pair = config.integers(key, length=2, minimum=-1)
        if pair is None:
            config.fail(key, "is missing")
        pairs.append(pair)
    vectors, centroids, residual = pairs
    if vectors[1] < 1 or centroids[1] < 1:
        config.fail("vector_lens", "and num_centroids must be from 1 on")
    group_size = config.integer("group_size")
    outlier = (vectors[0], centroids[0], config.integer("outlier_size", default=0, minimum=0))
    if vectors[0] <= 1 or centroids[0] <= 0:
        outlier = (0, 0, 0)
    return (
        vectors[1], centroids[1], max(residual[1], 0), config.integer("group_num", default=1), group_size, outlier,
        config.boolean("enable_norm", default=True), config.boolean("enable_perm", default=True),
    )  # fmt: skip


def _bitnet(section: Section) -> Scheme | None:
    """Packed unless the file has master weights. Source: transformers 5.24.0 integrations/bitnet.py."""
    config = section.config
    online = config.string("linear_class", default="bitlinear") == "autobitlinear"
    if online and config.string("quantization_mode", default="offline") == "online":
        return None
    return _scheme(section, rare_formats.bitnet())


def _higgs(section: Section) -> Scheme:
    """Source: transformers 5.24.0 integrations/higgs.py."""
    bits = section.bits("bits", (2, 3, 4), default=4)
    return _scheme(section, rare_formats.higgs(bits, section.config.integer("group_size", default=256)))


def _fp_quant(section: Section) -> Scheme | None:
    """Source: fp_quant module/linear.py."""
    config = section.config
    kind = config.string("forward_dtype", default="nvfp4")
    if kind not in ("mxfp4", "nvfp4"):
        section.unsupported("forward_dtype", f"{describe(kind)} is not known")
    if config.boolean("store_master_weights") or config.boolean("pseudoquantization"):
        return None
    hadamard = config.integer("hadamard_group_size", default=32 if kind == "mxfp4" else 16, maximum=4096)
    return _scheme(section, rare_formats.fp_quant(kind, hadamard))


def _torchao(section: Section) -> Scheme:
    """The quantised tensors that torchao's configs make; a config of its own for some modules. Source: torchao quantization/quant_api.py."""
    stated = section.values.get("quant_type")
    if isinstance(stated, Mapping) and isinstance(stated.get("default"), Mapping):
        stated = stated["default"]
    if isinstance(stated, Mapping) and "module_fqn_to_config" in _data(stated):
        chosen = _data(stated)["module_fqn_to_config"]
        if not isinstance(chosen, Mapping):
            section.config.fail("quant_type", f"must be an object, not {describe(chosen)}")
        default: Format | None = None
        found: list[tuple[str, Format | None]] = []
        for name, value in chosen.items():
            own = None if value is None else _torchao_format(section, value)
            if name == "_default":
                default = own
            else:
                found.append((name, own))
        return _scheme(section, default, *section.rules("quant_type", found))
    return _scheme(section, _torchao_format(section, stated))


def _data(value: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = value.get("_data")
    return inner if isinstance(inner, Mapping) else value


def _torchao_format(section: Section, value: Any) -> Format:
    numbers: Mapping[str, Any] = {}
    if isinstance(value, Mapping):
        numbers, value = _data(value), value.get("_type")
    else:
        kwargs = section.values.get("quant_type_kwargs")
        numbers = kwargs if isinstance(kwargs, Mapping) else {}
    name = value.lower().removesuffix("config") if isinstance(value, str) else ""
    own = section.below("quant_type", numbers)
    if name in ("int4_weight_only", "int4weightonly"):
        return rare_formats.torchao_int4(own.config.integer("group_size", default=128))
    if name in _INT8:
        return rare_formats.torchao_int8()
    if name in _INT4_IN_BYTES:
        return rare_formats.torchao_int8(own.config.integer("group_size", default=32))
    rows = "perrow" in str(numbers.get("granularity"))[:400].lower()
    if name not in _FP8 + _FP8_DYNAMIC:
        section.unsupported("quant_type", f"{describe(value)} is not known")
    return rare_formats.torchao_fp8(rows or name in _FP8)


def _quark(section: Section) -> Scheme:
    """One setting for all layers, others for some by name, and a list of what is left. Source: vllm 0.33.0 quantization/quark."""
    overall = section.inner("global_quant_config")
    default = None if overall is None else _quark_format(overall)
    found: list[tuple[str, Format | None]] = []
    layers = section.inner("layer_quant_config")
    if layers is not None:
        for name in layers.values:
            own = layers.inner(name)
            if own is not None and own.values.get("weight") is not None:
                found.append((name, _quark_format(own)))
    return _scheme(section, default, *section.rules("layer_quant_config", found), untouched=tuple(USUAL))


def _quark_format(section: Section) -> Format | None:
    weight, inputs = section.values.get("weight"), section.values.get("input_tensors")
    second = isinstance(weight, list) and len(weight) == 2
    if isinstance(weight, list):
        weight = weight[0] if weight else None
    if isinstance(inputs, list):
        inputs = inputs[0] if inputs else None
    if weight is None:
        return None
    if not isinstance(weight, Mapping):
        section.config.fail("weight", f"must be an object, not {describe(weight)}")
    own = section.below("weight", weight)
    kind, scheme = own.config.string("dtype"), own.config.string("qscheme", default="per_tensor")
    static = isinstance(inputs, Mapping) and not inputs.get("is_dynamic")
    group = own.config.optional_integer("group_size") or 32
    if kind == "fp8_e4m3" and scheme == "per_tensor" and not second:
        return formats.fp8_tensor(static=static, shape=())
    if kind == "fp8_e4m3" and scheme == "per_channel":
        return formats.fp8_channel(scale_dtype="float32", static=static, dims=1)
    if kind == "fp4" and scheme == "per_group":
        if second and group == 16:
            return formats.nvfp4(static=True)
        return formats.mxfp4(group, weight="weight")
    if kind == "int8" and scheme in ("per_tensor", "per_channel"):
        return formats.int8(scale=scheme.removeprefix("per_"), scale_dtype="float32", static=static)
    if kind not in ("int4", "uint4") or scheme != "per_group":
        section.unsupported("weight", f"dtype {describe(kind)} with qscheme {describe(scheme)} is not known")
    return formats.awq(4, group)


READERS: dict[str, Callable[[Section], Scheme | None]] = {
    "quanto": _quanto,
    "hqq": _hqq,
    "eetq": _eetq,
    "aqlm": _aqlm,
    "vptq": _vptq,
    "bitnet": _bitnet,
    "higgs": _higgs,
    "fp_quant": _fp_quant,
    "torchao": _torchao,
    "quark": _quark,
}
