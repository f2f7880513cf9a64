"""A deployment with its names resolved and everything worked out that does not depend on the length of its requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvtax.architectures.cache import Recurrent
from kvtax.deployment import Deployment
from kvtax.engines.answer import Question
from kvtax.engines.vllm.blocks import state_bytes
from kvtax.engines.vllm.interval import margin
from kvtax.engines.vllm.memory import KNOWN_VENDORS
from kvtax.engines.vllm.plan import VllmPlan
from kvtax.errors import InputError, NotKnownError, UnknownNameError
from kvtax.hardware.gpu import Gpu
from kvtax.sources.gpus import find_gpu
from kvtax.sources.models import ModelEntry
from kvtax.sources.resolve import Model, find
from kvtax.terms import Notice

if TYPE_CHECKING:
    from kvtax.architectures.quantization import Quantization

FEW_STARTS = 10
"""An interval that rests on fewer real starts says so."""


class Prepared:
    """Everything about a deployment but the length and number of its requests: worked out once, reused for each length."""

    def __init__(self, deployment: Deployment, models: Sequence[ModelEntry], gpus: Sequence[Gpu]) -> None:
        if deployment.engine != "vllm":
            raise NotKnownError(
                f"the rules of {deployment.engine} are not in this release",
                code="engine-not-modelled",
                hint="leave --engine out, or use --engine vllm",
                where="engine",
            )
        self.deployment = deployment
        self.model: Model = find(deployment.model, models)
        self.notices: list[Notice] = list(self.model.notices)
        self.gpu = _find_card(deployment, gpus, self.notices)
        architecture = self.model.architecture
        if deployment.quantization and not _is_own(deployment.quantization, architecture.quantization):
            from kvtax.architectures.quantization import named_quantization

            architecture = architecture.replace(quantization=named_quantization(deployment.quantization))
        total, origin = (
            (deployment.vram, "flag --vram") if deployment.vram else (self.gpu.total_bytes, self.gpu.total_source)
        )
        self.architecture = architecture
        self.question = Question(deployment, architecture, self.gpu, total, origin)
        self.plan = VllmPlan(self.question)
        self.notices += self.plan.notices
        self.ranks = deployment.tensor_parallel_size * deployment.pipeline_parallel_size * deployment.data_parallel_size
        self.gpu_count = self.ranks if deployment.gpu_count is None else deployment.gpu_count
        self.engine_known = self.gpu.vendor in KNOWN_VENDORS
        self._say_cards()
        self._demand: dict[int, int] = {}

    def _say_cards(self) -> None:
        if self.gpu_count > self.ranks:
            self.notices.append(
                Notice(
                    "cards-idle",
                    f"{self.gpu_count - self.ranks} of {self.gpu_count} cards stay idle: the parallel sizes use {self.ranks}",
                    "raise --tp or --dp",
                )
            )
        if self.gpu.total_is_estimate and not self.deployment.vram:
            self.notices.append(
                Notice(
                    "gpu-total-estimated",
                    f"the memory that {self.gpu.name} reports is estimated: {self.gpu.total_source}",
                    "give the figure that the driver reports: --vram",
                )
            )
        thin = margin(self.architecture, self.gpu)
        if self.engine_known and thin.starts < FEW_STARTS:
            self.notices.append(
                Notice(
                    "interval-thin",
                    f"the interval for {self.gpu.name} rests on {thin.starts} real starts: {thin.why}",
                    "give --free-memory as the engine sees it",
                )
            )
        if not self.engine_known:
            self.notices.append(
                Notice(
                    "no-engine-rule",
                    f"no engine rule is known for {self.gpu.name}: weights and KV are exact, the pool is only what the card "
                    "has left, and the concurrency an upper bound",
                )
            )

    def request_bytes(self, tokens: int) -> int:
        """Bytes that one request of `tokens` tokens holds on one tensor-parallel rank of all stages together."""
        if tokens not in self._demand:
            if len(self._demand) > 4096:
                self._demand.clear()
            tp = self.deployment.tensor_parallel_size
            kv_dtype = str(self.plan.settings["kv_cache_dtype"].value)
            dtypes = self.plan.dtypes
            held = 0
            for cache, count in self.architecture.cache_groups:
                on_rank = cache.per_rank(tp)
                held += count * (
                    state_bytes(on_rank, dtypes) if isinstance(on_rank, Recurrent) else on_rank.bytes(tokens, kv_dtype)
                )
            self._demand[tokens] = held
        return self._demand[tokens]


def _is_own(name: str, own: Quantization | None) -> bool:
    """Whether a quantisation that is asked for by name is the one that the checkpoint has: then its own list of weights counts."""
    return own is not None and own.name.lower() == name.strip().lower()


def _find_card(deployment: Deployment, gpus: Sequence[Gpu], notices: list[Notice]) -> Gpu:
    """The card that is named, or one of unknown make and the given memory."""
    if deployment.gpu is None:
        if deployment.vram is None:
            raise InputError(
                "no GPU is given", code="no-gpu", hint="name one: --gpu a100-80, or give its memory: --vram 48GiB"
            )
        return _nameless(deployment.vram, "a card")
    try:
        found = find_gpu(deployment.gpu, gpus)
        if found in gpus:
            _say_hidden(deployment.gpu, notices)
        return found
    except UnknownNameError as error:
        if deployment.vram is None:
            raise
        notices.append(Notice("unknown-gpu", f"{error.message}; its memory is taken from --vram", error.hint))
        return _nameless(deployment.vram, deployment.gpu)


def _say_hidden(name: str, notices: list[Notice]) -> None:
    """Say so where a card of one's own has the name of one in the catalogue."""
    try:
        hidden = find_gpu(name)
    except UnknownNameError:
        return
    notices.append(Notice("own-gpu", f"{name[:64]!r} is your own entry and hides the catalogue's {hidden.id}"))


def _nameless(vram: int, name: str) -> Gpu:
    shown = name if name.isprintable() and len(name) <= 64 else ascii(name)[:64]
    return Gpu(
        id=shown, name=shown, vendor="user", kind="user", total_bytes=vram, total_source="flag --vram", source="user"
    )
