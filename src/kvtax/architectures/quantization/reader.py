"""Reading quantization_config: from a config, or from the file that ModelOpt puts beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from kvtax.architectures.config import Config, describe
from kvtax.architectures.quantization import KEYS, LEVELS, formats, rare
from kvtax.architectures.quantization.compressed import read_compressed
from kvtax.architectures.quantization.formats import Format
from kvtax.architectures.quantization.modelopt import layer_rules, read_modelopt
from kvtax.architectures.quantization.scheme import USUAL, Rule, Scheme
from kvtax.architectures.quantization.section import Section, hidden_size, open_section
from kvtax.architectures.quantization.stored import Quantization
from kvtax.errors import ConfigError, UnsupportedArchitectureError

_SKIPPED = ("modules_to_not_convert", "ignored_layers", "exclude_modules")
_DECODER_ONLY = USUAL | {"mtp"}
_KV_NAMES = {
    "fp8": "fp8_e4m3", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2", "float8_e4m3fn": "fp8_e4m3",
    "nvfp4": "nvfp4", "int8": "int8",
}  # fmt: skip


def read_quantization(config: Config, extra: Mapping[str, Any] | None = None) -> Quantization | None:
    """What the quantization_config of a model says, None where the weights are as the dtype says.

    Args:
        config: the whole config, or its text level.
        extra: content of hf_quant_config.json, for what the config itself does not say.

    Returns:
        How the checkpoint stores its weights.

    Raises:
        ConfigError: a value is impossible.
        UnsupportedArchitectureError: a quant_method, or a format of one, that is not known.
    """
    found = _find(config)
    if found is None:
        if not extra:
            return None
        if not isinstance(extra, Mapping):
            raise ConfigError(f"must be an object, not {describe(extra)}", where="hf_quant_config.json")
        found = open_section(extra, "hf_quant_config.json: ", "modelopt", hidden_size(config))
    section = found
    section.kv_cache_dtype = _kv_cache_dtype(section, extra)
    for level in (config.values, config.values.get("text_config")):
        # DeepSeek V4 says beside its quantization_config that experts are in another format
        beside = level.get("expert_dtype") if isinstance(level, Mapping) else None
        if beside is not None and section.values.get("expert_dtype") is None:
            section.config = section.config.retyped(expert_dtype=beside)
            section.values = section.config.values
    reader = _READERS.get(section.method)
    if reader is None:
        raise UnsupportedArchitectureError(
            f"quant_method {describe(section.method)} is not known",
            where=section.config.where("quant_method"),
            hint="known: " + ", ".join(sorted(_READERS)),
        )
    scheme = reader(section)
    return scheme if scheme is not None and scheme.name else None


def _find(config: Config) -> Section | None:
    """The section of the outer level, else of a nested text model."""
    levels: list[tuple[str, Any]] = [(config.path, config.values)]
    levels += [(f"{config.path}{key}.", config.values.get(key)) for key in LEVELS]
    for path, level in levels:
        if not isinstance(level, Mapping):
            continue
        for key in KEYS:
            value = level.get(key)
            if value is None or value == {}:
                continue
            if not isinstance(value, Mapping):
                raise ConfigError(f"must be an object, not {describe(value)}", where=f"config.json: {path}{key}")
            section = open_section(value, f"{path}{key}.", "", hidden_size(config))
            section.method = _method(section)
            return section
    return None


def _method(section: Section) -> str:
    """quant_method, or what its absence leaves to read: ModelOpt's quant_algo, bitsandbytes' flags, compression groups."""
    method = section.values.get("quant_method")
    if isinstance(method, str) and method:
        return _ALIASES.get(method.lower(), method.lower())
    if method is not None:
        section.config.fail("quant_method", f"must be a string, not {describe(method)}")
    if section.values.get("quant_algo") is not None or isinstance(section.values.get("quantization"), Mapping):
        return "modelopt"
    if section.values.get("load_in_4bit") or section.values.get("load_in_8bit"):
        return "bitsandbytes"
    if section.values.get("config_groups") is not None or section.values.get("sparsity_config") is not None:
        return "compressed-tensors"
    return _no_method(section)


def _no_method(section: Section) -> NoReturn:
    if {"bits", "group_size"} <= set(section.values) <= {"bits", "group_size", "mode"}:
        section.unsupported("bits", "MLX weights are not for these engines")
    section.config.fail("quant_method", "is missing")


def _kv_cache_dtype(section: Section, extra: Mapping[str, Any] | None) -> str | None:
    """The cache format that the checkpoint declares: kv_cache_scheme, or ModelOpt's kv_cache_quant_algo in either file."""
    places: list[Any] = [section.values, section.values.get("quantization")]
    if isinstance(extra, Mapping):
        places += [extra, extra.get("quantization")]
    for place in places:
        if not isinstance(place, Mapping):
            continue
        for key in ("kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_dtype"):
            value = place.get(key)
            if value is None:
                continue
            if isinstance(value, Mapping):
                kind, bits = value.get("type", "int"), value.get("num_bits", 8)
                value = {"float 8": "fp8", "int 8": "int8", "float 4": "nvfp4"}.get(f"{str(kind)[:8]} {str(bits)[:8]}")
            name = value.lower() if isinstance(value, str) else ""
            # AutoFP8 writes here how scales were found, which the engine does not take for a format
            if name in ("auto", "none", "null", "bfloat16", "float16", "static", "dynamic"):
                continue
            if name not in _KV_NAMES:
                section.config.fail(key, f"{describe(place[key])} is not a cache format that is known")
            return _KV_NAMES[name]
    return None


def _scheme(section: Section, default: Format | None, rules: list[Rule], **how: Any) -> Scheme:
    return Scheme(
        section.method, default, rules, kv_cache_dtype=section.kv_cache_dtype, hidden_size=section.hidden_size, **how
    )


# ---- the usual methods ----


def _fp8(section: Section) -> Scheme | None:
    """Block, per-tensor or (fbgemm) per-channel fp8; experts in fp4 or modules that ModelOpt made over go first.

    Source: transformers 5.24.0 integrations/finegrained_fp8.py and fbgemm_fp8.py; deepseek-ai/DeepSeek-V3 (names, shapes).
    """
    config = section.config
    rules = layer_rules(section)
    skipped = section.modules(*_SKIPPED)
    rules.append(Rule(skipped, None))
    block = config.integers("weight_block_size", length=2, minimum=1)
    expert_dtype = config.string("expert_dtype")
    if expert_dtype == "fp4":
        # with fp4 experts every scale is an 8-bit exponent, under the name `scale`
        experts = formats.mxfp4(weight="weight", scale="scale", dtypes=("int8", "fp8_e8m0"))
        rules.append(Rule(section.named("expert_dtype", ("*.experts.*",)), experts))
    elif expert_dtype not in ("", "fp8"):
        section.unsupported("expert_dtype", f"{describe(expert_dtype)} is not known")
    static = config.string("activation_scheme", default="dynamic") == "static"
    if block is not None and block[0] == 1 and config.string("scale_fmt") == "ue8m0":
        default = formats.mxfp8(block[1], scale="weight_scale_inv")
    elif block is not None:
        name, dtype = ("scale", "fp8_e8m0") if expert_dtype == "fp4" else ("weight_scale_inv", "float32")
        default = formats.fp8_block(block[0], block[1], scale=name, scale_dtype=dtype)
    elif section.method == "mxfp8":
        default = formats.mxfp8(scale="weight_scale_inv")
    elif config.mentions("ignored_layers") or not config.mentions("weight_block_size"):
        default = formats.fp8_tensor(static=static)
    else:
        default = formats.fp8_tensor(static=static, scale="weight_scale_inv", input_scale="activation_scale", shape=())
    return _scheme(section, default, rules)


def _fbgemm(section: Section) -> Scheme | None:
    """fp8 with one scale a row."""
    return _scheme(section, formats.fp8_channel(), [Rule(section.modules(*_SKIPPED), None)])


def _awq(section: Section) -> Scheme | None:
    """AutoAWQ and its kin. Source: autoawq modules/linear; hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4."""
    key = "bits" if section.config.mentions("bits") else "w_bit"
    bits = section.bits(key, (2, 3, 4, 8), default=4)
    size = section.group_size("group_size" if section.config.mentions("group_size") else "q_group_size")
    version = section.config.string("version", default="gemm").lower()
    if version not in ("gemm", "gemv", "marlin", "exllama", "ipex", "gemv_fast", "llm-awq"):
        section.unsupported("version", f"{describe(version)} is not known")
    default = formats.awq(bits, size, version="gemv" if version in ("gemv", "gemv_fast", "llm-awq") else "gemm")
    return _scheme(section, default, [Rule(section.modules(*_SKIPPED), None)], untouched=_DECODER_ONLY)


def _gptq(section: Section) -> Scheme | None:
    """GPTQ, with GPTQModel's `dynamic` (pattern -> other numbers, `-:` pattern -> left alone) and blocks that are named.

    Source: auto-gptq and gptqmodel qlinear; vllm 0.33.0 quantization/utils/gptq_utils.py.
    """
    config = section.config
    bits = section.bits("bits", (2, 3, 4, 8), default=4)
    size = section.group_size()
    kind = config.string("checkpoint_format") or config.string("format")
    marlin = kind == "marlin" or config.boolean("is_marlin_format") or section.method == "marlin"
    if kind not in ("", "gptq", "gptq_v2", "marlin", "gptqmodel"):
        section.unsupported("checkpoint_format", f"{describe(kind)} is not known")
    rules = [Rule(section.modules(*_SKIPPED), None)]
    dynamic = section.inner("dynamic")
    if dynamic is not None:
        rules += section.rules("dynamic", _dynamic(dynamic, bits, size, marlin))
    default = formats.gptq(bits, size, marlin=marlin)
    untouched = _DECODER_ONLY - {"lm_head"} if config.boolean("lm_head") else _DECODER_ONLY
    ordered = config.boolean("desc_act") and size > 0
    inside = config.optional_list("modules_in_block_to_quantize")
    if inside:
        named = [name for group in inside for name in (group if isinstance(group, list) else [group])]
        rules.append(Rule(section.named("modules_in_block_to_quantize", named), default))
        return _scheme(section, None, rules, untouched=untouched, activation_order=ordered)
    return _scheme(section, default, rules, untouched=untouched, activation_order=ordered)


def _dynamic(dynamic: Section, bits: int, size: int, marlin: bool) -> Iterator[tuple[str, Format | None]]:
    for pattern, changes in dynamic.values.items():
        name = "re:" + str(pattern).removeprefix("+:").removeprefix("-:")
        if str(pattern).startswith("-:") or changes is False or changes is None:
            yield name, None
            continue
        if not isinstance(changes, Mapping):
            dynamic.config.fail(str(pattern)[:64], f"must be an object, not {describe(changes)}")
        own = dynamic.below(str(pattern)[:64], changes)
        yield name, formats.gptq(own.bits("bits", (2, 3, 4, 8), bits), own.group_size(default=size), marlin=marlin)


def _auto_round(section: Section) -> Scheme | None:
    """AutoRound: GPTQ's or AWQ's packing, with other bits for some modules (`extra_config`; 16 leaves them alone)."""
    config = section.config
    bits = section.bits("bits", (2, 3, 4, 8), default=4)
    size = section.group_size()
    packing = config.string("packing_format", default="auto_round:auto_gptq").lower()
    kind = config.string("data_type", default="int").lower()

    def format_for(own_bits: int, own_size: int) -> Format:
        if kind.startswith("nv_fp"):
            return formats.nvfp4(style="compressed-tensors")
        if kind.startswith("mx_fp"):
            return formats.mxfp4() if own_bits == 4 else formats.mxfp8()
        if kind != "int":
            section.unsupported("data_type", f"{describe(kind)} is not known")
        if "awq" in packing:
            return formats.awq(own_bits, own_size)
        return formats.gptq(own_bits, own_size)

    rules = [Rule(section.modules(*_SKIPPED), None)]
    changed = section.inner("extra_config")
    if changed is not None:
        found: list[tuple[str, Format | None]] = []
        for name in changed.values:
            own = changed.inner(name)
            own_bits = bits if own is None else own.bits("bits", (2, 3, 4, 8, 16, 32), bits)
            own_size = size if own is None else own.group_size(default=size)
            found.append((name, None if own_bits >= 16 else format_for(own_bits, own_size)))
        rules += section.rules("extra_config", found)
    blocks = config.get("block_name_to_quantize") or config.get("to_quant_block_names")
    default = format_for(bits, size)
    if isinstance(blocks, str) and blocks:
        blocks = blocks.split(",")
    if isinstance(blocks, list) and blocks:
        flat = [name for group in blocks for name in (group if isinstance(group, list) else [group])]
        rules.append(Rule(section.named("block_name_to_quantize", flat), default))
        return _scheme(section, None, rules, untouched=_DECODER_ONLY)
    return _scheme(section, default, rules, untouched=_DECODER_ONLY)


def _mxfp4(section: Section) -> Scheme | None:
    """gpt-oss: routed experts only. Source: openai/gpt-oss-20b; transformers 5.24.0 integrations/mxfp4.py."""
    rules = [Rule(section.modules(*_SKIPPED), None)]
    return _scheme(section, formats.mxfp4_blocks(), rules, only=("routed_experts",))


def _bitsandbytes(section: Section) -> Scheme | None:
    """All linear layers but the head. Source: bitsandbytes functional.QuantState and nn.modules."""
    config = section.config
    rules = [Rule(section.modules("llm_int8_skip_modules", *_SKIPPED), None)]
    four = config.boolean("load_in_4bit") or config.boolean("_load_in_4bit")
    if not four and not (config.boolean("load_in_8bit") or config.boolean("_load_in_8bit")):
        return None
    if four:
        kind = config.string("bnb_4bit_quant_type", default="fp4")
        if kind not in ("nf4", "fp4"):
            section.unsupported("bnb_4bit_quant_type", f"{describe(kind)} is not known")
        default = formats.bnb_4bit(kind, double=config.boolean("bnb_4bit_use_double_quant"))
    else:
        default = formats.bnb_int8()
    return _scheme(section, default, rules, untouched=("lm_head",))


_ALIASES = {
    "compressed_tensors": "compressed-tensors", "awq_marlin": "awq", "auto_awq": "awq", "gptq_marlin": "gptq",
    "auto_gptq": "gptq", "gptqmodel": "gptq", "auto_round": "auto-round", "intel/auto-round": "auto-round", "inc": "auto-round",
    "modelopt_fp4": "modelopt", "modelopt_fp8": "modelopt", "modelopt_mxfp8": "modelopt", "modelopt_mixed": "modelopt",
    "gpt_oss_mxfp4": "mxfp4", "fbgemm-fp8": "fbgemm_fp8", "fp-quant": "fp_quant", "fpquant": "fp_quant",
}  # fmt: skip
_READERS: dict[str, Callable[[Section], Scheme | None]] = {
    "fp8": _fp8,
    "mxfp8": _fp8,
    "deepseek_v4_fp8": _fp8,
    "fbgemm_fp8": _fbgemm,
    "awq": _awq,
    "gptq": _gptq,
    "marlin": _gptq,
    "auto-round": _auto_round,
    "compressed-tensors": read_compressed,
    "mxfp4": _mxfp4,
    "modelopt": read_modelopt,
    "bitsandbytes": _bitsandbytes,
    **rare.READERS,
}
