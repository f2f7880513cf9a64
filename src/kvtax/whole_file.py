"""A file that is replaced once its whole content is there, or left as it was."""

from __future__ import annotations

import os
import stat

from kvtax.errors import InputError


class WholeFile:
    """A file to be written whole or not at all; a pipe or a device is written to as it is.

    Args:
        path: of the file.

    Raises:
        InputError: it cannot be written (`cannot-write`).
    """

    def __init__(self, path: str) -> None:
        self._shown = path
        self._temporary: str | None = None
        try:
            self.path = os.path.realpath(os.path.expanduser(path))
        except (OSError, ValueError) as error:
            raise self._cannot(error) from None
        self._check(self.path)

    def _check(self, path: str) -> None:
        try:
            mode = os.stat(path).st_mode if os.path.exists(path) else None
            if mode is not None and stat.S_ISDIR(mode):
                raise InputError("is a directory", code="cannot-write", where=self._shown)
            if mode is not None and not stat.S_ISREG(mode):
                return
            if mode is not None and not os.access(path, os.W_OK):
                raise InputError("may not be written", code="cannot-write", where=self._shown)
            folder, name = os.path.split(path)
            self._temporary = os.path.join(folder, f".{name[:64]}.{os.urandom(6).hex()}.tmp")
            os.close(os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            if mode is not None:
                os.chmod(self._temporary, stat.S_IMODE(mode))
        except (OSError, ValueError) as error:
            self._temporary = None
            raise self._cannot(error) from None

    def _cannot(self, error: Exception) -> InputError:
        reason = getattr(error, "strerror", None) or "not a path"
        return InputError(f"cannot be written: {reason}", code="cannot-write", where=self._shown)

    def write(self, content: str | bytes) -> None:
        """The whole content.

        Raises:
            InputError: the file cannot be written.
        """
        data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
        try:
            with open(self._temporary or self.path, "wb") as file:
                file.write(data)
            if self._temporary is not None:
                os.replace(self._temporary, self.path)
                self._temporary = None
        except OSError as error:
            raise self._cannot(error) from None

    def close(self) -> None:
        """Leave nothing half-written behind."""
        if self._temporary is not None:
            import contextlib

            with contextlib.suppress(OSError):
                os.unlink(self._temporary)
            self._temporary = None
