"""TensorRT-LLM's answer to one deployment: settings, memory and pools of its tightest rank."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from kvtax.architectures.cache import CompressedLatent, MultiHeadLatent, Recurrent
from kvtax.engines import running
from kvtax.engines.answer import Answer, Host, Memory, Pool, Question, pool_bytes_per_token
from kvtax.engines.free_share import FreeSharePlan, Share
from kvtax.engines.stages import Stage
from kvtax.engines.step_peaks import FRAGMENTATION, rope_bytes, step_peaks
from kvtax.engines.tensorrt_llm import memory, pool, rules, terms
from kvtax.errors import InputError
from kvtax.terms import Notice, Term
from kvtax.units import GIB

ROPE_ELEMENT_BYTES = 4
BUILT = "tensorrt"
BACKENDS = ("pytorch", BUILT, "_autodeploy")
METHODS_IN_THE_MODEL = ("mtp", "nextn")
"""Drafting by layers of the model itself, which join the pool of the last stage."""


class Own(NamedTuple):
    """What the terms need besides memory and pool."""

    fixed_bytes: int
    slots: int
    cap_bytes: int | None
    cap_origin: str
    split: pool.Split | None
    shared_bytes: tuple[int, ...]
    """Memory of each pool for keys and values [bytes]."""
    measured: bool
    """Whether the peak of a step was measured before the pool was sized."""
    rounded_up: bool
    """Whether the last block of the pool is not filled by its tokens."""


class TensorRtLlmPlan(FreeSharePlan):
    """TensorRT-LLM with the PyTorch backend; older versions with engines built ahead.

    Args:
        question: names resolved.
    """

    NAME = "tensorrt-llm"
    NEWEST = rules.NEWEST
    OLDEST = rules.OLDEST
    RULES = rules.RULES
    CHECKED = "14 pools worked out by hand from its sources; rates of 5 printed pools"
    LABELS: ClassVar[dict[str, str]] = {
        "kv_pool": "KV pools",
        "activation": "peak of a step",
        "cuda_graphs": "CUDA graphs",
        "runtime": "runtime",
    }
    SPARSE_ROWS = True
    FIELDS = frozenset((
        "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel", "enable_dp_attention", "block_size",
        "max_num_seqs", "max_num_batched_tokens", "max_total_tokens", "enable_chunked_prefill", "enforce_eager", "cuda_graph_max_bs",
        "enable_prefix_caching", "gpu_memory_utilization", "kv_cache_memory_bytes", "kv_cache_dtype", "mamba_ssm_cache_dtype",
        "max_attention_window", "host_cache_size", "max_beam_width", "speculative", "backend",
    ))  # fmt: skip

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self.windows = self._windows()
        self.extra_layers = self._draft_layers()
        self._say_estimates()

    # ---- settings ----

    def settle(self) -> None:
        """Note the settings."""
        deployment, version = self.question.deployment, self.version
        if deployment.backend not in (None, *BACKENDS):
            message = f"backend {deployment.backend!r:.64} is not known"
            raise InputError(message, code="unknown-name", hint=", ".join(BACKENDS), where="backend")
        asked = deployment.gpu_memory_utilization
        self.set_from("gpu_memory_utilization", asked, rules.rule("free_gpu_memory_fraction", version))
        self.set_from("max_num_seqs", deployment.max_num_seqs, rules.rule("max_batch_size", version))
        tokens = rules.default_max_num_tokens(version, int(self.settings["max_num_seqs"].value))
        self.set_from("max_num_batched_tokens", deployment.max_num_batched_tokens, tokens)
        self.set_from("block_size", deployment.block_size, rules.rule("tokens_per_block", version))
        self.set_from("enable_prefix_caching", deployment.enable_prefix_caching, True)
        graphs = rules.rule("cuda_graphs", version) and not self.built
        self.set_from("enforce_eager", deployment.enforce_eager or None, not graphs)
        self.set_from("max_beam_width", deployment.max_beam_width, 1)
        size = int(self.settings["block_size"].value)
        if size & (size - 1):
            message = f"tokens_per_block must be a power of two, not {size}"
            raise InputError(message, code="invalid-quantity", where="block_size")

    @property
    def cache_ranks(self) -> int:
        """Ranks over which key/value heads and states are split: one with attention DP."""
        deployment = self.question.deployment
        return 1 if deployment.enable_dp_attention else deployment.tensor_parallel_size

    @property
    def copies(self) -> int:
        """Copies of the attention layers that share the experts [ranks]."""
        deployment = self.question.deployment
        own = deployment.tensor_parallel_size if deployment.enable_dp_attention else 1
        return own * deployment.data_parallel_size

    @property
    def built(self) -> bool:
        """Whether engines are built ahead of time instead of run by PyTorch."""
        return self.question.deployment.backend == BUILT

    def _windows(self) -> tuple[int, ...]:
        asked = self.question.deployment.max_attention_window
        if asked is None:
            return ()
        windows = tuple(int(value) for value in asked.values)
        if any(window < 1 for window in windows):
            raise InputError("windows must be at least 1 token", code="invalid-quantity", where="max_attention_window")
        return windows

    def _draft_layers(self) -> int:
        """Layers of the model's own drafting that the last stage keeps KV for."""
        speculative = self.question.deployment.speculative
        if speculative is None:
            return 0
        if speculative.method in METHODS_IN_THE_MODEL:
            return 1
        message = f"the cache and weights of a draft by {speculative.method} are not counted"
        self.notices.append(Notice("draft-left-out", message, "take what the draft needs off with --free-memory"))
        return 0

    def own_refusal(self) -> Notice | None:
        """Beams with a pool manager that has none; 4-bit keys and values on a card without 4-bit floats."""
        deployment, gpu = self.question.deployment, self.question.gpu
        if self.kv_cache_dtype.startswith("nvfp4") and gpu.supports_fp4 is False:
            message = f"{gpu.name} has no 4-bit floats, which kv_cache_dtype {self.kv_cache_dtype} needs"
            return Notice("kv-dtype-not-on-card", message, "use --kv-cache-dtype fp8")
        recurrent = any(isinstance(cache, Recurrent) for cache in self.question.architecture.caches)
        if recurrent and (deployment.max_beam_width or 1) > 1:
            message = "hybrids with recurrent state do not run with max_beam_width above 1"
            return Notice("beams-not-supported", message, "leave --max-beam-width out")
        return None

    def _say_estimates(self) -> None:
        deployment, caches = self.question.deployment, self.question.architecture.caches
        if self.kv_cache_dtype.startswith("fp8") and any(isinstance(cache, MultiHeadLatent) for cache in caches):
            message = (
                "what the engine keeps back for latents in 8 bit that are read again (context workspace) is not counted"
            )
            self.notices.append(
                Notice("latent-workspace-left-out", message, "say --max-num-batched-tokens, and lower the fraction")
            )
        if deployment.enable_chunked_prefill is False and deployment.max_model_len is not None:
            tokens = int(self.settings["max_num_batched_tokens"].value)
            if deployment.max_model_len > tokens:
                message = f"without chunked prefill prompts above max_num_tokens {tokens} are refused"
                self.notices.append(
                    Notice("prompts-limited", message, "use --enable-chunked-prefill, or raise max_num_tokens")
                )
        if any(isinstance(cache, CompressedLatent) for cache in caches):
            message = "the rows of compressed latent attention are taken as 584 B and 132 B; the engine's own layout differs by release"
            self.notices.append(Notice("kv-layout-estimated", message))
        if self.windows and self.question.deployment.max_total_tokens is not None and len(set(self.windows)) > 1:
            message = (
                "max_tokens is ambiguous with several windows: the engine caps the memory by it as if there were one"
            )
            self.notices.append(Notice("max-tokens-with-windows", message, "use --kv-cache-memory-bytes"))

    # ---- memory ----

    def divide(self, stage: Stage, max_model_len: int) -> Share:
        """Memory and pools of one stage."""
        deployment, architecture = self.question.deployment, self.question.architecture
        total = self.question.total_bytes
        tokens, seqs = (int(self.settings[name].value) for name in ("max_num_batched_tokens", "max_num_seqs"))
        largest = min(seqs, deployment.cuda_graph_max_bs or rules.GRAPH_BATCH)
        peaks = step_peaks(architecture, self.cache_ranks, tokens, largest, self.element_bytes)
        weights = deployment.weights_bytes if deployment.weights_bytes is not None else stage.weights_bytes
        rope = 0
        if deployment.weights_bytes is None and rules.rule("rope_table", self.version) and not self.built:
            rope = rope_bytes(architecture, ROPE_ELEMENT_BYTES)
        graphs = 0
        if not self.settings["enforce_eager"].value:
            graphs = memory.graph_bytes(stage.layers, rules.graph_batches(largest))
        ranks = deployment.tensor_parallel_size * deployment.pipeline_parallel_size
        outside = running.outside_bytes(self.question.gpu, ranks, total, deployment.free_memory)
        activation = int(max(peaks.values()) * FRAGMENTATION // 1)
        measured = architecture.kind == "decoder"
        free = total - weights - rope - outside - (activation + graphs if measured else 0)
        share = memory.share_of_free(free, float(self.settings["gpu_memory_utilization"].value))
        last = stage is self.stages[-1]
        groups = self._groups(stage, max_model_len, last)
        slots = pool.state_slots(seqs, deployment.pipeline_parallel_size, deployment.enable_dp_attention)
        fixed = pool.fixed_bytes(stage.caches, self.stage_state_bytes(stage), self.kv_cache_dtype, slots)
        cap, origin = self._cap(groups, fixed)
        kv = share if cap is None else min(share, cap)
        taken = Memory(total, total - free + share, weights, rope, 0, outside, activation, graphs, kv)
        found, shared = self._split(groups, kv - fixed, max_model_len)
        up = len(groups) == 1 and bool(rules.rule("blocks_round_up", self.version))
        own = Own(fixed, slots, cap, origin, found, shared, measured, up)
        return Share(stage, taken, self._count(found, kv, fixed, max_model_len, seqs), peaks, max_model_len, own)

    def _groups(self, stage: Stage, max_model_len: int, last: bool) -> tuple[pool.Group, ...]:
        how = str(rules.rule("window_pools", self.version))
        found = pool.groups(stage.caches, self.kv_cache_dtype, max_model_len, self.windows, how)
        if not self.extra_layers or not last or not found:
            return found
        # a draft layer is like the model's last one and joins its pool
        group = found[-1]
        size = group.token_bytes // group.layers * self.extra_layers
        more = group._replace(layers=group.layers + self.extra_layers, token_bytes=group.token_bytes + size)
        return (*found[:-1], more)

    def _cap(self, groups: tuple[pool.Group, ...], fixed: int) -> tuple[int | None, str]:
        """The least that was asked to be the most: max_gpu_total_bytes, or the bytes of max_tokens."""
        deployment = self.question.deployment
        caps: list[tuple[int, str]] = []
        if deployment.kv_cache_memory_bytes is not None:
            caps.append((deployment.kv_cache_memory_bytes, "flag max_gpu_total_bytes"))
        if deployment.max_total_tokens is not None:
            slope = sum(group.token_bytes for group in groups)
            caps.append((slope * deployment.max_total_tokens + fixed, "flag max_tokens"))
        return min(caps) if caps else (None, "")

    def _split(
        self, groups: tuple[pool.Group, ...], memory_bytes: int, max_model_len: int
    ) -> tuple[pool.Split | None, tuple[int, ...]]:
        if not groups:
            return None, ()
        beams, size = int(self.settings["max_beam_width"].value), int(self.settings["block_size"].value)
        how = "equal" if self.windows else "typical"
        up = bool(rules.rule("blocks_round_up", self.version))
        found = pool.split(groups, memory_bytes, size, max_model_len, how, beams, up)
        return found, pool.shares(groups, memory_bytes, size, max_model_len, how, beams)

    def _count(self, split: pool.Split | None, kv: int, fixed: int, max_model_len: int, seqs: int) -> Pool:
        size = int(self.settings["block_size"].value)
        if split is None:
            most = float(seqs) if kv >= fixed else 0.0
            return Pool(size, 0, 0, 0, 0, most, fixed // max(seqs, 1), 0)
        index = split.tightest
        most = float(min(split.concurrency, seqs)) if fixed else float(split.concurrency)
        blocks, needed = split.blocks[index], split.needed[index]
        capacity = blocks * size if len(split.groups) == 1 else blocks * max_model_len // needed
        return Pool(
            size,
            split.block_bytes(index),
            blocks,
            needed,
            capacity,
            most,
            split.request_bytes,
            pool_bytes_per_token(1, split.allocated_bytes, capacity),
        )

    def host(self, share: Share) -> Host:
        """Evicted blocks that are kept in RAM: whole blocks out of host_cache_size, shared like the pools."""
        size, split = self.question.deployment.host_cache_size, share.own.split
        if not size or split is None:
            return Host()
        kept, blocks = int(self.settings["block_size"].value), sum(share.own.shared_bytes)
        parts = [size * part // blocks if blocks else size // len(split.groups) for part in share.own.shared_bytes]
        whole = [part // (group.token_bytes * kept) for part, group in zip(parts, split.groups, strict=True)]
        return Host(
            kv_bytes=sum(count * group.token_bytes * kept for count, group in zip(whole, split.groups, strict=True))
        )

    def too_small(self, share: Share) -> Notice:
        """Why a pool without room for one request does not do."""
        held = share.pool.capacity_tokens // max(int(self.settings["max_beam_width"].value), 1)
        if share.own.fixed_bytes > max(share.memory.kv_pool_bytes, 0):
            message = f"the states of {share.own.slots} slots take {share.own.fixed_bytes / GIB:.2f} GiB, more than the pool has"
            return Notice("kv-too-small", message, "lower --max-batch-size")
        message = f"the pool holds {held} tokens, fewer than one request of {share.max_model_len}: the engine lowers max_seq_len"
        return Notice("kv-too-small", message, f"ask for at most --context {held}" if held else "use a larger card")

    # ---- terms ----

    def memory_terms(self, share: Share) -> list[Term]:
        """Peak, pool, and what the pool keeps for every slot."""
        return terms.memory_terms(self, share)

    def figures(self, answer: Answer) -> list[Term]:
        """Blocks and concurrency of the pool that runs out first."""
        return terms.figure_terms(answer.detail)

    def kind(self) -> str:
        """The kind of case, by which residuals of real starts are gathered."""
        return f"tensorrt-llm {kind(self.question)}"

    def prints(self, answer: Answer, max_model_len: int) -> list[str]:
        """The engine's line about its paged KV cache."""
        split = answer.detail.own.split
        if split is None:
            return []
        allocated = split.allocated_bytes / GIB
        return [
            f"[MemUsageChange] Allocated {allocated:.2f} GiB for max tokens in paged KV cache ({answer.pool.capacity_tokens})."
        ]


def kind(question: Question) -> str:
    """The kind of case: the backend, unified memory, a mixture on several cards, or the rest.

    Args:
        question: names resolved.

    Returns:
        A word.

    Source: published starts: peaks of large mixtures exceed the shapes of a step by gigabytes.
    """
    from kvtax.engines.base import read_version

    if question.gpu.unified_memory:
        return "unified memory"
    if read_version(question.deployment.engine_version, rules.NEWEST)[0] < (1, 0):
        return "built engine"
    return "mixture" if question.architecture.num_experts else "dense"
