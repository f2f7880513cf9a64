"""Exit codes, and how a failure becomes one line on stderr.

0: fits, passed. 1: does not fit, check failed, or an assumption under --strict. 2: wrong usage or bad input. 3: could not find out
(network, gated, unsupported). 70: a bug in kvtax. 130: interrupted. A closed pipe is 0.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable
from typing import Any

from kvtax.errors import InputError, KvtaxError


class Exit:
    """The exit codes of every command."""

    OK = 0
    DOES_NOT_FIT = 1
    USAGE = 2
    NOT_KNOWN = 3
    BUG = 70
    INTERRUPTED = 130


class UsageError(InputError):
    """A command line that cannot be understood (exit 2)."""

    default_code = "usage"


def worst(codes: Iterable[int]) -> int:
    """The exit code of several answers: 1 beats 2 beats 3 beats 0."""
    found = set(codes)
    for code in (Exit.DOES_NOT_FIT, Exit.USAGE, Exit.NOT_KNOWN):
        if code in found:
            return code
    return Exit.OK


def say(text: str) -> None:
    """Talk: one line to stderr, control characters made visible; never fails."""
    from kvtax.safe_text import safe

    try:
        print(safe(text, 2000), file=sys.stderr)
    except (OSError, ValueError, AttributeError):
        return


def explain_failure(error: Exception, words: list[str]) -> int:
    """Print an exception as `error: ...` with its hint (and as JSON where JSON was asked for); return the exit code."""
    if "--debug" in words:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    known = _as_known(error)
    if isinstance(error, OSError):
        _give_up_stdout()
    if known is None:
        say(f"error: internal error: {type(error).__name__}: {str(error)[:200]}")
        say("  hint: this is a bug in kvtax; run again with --debug for where it happened")
        document = {
            "code": "internal-error",
            "message": f"{type(error).__name__}: {str(error)[:200]}",
            "hint": "run with --debug",
        }
        code = Exit.BUG
    else:
        say_error(known)
        document, code = known.to_dict()["error"], known.exit_code
    if wants_json(words):
        write_json({"error": document})
    return code


def say_error(error: KvtaxError) -> None:
    """`error: ...` and its hint on stderr."""
    say(f"error: {error}")
    if error.hint:
        say(f"  hint: {error.hint}")


def _as_known(error: Exception) -> KvtaxError | None:
    """The failure as something that kvtax can explain, None for a bug."""
    if isinstance(error, KvtaxError):
        return error
    if isinstance(error, OSError) and error.errno in (
        errno.ENOSPC,
        errno.EIO,
        errno.EDQUOT if hasattr(errno, "EDQUOT") else -1,
    ):
        return InputError(f"the result cannot be written: {error.strerror}", code="cannot-write")
    return None


def wants_json(words: list[str]) -> bool:
    """Whether a command line asks for JSON, as far as one can tell before it is understood."""
    return any(
        word in ("--json", "--format=json") or (word == "--format" and words[place : place + 1] == ["json"])
        for place, word in enumerate(words, 1)
    )


def write_json(document: Any) -> None:
    """A document to stdout."""
    from kvtax.views.json_text import json_text

    sys.stdout.write(json_text(document))


def closed_pipe(error: BaseException) -> bool:
    """Whether the reader of stdout went away; stdout is then pointed nowhere, so that nothing complains at exit."""
    is_pipe = isinstance(error, BrokenPipeError) or (
        os.name == "nt" and isinstance(error, OSError) and error.errno == errno.EINVAL
    )
    if is_pipe:
        _give_up_stdout()
    return is_pipe


def _give_up_stdout() -> None:
    """Point stdout nowhere: what is still in its buffer cannot be written."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):
        return
