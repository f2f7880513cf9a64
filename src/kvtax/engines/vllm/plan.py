"""vLLM's answer to one deployment: settings, memory and pool of its tightest rank."""

from __future__ import annotations

from kvtax.architectures.cache import LayerCache, Recurrent
from kvtax.deployment import Deployment
from kvtax.dtypes import TURBOQUANT_BITS, find_dtype
from kvtax.engines.answer import (
    Answer,
    Host,
    Memory,
    Pool,
    Question,
    Rank,
    Setting,
    pool_bytes_per_token,
)
from kvtax.engines.base import Plan
from kvtax.engines.vllm import blocks, checks, division, encoder, features, memory, rules, stages, verdicts
from kvtax.engines.vllm import terms as vllm_terms
from kvtax.engines.vllm.division import Detail
from kvtax.engines.vllm.draft import draft
from kvtax.engines.vllm.kinds import kind
from kvtax.engines.vllm.stages import Stage
from kvtax.errors import InputError
from kvtax.hardware.gpu import Gpu
from kvtax.terms import Notice, Term
from kvtax.units import format_bytes


class VllmPlan(Plan):
    """vLLM: settings, memory and pool of its tightest rank."""

    NAME = "vllm"
    NEWEST = rules.NEWEST
    OLDEST = rules.OLDEST
    RULES = rules.RULES
    GGUF = "kept"  # vllm 0.33.0 model_loader/gguf_loader.py
    CHECKED = "57 cases of its own planner (0.33), equal to the byte"
    FIELDS = frozenset((
        "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel", "decode_context_parallel_size",
        "block_size", "max_num_seqs", "max_num_batched_tokens", "enforce_eager", "enable_prefix_caching", "gpu_memory_utilization",
        "kv_cache_memory_bytes", "kv_cache_dtype", "async_scheduling", "disable_hybrid_kv_cache_manager", "mamba_ssm_cache_dtype",
        "limit_mm_per_prompt", "language_model_only", "skip_mm_profiling", "runner", "speculative", "prefill_context_parallel_size",
        "num_gpu_blocks_override", "mamba_cache_dtype", "mm_encoder_tp_mode", "enable_chunked_prefill", "attention_backend",
        "cuda_graph_max_bs", "kv_offloading_size", "lora", "cpu_offload",
    ))  # fmt: skip

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        deployment = question.deployment
        self.known = question.gpu.vendor in memory.KNOWN_VENDORS
        self._settle()
        self.refusal = checks.refusal(
            deployment,
            question.architecture,
            question.gpu,
            str(self.settings["dtype"].value),
            self.kv_cache_dtype,
        )
        unchecked = (
            checks.unchecked(question.gpu, self.kv_cache_dtype),
            checks.unlisted_encoder(question.architecture),
        )
        self.notices += [notice for notice in unchecked if notice is not None]
        self.element_bytes = find_dtype(str(self.settings["dtype"].value)).bits // 8
        self.draft = draft(question, str(self.settings["dtype"].value))
        self.notices += self.draft.notices
        self.refusal = (
            self.refusal
            or self.draft.refusal
            or features.refusal(deployment, question.architecture, self.kv_cache_dtype, self.version)
        )
        self._layouts: dict[tuple[int, int], list[Stage]] = {}
        self._loaded = stages.load_stages(self)

    # ---- settings ----

    def _settle(self) -> None:
        deployment, architecture, gpu = self.question.deployment, self.question.architecture, self.question.gpu
        total = self.question.total_bytes
        self.set_from(
            "gpu_memory_utilization",
            deployment.gpu_memory_utilization,
            rules.rule("gpu_memory_utilization", self.version),
        )
        dtype, origin, notice = checks.resolve_dtype(deployment, architecture, gpu)
        self.settings["dtype"] = Setting(dtype, origin)
        if notice is not None:
            self.notices.append(notice)
        kv_dtype, origin = checks.resolve_kv_cache_dtype(deployment, architecture, dtype)
        self.settings["kv_cache_dtype"] = Setting(kv_dtype, origin)
        runner, origin, notice = checks.resolve_runner(deployment, architecture)
        self.settings["runner"] = Setting(runner, origin)
        if notice is not None:
            self.notices.append(notice)
        self.set_from("enable_prefix_caching", deployment.enable_prefix_caching, self._caches_prefixes(runner))
        self.set_from("max_num_seqs", deployment.max_num_seqs, rules.default_max_num_seqs(gpu, total, self.version))
        self.set_from(
            "max_num_batched_tokens",
            deployment.max_num_batched_tokens,
            max(
                rules.default_max_num_batched_tokens(gpu, total, self.version),
                encoder.least_batched_tokens(architecture, deployment),
            ),
        )
        self.set_from("async_scheduling", deployment.async_scheduling, self.version >= (0, 14))
        self.set_from("enforce_eager", deployment.enforce_eager or None, False)
        self._say_start(deployment, gpu, total)
        backend = deployment.attention_backend
        if backend is not None and backend.upper() not in rules.BACKEND_BLOCK_SIZES:
            message = f"attention backend {backend[:64]!r} is not known: blocks are those of the card's default one"
            self.notices.append(Notice("attention-backend-unknown", message, "give --block-size"))
        limit = architecture.max_position_embeddings
        if deployment.max_model_len is None and limit is None:
            self.notices.append(
                Notice(
                    "no-context-limit",
                    "the config states no longest context: 2048 tokens are taken, as the engine does",
                    "give --context",
                )
            )

    def _caches_prefixes(self, runner: str) -> bool:
        """Whether prefix caching is on by default: for decoders from 0.9 on, with recurrent state later; not for pooling models."""
        architecture = self.question.architecture
        if architecture.kind != "decoder" or runner == "pooling" or self.version < (0, 9):
            return False
        recurrent = any(isinstance(cache, Recurrent) for cache, _ in architecture.cache_groups)
        return not recurrent or bool(rules.rule("hybrid_prefix_caching", self.version))

    def _say_start(self, deployment: Deployment, gpu: Gpu, total: int) -> None:
        """A notice where the engine may find less free than it asks for, and nobody said what is free."""
        if deployment.free_memory is not None:
            if deployment.free_memory > total:
                self.notices.append(
                    Notice(
                        "free-above-total",
                        f"free_memory {format_bytes(deployment.free_memory)} is more than the card's {format_bytes(total)}",
                        "give the size of the card too: --vram",
                    )
                )
            return
        if deployment.kv_cache_memory_bytes is not None:
            return
        beside = total - memory.limit_bytes(total, float(self.settings["gpu_memory_utilization"].value))
        usual = memory.outside_bytes(gpu, deployment.tensor_parallel_size * deployment.pipeline_parallel_size)
        if usual > beside and memory.outside_of_a_start(gpu, 1, beside) <= beside:
            self.notices.append(
                Notice(
                    "start-is-tight",
                    f"the engine's limit leaves {format_bytes(beside)} of the card, and up to {format_bytes(usual)} are taken before it "
                    "loads (context, communicators): it may refuse to start",
                    "say what is free with --free-memory, or lower --gpu-memory-utilization",
                )
            )

    def default_max_model_len(self) -> int:
        """The config's limit, or what a LongRoPE config was trained at first; 2048 where it states none.

        Source: vllm 0.33.0 config/model.py.
        """
        architecture = self.question.architecture
        if architecture.usual_context is not None and rules.rule("longrope_original", self.version):
            return architecture.usual_context
        return architecture.max_position_embeddings or 2048

    # ---- stages and layouts ----

    def stages(self, max_num_batched_tokens: int) -> list[Stage]:
        """The pipeline stages with their pool layouts; what is in flight depends on the step's tokens."""
        in_flight = max_num_batched_tokens
        if self.settings["async_scheduling"].value:
            in_flight *= rules.rule("in_flight_steps", self.version)
        key = (in_flight, max_num_batched_tokens)
        if key not in self._layouts:
            if len(self._layouts) > 64:
                self._layouts.clear()
            self._layouts[key] = stages.lay_out(self, self._loaded, in_flight, max_num_batched_tokens)
        return self._layouts[key]

    @property
    def dtypes(self) -> blocks.Dtypes:
        """Formats of keys, values and states."""
        asked = self.question.deployment.mamba_ssm_cache_dtype
        ssm = find_dtype(asked).name if asked and asked != "auto" else ""
        asked = self.question.deployment.mamba_cache_dtype
        conv = find_dtype(asked).name if asked and asked != "auto" else ""
        return blocks.Dtypes(self.kv_cache_dtype, str(self.settings["dtype"].value), ssm, conv, self.draft.tokens)

    # ---- what depends on the length ----

    def step_tokens(self, max_model_len: int) -> tuple[int, int]:
        """max_num_seqs and max_num_batched_tokens at a length.

        min(max_num_batched_tokens, max_num_seqs * max_model_len); max_num_seqs at most max_num_batched_tokens.

        Source: vllm 0.33.0 engine/arg_utils.py.
        """
        seqs = int(self.settings["max_num_seqs"].value)
        tokens = int(self.settings["max_num_batched_tokens"].value)
        if self.question.deployment.max_num_batched_tokens is None:
            whole = self.question.deployment.enable_chunked_prefill is False
            if whole or max_model_len <= rules.rule("whole_prompt_tokens", self.version):
                tokens = max(tokens, max_model_len)
            tokens = min(tokens, seqs * max_model_len)
        return min(seqs, tokens) if self.question.deployment.max_num_seqs is None else seqs, tokens

    def answer(self, max_model_len: int, concurrency: int | None = None) -> Answer:
        """Memory, pool and verdict of the tightest rank for requests of at most max_model_len tokens.

        Raises:
            InputError: a step smaller than a window or a request cannot be scheduled.
        """
        seqs, tokens = self.step_tokens(max_model_len)
        if tokens < 1 or max_model_len < 1:
            raise InputError("max_model_len must be at least 1", code="invalid-quantity", where="max_model_len")
        found = [self._stage_answer(stage, seqs, tokens, max_model_len) for stage in self.stages(tokens)]
        taken, pool, detail = min(found, key=lambda part: (part[1].max_concurrency, part[0].kv_pool_bytes))
        verdict, reason = verdicts.judge(self, taken, pool, detail)
        ranks = tuple(
            Rank(f"stage {index}", part[2].stage.layers, part[0], part[1], self._host(part[2].stage))
            for index, part in enumerate(found)
        )
        host, several = self._host(detail.stage), ranks if len(ranks) > 1 else ()
        return Answer(taken, pool, verdict, reason, seqs, tokens, host=host, ranks=several, detail=detail)

    def _host(self, stage: Stage) -> Host:
        """What the ranks of a stage keep in RAM: their offloaded weights, and the cache beside the pool."""
        deployment = self.question.deployment
        return Host(stage.offloaded_bytes * deployment.tensor_parallel_size, deployment.kv_offloading_size or 0)

    def _stage_answer(self, stage: Stage, seqs: int, tokens: int, max_model_len: int) -> tuple[Memory, Pool, Detail]:
        taken, detail = division.divide(self, stage, seqs, tokens, max_model_len)
        layout = stage.layout
        if layout is None:
            return taken, Pool(0, 0, 0, 0, 0, float(seqs), 0, 0), detail
        num_blocks = taken.kv_pool_bytes // layout.bytes_per_block if taken.kv_pool_bytes > 0 else 0
        num_blocks = self.question.deployment.num_gpu_blocks_override or num_blocks
        per_request = layout.blocks_per_request(max_model_len)
        concurrency = num_blocks / max(per_request, 1)
        capacity = self._capacity_tokens(layout, num_blocks, concurrency, max_model_len)
        pool = Pool(
            layout.block_size,
            layout.bytes_per_block,
            num_blocks,
            per_request,
            capacity,
            concurrency,
            per_request * layout.bytes_per_block,
            pool_bytes_per_token(num_blocks, layout.bytes_per_block, capacity),
        )
        return taken, pool, detail

    def _capacity_tokens(self, layout: blocks.Layout, num_blocks: int, concurrency: float, max_model_len: int) -> int:
        """The tokens that the start-up line prints, as its version counts them."""
        kind = rules.rule("token_count", self.version)
        if kind == "concurrency":
            return int(concurrency * max_model_len)
        groups = len(layout.groups) if kind == "groups" else 1
        smallest = min(group.block_size for group in layout.groups)
        return num_blocks // groups * smallest * layout.context_parallel

    # ---- terms ----

    def recurrent_bytes(self, cache: Recurrent) -> int:
        """Bytes of one sequence's state in one layer on one rank [bytes]."""
        return blocks.state_bytes(cache, self.dtypes)

    def terms(self, answer: Answer) -> list[Term]:
        """Weights by component, parts of the memory, and what a request holds."""
        detail: Detail = answer.detail
        return [
            *vllm_terms.weight_terms(self, detail.stage),
            *vllm_terms.memory_terms(self, answer, detail),
            *vllm_terms.kv_terms(self, detail.stage, detail.max_model_len),
        ]

    def request_bytes(self, tokens: int) -> int:
        """Bytes that one request of `tokens` tokens really holds on one rank, the draft's layers too.

        Layers that TurboQuant leaves alone hold rows in the model's dtype.
        """
        other = sum(
            cache.bytes(tokens, kv) - cache.bytes(tokens, self.kv_cache_dtype) for cache, kv in self._other_formats()
        )
        drafted = sum(
            cache.per_rank(self.cache_ranks).bytes(tokens, self.kv_cache_dtype) for cache in self.draft.caches
        )
        return super().request_bytes(tokens) + other + drafted

    def growth_bytes(self, at: int | None = None) -> int:
        """What one more token adds on one rank [bytes]."""
        other = sum(cache.growth(kv, at) - cache.growth(self.kv_cache_dtype, at) for cache, kv in self._other_formats())
        drafted = sum(cache.per_rank(self.cache_ranks).growth(self.kv_cache_dtype, at) for cache in self.draft.caches)
        return super().growth_bytes(at) + other + drafted

    def _other_formats(self) -> list[tuple[LayerCache, str]]:
        """Caches of one rank in another format than kv_cache_dtype."""
        if self.kv_cache_dtype not in TURBOQUANT_BITS:
            return []
        architecture = self.question.architecture
        placed = zip(architecture.caches, architecture.cache_layers, strict=True)
        format_of = stages.layer_formats(self)
        found = [(cache.per_rank(self.cache_ranks), format_of(layer)) for cache, layer in placed]
        return [(cache, kv) for cache, kv in found if kv != self.kv_cache_dtype]

    def figures(self, answer: Answer) -> list[Term]:
        """Blocks and concurrency."""
        if answer.pool.blocks_per_request == 0:
            return []
        return vllm_terms.figure_terms(answer.memory, answer.pool, answer.detail.max_model_len)

    def prints(self, answer: Answer, max_model_len: int) -> list[str]:
        """The lines about capacity of the start-up log."""
        return verdicts.prints(self, answer, max_model_len)

    def kind(self) -> str:
        """The kind of case, by which residuals of real starts are gathered."""
        return kind(self.question, self.version)
