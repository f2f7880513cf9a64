"""The changes that may be worth a try: what each sets, how it is typed, and what is given up for it.

Adding a lever is one generator here, named in `all_changes`. Whether an engine has the field, whether it takes the value on that card,
and what it brings is not decided here: the budget is computed anew for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kvtax.architectures.cache import Recurrent
from kvtax.budgets import Budget
from kvtax.planning.quantizations import usual_formats
from kvtax.units import ceil_div

COMMON_CARDS = (
    "l4", "rtx-4090", "rtx-5090", "a100-40gb-sxm", "l40s", "h100-sxm", "a100-80gb-sxm", "rtx-pro-6000", "dgx-spark", "h200-sxm",
    "b200", "mi300x",
)  # fmt: skip
"""The cards that most people rent or own, smallest first; looked at where none is named."""
HARDWARE, QUALITY, SPEED, LIMIT, RISK, NOTHING = "hardware", "quality", "speed", "limit", "risk", "nothing"
"""What a change is paid with: more or other cards, worse answers, slower ones, refused ones, a start that may fail; or nothing."""
_TOWERS = frozenset(("vision", "audio"))
"""Components of a model that read images and sound."""
SIXTEEN_BIT = frozenset(("bfloat16", "float16", "float32", "f16", "bf16", "f32"))


class Change(NamedTuple):
    """Something to try.

    Args:
        kind: changes of one kind compete.
        fields: of the deployment, with their new values.
        flags: as typed.
        cost: what is given up for it, in a few words.
        paid_with: one of hardware, quality, speed, limit, risk, nothing.
    """

    kind: str
    fields: dict[str, Any]
    flags: str
    cost: str
    paid_with: str = NOTHING


def all_changes(base: Budget) -> Iterator[Change]:
    """Every change that there is a reason to try, the smallest of a kind first."""
    if base.verdict == "refused":
        yield from cures(base)
    yield from more_ranks(base)
    yield from shared_tokens(base)
    yield from larger_cards(base)
    yield from second_card(base)
    yield from fewer_bits(base)
    yield from smaller_kv(base)
    yield from into_ram(base)
    yield from less_loaded(base)
    yield from limits_lifted(base)
    yield from smaller_steps(base)
    yield from pools_divided()


def more_ranks(base: Budget) -> Iterator[Change]:
    """More ranks that split each layer."""
    asked = base.deployment
    count = {} if asked.gpu_count is None else {"gpu_count": None}
    for size in (2, 4, 8, 16):
        if size > asked.tensor_parallel_size:
            fields = {"tensor_parallel_size": size, **count}
            cards = size * asked.pipeline_parallel_size
            yield Change("tensor_parallel_size", fields, f"--tp {size}", f"{cards} cards a copy", HARDWARE)


def shared_tokens(base: Budget) -> Iterator[Change]:
    """Ranks that hold the same keys and values share the tokens of a request instead."""
    ranks = base.deployment.tensor_parallel_size
    for size in (2, 4, 8, 16):
        if base.deployment.decode_context_parallel_size < size <= ranks:
            fields = {"decode_context_parallel_size": size}
            cost = "ranks exchange their part of attention in every step"
            yield Change("decode_context_parallel_size", fields, f"--dcp {size}", cost, SPEED)


def larger_cards(base: Budget) -> Iterator[Change]:
    """Common cards with more memory, the smallest first."""
    if base.deployment.gpu is None or "+" in base.deployment.gpu:
        return
    from kvtax.sources.gpus import find_gpu

    larger = sorted(map(find_gpu, COMMON_CARDS), key=lambda gpu: (gpu.total_bytes, gpu.id))
    have = base.memory.total_bytes * (1.02 if base.verdict != "refused" else 0.5)
    for gpu in larger:
        if gpu.total_bytes > have and not gpu.unified_memory and gpu.id != base.gpu.id:
            fields = {"gpu": gpu.id, "vram": None, "free_memory": None}
            cost = "a larger card" if gpu.total_bytes > base.memory.total_bytes else "another card"
            yield Change("gpu", fields, f"--gpu {gpu.id}", cost, HARDWARE)


def second_card(base: Budget) -> Iterator[Change]:
    """A second card of the same kind, for engines that spread layers over what is there."""
    if "tensor_split" in base.prepared.plan.FIELDS and base.deployment.gpu is not None:
        names = f"{base.deployment.gpu}+{base.deployment.gpu.split('+')[0]}"
        yield Change("gpu", {"gpu": names, "gpu_count": None}, f"--gpu {names}", "one card more", HARDWARE)


def fewer_bits(base: Budget) -> Iterator[Change]:
    """Fewer bits for the weights of a checkpoint that is not quantised."""
    asked, architecture = base.deployment, base.prepared.architecture
    if asked.quantization is None and architecture.quantization is None and asked.weights_bytes is None:
        for name, bits in usual_formats(base.prepared.plan, architecture):
            if bits < 16:
                cost = f"{bits}-bit weights: another checkpoint"
                yield Change("quantization", {"quantization": name}, f"--quantization {name}", cost, QUALITY)


def smaller_kv(base: Budget) -> Iterator[Change]:
    """Fewer bits for keys, values and states."""
    cost, fields = "keys and values in {} bit", base.prepared.plan.FIELDS
    if base.prepared.plan.kv_cache_dtype in SIXTEEN_BIT:
        if "cache_type_k" not in fields:
            for name, bits in (("fp8", 8), ("int8_per_token_head", 8), ("nvfp4", 4)):
                flags = f"--kv-cache-dtype {name}"
                yield Change(f"kv_cache_dtype {bits}", {"kv_cache_dtype": name}, flags, cost.format(bits), QUALITY)
        for name, bits in (("q8_0", 8), ("q4_0", 4)):
            both = {"cache_type_k": name, "cache_type_v": name}
            yield Change("cache_type", both, f"-ctk {name} -ctv {name}", cost.format(bits), QUALITY)
        for policy, bits in ((8, 8), (4, 4)):
            flags = f"--quant-policy {policy}"
            yield Change("quant_policy", {"quant_policy": policy}, flags, cost.format(bits), QUALITY)
    if any(isinstance(cache, Recurrent) for cache, _ in base.prepared.architecture.cache_groups):
        state = {"mamba_ssm_cache_dtype": "bfloat16"}
        words = "recurrent state in 16 bit"
        yield Change("mamba_ssm_cache_dtype", state, "--mamba-ssm-cache-dtype bfloat16", words, QUALITY)


def into_ram(base: Budget) -> Iterator[Change]:
    """Experts, layers, weights or the cache stay in RAM; the fewest that cure come first."""
    architecture = base.prepared.architecture
    layers = architecture.num_hidden_layers
    steps = [-(-layers * part // 8) for part in range(1, 9)]
    if architecture.num_experts:
        for count in steps:
            cost = f"experts of {count} layers are computed on the CPU"
            yield Change("n_cpu_moe", {"n_cpu_moe": count}, f"--n-cpu-moe {count}", cost, SPEED)
    for count in steps[:-1]:
        left = layers - count
        cost = f"{count} of {layers} layers are computed on the CPU"
        yield Change("n_gpu_layers", {"n_gpu_layers": str(left)}, f"-ngl {left}", cost, SPEED)
    if not base.deployment.cpu_offload:
        short = base.kv_demand_bytes - base.kv_pool_bytes
        gib = ceil_div(short, 1 << 30) if short > 0 else base.weights_bytes // 4 >> 30
        if 0 < gib << 30 < base.weights_bytes:
            cost = f"{gib} GiB of weights cross PCIe in every step"
            yield Change("cpu_offload", {"cpu_offload": gib << 30}, f"--cpu-offload {gib}GiB", cost, SPEED)
    if base.deployment.kv_offload is not False:
        cost = "attention is computed on the CPU"
        yield Change("kv_offload", {"kv_offload": False}, "--no-kv-offload", cost, SPEED)


def less_loaded(base: Budget) -> Iterator[Change]:
    """Parts of the deployment that may not be needed."""
    asked = base.deployment
    if not asked.language_model_only and _TOWERS.intersection(base.prepared.architecture.component_parameters()):
        fields = {"language_model_only": True}
        yield Change("language_model_only", fields, "--language-model-only", "no images, no audio", QUALITY)
        yield Change("limit_mm", {"limit_mm_per_prompt": "image=0,video=0,audio=0"},
                     "--limit-mm-per-prompt image=0,video=0,audio=0", "no images, no audio", QUALITY)  # fmt: skip
    if asked.speculative is not None:
        yield Change("speculative", {"speculative": None}, "without --speculative", "no draft tokens", SPEED)
    if asked.lora is not None:
        yield Change("lora", {"lora": None}, "without --lora", "no adapters", LIMIT)
    if asked.dtype == "float32":
        yield Change("dtype", {"dtype": "bfloat16"}, "--dtype bfloat16", "weights and KV in 16 bit", QUALITY)


def limits_lifted(base: Budget) -> Iterator[Change]:
    """Limits on memory that someone set, and the share of the card that the engine may take."""
    asked = base.deployment
    for name in ("kv_cache_memory_bytes", "num_gpu_blocks_override", "max_total_tokens"):
        if getattr(asked, name) is not None:
            flag = f"without --{name.replace('_', '-')}"
            yield Change(name, {name: None}, flag, "the engine profiles at start")
    if asked.disable_hybrid_kv_cache_manager:
        fields: dict[str, Any] = {"disable_hybrid_kv_cache_manager": False}
        yield Change("hybrid", fields, "without --disable-hybrid-kv-cache-manager", "windows keep only what they need")
    if asked.swa_full:
        yield Change(
            "swa_full", {"swa_full": False}, "without --swa-full", "prompts that go back are computed anew", SPEED
        )
    share = base.settings().get("gpu_memory_utilization")
    if share is not None and float(share.value) < 0.95:
        fields = {"gpu_memory_utilization": 0.95}
        yield Change("gpu_memory_utilization", fields, "--gpu-memory-utilization 0.95", "less room for peaks", RISK)


def smaller_steps(base: Budget) -> Iterator[Change]:
    """Smaller steps, fewer slots, no graphs: less beside the pool."""
    asked = base.deployment
    if base.max_num_batched_tokens > 2048:
        fields = {"max_num_batched_tokens": 2048}
        yield Change("step", fields, "--max-num-batched-tokens 2048", "long prompts take more steps", SPEED)
    if asked.n_ubatch is None or asked.n_ubatch > 128:
        yield Change("n_ubatch", {"n_ubatch": 128}, "-ub 128", "prompts are read more slowly", SPEED)
    if base.max_num_seqs > 64 and (base.concurrency or 1) <= 64:
        yield Change("slots", {"max_num_seqs": 64}, "--max-num-seqs 64", "at most 64 requests at once", LIMIT)
    if not asked.enforce_eager:
        yield Change(
            "enforce_eager", {"enforce_eager": True}, "--enforce-eager", "slower decoding: no CUDA graphs", SPEED
        )
    if not asked.disable_piecewise_cuda_graph:
        fields = {"disable_piecewise_cuda_graph": True}
        yield Change("piecewise", fields, "--disable-piecewise-cuda-graph", "slower prefill: no graphs for it", SPEED)


def pools_divided() -> Iterator[Change]:
    """Another division between the pools of layers that hold different things."""
    for ratio in (0.5, 0.25, 0.1):
        flags = f"--swa-full-tokens-ratio {ratio}"
        cost = "fewer tokens in windows at once"
        yield Change("swa_full_tokens_ratio", {"swa_full_tokens_ratio": ratio}, flags, cost, LIMIT)
    for ratio in (0.5, 0.25, 0.1):
        flags = f"--mamba-full-memory-ratio {ratio}"
        yield Change(
            "mamba_full_memory_ratio", {"mamba_full_memory_ratio": ratio}, flags, "fewer states at once", LIMIT
        )


def shorter_requests(length: int | None) -> Iterator[Change]:
    """A shorter longest request."""
    if length is not None:
        yield Change(
            "max_model_len", {"max_model_len": length}, f"--context {length}", "longer requests are refused", LIMIT
        )


def pairs(base: Budget) -> Iterator[Change]:
    """More ranks together with fewer bits, or with a larger card, where nothing alone is enough."""
    for ranks in more_ranks(base):
        for other in (*fewer_bits(base), *larger_cards(base)):
            yield Change("pair", ranks.fields | other.fields, f"{ranks.flags} {other.flags}", ranks.cost, HARDWARE)


def cures(base: Budget) -> Iterator[Change]:
    """What takes away the reason of a refusal."""
    asked = base.deployment
    if asked.gpu_count is not None and asked.gpu_count < base.prepared.ranks:
        ranks = base.prepared.ranks
        yield Change("gpu_count", {"gpu_count": ranks}, f"--gpu-count {ranks}", f"{ranks} cards", HARDWARE)
    yield Change("dtype", {"dtype": "float16"}, "--dtype float16", "a smaller range of values", QUALITY)
    if asked.dtype is not None:
        yield Change("dtype", {"dtype": None}, "without --dtype", "runs in the checkpoint's own dtype")
    if asked.kv_cache_dtype is not None:
        yield Change(
            "kv_cache_dtype", {"kv_cache_dtype": None}, "without --kv-cache-dtype", "keys and values in 16 bit"
        )
    if asked.quantization is not None:
        yield Change("quantization", {"quantization": None}, "without --quantization", "the checkpoint as it is")
    if asked.decode_context_parallel_size > 1:
        fields: dict[str, Any] = {"decode_context_parallel_size": 1}
        yield Change("dcp", fields, "--dcp 1", "tokens are not shared among ranks")
    for size in range(min(asked.pipeline_parallel_size, 64) - 1, 0, -1):
        fields = {"pipeline_parallel_size": size, "gpu_count": None}
        yield Change("pipeline_parallel_size", fields, f"--pp {size}", f"{size} stage{'s' * (size > 1)}")
    for size in range(min(asked.tensor_parallel_size, 64) - 1, 0, -1):
        fields = {"tensor_parallel_size": size, "gpu_count": None}
        yield Change("tensor_parallel_size", fields, f"--tp {size}", f"{size} rank{'s' * (size > 1)}")
