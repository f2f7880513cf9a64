"""What quantised checkpoints store: counted totals, real tensor lists, an engine's own sums, and every format on a small model."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvtax
from kvtax.architectures.quantization import named_quantization
from kvtax.architectures.quantization.patterns import Pattern, PatternError, glob
from kvtax.architectures.registry import read_architecture
from kvtax.dtypes import find_dtype
from kvtax.errors import ConfigError, KvtaxError, UnknownNameError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults

DATA = Path(__file__).parents[1] / "data"
ROWS = [json.loads(line) for line in (DATA / "quant_oracle.jsonl").read_text().splitlines()]
CHECKPOINTS = sorted(path.name for path in (DATA / "checkpoints").glob("*--*.json") if "variant" not in path.name)

# where the count is not that of the oracle: the difference [bytes], and why the oracle is wrong
INDEXER = "the indexer's weights_proj stays in 16 bit (GLM-5-FP8 lists it as indexers_proj): a weight more byte each, a scale less"
FP4 = "expert_dtype fp4: experts are packed in 4 bit, and scales are 8-bit exponents; the oracle takes all for fp8"
SPELLING = "the oracle misses the excluded modules, which are spelled with another prefix"
DIFFERENCES = {
    "deepseek-ai/DeepSeek-V3.2-Exp": (61 * (64 * 7168 - 4 * 56), INDEXER),
    "deepseek-ai/DeepSeek-V3.2": (61 * (64 * 7168 - 4 * 56), INDEXER),
    "zai-org/GLM-5-FP8": (78 * (32 * 6144 - 4 * 48), INDEXER),
    "zai-org/GLM-5.2-FP8": (21 * (32 * 6144 - 4 * 48), INDEXER),
    "zai-org/GLM-5.3-FP8": (21 * (32 * 6144 - 4 * 48), INDEXER),
    "deepseek-ai/DeepSeek-V4-Flash": (-129544231506, FP4),
    "deepseek-ai/DeepSeek-V4-Flash-0731": (-129544231506, FP4),
    "deepseek-ai/DeepSeek-V4-Pro": (-724759766586, FP4),
    "moonshotai/Kimi-K2.5": (668886912, "a quantization_config of the text model alone does not touch the vision tower"),
    "nvidia/Kimi-K2.6-NVFP4": (13904288928, SPELLING),
    "nvidia/Kimi-K2.7-Code-NVFP4": (13904288928, SPELLING),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": (535642848, SPELLING),
    "Qwen/Qwen3-30B-A3B-GPTQ-Int4": (
        48 * 128 * 2048 * 4, "gate_proj and up_proj of an expert have a g_idx each; the oracle counts them as one layer",
    ),
    "stepfun-ai/Step-3.7-Flash-FP8": (2 * 663552, "parameters differ by 663552 in the tower, quantised or not"),
}  # fmt: skip


def read(config, **more):
    return read_architecture({**config, **more}, class_defaults)


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_weight_bytes(row):
    found = kvtax.architecture(row["id"])
    if "expected_weight_bytes" not in row:  # nobody counted it: that it can be read is all there is to check
        assert found.weight_bytes() > 0
        return
    difference, _ = DIFFERENCES.get(row["id"], (0, ""))
    assert found.weight_bytes() - row["expected_weight_bytes"] == difference
    kinds = {"fp8-tensor": "fp8", "awq": "awq-int4", "gptq": "gptq-int4", "int8-channel": "w8a8-int8"}
    if row["group_size"] != 32 and row["format"] != "int4-group" and "V4" not in row["id"]:
        assert found.quantization.name == kinds.get(row["format"], row["format"])
    wanted = row["kv_cache_quant"] and "fp8_e4m3"
    assert found.quantization.kv_cache_dtype == wanted


def test_fp4_experts_as_published():
    # DeepSeek-V4-Pro: 786,381,668,352 packed I8 elements, 49,150,268,416 E8M0 scales, 864.7 GB of files; V4-Flash: 159.6 GB
    found = kvtax.architecture("deepseek-ai/DeepSeek-V4-Pro")
    elements = {}
    for stored in found.stored_tensors():
        elements[stored.dtype] = elements.get(stored.dtype, 0) + stored.elements
    assert (elements["int8"], elements["fp8_e8m0"]) == (786_381_668_352, 49_150_268_416)
    assert round(found.checkpoint_bytes / 1e8) == 8647
    assert round(kvtax.architecture("deepseek-ai/DeepSeek-V4-Flash").checkpoint_bytes / 1e8) == 1596


def test_published_elements():
    for name, published in (
        ("Qwen/Qwen3-8B-FP8", 8191159296),
        ("RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", 108659340800),
        ("mistralai/Devstral-Small-2-24B-Instruct-2512", 24011361840),
        ("zai-org/GLM-5-FP8", 753910024032),
        ("MiniMaxAI/MiniMax-M2.5", 228703644928),
        ("deepseek-ai/DeepSeek-V3", 684531386000),
        ("deepseek-ai/DeepSeek-V3.2-Exp", 685396921376),
    ):
        assert kvtax.architecture(name).checkpoint_parameters == published, name


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_tensors_of_real_files(name):
    real = json.loads((DATA / "checkpoints" / name).read_text())
    found = read(real["config"])
    ours, theirs = {}, {}
    for stored in found.stored_tensors():
        if stored.source.stored:
            key = (stored.name, stored.shape, find_dtype(stored.dtype).safetensors)
            ours[key] = ours.get(key, 0) + stored.copies
    for tensor in real["tensors"]:
        key = (tensor["name"], tuple(tensor["shape"]), tensor["dtype"])
        theirs[key] = theirs.get(key, 0) + tensor["count"]
    assert ours == theirs
    assert (found.checkpoint_parameters, found.checkpoint_bytes) == (real["parameters"], real["bytes"])


# ---- sums that vllm 0.33 registers for Llama-3-8B (engine-cases) ----

LLAMA_3_8B = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip


def group(bits, kind, strategy, inputs=None, **weights):
    numbers = {"num_bits": bits, "type": kind, "strategy": strategy, **weights}
    return {"targets": ["Linear"], "weights": numbers, "input_activations": inputs}


def compressed(form, one, **more):
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"g": one},
        "ignore": ["lm_head"],
        **more,
    }


W8A8 = compressed("int-quantized", group(8, "int", "channel", {"dynamic": True}))
NVFP4 = compressed("nvfp4-pack-quantized", group(4, "float", "tensor_group", {"dynamic": "local"}, group_size=16))
G_IDX = 32 * 4 * (6 * 4096 + 14336)  # what the file has and the engine does not load
# q, k, v and attention scales that the engine makes up: 4 bfloat16 a layer, or 3 bfloat16 and 3 float32
PLACEHOLDERS, OTHER_PLACEHOLDERS = 32 * 4 * 2, 32 * 3 * (2 + 4)
CHANNEL_SCALES = 32 * (3 * 4096 + 2 * 1024 + 2 * 14336)  # float32 in the engine, bfloat16 in the file


@pytest.mark.parametrize(
    ("quantization", "case", "difference"),
    [
        ({"quant_method": "gptq", "bits": 8, "group_size": 128, "desc_act": False}, "gptq-int8-g128", G_IDX),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "awq-int4-g128", 0),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8-tensor", -PLACEHOLDERS),
        (W8A8, "ct-w8a8-int8", -2 * CHANNEL_SCALES - OTHER_PLACEHOLDERS),
        (NVFP4, "ct-nvfp4", -OTHER_PLACEHOLDERS),
    ],
)
def test_engine_sums(quantization, case, difference):
    runs = json.loads((DATA / "engine-cases" / "cases.json").read_text())["engine_runs"]
    engine = next(run["weight_param_bytes_before_repack"] for run in runs if run["model"] == f"llama-3-8b+{case}")
    assert read(LLAMA_3_8B, quantization_config=quantization).weight_bytes() - engine == difference


# ---- each format on a small model ----

TINY = {
    "model_type": "llama", "num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
DOWN = "model.layers.*.mlp.down_proj"  # [64, 160]


def parts(quantization, module=DOWN, config=TINY, **more):
    found = read(config, quantization_config=quantization, **more).stored_tensors()
    return {s.name.removeprefix(module): (s.shape, s.dtype) for s in found if s.name.startswith(module)}


F32, U8, I32, I8, F8, BF = "float32", "uint8", "int32", "int8", "fp8_e4m3", "bfloat16"


@pytest.mark.parametrize(
    ("quantization", "wanted"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 32]}, {".weight": ((64, 160), F8), ".weight_scale_inv": ((1, 5), F32)}),
        (
            {"quant_method": "fp8", "weight_block_size": None, "activation_scheme": "static"},
            {".weight": ((64, 160), F8), ".weight_scale_inv": ((), F32), ".activation_scale": ((), F32)},
        ),
        ({"quant_method": "fp8"}, {".weight": ((64, 160), F8), ".weight_scale": ((1,), F32)}),
        ({"quant_method": "fbgemm_fp8"}, {".weight": ((64, 160), F8), ".weight_scale": ((64, 1), BF)}),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 32},
            {".qweight": ((160, 8), I32), ".qzeros": ((5, 8), I32), ".scales": ((5, 64), BF)},
        ),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemv"},
            {".qweight": ((64, 20), I32), ".qzeros": ((64, 4), I32), ".scales": ((64, 32), BF)},
        ),
        (
            {"quant_method": "gptq", "bits": 3, "group_size": -1},
            {".qweight": ((15, 64), I32), ".qzeros": ((1, 6), I32), ".scales": ((1, 64), BF), ".g_idx": ((160,), I32)},
        ),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "marlin"},
            {".B": ((10, 128), I32), ".s": ((2, 64), BF)},
        ),
        (
            {"quant_method": "auto-round", "bits": 2, "group_size": 64, "packing_format": "auto_round:auto_gptq"},
            {".qweight": ((10, 64), I32), ".qzeros": ((3, 4), I32), ".scales": ((3, 64), BF), ".g_idx": ((160,), I32)},
        ),
        (
            {"quant_method": "auto-round", "bits": 4, "group_size": 32, "packing_format": "auto_round:auto_awq"},
            {".qweight": ((160, 8), I32), ".qzeros": ((5, 8), I32), ".scales": ((5, 64), BF)},
        ),
        (
            compressed("pack-quantized", group(4, "int", "group", group_size=32, symmetric=False, actorder="group")),
            {
                ".weight_packed": ((64, 20), I32), ".weight_scale": ((64, 5), BF), ".weight_shape": ((2,), "int64"),
                ".weight_zero_point": ((8, 5), I32), ".weight_g_idx": ((160,), I32),
            },
        ),
        (W8A8, {".weight": ((64, 160), I8), ".weight_scale": ((64, 1), BF)}),
        (
            compressed("float-quantized", group(8, "float", "block", block_structure=[128, 128])),
            {".weight": ((64, 160), F8), ".weight_scale": ((1, 2), BF)},
        ),
        (
            NVFP4,
            {
                ".weight_packed": ((64, 80), U8), ".weight_scale": ((64, 10), F8), ".weight_global_scale": ((1,), F32),
                ".input_global_scale": ((1,), F32),
            },
        ),
        (
            compressed("mxfp4-pack-quantized", group(4, "float", "group", group_size=32)),
            {".weight_packed": ((64, 80), U8), ".weight_scale": ((64, 5), U8)},
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4"},
            {".weight": ((64, 80), U8), ".weight_scale": ((64, 10), F8), ".weight_scale_2": ((), F32), ".input_scale": ((), F32)},
        ),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, {".weight": ((64, 160), F8), ".weight_scale": ((64, 5), U8)}),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
            {
                ".weight": ((5120, 1), U8), ".weight.absmax": ((160,), U8), ".weight.quant_map": ((16,), F32),
                ".weight.nested_absmax": ((1,), F32), ".weight.nested_quant_map": ((256,), F32),
            },
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_8bit": True},
            {".weight": ((64, 160), I8), ".SCB": ((64,), F32), ".weight_format": ((), U8)},
        ),
        ({"quant_method": "bitnet"}, {".weight": ((16, 160), U8), ".weight_scale": ((1,), BF)}),
        ({"quant_method": "eetq"}, {".weight": ((160, 64), I8), ".weight_scales": ((64,), "float16")}),
        (
            {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}},
            {".W_q": ((80, 64), U8), ".scale": ((160, 1), BF), ".zero": ((160, 1), BF)},
        ),
        (
            {"quant_method": "aqlm", "num_codebooks": 1, "nbits_per_codebook": 16, "in_group_size": 8, "out_group_size": 1},
            {".codes": ((64, 20, 1), "int16"), ".codebooks": ((1, 65536, 1, 8), BF), ".scales": ((64, 1, 1, 1), BF)},
        ),
        (
            {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}}},
            {".weight": ((64, 80), U8), ".weight_scale": ((64, 5), U8)},
        ),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, {".weight_qdata": ((64, 160), I8), ".weight_scale": ((64, 1), BF)}),
    ],
    ids=lambda value: value.get("quant_method", "") if isinstance(value, dict) else "",
)  # fmt: skip
def test_what_a_format_stores(quantization, wanted):
    assert parts(quantization) == wanted


def test_half_precision_stays():
    found = read(TINY, torch_dtype="float16", quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 32})
    dtypes = {stored.dtype for stored in found.stored_tensors()}
    assert dtypes == {"float16", "int32"}
    assert found.parameters == read(TINY).parameters


# ---- which modules ----


def kept(entries, key="modules_to_not_convert", method="fp8", config=TINY, **more):
    """Layers that keep each projection in 16 bit."""
    found = read(config, quantization_config={"quant_method": method, key: entries, **more}).stored_tensors()
    plain = {}
    for stored in found:
        if (
            stored.source.linear
            and stored.dtype == "bfloat16"
            and not stored.scale
            and stored.name == stored.source.name
        ):
            plain[stored.name.removesuffix(".weight").rpartition(".")[2]] = stored.source.layers
    plain.pop("lm_head", None)
    return plain


ALL = (0, 1, 2)


@pytest.mark.parametrize(
    ("entries", "wanted"),
    [
        (["model.layers.1.mlp.down_proj"], {"down_proj": (1,)}),
        (["layers.1.mlp.down_proj", "language_model.model.layers.2.mlp.down_proj.weight"], {"down_proj": (1, 2)}),
        (["down_proj"], {"down_proj": ALL}),
        (["down"], {}),
        (["mlp.down_proj", "model.layers.7.self_attn"], {"down_proj": ALL}),
        (["model.layers.0.mlp*"], {"gate_proj": (0,), "up_proj": (0,), "down_proj": (0,)}),
        (["*.mlp.gate"], {}),
        (["*.mlp.gate*"], {"gate_proj": ALL}),
        (["model.layers.*.self_attn.o_proj"], {"o_proj": ALL}),
        (["re:.*layers\\.[02]\\.mlp\\.(gate|up)_proj"], {"gate_proj": (0, 2), "up_proj": (0, 2)}),
        (["re:model\\.layers\\.1\\.self_attn\\.o.*"], {"o_proj": (1,)}),
        (["re:layers\\.1\\.self_attn\\.o.*"], {"o_proj": (1,)}),
        (["re:^(?!.*(mlp|[qkv]_proj)).*"], {"o_proj": ALL}),
        (["model.layers.1.self_attn.qkv_proj"], {"q_proj": (1,), "k_proj": (1,), "v_proj": (1,)}),
        ([], {}),
    ],
)
def test_lists(entries, wanted):
    assert kept(entries) == wanted


def test_fused_modules_in_the_file():
    tiny = {**TINY, "model_type": "phi3", "pad_token_id": 0}
    assert kept(["model.layers.1.self_attn.q_proj"], config=tiny) == {"qkv_proj": (1,)}


MOE = {
    "model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "num_experts": 4, "num_experts_per_tok": 2,
    "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip


def test_single_experts():
    layers = {f"model.layers.0.mlp.experts.{index}.down_proj": {"quant_algo": "FP8"} for index in range(4)}
    layers |= {f"model.layers.1.mlp.experts.{index}.down_proj": {"quant_algo": "NVFP4"} for index in (0, 3)}
    config = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    found = read(MOE, quantization_config=config)
    counts = {
        (s.dtype, s.source.layers): s.copies
        for s in found.stored_tensors()
        if s.name.endswith("experts.*.down_proj.weight")
    }
    assert counts == {("fp8_e4m3", (0,)): 4, ("uint8", (1,)): 2, ("bfloat16", (1,)): 2}
    assert found.quantization.name == "nvfp4-mixed"
    assert found.parameters == read(MOE).parameters


def test_gates_stay_in_the_experts_names():
    found = read(MOE, quantization_config={"quant_method": "fp8", "modules_to_not_convert": ["gate"]})
    stored = {s.name: s.dtype for s in found.stored_tensors()}
    assert stored["model.layers.*.mlp.gate.weight"] == "bfloat16"
    assert stored["model.layers.*.mlp.experts.*.gate_proj.weight"] == "fp8_e4m3"


def test_dynamic_gptq():
    dynamic = {"-:.*self_attn.*": {}, "+:.*layers\\.1\\..*down.*": {"bits": 8, "group_size": 32}}
    found = parts(
        {"quant_method": "gptq", "bits": 4, "group_size": 64, "dynamic": dynamic}, "model.layers.*.self_attn.q"
    )
    assert found == {"_proj.weight": ((64, 64), BF)}
    stored = read(TINY, quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 64, "dynamic": dynamic})
    words = {s.source.layers: s.shape for s in stored.stored_tensors() if s.name == f"{DOWN}.qweight"}
    assert words == {(1,): (40, 64), (0, 2): (20, 64)}


def test_heads_that_are_quantised():
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 64}
    assert ".weight" in parts(gptq, "lm_head")
    assert ".qweight" in parts({**gptq, "lm_head": True}, "lm_head")
    modelopt = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {"lm_head": {"quant_algo": "FP8"}},
    }
    assert parts(modelopt, "lm_head")[".weight"] == ((100, 64), F8)


def test_stacked_experts():
    gpt_oss = {
        "model_type": "gpt_oss", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "num_local_experts": 4, "num_experts_per_tok": 2,
    }  # fmt: skip
    experts = "model.layers.*.mlp.experts."
    assert parts({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}, experts, gpt_oss) == {
        "gate_up_proj_blocks": ((4, 192, 2, 16), U8), "gate_up_proj_scales": ((4, 192, 2), U8),
        "gate_up_proj_bias": ((4, 192), BF), "down_proj_blocks": ((4, 64, 3, 16), U8),
        "down_proj_scales": ((4, 64, 3), U8), "down_proj_bias": ((4, 64), BF),
    }  # fmt: skip
    found = parts(W8A8, experts, gpt_oss)
    assert found["*.gate_proj.weight"] == ((96, 64), I8)
    assert found["*.down_proj.weight_scale"] == ((64, 1), BF)


def test_other_places():
    config = {"quant_method": "fp8"}
    assert read(TINY, compression_config=W8A8).quantization.name == "w8a8-int8"
    assert read(TINY, quantization_config={}).quantization is None
    assert read(TINY, quantization_config=None).quantization is None
    beside = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    found = read_architecture(TINY, class_defaults, extra_quantization=beside).quantization
    assert (found.name, found.method, found.bits, found.kv_cache_dtype) == ("fp8", "modelopt", 8, "fp8_e4m3")
    found = read_architecture(
        {**TINY, "quantization_config": config}, class_defaults, extra_quantization=beside
    ).quantization
    assert (found.method, found.kv_cache_dtype) == ("fp8", "fp8_e4m3")
    scheme = {"type": "float", "num_bits": 8}
    assert read(TINY, quantization_config={**W8A8, "kv_cache_scheme": scheme}).quantization.kv_cache_dtype == "fp8_e4m3"


# ---- what is refused ----


@pytest.mark.parametrize(
    ("quantization", "error"),
    [
        ({"quant_method": "spqr"}, UnsupportedArchitectureError),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4_SVDQ"}, UnsupportedArchitectureError),
        (compressed("marlin-24", group(4, "int", "group", group_size=128)), UnsupportedArchitectureError),
        ({"bits": 4, "group_size": 64}, UnsupportedArchitectureError),
        ({"quant_method": 3}, ConfigError),
        ({"activation_scheme": "static"}, ConfigError),
        ([], ConfigError),
        ({"quant_method": "awq", "bits": 5}, ConfigError),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, ConfigError),
        ({"quant_method": "fp8", "weight_block_size": [128]}, ConfigError),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, ConfigError),
        ({"quant_method": "fp8", "modules_to_not_convert": {"a": 1}}, ConfigError),
        ({"quant_method": "fp8", "modules_to_not_convert": [3]}, ConfigError),
        ({"quant_method": "fp8", "modules_to_not_convert": ["re:(a"]}, ConfigError),
        ({"quant_method": "fp8", "modules_to_not_convert": ["re:" + "(a{100}){100}" * 9]}, ConfigError),
        ({"quant_method": "fp8", "modules_to_not_convert": ["re:\\1"]}, ConfigError),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "INT3"}, ConfigError),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, ConfigError),
    ],
)
def test_refused(quantization, error):
    with pytest.raises(error) as found:
        read(TINY, quantization_config=quantization)
    assert error is ConfigError or found.value.code == "unsupported-architecture"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | st.sampled_from(["fp8", "Linear", "re:.*", "4", "group", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["weights", "targets", "num_bits", "a"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
KEYS = [
    "bits", "group_size", "weight_block_size", "modules_to_not_convert", "ignore", "config_groups", "format", "quant_algo",
    "quantized_layers", "kv_cache_scheme", "dynamic", "extra_config", "quant_config", "config_for_layers", "quant_type",
    "global_quant_config", "layer_quant_config", "load_in_4bit", "quantization", "weights", "nbits_per_codebook",
]  # fmt: skip
METHODS = [
    "fp8", "fbgemm_fp8", "awq", "gptq", "auto-round", "compressed-tensors", "mxfp4", "modelopt", "bitsandbytes", "quanto",
    "hqq", "eetq", "aqlm", "vptq", "bitnet", "higgs", "fp_quant", "torchao", "quark",
]  # fmt: skip


@given(st.sampled_from(METHODS), st.dictionaries(st.sampled_from(KEYS), json_values, max_size=5))
@settings(max_examples=300, deadline=None)
def test_any_json_is_read_or_refused(method, values):
    try:
        found = read(TINY, quantization_config={**values, "quant_method": method})
        assert found.weight_bytes() > 0
    except KvtaxError:
        pass


# ---- patterns ----

PIECES = [
    "a", "b", r"\.", ".", "x1", r"\d", r"\w+", "[ab]", "[^a]", "[0-9]+", ".*", ".+", "(a|b)", "(?:ab|x)*", "a?", "b{2}", "b{1,}", "^", "$",
    "layers", "(gate|up|down)_proj", "(a|bc?)+", ".*?", "(?!.*mlp)",
]  # fmt: skip
NAMES = ["model.layers.12.mlp.gate_proj", "model.layers.0.self_attn.q_proj", "lm_head", "aab.b", "", "x1y2.abx"]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=7), st.sampled_from(NAMES))
@settings(max_examples=500, deadline=None)
def test_patterns_match_as_re_does(pieces, name):
    text = "".join(pieces)
    try:
        found = Pattern(text).match(name)
    except PatternError:
        return
    assert found is (re.match(text, name) is not None)


@pytest.mark.parametrize(
    ("text", "name"), [("(?i)[a-z]+", "QKV"), ("(?i)[A-Z]+", "qkv"), ("(?i)[^a-z]", "Q"), ("[a-z]", "Q")]
)
def test_ranges_with_and_without_case(text, name):
    assert Pattern(text).match(name) is (re.match(text, name) is not None)


@pytest.mark.parametrize("text", ["[z-a]", r"[+-\d]"])
def test_ranges_without_an_end_are_refused(text):
    with pytest.raises(PatternError, match="range"):
        Pattern(text)


def test_patterns_that_explode_elsewhere():
    assert not Pattern("(a*)*b").match("a" * 5000)
    assert not Pattern("(a|a|aa)+$").match("a" * 5000 + "b")
    assert glob("*.ffn.shared_experts.*").match("layers.0.ffn.shared_experts.w1")
    assert not glob("*.mlp.gate").match("model.layers.0.mlp.gate_proj")


# ---- by name ----


@pytest.mark.parametrize(
    ("name", "bits", "group_size", "wanted"),
    [
        ("fp8", 8, 0, {".weight": ((64, 160), F8), ".weight_scale": ((1,), F32)}),
        ("fp8-block", 8, 128, {".weight": ((64, 160), F8), ".weight_scale_inv": ((1, 2), F32)}),
        ("w8a8-int8", 8, 0, {".weight": ((64, 160), I8), ".weight_scale": ((64, 1), BF)}),
        ("awq-int4", 4, 128, {".qweight": ((160, 8), I32), ".qzeros": ((2, 8), I32), ".scales": ((2, 64), BF)}),
        (
            "gptq-int8", 8, 128,
            {".qweight": ((40, 64), I32), ".qzeros": ((2, 16), I32), ".scales": ((2, 64), BF), ".g_idx": ((160,), I32)},
        ),
        (
            "ct-int4-g32", 4, 32,
            {".weight_packed": ((64, 20), I32), ".weight_scale": ((64, 5), BF), ".weight_shape": ((2,), "int64")},
        ),
        ("mxfp4", 4, 32, {".weight_packed": ((64, 80), U8), ".weight_scale": ((64, 5), U8)}),
    ],
)  # fmt: skip
def test_by_name(name, bits, group_size, wanted):
    found = named_quantization(name)
    assert (found.name, found.bits, found.group_size, found.kv_cache_dtype) == (name, bits, group_size, None)
    assert found.method in ("fp8", "compressed-tensors", "awq", "gptq", "modelopt", "mxfp4", "bitsandbytes")
    stored = read(TINY).replace(quantization=found).stored_tensors()
    assert {s.name.removeprefix(DOWN): (s.shape, s.dtype) for s in stored if s.name.startswith(DOWN)} == wanted
    assert all(s.dtype == BF for s in stored if s.source.component in ("lm_head", "embedding", "norms"))


def test_names_with_groups():
    assert named_quantization("awq-int4-g32").name == "awq-int4-g32"
    assert named_quantization("AWQ_int4-g128").name == "awq-int4"
    assert named_quantization("nvfp4-g32").group_size == 32
    assert {named_quantization(name).name for name in ("bnb-nf4", "bnb-int8", "gptq-int4", "nvfp4")} == {
        "bnb-nf4",
        "bnb-int8",
        "gptq-int4",
        "nvfp4",
    }


@pytest.mark.parametrize(
    "name", ["int5", "q4_k_m", "Q8_0", "fp8-g32", "awq-int4-g0", "awq-int4-g99999999999", "", "x" * 9999, "\x1b[31m"]
)
def test_unknown_names(name):
    with pytest.raises(UnknownNameError) as found:
        named_quantization(name)
    assert found.value.code == "unknown-quantization"
    assert "awq-int4" in found.value.hint
    assert ("llama.cpp" in str(found.value)) is (name.lower() in ("q4_k_m", "q8_0"))
    assert len(str(found.value)) < 300
    assert str(found.value).isprintable()


def test_recipes_leave_what_their_models_need() -> None:
    """By kind of model, as public recipes do: components that stay in 16 bit."""

    def plain(model: str, name: str) -> set[str]:
        found = kvtax.architecture(model)
        stored = found.replace(quantization=named_quantization(name, found)).stored_tensors()
        return {
            s.source.component for s in stored if s.source.linear and s.source.loaded and s.dtype == BF and not s.scale
        }

    usual = {"lm_head", "vision"}
    assert plain("Qwen/Qwen3-30B-A3B", "nvfp4") == {"lm_head"}
    assert plain("Qwen/Qwen3.5-35B-A3B", "nvfp4") >= {*usual, "linear_or_ssm"}
    assert "attention" not in plain("Qwen/Qwen3.5-35B-A3B", "nvfp4")
    assert plain("Qwen/Qwen3.5-35B-A3B", "gptq-int4") >= {*usual, "linear_or_ssm", "attention", "shared_experts"}
    assert "attention" in plain("Qwen/Qwen3.5-27B", "gptq-int4")
    assert "attention" not in plain("Qwen/Qwen3.5-27B", "awq-int4")
    assert "attention" in plain("deepseek-ai/DeepSeek-V3", "nvfp4")
    assert "attention" not in plain("deepseek-ai/DeepSeek-V3", "awq-int4")


def test_group_sizes_by_family() -> None:
    gemma, llama = kvtax.architecture("google/gemma-3-27b-it"), kvtax.architecture("llama-3.1-8b")
    assert named_quantization("awq-int4", gemma).group_size == 32
    assert named_quantization("awq-int4-g128", gemma).group_size == 128
    assert named_quantization("awq-int4", llama).group_size == 128


def test_dense_delta_rule_models_are_half_in_fp8() -> None:
    found = kvtax.architecture("Qwen/Qwen3.5-27B")
    stored = found.replace(quantization=named_quantization("nvfp4", found)).stored_tensors()
    dtypes = {s.source.component: s.dtype for s in stored if s.source.linear and not s.scale and s.source.loaded}
    assert (dtypes["attention"], dtypes["mlp"], dtypes["lm_head"]) == (F8, U8, BF)


def test_a_public_start_of_a_dense_model_in_gptq() -> None:
    """Qwen3.5-27B-GPTQ-Int4 on vLLM prints 27.51 GiB."""
    budget = kvtax.budget(model="Qwen/Qwen3.5-27B", quantization="gptq-int4", gpu="rtx-5090", max_model_len=4096)
    assert round(budget.to_dict()["per_gpu"]["model_load_bytes"] / 2**30, 2) == 27.51
