"""One section of a config that speaks of quantisation: checked access and the errors that name the place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from kvtax.architectures.config import Config, describe
from kvtax.architectures.quantization.formats import Format
from kvtax.architectures.quantization.modules import ModuleList
from kvtax.architectures.quantization.scheme import Rule
from kvtax.errors import UnsupportedArchitectureError

HIDDEN_SIZE_KEYS = ("hidden_size", "n_embd", "d_model", "dim", "model_dim")


class Section:
    """A JSON object within a config.

    Args:
        config: its values, read with the checks of a config.
        method: the quant_method that it belongs to.
        hidden_size: of the model, 0 where the config does not say.
        kv_cache_dtype: that the checkpoint declares.
    """

    def __init__(self, config: Config, method: str, hidden_size: int, kv_cache_dtype: str | None = None) -> None:
        self.config = config
        self.values = config.values
        self.method = method
        self.hidden_size = hidden_size
        self.kv_cache_dtype = kv_cache_dtype

    def inner(self, key: str) -> Section | None:
        """A nested object, None where it is null or left out.

        Raises:
            ConfigError: not an object.
        """
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.config.fail(key, f"must be an object, not {describe(value)}")
        return self.below(key, value)

    def below(self, key: str, value: Mapping[str, Any]) -> Section:
        """A section for an object that stands under a key."""
        return Section(_config(value, f"{self.config.path}{key}."), self.method, self.hidden_size, self.kv_cache_dtype)

    def unsupported(self, key: str, problem: str) -> NoReturn:
        """Raise an UnsupportedArchitectureError about a key.

        Raises:
            UnsupportedArchitectureError: always.
        """
        raise UnsupportedArchitectureError(
            f"quantisation {ascii(self.method)[:64]}: {problem}",
            where=self.config.where(key),
            hint="kvtax gives no weights for a format that it does not know; --weights-bytes takes them from you",
        )

    def modules(self, *keys: str) -> ModuleList:
        """The modules that lists under these keys name, all together; empty where there is none.

        Raises:
            ConfigError: not lists of names.
        """
        found: list[Any] = []
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if isinstance(value, str):
                value = [value]
            if not isinstance(value, list):
                self.config.fail(key, f"must be a list of names, not {describe(value)}")
            found.extend(value)
        return self.named(keys[0], found)

    def named(self, key: str, entries: Iterable[Any]) -> ModuleList:
        """A list of modules that stands under a key.

        Raises:
            ConfigError: not names.
        """
        return ModuleList(entries, lambda problem: self.config.fail(key, problem))

    def rules(self, key: str, formats: Iterable[tuple[str, Format | None]]) -> list[Rule]:
        """One rule for each format, in the order in which formats come first.

        Args:
            key: where the names stand.
            formats: a module, or a pattern, and its format.

        Raises:
            ConfigError: not names.
        """
        names: dict[Any, list[str]] = {}
        chosen: dict[Any, Format | None] = {}
        for name, one in formats:
            what = None if one is None else (one.name, one.parts(4096, 4096, "bfloat16"))
            chosen.setdefault(what, one)
            names.setdefault(what, []).append(name)
        return [Rule(self.named(key, found), chosen[what]) for what, found in names.items()]

    def bits(self, key: str, known: tuple[int, ...], default: int | None = None) -> int:
        """Bits of a weight.

        Raises:
            ConfigError: not one of `known`.
        """
        value = self.config.integer(key, default=default, maximum=64)
        if value not in known:
            self.config.fail(key, f"must be one of {', '.join(map(str, known))}, not {value}")
        return value

    def group_size(self, key: str = "group_size", default: int = 128) -> int:
        """Weights that share a scale; -1 for a whole row.

        Raises:
            ConfigError: 0 or less than -1.
        """
        value = self.config.integer(key, default=default, minimum=-1)
        if value == 0:
            self.config.fail(key, "must be -1 or from 1 on, not 0")
        return value


def _config(values: Mapping[str, Any], path: str) -> Config:
    return Config(values, lambda _: None, model_type="quantization", path=path)


def open_section(values: Mapping[str, Any], path: str, method: str, hidden_size: int) -> Section:
    """A section for an object at a place of the file."""
    return Section(_config(values, path), method, hidden_size)


def hidden_size(config: Config) -> int:
    """hidden_size of the text model, 0 where it is not plain to see."""
    nested = ("text_config", "language_config", "llm_config")
    levels: list[Any] = [config.values, *(config.values.get(key) for key in nested)]
    for level in reversed(levels):
        if isinstance(level, Mapping):
            for key in HIDDEN_SIZE_KEYS:
                value = level.get(key)
                if isinstance(value, int) and not isinstance(value, bool):
                    return value
    return 0
