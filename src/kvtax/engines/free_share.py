"""What engines share that give KV a part of what is free once weights and the peak of a step are known."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

from kvtax.architectures.cache import Recurrent
from kvtax.dtypes import find_dtype
from kvtax.engines import running
from kvtax.engines.answer import (
    FITS,
    KV_TOO_SMALL,
    OUT_OF_MEMORY,
    REFUSED,
    Answer,
    Host,
    Memory,
    Pool,
    Question,
    Rank,
    Setting,
)
from kvtax.engines.base import Plan
from kvtax.engines.load_terms import request_terms, weight_terms
from kvtax.engines.stages import Stage, cut
from kvtax.errors import InputError, NotKnownError
from kvtax.terms import Notice, Term
from kvtax.units import format_bytes

KNOWN_VENDORS = ("NVIDIA", "user")
NO_CONTEXT_LIMIT = 2048
"""Tokens that are taken where a config states no longest context."""


class Share(NamedTuple):
    """How one stage's memory is divided, and the parts that its terms are made from."""

    stage: Stage
    memory: Memory
    pool: Pool
    peaks: dict[str, int]
    """Peaks of a step by part; the largest is the activation [bytes]."""
    max_model_len: int
    own: Any = None
    """What this engine's own terms need besides."""


class FreeSharePlan(Plan):
    """An engine that loads, runs a step, and then takes its share of what is free.

    Args:
        question: names resolved.
    """

    SPARSE_ROWS: ClassVar[bool] = False
    """Whether 8-bit rows of sparse latent attention have scales of their own in this engine."""

    UNKNOWN_CACHES: ClassVar[frozenset[str]] = frozenset()
    """Kinds of cache whose layout in this engine is not known, or which it does not serve."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self._check_caches()
        deployment, architecture = question.deployment, question.architecture
        self.known = question.gpu.vendor in KNOWN_VENDORS
        dtype, origin = running.resolve_dtype(
            deployment, architecture, float32_runs_in=self.float32_runs_in(), engine=self.NAME
        )
        self.settings["dtype"] = Setting(dtype, origin)
        self.element_bytes = find_dtype(dtype).bits // 8
        self.settle()
        if "kv_cache_dtype" not in self.settings:
            self.settings["kv_cache_dtype"] = Setting(
                *running.resolve_kv_cache_dtype(deployment, architecture, dtype, sparse_rows=self.SPARSE_ROWS)
            )
        self.refusal = (
            running.refusal(deployment, architecture, question.gpu, dtype)
            or self._encoder_refusal()
            or self.own_refusal()
        )
        self.stages = cut(architecture, deployment, dtype, tp=self.cache_ranks, dp=self.copies)
        self._say_what_is_left_out()

    # ---- what each engine says ----

    def float32_runs_in(self) -> str:
        """What a float32 checkpoint runs in."""
        return "bfloat16"

    @abstractmethod
    def settle(self) -> None:
        """Note the settings, max_num_seqs and max_num_batched_tokens among them."""

    @abstractmethod
    def divide(self, stage: Stage, max_model_len: int) -> Share:
        """Memory and pool of one stage for requests of at most max_model_len tokens."""

    @abstractmethod
    def memory_terms(self, share: Share) -> list[Term]:
        """The terms between weights and requests."""

    def host(self, share: Share) -> Host:
        """What one rank keeps in RAM; nothing unless the engine moves blocks there."""
        return Host()

    def _encoder_refusal(self) -> Notice | None:
        """These servers generate text; an encoder has nothing to generate with."""
        architecture = self.question.architecture
        if architecture.kind != "encoder":
            return None
        message = f"{architecture.name} only encodes, and {self.NAME} serves models that generate text"
        return Notice("encoder-not-served", message, "use --engine vllm or sglang")

    def own_refusal(self) -> Notice | None:
        """A reason not to start that only this engine has."""
        return None

    def too_small(self, share: Share) -> Notice:
        """Why a pool without room for one request does not do, as the engine says it."""
        message = (
            f"the pool of {format_bytes(share.memory.kv_pool_bytes)} holds no request of {share.max_model_len} tokens"
        )
        return Notice("kv-too-small", message, "lower --context, or give a larger card")

    def _check_caches(self) -> None:
        kinds = {cache.kind for cache in self.question.architecture.caches} & self.UNKNOWN_CACHES
        if kinds:
            words = ", ".join(sorted(kind.replace("_", " ") for kind in kinds))
            raise NotKnownError(
                f"how {self.label} keeps caches of this kind is not known, or it does not serve them: {words}",
                code="cache-not-known",
                hint="use another engine, such as vllm",
                where="engine",
            )

    @property
    def copies(self) -> int:
        """Copies of the attention layers that share the experts [ranks]."""
        return self.question.deployment.data_parallel_size

    def _say_what_is_left_out(self) -> None:
        architecture = self.question.architecture
        if any(tensor.component in ("vision", "audio") and tensor.loaded for tensor in architecture.tensors):
            message = "the peak of the vision or audio encoder is not counted: its weights are, its activations are not"
            self.notices.append(
                Notice("encoder-peak-left-out", message, "give --free-memory as it is after a first image")
            )
        if self.question.deployment.max_model_len is None and architecture.max_position_embeddings is None:
            message = f"the config states no longest context: {NO_CONTEXT_LIMIT} tokens are taken"
            self.notices.append(Notice("no-context-limit", message, "give --context"))

    # ---- the answer ----

    def default_max_model_len(self) -> int:
        """The config's limit; 2048 where it states none [tokens]."""
        architecture = self.question.architecture
        return architecture.usual_context or architecture.max_position_embeddings or NO_CONTEXT_LIMIT

    def answer(self, max_model_len: int, concurrency: int | None = None) -> Answer:
        """Memory, pool and verdict of the tightest stage for requests of at most max_model_len tokens.

        Raises:
            InputError: no tokens at all.
        """
        if max_model_len < 1:
            raise InputError("max_model_len must be at least 1", code="invalid-quantity", where="max_model_len")
        shares = [self.divide(stage, max_model_len) for stage in self.stages]
        tightest = min(shares, key=lambda share: (share.pool.max_concurrency, share.memory.kv_pool_bytes))
        verdict, reason = self._judge(tightest)
        ranks = tuple(
            Rank(f"stage {index}", share.stage.layers, share.memory, share.pool) for index, share in enumerate(shares)
        )
        return Answer(
            tightest.memory,
            tightest.pool,
            verdict,
            reason,
            int(self.settings["max_num_seqs"].value),
            int(self.settings["max_num_batched_tokens"].value),
            host=self.host(tightest),
            ranks=ranks if len(ranks) > 1 else (),
            detail=tightest,
        )

    def _judge(self, share: Share) -> tuple[str, Notice | None]:
        if self.refusal is not None:
            return REFUSED, self.refusal
        memory = share.memory
        need = memory.weights_bytes + memory.load_extra_bytes + memory.workspace_bytes + memory.activation_bytes
        free = self.free_bytes(memory)
        if self.known and need > free:
            message = f"weights and the peak of a step need {format_bytes(need)}, and {format_bytes(free)} are free"
            hint = "use a larger card, more of them (--tp), fewer bits, or fewer tokens in a step"
            return OUT_OF_MEMORY, Notice("out-of-memory", message, hint)
        if share.pool.max_concurrency < 1:
            return KV_TOO_SMALL, self.too_small(share)
        return FITS, None

    def recurrent_bytes(self, cache: Recurrent) -> int:
        """Bytes of one sequence's state in one layer on one rank: conv in the model dtype, recurrent as asked, as declared, else as the model's [bytes]."""
        asked = self.question.deployment.mamba_ssm_cache_dtype
        dtype = str(self.settings["dtype"].value)
        ssm = find_dtype(asked).name if asked and asked != "auto" else cache.ssm_dtype or dtype
        return cache.state_bytes(ssm, dtype)

    def stage_state_bytes(self, stage: Stage) -> int:
        """Recurrent state of one request in the layers of a stage [bytes]."""
        return sum(self.recurrent_bytes(cache) for cache in stage.caches if isinstance(cache, Recurrent))

    # ---- terms ----

    def terms(self, answer: Answer) -> list[Term]:
        """Weights by component, parts of the memory, and what a request holds."""
        share: Share = answer.detail
        return [
            *weight_terms(self.question, share.stage),
            *self.memory_terms(share),
            *request_terms(self, ((cache, self.kv_cache_dtype) for cache in share.stage.caches), share.max_model_len),
        ]
