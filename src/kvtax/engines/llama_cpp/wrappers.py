"""Ollama and LM Studio: llama.cpp with their own defaults."""

from __future__ import annotations

from kvtax.engines.answer import Question
from kvtax.engines.base import Version
from kvtax.engines.llama_cpp import ollama, rules
from kvtax.engines.llama_cpp.plan import FIELDS, LlamaCppPlan
from kvtax.errors import InputError
from kvtax.terms import Notice

LM_STUDIO_CONTEXT = 4096


class OllamaPlan(LlamaCppPlan):
    """Ollama: one slot, a context by the cards' memory, steps by the context.

    Args:
        question: names resolved.
    """

    NAME = "ollama"
    NEWEST = (0, 34)
    OLDEST = (0, 33)
    FIELDS = FIELDS | {"num_ctx"}
    CHECKED = "rules of its source (main of 2026-08-21) over llama.cpp's own figures"

    def __init__(self, question: Question) -> None:
        deployment = question.deployment
        if deployment.num_ctx is not None and deployment.n_ctx is not None:
            raise InputError("num_ctx and n_ctx are both given", code="field-given-twice", where="num_ctx")
        super().__init__(question)

    @classmethod
    def version_words(cls, version: Version) -> str:
        """As it is printed: `0.34`."""
        return ".".join(map(str, version))

    @property
    def build(self) -> Version:
        """The llama.cpp build that it runs."""
        return (ollama.BUILD,)

    def slots(self, concurrency: int | None) -> tuple[int, bool]:
        """OLLAMA_NUM_PARALLEL, one where it is not set; some architectures run one request whatever is asked."""
        if self.shape.arch in ollama.ONE_SLOT:
            return 1, False
        return self.asked.n_parallel or 1, bool(self.question.deployment.kv_unified)

    def default_max_model_len(self) -> int:
        """num_ctx, by the memory of all cards where it is not set [tokens]."""
        deployment = self.question.deployment
        if deployment.num_ctx is not None:
            return deployment.num_ctx
        if deployment.n_ctx is not None:
            return max(deployment.n_ctx // self.slots(None)[0], 1)
        total = sum(card.total_bytes for card in self.machine.cards)
        return ollama.default_context(total, self.shape.context_length)

    def default_batches(self, max_model_len: int) -> tuple[int, int]:
        """num_batch, which is both -b and -ub; it follows num_ctx [tokens]."""
        given = self.question.deployment.n_batch
        batch = given or ollama.default_batch(
            self.shape, self.file.file_bytes, max_model_len, self.machine.free_bytes, self.asked.flash_attn
        )
        return batch, batch


class LmStudioPlan(LlamaCppPlan):
    """LM Studio: one slot, 4096 tokens, window layers with the whole context.

    Args:
        question: names resolved.
    """

    NAME = "lm-studio"
    NEWEST = (0, 4)
    OLDEST = (0, 3)
    CHECKED = "one log of August 2025 over llama.cpp's own figures"

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        message = "LM Studio's defaults are known from one log of August 2025: 4096 tokens, one slot, window layers with the whole context"
        self.notices.append(
            Notice("defaults-uncertain", message, "give --ctx-size, -np and --swa-full as the program shows them")
        )

    @classmethod
    def version_words(cls, version: Version) -> str:
        """As it is printed: `0.4`."""
        return ".".join(map(str, version))

    @property
    def build(self) -> Version:
        """The llama.cpp build that it runs: taken as the newest known."""
        return rules.NEWEST

    def slots(self, concurrency: int | None) -> tuple[int, bool]:
        """One."""
        return self.asked.n_parallel or 1, bool(self.question.deployment.kv_unified)

    def default_swa_full(self) -> bool:
        """As in the log that is known."""
        return True

    def default_max_model_len(self) -> int:
        """4096, or what -c gives [tokens]."""
        if self.question.deployment.n_ctx is not None:
            return super().default_max_model_len()
        return min(LM_STUDIO_CONTEXT, self.shape.context_length or LM_STUDIO_CONTEXT)
