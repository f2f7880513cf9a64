"""The question: one thing to size, typed and checked, whoever wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvtax.errors import InputError
from kvtax.values import (
    Limits,
    Lora,
    Numbers,
    Speculative,
    read_choice,
    read_count,
    read_flag,
    read_limits,
    read_lora,
    read_memory,
    read_numbers,
    read_share,
    read_speculative,
    read_switch,
    read_tokens,
    read_word,
)

ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "ollama", "lm-studio", "transformers", "tgi", "lmdeploy")
_ENGINE_SPELLINGS = {
    "trtllm": "tensorrt-llm", "trt-llm": "tensorrt-llm", "tensorrt_llm": "tensorrt-llm", "tensorrt": "tensorrt-llm",
    "llamacpp": "llama.cpp", "llama-cpp": "llama.cpp", "llama_cpp": "llama.cpp", "llama-server": "llama.cpp", "llama": "llama.cpp",
    "lmstudio": "lm-studio", "lm_studio": "lm-studio", "hf": "transformers", "text-generation-inference": "tgi",
}  # fmt: skip


class Deployment(NamedTuple):
    """What to size (contract of names: the fields, their CLI flags in dashes, their TOML keys). None: not asked, the engine's default.

    A field that the chosen engine has no counterpart for is an error where it is set (engines.registry).

    Args:
        model: alias, hub id, path of a config.json or a model directory, or a parsed config; a Model that was found already.
        dtype: of weights that are not quantised and of activations; None: the checkpoint's.
        quantization: the checkpoint's own unless given.
        weights_bytes: weights of one GPU where known from headers or a log [bytes].
        gpu: canonical id or alias; several cards that work together are joined by `+`.
        gpu_count: cards at hand; None: tensor x pipeline x data parallel size [cards].
        vram: memory of the card, instead of its catalogue size [bytes].
        free_memory: what the engine sees free when it starts to load [bytes].
        engine: one of ENGINES.
        engine_version: None: the newest known.
        max_model_len: longest request; None: the config's limit [tokens].
        concurrency: requests that must fit at max_model_len [requests].
        tensor_parallel_size: [ranks].
        pipeline_parallel_size: [ranks].
        data_parallel_size: [ranks].
        expert_parallel: experts whole on ranks instead of split.
        decode_context_parallel_size: ranks that share the tokens of one sequence [ranks].
        prefill_context_parallel_size: ranks that share a prompt, and the tokens of one sequence [ranks].
        enable_dp_attention: attention in data parallel, the rest in tensor parallel.
        block_size: tokens of a KV block [tokens].
        max_num_seqs: requests that run at once [requests].
        max_num_batched_tokens: tokens of one step [tokens].
        max_total_tokens: most tokens of the pool [tokens].
        max_prefill_tokens: prompt tokens of one step [tokens].
        enable_chunked_prefill: long prompts take several steps.
        enforce_eager: no CUDA graphs.
        cuda_graph_max_bs: largest batch that is captured as a graph [requests].
        disable_piecewise_cuda_graph: no graphs for prefill.
        enable_prefix_caching: keep blocks of finished requests for reuse.
        gpu_memory_utilization: share of the card that the engine may take, as each engine means it [0-1].
        kv_cache_memory_bytes: a fixed pool; the profile is skipped [bytes].
        num_gpu_blocks_override: blocks of the pool, whatever the memory [blocks].
        kv_cache_dtype: of keys and values; None or `auto`: the model's.
        attention_backend: of the engine.
        async_scheduling: schedule a step while one runs.
        disable_hybrid_kv_cache_manager: window layers allocate like full ones.
        mamba_cache_dtype: of convolution state.
        mamba_ssm_cache_dtype: of recurrent state.
        speculative: draft tokens: method and number.
        lora: slots for adapters.
        cpu_offload: weights kept in RAM [bytes].
        kv_offloading_size: KV kept in RAM beside the pool [bytes].
        limit_mm_per_prompt: items of each kind that a prompt may have.
        language_model_only: towers are not loaded.
        skip_mm_profiling: encoders are not profiled.
        mm_encoder_tp_mode: `weights` or `data`.
        runner: `generate` or `pooling`.
        swa_full_tokens_ratio: SGLang: window pool over full pool, in tokens.
        disable_hybrid_swa_memory: SGLang: one pool for all layers.
        mamba_full_memory_ratio: SGLang: state pool over KV pool, in bytes.
        max_mamba_cache_size: SGLang: states of the pool [requests].
        max_attention_window: TensorRT-LLM: windows, cycled over the layers [tokens].
        host_cache_size: TensorRT-LLM: evicted blocks kept in RAM [bytes].
        max_beam_width: TensorRT-LLM: beams [sequences].
        cache_implementation: transformers: dynamic, static, quantized, offloaded.
        attn_implementation: transformers: sdpa, eager, flash_attention_2.
        cache_bits: transformers: of a quantised cache [bits].
        num_beams: transformers: beams [sequences].
        quant_policy: LMDeploy: 0, 4, 8, 16, 17.
        backend: LMDeploy: turbomind or pytorch; TensorRT-LLM: pytorch.
        n_ctx: llama.cpp: -c, cells of the context [tokens].
        num_ctx: Ollama: context of one request [tokens].
        n_parallel: llama.cpp: -np, slots [requests].
        n_batch: llama.cpp: -b [tokens].
        n_ubatch: llama.cpp: -ub [tokens].
        n_outputs_max: llama.cpp: outputs reserved in a batch [tokens].
        n_rs_seq: llama.cpp: states kept to roll back to, beyond the one in use [states].
        kv_unified: llama.cpp: slots share one cache.
        cache_type_k: llama.cpp: -ctk.
        cache_type_v: llama.cpp: -ctv.
        flash_attn: llama.cpp: on, off or auto.
        n_gpu_layers: llama.cpp: -ngl, a number, `all` or `auto`.
        n_cpu_moe: llama.cpp: layers whose experts stay in RAM [layers].
        cpu_moe: llama.cpp: all experts stay in RAM.
        tensor_split: llama.cpp: share of each card.
        split_mode: llama.cpp: layer, row, tensor or none.
        swa_full: llama.cpp: window layers keep the whole context.
        kv_offload: llama.cpp: False keeps the cache in RAM.
        fit: llama.cpp: lower what is not set until it fits.
        mmproj_bytes: llama.cpp: size of the projector file [bytes].
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
    max_model_len: int | None = None
    concurrency: int | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    expert_parallel: bool = False
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    enable_dp_attention: bool = False
    block_size: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_total_tokens: int | None = None
    max_prefill_tokens: int | None = None
    enable_chunked_prefill: bool | None = None
    enforce_eager: bool = False
    cuda_graph_max_bs: int | None = None
    disable_piecewise_cuda_graph: bool = False
    enable_prefix_caching: bool | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    kv_cache_dtype: str | None = None
    attention_backend: str | None = None
    async_scheduling: bool | None = None
    disable_hybrid_kv_cache_manager: bool = False
    mamba_cache_dtype: str | None = None
    mamba_ssm_cache_dtype: str | None = None
    speculative: Speculative | None = None
    lora: Lora | None = None
    cpu_offload: int | None = None
    kv_offloading_size: int | None = None
    limit_mm_per_prompt: Limits | None = None
    language_model_only: bool = False
    skip_mm_profiling: bool = False
    mm_encoder_tp_mode: str | None = None
    runner: str | None = None
    swa_full_tokens_ratio: float | None = None
    disable_hybrid_swa_memory: bool = False
    mamba_full_memory_ratio: float | None = None
    max_mamba_cache_size: int | None = None
    max_attention_window: Numbers | None = None
    host_cache_size: int | None = None
    max_beam_width: int | None = None
    cache_implementation: str | None = None
    attn_implementation: str | None = None
    cache_bits: int | None = None
    num_beams: int | None = None
    quant_policy: int | None = None
    backend: str | None = None
    n_ctx: int | None = None
    num_ctx: int | None = None
    n_parallel: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    n_outputs_max: int | None = None
    n_rs_seq: int | None = None
    kv_unified: bool | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    flash_attn: str | None = None
    n_gpu_layers: str | None = None
    n_cpu_moe: int | None = None
    cpu_moe: bool = False
    tensor_split: Numbers | None = None
    split_mode: str | None = None
    swa_full: bool = False
    kv_offload: bool | None = None
    fit: bool | None = None
    mmproj_bytes: int | None = None


COMMON_FIELDS = frozenset((
    "model", "dtype", "quantization", "weights_bytes", "gpu", "gpu_count", "vram", "free_memory", "engine", "engine_version",
    "max_model_len", "concurrency",
))  # fmt: skip
"""Fields that mean something for every engine."""

# The engines' own short forms and other spellings of a field.
SPELLINGS = {
    "tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size", "ep": "expert_parallel",
    "tp_size": "tensor_parallel_size", "pp_size": "pipeline_parallel_size", "dp_size": "data_parallel_size",
    "num_shard": "tensor_parallel_size", "enable_expert_parallel": "expert_parallel", "dcp": "decode_context_parallel_size",
    "pcp": "prefill_context_parallel_size", "context": "max_model_len", "context_length": "max_model_len", "max_seq_len": "max_model_len",
    "session_len": "max_model_len", "seq": "max_model_len", "n": "concurrency", "batch": "concurrency", "page_size": "block_size",
    "cache_block_seq_len": "block_size", "tokens_per_block": "block_size", "max_running_requests": "max_num_seqs", "max_batch_size": "max_num_seqs",
    "max_concurrent_requests": "max_num_seqs", "max_num_tokens": "max_num_batched_tokens", "chunked_prefill_size": "max_num_batched_tokens",
    "max_batch_prefill_tokens": "max_num_batched_tokens", "max_prefill_token_num": "max_num_batched_tokens",
    "disable_cuda_graph": "enforce_eager", "eager_mode": "enforce_eager", "cuda_graph_max_bs_decode": "cuda_graph_max_bs",
    "disable_prefill_cuda_graph": "disable_piecewise_cuda_graph", "max_cudagraph_capture_size": "cuda_graph_max_bs",
    "mem_fraction_static": "gpu_memory_utilization", "kv_cache_free_gpu_memory_fraction": "gpu_memory_utilization",
    "free_gpu_memory_fraction": "gpu_memory_utilization", "cuda_memory_fraction": "gpu_memory_utilization",
    "cache_max_entry_count": "gpu_memory_utilization", "device_memory_utilization": "gpu_memory_utilization",
    "max_tokens": "max_total_tokens", "max_batch_total_tokens": "max_total_tokens", "enable_attention_dp": "enable_dp_attention",
    "enable_block_reuse": "enable_prefix_caching", "mamba_ssm_dtype": "mamba_ssm_cache_dtype", "speculative_config": "speculative",
    "ctx_size": "n_ctx", "parallel": "n_parallel", "batch_size": "n_batch", "ubatch_size": "n_ubatch", "ngl": "n_gpu_layers",
    "gpu_layers": "n_gpu_layers", "flash_attention": "flash_attn",
}  # fmt: skip
# Spellings that say the opposite.
NEGATIONS = {
    "disable_radix_cache": "enable_prefix_caching", "disable_prefix_caching": "enable_prefix_caching", "no_kv_offload": "kv_offload",
    "disable_block_reuse": "enable_prefix_caching", "no_enable_prefix_caching": "enable_prefix_caching",
}  # fmt: skip

MEMORY_FIELDS = frozenset((
    "vram", "free_memory", "kv_cache_memory_bytes", "weights_bytes", "cpu_offload", "kv_offloading_size", "host_cache_size", "mmproj_bytes",
))  # fmt: skip
TOKEN_FIELDS = frozenset((
    "max_model_len", "max_num_batched_tokens", "max_total_tokens", "max_prefill_tokens", "block_size", "n_ctx", "num_ctx", "n_batch", "n_ubatch",
    "n_outputs_max",
))  # fmt: skip
_COUNTS = {
    "gpu_count": (1, 65_536), "tensor_parallel_size": (1, 4096), "pipeline_parallel_size": (1, 4096), "data_parallel_size": (1, 65_536),
    "decode_context_parallel_size": (1, 4096), "prefill_context_parallel_size": (1, 4096), "max_num_seqs": (1, 10**7),
    "concurrency": (1, 10**9), "cuda_graph_max_bs": (1, 10**6), "num_gpu_blocks_override": (1, 10**9), "max_mamba_cache_size": (1, 10**7),
    "max_beam_width": (1, 1024), "num_beams": (1, 1024), "cache_bits": (1, 16), "quant_policy": (0, 64), "n_parallel": (1, 4096),
    "n_rs_seq": (0, 1024), "n_cpu_moe": (0, 10**6),
}  # fmt: skip
_SHARES = {"gpu_memory_utilization": 1.0, "swa_full_tokens_ratio": 64.0, "mamba_full_memory_ratio": 64.0}
FLAG_FIELDS = frozenset((
    "expert_parallel", "enforce_eager", "enable_prefix_caching", "async_scheduling", "disable_hybrid_kv_cache_manager", "enable_dp_attention",
    "enable_chunked_prefill", "disable_piecewise_cuda_graph", "language_model_only", "skip_mm_profiling", "disable_hybrid_swa_memory",
    "kv_unified", "cpu_moe", "swa_full", "kv_offload", "fit",
))  # fmt: skip
CHOICE_FIELDS = {
    "mm_encoder_tp_mode": ("weights", "data"), "runner": ("auto", "generate", "pooling"), "split_mode": ("none", "layer", "row", "tensor"),
    "attn_implementation": ("sdpa", "eager", "flash_attention_2", "flash_attention_3"),
}  # fmt: skip
_READERS = {
    "speculative": read_speculative, "lora": read_lora, "limit_mm_per_prompt": read_limits, "max_attention_window": read_numbers,
    "tensor_split": read_numbers, "flash_attn": read_switch, "n_gpu_layers": read_switch,
}  # fmt: skip


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
        name, checked = read_field(key, value)
        if values.get(name, checked) != checked:
            raise InputError(f"{name} is given twice", code="field-given-twice", where=name)
        values[name] = checked
    if not values.get("model"):
        raise InputError("no model is given", code="no-model", hint="name one: --model llama-3-8b")
    return Deployment(**(values | {"engine": find_engine(values.get("engine") or usual_engine(values["model"]))}))


def read_field(key: str, value: Any) -> tuple[str, Any]:
    """One field of a Deployment: its name for a spelling of it, and its value, checked.

    >>> read_field("tp", "2"), read_field("disable_radix_cache", True)
    (('tensor_parallel_size', 2), ('enable_prefix_caching', False))

    Raises:
        InputError: no such field, or a value that cannot be.
    """
    if key in NEGATIONS:
        value = not read_flag(key, value)
    name = find_field(key)
    return name, _checked(name, value)


def find_field(key: str) -> str:
    """The field that a spelling stands for, or stands for the opposite of.

    Raises:
        InputError: no such field.
    """
    name = NEGATIONS.get(key, SPELLINGS.get(key, key))
    if name not in Deployment._fields:
        raise _unknown_field(key)
    return name


def usual_engine(model: str | Mapping[str, Any]) -> str:
    """The engine where none is given: the program whose store the model's name begins with, llama.cpp for a GGUF file, else vllm.

    >>> usual_engine("ollama:llama3.1:8b"), usual_engine("./Qwen3-8B-Q4_K_M.gguf"), usual_engine("llama-3-8b")
    ('ollama', 'llama.cpp', 'vllm')
    """
    if not isinstance(model, str):
        return "vllm"
    name = model.strip().lower()
    for start, engine in _STORE_ENGINES.items():
        if name.startswith(start):
            return engine
    bare = name.partition("@")[0]
    repository, colon, variant = bare.partition(":")
    is_file = name.endswith(".gguf") or (bool(colon) and "/" in repository and "//" not in bare and bool(variant))
    return "llama.cpp" if is_file or repository.endswith("gguf") else "vllm"


_STORE_ENGINES = {"ollama:": "ollama", "lmstudio:": "lm-studio", "lm-studio:": "lm-studio"}


def find_engine(name: str) -> str:
    """The engine of a name or one of its usual spellings (`trtllm`, `llama-cpp`, `hf`).

    Raises:
        InputError: no such engine.
    """
    word = name.strip().lower()
    engine = _ENGINE_SPELLINGS.get(word, word)
    if engine not in ENGINES:
        raise InputError(
            f"engine {name[:64]!r} is not known", code="unknown-engine", hint="known: " + ", ".join(ENGINES)
        )
    return engine


def _unknown_field(key: str) -> InputError:
    from difflib import get_close_matches

    close = get_close_matches(str(key)[:64], (*Deployment._fields, *SPELLINGS), n=3)
    hint = f"did you mean {', '.join(close)}?" if close else "fields: " + ", ".join(Deployment._fields)
    return InputError(f"{str(key)[:64]!r} is not a field of a deployment", code="unknown-field", hint=hint)


def _checked(name: str, value: Any) -> Any:
    if name == "model":
        if not isinstance(value, (str, Mapping)) and not hasattr(value, "architecture"):
            raise InputError("must be a name, a path or a parsed config", code="invalid-input", where=name)
        return value
    if name in _READERS:
        return _READERS[name](name, value)
    if name in MEMORY_FIELDS:
        return read_memory(name, value)
    if name in TOKEN_FIELDS:
        return read_tokens(name, value)
    if name in _COUNTS:
        return read_count(name, value, *_COUNTS[name])
    if name in FLAG_FIELDS:
        return read_flag(name, value)
    if name in _SHARES:
        return read_share(name, value, _SHARES[name])
    if name in CHOICE_FIELDS:
        return read_choice(name, value, CHOICE_FIELDS[name])
    if name == "engine_version" and isinstance(value, str):
        return value.strip()  # any string: what has no number in it is the newest, with a notice
    return read_word(name, value)
