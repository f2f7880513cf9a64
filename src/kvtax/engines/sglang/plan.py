"""SGLang's answer to one deployment: settings, memory and pools of its tightest rank."""

from __future__ import annotations

from kvtax.architectures.cache import CompressedLatent, Recurrent
from kvtax.dtypes import find_dtype
from kvtax.engines.answer import Answer, Question, Rank
from kvtax.engines.base import Plan
from kvtax.engines.intervals import Margin
from kvtax.engines.sglang import checks, memory, rules
from kvtax.engines.sglang import terms as sglang_terms
from kvtax.engines.sglang.cells import Formats, state_bytes
from kvtax.engines.sglang.compressed import DEFAULT_REQUESTS
from kvtax.engines.sglang.divide import Divided, divide
from kvtax.engines.sglang.drafts import find_draft
from kvtax.engines.sglang.settings import settle
from kvtax.engines.sglang.stages import allocated_caches, attention_ranks, make_stages
from kvtax.engines.sglang.verdicts import judge
from kvtax.errors import InputError
from kvtax.terms import Notice, Term
from kvtax.units import format_bytes

SHORTEST_REQUESTS, MOST_REQUESTS = 2048, 4096


class SglangPlan(Plan):
    """SGLang: settings, memory and pools of its tightest rank."""

    NAME = "sglang"
    GGUF = "kept"  # sglang srt/model_loader/loader.py GGUFModelLoader
    NEWEST = rules.NEWEST
    OLDEST = rules.OLDEST
    RULES = rules.RULES
    CHECKED = (
        "40 automatic shares and 15 pools worked out from its sources, equal; pools of 22 real starts given the weights"
    )
    FIELDS = frozenset((
        "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel",
        "enable_dp_attention", "block_size", "max_num_seqs", "max_num_batched_tokens", "max_total_tokens", "max_prefill_tokens",
        "enable_chunked_prefill", "enforce_eager", "cuda_graph_max_bs", "disable_piecewise_cuda_graph", "enable_prefix_caching",
        "gpu_memory_utilization", "kv_cache_memory_bytes", "kv_cache_dtype", "attention_backend", "async_scheduling",
        "mamba_ssm_cache_dtype", "speculative", "cpu_offload", "language_model_only", "swa_full_tokens_ratio",
        "disable_hybrid_swa_memory", "mamba_full_memory_ratio", "max_mamba_cache_size",
    ))  # fmt: skip

    def __init__(self, question: Question) -> None:
        words = rules.version_words(question.deployment.engine_version)
        super().__init__(question._replace(deployment=question.deployment._replace(engine_version=words)))
        self.question = question
        deployment, architecture = question.deployment, question.architecture
        self.known = question.gpu.vendor in memory.KNOWN_VENDORS
        settle(self)
        self.refusal = checks.refusal(deployment, architecture, question.gpu, self.kv_cache_dtype, self.version)
        dtype = str(self.settings["dtype"].value)
        self.element_bytes = find_dtype(dtype).bits // 8
        self.ranks = attention_ranks(deployment)
        self.windows_apart = self.settings.get("disable_hybrid_swa_memory") is not None and not (
            self.settings["disable_hybrid_swa_memory"].value
        )
        self.allocated = allocated_caches(architecture, self.ranks, self.windows_apart)
        self.stages = make_stages(architecture, deployment, dtype, self.allocated)
        self.draft = find_draft(deployment, architecture, deployment.tensor_parallel_size, dtype, question.draft)
        self._say()

    def _say(self) -> None:
        deployment = self.question.deployment
        if deployment.free_memory is not None and deployment.free_memory > self.question.total_bytes:
            given, total = format_bytes(deployment.free_memory), format_bytes(self.question.total_bytes)
            message = f"free_memory {given} is more than the card's {total}"
            self.notices.append(Notice("free-above-total", message, "give the size of the card too: --vram"))
        if self.draft.estimated:
            self.notices.append(
                Notice(
                    "draft-estimated",
                    f"the {self.draft.method} draft is a model of its own: its weights are estimated from the model's widths",
                    "give the weights of both together: --weights-bytes",
                )
            )
        if self.question.architecture.kind == "encoder":
            message = "nothing is kept from token to token, but the pool is laid out for the layers all the same: it bounds the tokens of a batch"
            self.notices.append(
                Notice("encoder-pool", message, "lower --gpu-memory-utilization to leave the memory to others")
            )
        if deployment.max_model_len is None and self.question.architecture.max_position_embeddings is None:
            message = "the config states no longest context: 2048 tokens are taken"
            self.notices.append(Notice("no-context-limit", message, "give --context"))
        if deployment.gpu_memory_utilization is None and deployment.engine_version is None:
            self.notices.append(
                Notice(
                    "fraction-by-version",
                    f"mem_fraction_static is {self.share:.3f}, the default of {self.label}; other releases take another share",
                    "give --engine-version or --gpu-memory-utilization",
                )
            )

    @property
    def share(self) -> float:
        """mem_fraction_static."""
        return float(self.settings["gpu_memory_utilization"].value)

    @property
    def page_size(self) -> int:
        """Tokens of a page."""
        return int(self.settings["block_size"].value)

    @property
    def formats(self) -> Formats:
        """Formats of keys, values and states."""
        asked = self.question.deployment.mamba_ssm_cache_dtype
        ssm = find_dtype(asked).name if asked and asked != "auto" else ""
        return Formats(self.kv_cache_dtype, ssm, bool(rules.rule("state_dtype_from_config", self.version)))

    @property
    def cache_ranks(self) -> int:
        """Ranks over which key/value heads and states are split."""
        return self.ranks

    @property
    def cards(self) -> int:
        """Cards that the parallel sizes use: with DP attention its ranks are among those of tensor parallelism."""
        deployment = self.question.deployment
        apart = 1 if deployment.enable_dp_attention else deployment.data_parallel_size
        return deployment.tensor_parallel_size * deployment.pipeline_parallel_size * apart

    def default_max_model_len(self) -> int:
        """The config's limit; 2048 where it states none.

        Source: sglang 0.5.23 srt/configs/model_config.py context_len.
        """
        return self.question.architecture.max_position_embeddings or 2048

    def max_running_requests(self, tokens: int, context: int) -> int:
        """Requests that run at once where no state caps them.

        min(clamp(tokens / context * 512, 2048, 4096), tokens // 2), or what was asked for over the data parallel ranks

        Source: sglang 0.5.23 srt/mem_cache/kv_cache_configurator.py resolve_max_num_reqs.
        """
        deployment = self.question.deployment
        asked = self.asked_requests
        if asked is not None:
            apart = deployment.data_parallel_size if deployment.enable_dp_attention else 1
            return max(0, min(max(1, asked // apart), tokens // 2))
        usual = max(min(int(tokens / max(context, 1) * 512), MOST_REQUESTS), SHORTEST_REQUESTS)
        return max(0, min(usual, tokens // 2))

    @property
    def asked_requests(self) -> int | None:
        """max_running_requests where it is given, or set because of a draft."""
        asked = self.question.deployment.max_num_seqs
        if asked is None and self.draft.verified_tokens:
            return int(rules.rule("draft_requests", self.version))
        if asked is None and any(
            isinstance(cache, CompressedLatent) for cache, _ in self.question.architecture.cache_groups
        ):
            return DEFAULT_REQUESTS
        return asked

    # ---- the answer ----

    def answer(self, max_model_len: int, concurrency: int | None = None) -> Answer:
        """Memory, pool and verdict of the tightest rank for requests of at most max_model_len tokens.

        Raises:
            InputError: no token.
        """
        if max_model_len < 1:
            raise InputError("max_model_len must be at least 1", code="invalid-quantity", where="max_model_len")
        found = [divide(self, stage, max_model_len) for stage in self.stages]
        fewest = min(part.pool.capacity_tokens for part in found)
        if len(found) > 1:  # every stage takes the tokens of the tightest
            found = [divide(self, stage, max_model_len, fewest) for stage in self.stages]
        tightest = min(found, key=lambda part: part.rest_tokens)
        verdict, reason = judge(self, tightest, max_model_len)
        ranks = tuple(
            Rank(f"stage {index}", part.stage.held.layers, part.memory, part.pool) for index, part in enumerate(found)
        )
        return Answer(
            tightest.memory,
            tightest.pool,
            verdict,
            reason,
            tightest.max_running_requests,
            int(self.settings["max_num_batched_tokens"].value),
            host=tightest.host,
            ranks=ranks if len(ranks) > 1 else (),
            detail=tightest,
        )

    def recurrent_bytes(self, cache: Recurrent) -> int:
        """Bytes of one sequence's state in one layer on one rank [bytes]."""
        return state_bytes(cache, self.formats)

    def request_bytes(self, tokens: int) -> int:
        """Bytes that one request of `tokens` tokens holds on one rank of all stages: window layers without a pool of their own hold them all."""
        return sum(
            self.recurrent_bytes(cache) if isinstance(cache, Recurrent) else cache.bytes(tokens, self.kv_cache_dtype)
            for cache, _ in self.allocated
        )

    def growth_bytes(self, at: int | None = None) -> int:
        """What one more token adds on one rank [bytes]."""
        return sum(cache.growth(self.kv_cache_dtype, at) for cache, _ in self.allocated)

    def terms(self, answer: Answer) -> list[Term]:
        """Weights by component, parts of the memory, and what a token takes."""
        detail: Divided = answer.detail
        return [
            *sglang_terms.loaded_terms(self, detail.stage.held),
            *sglang_terms.memory_terms(self, answer, detail),
            *sglang_terms.cell_terms(self, detail),
        ]

    def figures(self, answer: Answer) -> list[Term]:
        """Tokens and concurrency."""
        return sglang_terms.figure_terms(self, answer)

    def prints(self, answer: Answer, max_model_len: int) -> list[str]:
        """The line about capacity that the server prints when it is ready."""
        step = answer.max_num_batched_tokens
        return [
            f"max_total_num_tokens={answer.pool.capacity_tokens}, chunked_prefill_size={step if step else -1}, "
            f"max_prefill_tokens={self.settings['max_prefill_tokens'].value}, "
            f"max_running_requests={answer.max_num_seqs}, context_len={max_model_len}"
        ]

    def margin(self) -> Margin:
        """How far the pools of real starts lie from the prediction; wider where nobody says what is free before loading."""
        found, deployment = super().margin(), self.question.deployment
        if deployment.free_memory is not None or deployment.kv_cache_memory_bytes is not None:
            return found
        ranks = deployment.tensor_parallel_size * deployment.pipeline_parallel_size
        spread = memory.outside_spread_bytes(self.question.gpu, ranks) * self.share / self.question.total_bytes
        return found._replace(low=found.low - spread, high=found.high + spread)

    def kind(self) -> str:
        """The kind of case, by which residuals of real starts are gathered.

        `plain`, `windows`, `state` or `latent`, and whether the share was given or is the default.
        """
        groups = [cache for cache, _ in self.question.architecture.cache_groups]
        if any(isinstance(cache, Recurrent) for cache in groups):
            shape = "state"
        elif any(isinstance(cache, CompressedLatent) for cache in groups) or checks.is_latent(
            self.question.architecture
        ):
            shape = "latent"
        else:
            shape = "windows" if self.windows_apart else "plain"
        given = self.question.deployment.gpu_memory_utilization is not None
        return f"{shape}, {'given' if given else 'automatic'} fraction"
