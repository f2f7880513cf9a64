"""What every engine answers, and what they share: versions, settings with their origins, fields they understand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from kvtax.architectures.cache import Recurrent
from kvtax.engines.answer import Answer, Memory, Question, Setting
from kvtax.engines.intervals import EXACT, Margin, margin
from kvtax.terms import Notice, Term

Version = tuple[int, ...]


class Rule(NamedTuple):
    """A value that holds from a version on, until the next rule of the same name."""

    name: str
    since: Version
    value: Any
    source: str


def find_rule(rules: Sequence[Rule], name: str, version: Version) -> Any:
    """The value of a rule at a version: the last entry whose `since` is not later; None before the first."""
    value = None
    for entry in rules:
        if entry.name == name and entry.since <= version:
            value = entry.value
    return value


def read_version(text: str | None, newest: Version) -> tuple[Version, bool]:
    """The version that a string means, and whether it was taken as the newest for want of a number.

    Its first version number counts, to as many places as `newest` has; rc, dev and patches are ignored; 0.0.*, `nightly` or nothing mean the newest.

    >>> read_version("v0.11.2rc1", (0, 33))
    ((0, 11), False)
    """
    if text is None:
        return newest, False
    digits: list[str] = [""]
    for character in text:
        if character.isascii() and character.isdigit():
            digits[-1] += character
        elif character == "." and digits[-1] and len(digits) < len(newest) + 1:
            digits.append("")
        elif digits[0]:
            break
    found = [part for part in digits[: len(newest)] if part]
    if len(found) < min(len(newest), 2) or any(len(part) > 6 for part in found):
        return newest, True
    version = tuple(int(part) for part in found) + (0,) * (len(newest) - len(found))
    return (newest, True) if not any(version) else (version, False)


class Plan(ABC):
    """A deployment on one engine: what does not depend on the length and number of requests, worked out once.

    Args:
        question: names resolved.
    """

    NAME: ClassVar[str]
    """As in `--engine`."""
    FIELDS: ClassVar[frozenset[str]]
    """Fields of a Deployment that this engine has a counterpart for, besides those that every engine has."""
    NEWEST: ClassVar[Version]
    OLDEST: ClassVar[Version]
    RULES: ClassVar[tuple[Rule, ...]] = ()
    """What changed from release to release."""
    CHECKED: ClassVar[str] = ""
    """What the rules were checked against beside real starts, in a few words."""
    ALLOCATES: ClassVar[bool] = False
    """True: the cache is allocated for what is asked, False: the pool is what is left."""
    OWN_QUANTIZATION: ClassVar[bool] = False
    """Whether `quantization` names formats of this engine alone (GGUF presets), which it works out itself."""
    GGUF: ClassVar[str] = ""
    """How weights of a GGUF file are loaded: `kept` as they are in it, as `floats` of 16 bit, '' for an engine that loads no such file."""
    LABELS: ClassVar[dict[str, str]] = {
        "kv_pool": "KV pool", "activation": "activation", "cuda_graphs": "CUDA graphs", "runtime": "runtime",
    }  # fmt: skip
    """What people call the parts of the memory in this engine."""

    version: Version
    settings: dict[str, Setting]
    notices: list[Notice]
    refusal: Notice | None
    known: bool
    """Whether the rules hold for this make of card; where not, only weights and KV are answered."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.settings = {}
        self.notices = []
        self.refusal = None
        self.known = True
        self.version, guessed = read_version(question.deployment.engine_version, self.NEWEST)
        self._say_version(guessed)

    @classmethod
    def version_words(cls, version: Version) -> str:
        """A version as it is printed: `0.33`."""
        return ".".join(map(str, version))

    @property
    def version_text(self) -> str:
        """The version that the rules are taken for, as it is printed."""
        return self.version_words(self.version)

    @property
    def label(self) -> str:
        """Engine and version: `vllm 0.33`."""
        return f"{self.NAME} {self.version_text}"

    def _say_version(self, guessed: bool) -> None:
        newest, oldest = map(self.version_words, (self.NEWEST, self.OLDEST))
        if guessed:
            given = f"{self.question.deployment.engine_version!r:.64}"
            message = f"engine version {given} has no number: taken as the newest known, {newest}"
            self.notices.append(Notice("engine-version-newest", message))
        elif self.version > self.NEWEST or self.version < self.OLDEST:
            edge, place = (newest, "newer") if self.version > self.NEWEST else (oldest, "older")
            message = f"{self.label} is {place} than the rules known here: those of {edge} are used"
            self.notices.append(Notice("engine-version-unknown", message))

    def set_from(
        self, name: str, asked: int | float | str | bool | None, default: int | float | str | bool, why: str = ""
    ) -> None:
        """Note a setting: what was asked, else the default, and where it comes from."""
        origin = "flag" if asked is not None else f"default of {self.label}"
        self.settings[name] = Setting(default if asked is None else asked, why or origin)

    @property
    def kv_cache_dtype(self) -> str:
        """The format of keys and values."""
        return str(self.settings["kv_cache_dtype"].value)

    # ---- what every engine answers ----

    @abstractmethod
    def default_max_model_len(self) -> int:
        """The longest request where none is given [tokens]."""

    @abstractmethod
    def answer(self, max_model_len: int, concurrency: int | None) -> Answer:
        """Memory, pool and verdict of the tightest rank for requests of at most max_model_len tokens."""

    @abstractmethod
    def recurrent_bytes(self, cache: Recurrent) -> int:
        """Bytes of one sequence's state in one layer on one rank, in the formats of this engine [bytes]."""

    @abstractmethod
    def terms(self, answer: Answer) -> list[Term]:
        """Weights by component, parts of the memory, and what a request holds: each with its formula and source."""

    @abstractmethod
    def figures(self, answer: Answer) -> list[Term]:
        """Blocks, tokens, concurrency: figures that are not bytes, in the same form."""

    @abstractmethod
    def kind(self) -> str:
        """The kind of case, by which residuals of real starts are gathered."""

    def prints(self, answer: Answer, max_model_len: int) -> list[str]:
        """The lines about capacity that the engine itself would print at start; none where it prints none."""
        return []

    def margin(self) -> Margin:
        """How far the pools of real starts of this kind lie from the prediction."""
        fixed = self.question.deployment.kv_cache_memory_bytes is not None
        return EXACT if fixed or self.ALLOCATES else margin(self.NAME, self.kind())

    # ---- what follows from them ----

    def free_bytes(self, taken: Memory) -> int:
        """What the engine sees free when it starts to load [bytes]."""
        given = self.question.deployment.free_memory
        return taken.total_bytes - taken.outside_bytes if given is None else min(given, taken.total_bytes)

    @property
    def cache_ranks(self) -> int:
        """Ranks over which key/value heads and states are split."""
        return self.question.deployment.tensor_parallel_size

    @property
    def cards(self) -> int:
        """Cards that the parallel sizes use."""
        deployment = self.question.deployment
        return deployment.tensor_parallel_size * deployment.pipeline_parallel_size * deployment.data_parallel_size

    def request_bytes(self, tokens: int) -> int:
        """Bytes that one request of `tokens` tokens really holds on one rank of all stages together."""
        held, ranks, kv_dtype = 0, self.cache_ranks, self.kv_cache_dtype
        for cache, count in self.question.architecture.cache_groups:
            on_rank = cache.per_rank(ranks)
            if isinstance(on_rank, Recurrent):
                held += count * self.recurrent_bytes(on_rank)
            else:
                held += count * on_rank.bytes(tokens, kv_dtype)
        return held

    def growth_bytes(self, at: int | None = None) -> int:
        """What one more token adds on one rank (`at=None`: in a long request; else as the at-th token) [bytes]."""
        ranks, kv_dtype = self.cache_ranks, self.kv_cache_dtype
        groups = self.question.architecture.cache_groups
        return sum(count * cache.per_rank(ranks).growth(kv_dtype, at) for cache, count in groups)

    def state_bytes(self) -> int:
        """Fixed recurrent state of one request on one rank [bytes]."""
        ranks, groups = self.cache_ranks, self.question.architecture.cache_groups
        return sum(
            count * self.recurrent_bytes(cache.per_rank(ranks))
            for cache, count in groups
            if isinstance(cache, Recurrent)
        )
