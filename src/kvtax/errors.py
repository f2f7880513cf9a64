"""The tree of errors; `cli` alone turns them into an exit code and one line.

KvtaxError                      code, message, hint, where
├── InputError          exit 2  something that was written cannot be understood
│   ├── ConfigError             a config.json or GPU entry with an impossible value
│   └── UnknownNameError        a model, GPU, engine or option that is not known; suggests the closest
└── NotKnownError       exit 3  kvtax could not find out
    ├── UnsupportedArchitectureError    the config is read but not understood; says what is missing
    └── SourceError             a name that would have to be looked up somewhere else
"""

from __future__ import annotations

from collections.abc import Iterable


class KvtaxError(Exception):
    """Anything that kvtax can say about a question it cannot answer.

    Args:
        message: one line, what is wrong.
        code: a word for programs, such as `unknown-gpu`.
        hint: what to do about it.
        where: the file and key it is about.
    """

    exit_code = 2
    default_code = "error"

    def __init__(self, message: str, *, code: str | None = None, hint: str = "", where: str = "") -> None:
        super().__init__(message)
        self.code = code or self.default_code
        self.message = message
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        """The message with its place, without the hint."""
        return f"{self.where}: {self.message}" if self.where else self.message

    def to_dict(self) -> dict[str, dict[str, str]]:
        """The JSON form of an error (DESIGN: {"error": {code, message, hint}})."""
        return {"error": {"code": self.code, "message": str(self), "hint": self.hint}}


class InputError(KvtaxError):
    """Something that a person or a file said cannot be understood (exit 2)."""

    default_code = "invalid-input"


class ConfigError(InputError):
    """A value in a model's config or in a catalogue entry is impossible (exit 2)."""

    default_code = "invalid-config"


class UnknownNameError(InputError):
    """A name that is in no catalogue; `suggestions` holds the closest ones (exit 2)."""

    default_code = "unknown-name"

    def __init__(
        self,
        message: str,
        *,
        suggestions: Iterable[str] = (),
        code: str | None = None,
        hint: str = "",
        where: str = "",
    ) -> None:
        super().__init__(message, code=code, hint=hint, where=where)
        self.suggestions = tuple(suggestions)


class NotKnownError(KvtaxError):
    """kvtax could not find out (exit 3)."""

    exit_code = 3
    default_code = "not-known"


class UnsupportedArchitectureError(NotKnownError):
    """The config was read, but kvtax does not know this architecture (exit 3)."""

    default_code = "unsupported-architecture"


class SourceError(NotKnownError):
    """A model would have to be fetched from a place that is not reached (exit 3)."""

    default_code = "source-unavailable"
