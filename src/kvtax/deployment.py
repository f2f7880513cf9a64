"""The question: one thing to size, typed and checked, whoever wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvtax.errors import InputError
from kvtax.units import MIB, parse_bytes, parse_tokens

ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "transformers")


class Deployment(NamedTuple):
    """What to size (contract of names: the fields, their CLI flags in dashes, their TOML keys). None: not asked, the engine's default.

    Args:
        model: alias, hub id, path of a config.json or a model directory, or a parsed config.
        dtype: of weights that are not quantised and of activations; None: the checkpoint's.
        quantization: the checkpoint's own unless given.
        weights_bytes: weights of one GPU where known from headers or a log [bytes].
        gpu: canonical id or alias.
        gpu_count: cards at hand; None: tensor x pipeline x data parallel size [cards].
        vram: memory of the card, instead of its catalogue size [bytes].
        free_memory: what the engine sees free when it starts to load [bytes].
        engine: vllm | sglang | tensorrt-llm | llama.cpp | transformers.
        engine_version: None: the newest known.
        tensor_parallel_size: [ranks].
        pipeline_parallel_size: [ranks].
        data_parallel_size: [ranks].
        expert_parallel: experts whole on ranks instead of split.
        decode_context_parallel_size: ranks that share the tokens of one sequence [ranks].
        block_size: tokens of a KV block [tokens].
        max_num_seqs: requests that run at once [requests].
        max_num_batched_tokens: tokens of one step [tokens].
        enforce_eager: no CUDA graphs.
        enable_prefix_caching: keep blocks of finished requests for reuse.
        gpu_memory_utilization: share of the card that the engine may take [0-1].
        kv_cache_memory_bytes: a fixed pool; the profile is skipped [bytes].
        kv_cache_dtype: of keys and values; None or `auto`: the model's.
        async_scheduling: schedule a step while one runs.
        disable_hybrid_kv_cache_manager: window layers allocate like full ones.
        mamba_ssm_cache_dtype: of recurrent state.
        max_model_len: longest request; None: the config's limit [tokens].
        concurrency: requests that must fit at max_model_len [requests].
    """

    model: str | Mapping[str, Any] = ""
    dtype: str | None = None
    quantization: str | None = None
    weights_bytes: int | None = None
    gpu: str | None = None
    gpu_count: int | None = None
    vram: int | None = None
    free_memory: int | None = None
    engine: str = "vllm"
    engine_version: str | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    expert_parallel: bool = False
    decode_context_parallel_size: int = 1
    block_size: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool = False
    enable_prefix_caching: bool | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    kv_cache_dtype: str | None = None
    async_scheduling: bool | None = None
    disable_hybrid_kv_cache_manager: bool = False
    mamba_ssm_cache_dtype: str | None = None
    max_model_len: int | None = None
    concurrency: int | None = None


# Fields of the contract that no engine of this release answers; said plainly instead of ignored.
NOT_YET = (
    "speculative", "lora", "cpu_offload", "limit_mm_per_prompt", "swa_full_tokens_ratio", "mamba_full_memory_ratio",
    "n_ctx", "n_parallel", "n_batch", "n_ubatch", "n_outputs_max", "kv_unified", "cache_type_k", "cache_type_v",
    "n_gpu_layers", "flash_attn", "n_cpu_moe", "tensor_split",
)  # fmt: skip
# The engines' own short forms and other spellings of a field.
SPELLINGS = {
    "tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size", "ep": "expert_parallel",
    "enable_expert_parallel": "expert_parallel", "dcp": "decode_context_parallel_size", "context": "max_model_len",
    "seq": "max_model_len", "batch": "concurrency", "tokens_per_block": "block_size", "page_size": "block_size",
    "max_running_requests": "max_num_seqs", "max_batch_size": "max_num_seqs", "max_num_tokens": "max_num_batched_tokens",
    "chunked_prefill_size": "max_num_batched_tokens", "disable_cuda_graph": "enforce_eager",
    "mem_fraction_static": "gpu_memory_utilization", "kv_cache_free_gpu_memory_fraction": "gpu_memory_utilization",
}  # fmt: skip

_MEMORY = ("vram", "free_memory", "kv_cache_memory_bytes", "weights_bytes")
_TOKENS = ("max_model_len", "max_num_batched_tokens", "block_size")
_COUNTS = {
    "gpu_count": 65_536, "tensor_parallel_size": 4096, "pipeline_parallel_size": 4096, "data_parallel_size": 65_536,
    "decode_context_parallel_size": 4096, "max_num_seqs": 10**7, "concurrency": 10**9,
}  # fmt: skip
_FLAGS = (
    "expert_parallel",
    "enforce_eager",
    "enable_prefix_caching",
    "async_scheduling",
    "disable_hybrid_kv_cache_manager",
)
_STRINGS = ("dtype", "quantization", "gpu", "engine", "engine_version", "kv_cache_dtype", "mamba_ssm_cache_dtype")


def make_deployment(fields: Mapping[str, Any]) -> Deployment:
    """A Deployment from words: numbers parsed, spellings resolved, every value in range.

    Args:
        fields: names of `Deployment`, or the engines' own spellings of them; None is as good as left out.

    Returns:
        The deployment.

    Raises:
        InputError: an unknown field, or a value that cannot be.
    """
    values: dict[str, Any] = {}
    for key, value in fields.items():
        if value is None:
            continue
        name = SPELLINGS.get(key, key)
        if name in NOT_YET:
            raise InputError(f"{name} is not answered by this release", code="not-supported-yet", where=name)
        if name not in Deployment._fields:
            raise InputError(
                f"{key[:64]!r} is not a field of a deployment",
                code="unknown-field",
                hint="fields: " + ", ".join(Deployment._fields),
            )
        if name in values:
            raise InputError(f"{name} is given twice", code="field-given-twice", where=name)
        values[name] = _checked(name, value)
    if not values.get("model"):
        raise InputError("no model is given", code="no-model", hint="name one: --model llama-3-8b")
    engine = values.get("engine", "vllm")
    if engine not in ENGINES:
        raise InputError(
            f"engine {engine[:64]!r} is not known", code="unknown-engine", hint="known: " + ", ".join(ENGINES)
        )
    return Deployment(**values)


def _checked(name: str, value: Any) -> Any:
    if name == "model":
        if not isinstance(value, (str, Mapping)):
            raise InputError("must be a name, a path or a parsed config", code="invalid-input", where=name)
        return value
    if name in _MEMORY:
        return _memory(name, parse_bytes(_number_or_text(name, value), name))
    if name in _TOKENS:
        return parse_tokens(_number_or_text(name, value), name)
    if name in _COUNTS:
        number = _number_or_text(name, value)
        count = parse_tokens(number, name) if isinstance(number, str) else number
        if not 1 <= count <= _COUNTS[name]:
            raise InputError(f"must be between 1 and {_COUNTS[name]}, not {count}", code="invalid-quantity", where=name)
        return count
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise InputError(f"must be true or false, not {value!r:.64}", code="invalid-input", where=name)
        return value
    if name == "gpu_memory_utilization":
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
            raise InputError(f"must be above 0 and at most 1, not {value!r:.64}", code="invalid-quantity", where=name)
        return float(value)
    if name == "engine_version" and isinstance(value, str):
        return value.strip()  # any string: what has no number in it is the newest, with a notice
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"must be a word, not {value!r:.64}", code="invalid-input", where=name)
    return value.strip()


def _memory(name: str, size: int) -> int:
    """A size of memory that can be: a card of 48 bytes is a card of 48 GiB whose unit was forgotten."""
    least = {"vram": MIB, "weights_bytes": 1}.get(name, 0)
    if size < least:
        raise InputError(
            f"must be at least {least:,} bytes, not {size:,}",
            code="invalid-quantity",
            hint="a number alone counts bytes: write 48GiB, 48GB or 80000MiB",
            where=name,
        )
    return size


def _number_or_text(name: str, value: Any) -> int | str:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InputError(f"must be a number, not {value!r:.64}", code="invalid-quantity", where=name)
    return value
