"""Every entry of an engine's table of rules changes an answer: without it, some deployment at its version comes out otherwise."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest

from kvtax.budgets import Budget
from kvtax.deployment import make_deployment
from kvtax.engines.base import Rule
from kvtax.engines.registry import PLANS, plan_class
from kvtax.errors import KvtaxError
from kvtax.prepared import Prepared
from kvtax.sources.models import find_model, read_config

H100, H200, L4, R9700 = "h100-sxm", "h200-sxm", "l4", "r9700"


def _qwen_with_16_bit_state() -> dict[str, Any]:
    """A config that declares what its recurrent state is kept in."""
    config: dict[str, Any] = json.loads(json.dumps(read_config(find_model("Qwen/Qwen3.5-9B"))))
    config.get("text_config", config)["mamba_ssm_dtype"] = "bfloat16"
    return config


DEPLOYMENTS: dict[str, list[dict[str, Any]]] = {
    "vllm": [
        {"model": "llama-3.1-8b", "gpu": H100, "max_model_len": 8192},
        {"model": "qwen3-30b-a3b", "gpu": L4, "tensor_parallel_size": 4},
        {"model": "qwen3-next-80b", "gpu": H200, "tensor_parallel_size": 2},
        {"model": "gemma-3-27b", "gpu": H100, "max_model_len": 32768},
        {"model": "gpt-oss-20b", "gpu": H100},
        {"model": "deepseek-v3", "gpu": H200, "tensor_parallel_size": 8},
        {"model": "deepseek-v3", "gpu": H200, "tensor_parallel_size": 8, "pipeline_parallel_size": 2},
        {"model": "deepseek-v3.2", "gpu": H200, "tensor_parallel_size": 8},
        {"model": "llama-3.1-8b", "gpu": "a100-80gb-sxm", "quantization": "fp8", "max_model_len": 131072},
        {"model": "llama-3.1-8b", "gpu": "b200"},
        {"model": "llama-3.1-8b", "gpu": R9700},
        {"model": "microsoft/Phi-3-mini-128k-instruct", "gpu": H100},
        {"model": "Qwen/Qwen3-VL-30B-A3B-Instruct", "gpu": H100},
        {"model": "llama-3-8b", "vram": "14GiB", "quantization": "fp8-online", "max_model_len": 512},
        {"model": "llama-3-8b", "gpu": L4, "lora": "4:64"},
        {"model": "qwen3-30b-a3b", "gpu": H100, "lora": "4:64"},
        {"model": "llama-3-8b", "gpu": L4, "max_model_len": 131072},
        {"model": "llama-3-8b", "gpu": L4, "kv_cache_dtype": "int8_per_token_head"},
        {"model": "llama-3-8b", "gpu": "b200", "kv_cache_dtype": "nvfp4"},
        {"model": "llama-3-8b", "gpu": H100, "kv_cache_dtype": "turboquant_4bit_nc"},
        {"model": "deepseek-v3.2", "gpu": H200, "tensor_parallel_size": 8, "kv_cache_dtype": "fp8"},
        {"model": "deepseek-v3", "gpu": H200, "tensor_parallel_size": 8, "decode_context_parallel_size": 8},
        {"model": "llama-3.1-70b", "gpu": H100, "tensor_parallel_size": 16, "decode_context_parallel_size": 2},
        {"model": "llama-3-8b", "gpu": H100, "prefill_context_parallel_size": 2},
        {"model": "deepseek-v3", "gpu": H200, "tensor_parallel_size": 8, "speculative": "mtp:1"},
        {"model": "llama-3-8b", "gpu": L4, "gpu_memory_utilization": 0.7},
        {
            "model": "Qwen/Qwen3-VL-30B-A3B-Instruct",
            "gpu": H100,
            "mm_encoder_tp_mode": "data",
            "tensor_parallel_size": 2,
        },
        {"model": "gpt-oss-20b", "gpu": H100, "max_num_seqs": 4, "cuda_graph_max_bs": 1024},
        {"model": "qwen3-30b-a3b", "gpu": H100, "max_num_batched_tokens": 32768, "max_num_seqs": 8},
        {
            "model": "Qwen/Qwen2-VL-7B-Instruct",
            "gpu": H100,
            "max_num_seqs": 4,
            "limit_mm_per_prompt": "image=0,video=1",
            "max_model_len": 131072,
        },
        {"model": "deepseek-ai/DeepSeek-V2-Lite", "gpu": "a100-40gb-sxm", "max_num_seqs": 8},
        {
            "model": "deepseek-v3.2",
            "gpu": H200,
            "tensor_parallel_size": 8,
            "max_num_seqs": 8,
            "max_num_batched_tokens": 1024,
        },
    ],
    "sglang": [
        *(
            {"model": model, "gpu": gpu, "tensor_parallel_size": tp, "engine": "sglang"} | more
            for model, gpu, tp, more in (
                ("llama-3.1-8b", H100, 1, {}),
                ("llama-3.1-8b", L4, 1, {}),
                ("llama-3.1-70b", H100, 4, {}),
                ("llama-3.1-8b", "b200", 1, {}),
                ("gpt-oss-20b", H100, 1, {}),
                ("gemma-3-27b", H100, 1, {}),
                ("gemma-4-31b", H100, 2, {}),
                ("llama-4-scout", H200, 4, {}),
                ("deepseek-v3", H200, 8, {}),
                ("deepseek-v3.2", H200, 8, {}),
                ("deepseek-v3.2", "b200", 8, {}),
                ("deepseek-v3.2", "mi300x", 8, {}),
                ("deepseek-v3.2", "rtx-pro-6000", 8, {}),
                ("deepseek-v3", H200, 8, {"enable_dp_attention": True, "data_parallel_size": 8}),
                ("qwen3-next-80b", H200, 2, {}),
                ("qwen3-next-80b", H200, 2, {"speculative": "mtp:2"}),
                ("qwen3-next-80b", H200, 2, {"enable_prefix_caching": False}),
                ("deepseek-v3", H200, 8, {"speculative": "mtp:1"}),
                ("llama-3.1-8b", H100, 1, {"speculative": "eagle3:3"}),
                ("llama-3.1-8b", H100, 1, {"lora": "4:64"}),
                ("Qwen/Qwen2-VL-7B-Instruct", H100, 1, {}),
                ("llama-3.1-8b", "gb300", 1, {}),
                ("llama-3.1-8b", "mi300x", 1, {}),
                ("llama-3.1-8b", H100, 1, {"max_num_batched_tokens": 32768}),
                ("deepseek-ai/DeepSeek-V4-Flash", H200, 4, {}),
                ("llama-3.1-8b", "a100-40gb-sxm", 1, {}),
                ("llama-3.1-8b", "dgx-spark", 1, {}),
                ("mimo-v2-flash", H200, 8, {}),
                ("llama-3.1-8b", H100, 1, {"max_num_seqs": 8}),
                ("gpt-oss-20b", H100, 1, {"enable_prefix_caching": False, "max_num_seqs": 16}),
                ("gpt-oss-20b", L4, 1, {"swa_full_tokens_ratio": 0.0005}),
                (_qwen_with_16_bit_state(), H100, 1, {}),
            )
        ),
    ],
    "llama.cpp": [
        *(
            {"model": model, "gpu": gpu, "engine": "llama.cpp"} | more
            for model, gpu, more in (
                ("llama-3.1-8b", "rtx-4090", {"n_ctx": 8192}),
                ("qwen3-30b-a3b", "rtx-4090", {"quantization": "q4_k_m", "n_ctx": 8192}),
                ("gemma-3-4b", "rtx-4090", {"n_ctx": 65536}),
                ("deepseek-v2-lite", "rtx-4090", {"n_ctx": 8192}),
                ("phi-3-mini-4k", "rtx-4090", {"quantization": "q4_k_m"}),
                ("microsoft/Phi-3-mini-4k-instruct", "rtx-4090", {"quantization": "q4_k_m"}),
                ("qwen3.5-27b", "rtx-5090", {"quantization": "q4_k_s", "n_ctx": 8192}),
                ("llama-3.1-8b", "rtx-4090", {"cache_type_k": "q8_0", "cache_type_v": "q8_0", "n_ctx": 8192}),
                ("llama-3.1-8b", "rtx-4090", {}),
                ("llama-3.1-8b", "rtx-4090", {"n_parallel": 4, "n_ctx": 8192}),
                ("gemma-3-27b", "rtx-5090", {"quantization": "q4_k_m", "cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
                ("qwen3-next-80b", "h100-sxm", {"quantization": "q4_k_m", "n_ctx": 8192}),
                ("deepseek-v3.2", "b200", {"quantization": "q2_k", "n_ctx": 8192}),
                ("llama-3.1-70b", "rtx-4090", {"quantization": "q4_k_m", "n_gpu_layers": "auto"}),
                ("llama-3.1-8b", "rtx-3060-12gb", {"fit": True}),
            )
        ),
    ],
    "tensorrt-llm": [
        *(
            {"model": model, "gpu": gpu, "engine": "tensorrt-llm"} | more
            for model, gpu, more in (
                ("llama-3.1-8b", H100, {"max_model_len": 8192}),
                ("gpt-oss-20b", H100, {"max_model_len": 32768}),
                ("gemma-3-27b", H100, {"max_model_len": 32768}),
                ("deepseek-v3", H200, {"tensor_parallel_size": 8}),
                ("deepseek-v3.2", H200, {"tensor_parallel_size": 8}),
                ("qwen3-next-80b", H200, {"tensor_parallel_size": 2}),
                ("llama-3.1-8b", H100, {"max_attention_window": "4096,8192"}),
                ("llama-2-7b", "a10", {}),
                ("mistral-7b", H100, {}),
                ("deepseek-ai/DeepSeek-V4-Flash", H200, {"tensor_parallel_size": 4}),
            )
        ),
    ],
}


def _without(engine: str, monkeypatch: pytest.MonkeyPatch, entry: Rule | None) -> None:
    kept = tuple(rule for rule in plan_class(engine).RULES if rule is not entry)
    monkeypatch.setattr(import_module(MODULES[engine]), "RULES", kept)


MODULES = {
    "vllm": "kvtax.engines.vllm.rules",
    "sglang": "kvtax.engines.sglang.rules",
    "llama.cpp": "kvtax.engines.llama_cpp.rules",
    "tensorrt-llm": "kvtax.engines.tensorrt_llm.rules",
}
ENTRIES = [(engine, rule) for engine in MODULES for rule in plan_class(engine).RULES if any(rule.since)]


def _answers(fields: dict[str, Any], version: str) -> str:
    try:
        budget = Budget(
            Prepared(make_deployment(fields | {"engine_version": version}), (), ()), fields.get("max_model_len"), None
        )
    except KvtaxError as error:
        return str(error)
    seen = budget.to_dict()
    return json.dumps([seen, budget.longest_context(), list(budget.prints)], default=str, sort_keys=True)


@pytest.mark.parametrize(
    ("engine", "entry"), ENTRIES, ids=lambda part: part if isinstance(part, str) else f"{part.name}-{part.since}"
)
def test_without_a_rule_some_answer_changes(engine: str, entry: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    version = ".".join(map(str, entry.since))
    for fields in DEPLOYMENTS[engine]:
        _without(engine, monkeypatch, None)
        with_it = _answers(fields, version)
        _without(engine, monkeypatch, entry)
        if _answers(fields, version) != with_it:
            return
    pytest.fail(f"{entry} changes no answer: it has no golden deployment, or no effect")


@pytest.mark.parametrize("engine", PLANS)
def test_every_rule_has_a_source_and_comes_in_order(engine: str) -> None:
    last: dict[str, tuple[int, ...]] = {}
    for entry in plan_class(engine).RULES:
        assert entry.source
        assert last.get(entry.name, (-1,)) < entry.since
        last[entry.name] = entry.since
