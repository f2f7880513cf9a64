"""Where results go: a stream, or a file that grows line by line and from which a sweep that was stopped goes on.

While a sweep is not done, `FILE.kvtax-sweep` lies beside its file and says what it is of; it goes when the last line is there. Killed at
any moment, the file holds whole lines and at most one that is cut, which is taken away before a resumed run goes on. The rows of a
Parquet file wait in `FILE.kvtax-sweep-rows` as JSON lines until all are there, since such a file cannot grow.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, Protocol, TextIO

from kvtax.errors import InputError
from kvtax.safe_text import safe
from kvtax.sources.write_whole import write_whole
from kvtax.sweeps.results import BUG

JOURNAL, ROWS, HALF = ".kvtax-sweep", ".kvtax-sweep-rows", ".kvtax-sweep-half"
_SCHEMA = "kvtax.sweep-journal/1"
_NO_ERROR = b'"error":null'


class Target(Protocol):
    """What results are written to.

    Attributes:
        done: deployments whose results are there already.
        errors: how many of them are errors, by exit code.
    """

    done: int
    errors: Counter[int]

    def write(self, text: str) -> None:
        """Whole lines."""

    def finish(self) -> None:
        """All of them are there."""

    def close(self) -> None:
        """End, finished or not."""


class Stream:
    """Standard output, a pipe or a device: lines go as they come.

    Args:
        stream: that is written to.
        header: the first line, where there is one.
        owned: whether it is closed at the end.
    """

    def __init__(self, stream: TextIO, header: str = "", *, owned: bool = False) -> None:
        self.done = 0
        self.errors: Counter[int] = Counter()
        self._stream, self._owned = stream, owned
        if header:
            stream.write(header)

    def write(self, text: str) -> None:
        """Whole lines, which a reader sees at once."""
        self._stream.write(text)
        self._stream.flush()

    def finish(self) -> None:
        """Nothing is left to do."""
        self._stream.flush()

    def close(self) -> None:
        """Close what was opened for this."""
        if self._owned:
            with contextlib.suppress(OSError):
                self._stream.close()


class Found(NamedTuple):
    """What an unfinished file holds: whole rows, the bytes they take, and how many are errors by exit code."""

    rows: int
    bytes: int
    errors: Counter[int]


class File:
    """A file of results that can be stopped at any moment.

    Args:
        path: of the file.
        stamp: what the sweep is of: parts by name, compared when it goes on; its `input` is None where it cannot be read again.
        header: the first line of a CSV; '' for lines of JSON.
        resume: go on where the file ends.
        overwrite: put aside what is there.
        convert: makes the file from the lines of JSON once all are there: takes them, the path and a temporary path.

    Raises:
        InputError: something is there already (`file-exists`), there is nothing to go on with (`nothing-to-resume`), it is of another
            sweep (`resume-differs`), another sweep writes it, or it cannot be written.
    """

    def __init__(
        self,
        path: str,
        stamp: Mapping[str, Any],
        header: str = "",
        *,
        resume: bool = False,
        overwrite: bool = False,
        convert: Callable[[Iterator[str], str, str], None] | None = None,
    ) -> None:
        self._shown, self._path = safe(path), os.path.realpath(os.path.expanduser(path))
        self._rows_path = self._path + ROWS if convert else self._path
        self._journal, self._convert, self._header = self._path + JOURNAL, convert, header.encode()
        self.done, self.errors = 0, Counter[int]()
        self._file: BinaryIO | None = None
        try:
            self._settle(stamp, resume, overwrite)
            self._file = open(self._rows_path, "a+b")  # noqa: SIM115  closed by close()
            self._lock()
            self._go_on()
        except OSError as error:
            self.close()
            raise self._cannot(error) from None
        except BaseException:
            self.close()
            raise

    def _settle(self, stamp: Mapping[str, Any], resume: bool, overwrite: bool) -> None:
        """Decide whether to begin or to go on; what is not wanted any more goes before the journal is written."""
        begun = os.path.lexists(self._journal)
        if resume and begun:
            self._compare(stamp)
            return
        there = os.path.lexists(self._path)
        if there and resume:
            raise self._refuse(
                "holds no unfinished sweep",
                "nothing-to-resume",
                "it is whole, or not of a sweep; --overwrite replaces it",
            )
        if begun and not overwrite:
            raise self._refuse("holds an unfinished sweep", "file-exists", "--resume goes on, --overwrite begins anew")
        if there and not overwrite:
            raise self._refuse("is there already", "file-exists", "--overwrite replaces it")
        for path in (self._journal, self._path, self._path + ROWS, self._path + HALF):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        journal = {"schema": _SCHEMA, **stamp}
        write_whole(self._journal, (json.dumps(journal, indent=1, default=str) + "\n").encode())

    def _compare(self, stamp: Mapping[str, Any]) -> None:
        try:
            with open(self._journal, "rb") as file:
                journal = json.loads(file.read(2**24))
        except (ValueError, RecursionError):
            journal = None
        if not isinstance(journal, dict) or journal.get("schema") != _SCHEMA:
            raise self._refuse("has a journal that cannot be read", "resume-differs", "--overwrite begins anew")
        if journal.get("input") is None:
            raise self._refuse(
                "came from standard input or a pipe, which cannot be read again",
                "resume-differs",
                "--overwrite begins anew",
            )
        now = json.loads(json.dumps(stamp, default=str))
        differing = [name for name in now if journal.get(name) != now[name]]
        if differing:
            raise self._refuse(
                f"is of another sweep: {', '.join(differing)} {'differs' if len(differing) == 1 else 'differ'}",
                "resume-differs",
                "give the same options and input as before, or --overwrite",
            )

    def _lock(self) -> None:
        """One sweep writes a file; where the system knows no such lock, who starts two knows what they do."""
        try:
            import fcntl
        except ImportError:
            return
        assert self._file is not None  # noqa: S101
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._refuse("is being written by another sweep", "file-in-use", "wait for it") from None
        except OSError:
            return  # a file system without locks

    def _go_on(self) -> None:
        assert self._file is not None  # noqa: S101
        self._file.seek(0)
        found = _scan(self._file, bool(self._header))
        if found is None:
            raise self._refuse("was changed since the sweep stopped", "resume-differs", "--overwrite begins anew")
        self._file.truncate(found.bytes)
        self.done, self.errors = found.rows, found.errors
        if not found.bytes and self._header:
            self._file.write(self._header)
        self._file.flush()

    def write(self, text: str) -> None:
        """Whole lines.

        Raises:
            InputError: they cannot be written.
        """
        assert self._file is not None  # noqa: S101
        try:
            self._file.write(text.encode())
            self._file.flush()
        except OSError as error:
            raise self._cannot(error) from None

    def finish(self) -> None:
        """All lines are there: the journal goes.

        Raises:
            InputError: the file cannot be written.
        """
        assert self._file is not None  # noqa: S101
        try:
            os.fsync(self._file.fileno())
            if self._convert is not None:
                self._file.seek(0)
                temporary = self._path + HALF
                with contextlib.suppress(FileNotFoundError):  # of a run that was killed just here
                    os.unlink(temporary)
                self._convert((line.decode() for line in self._file), self._path, temporary)
            self._file.close()
            if self._convert is not None:
                os.unlink(self._rows_path)
            os.unlink(self._journal)
        except OSError as error:
            raise self._cannot(error) from None

    def close(self) -> None:
        """End, finished or not: what is there stays."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def _refuse(self, problem: str, code: str, hint: str) -> InputError:
        return InputError(problem, code=code, hint=hint, where=self._shown)

    def _cannot(self, error: OSError) -> InputError:
        hint = "what is there stays: --resume goes on from it" if self.done or os.path.lexists(self._journal) else ""
        reason = error.strerror or type(error).__name__
        return InputError(f"cannot be written: {reason}", code="cannot-write", where=self._shown, hint=hint)


def open_stream(path: str, header: str) -> Stream | None:
    """A pipe or a device, written as it is; None where the path is a file, or nothing yet.

    Raises:
        InputError: it is a folder, or cannot be written.
    """
    place = os.path.expanduser(path)
    try:
        mode = os.stat(place).st_mode
        if stat.S_ISREG(mode):
            return None
        if stat.S_ISDIR(mode):
            raise InputError("is a directory", code="cannot-write", where=safe(path))
        return Stream(open(place, "w", encoding="utf-8", newline="\n"), header, owned=True)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise InputError(f"cannot be written: {reason}", code="cannot-write", where=safe(path)) from None


def _scan(file: BinaryIO, is_csv: bool) -> Found | None:
    """The whole rows of an unfinished file; None where it is not what a sweep has written."""
    rows, size, errors = -1 if is_csv else 0, 0, Counter[int]()
    last = b""
    for line in file:
        if not line.endswith(b"\n"):
            break
        rows, size, last = rows + 1, size + len(line), line
        try:
            code = 0 if rows == 0 else _csv_code(line) if is_csv else _json_code(line)
        except (ValueError, KeyError, TypeError):
            return None
        if code:
            errors[code] += 1
    if rows > 0 and _row_number(last, is_csv) != rows:
        return None
    return Found(max(rows, 0), size, errors)


def _json_code(line: bytes) -> int:
    return 0 if _NO_ERROR in line else _known_code(json.loads(line)["error"]["exit_code"])


def _csv_code(line: bytes) -> int:
    return 0 if line.endswith(b",\n") else _known_code(int(line.rpartition(b",")[2]))


def _known_code(code: Any) -> int:
    if code not in (2, 3, BUG):
        raise ValueError
    return int(code)


def _row_number(line: bytes, is_csv: bool) -> int | None:
    try:
        if is_csv:
            return int(next(csv.reader([line.decode()]))[0])
        number = json.loads(line)["row"]
        return number if isinstance(number, int) else None
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None
