"""A file written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat


def write_whole(path: str, data: bytes, *, mode: int = 0o666, prefix: str = ".") -> None:
    """Put a file in the place of whatever has its name; a link there is replaced, never followed.

    Args:
        path: of the file; its folder is there.
        data: its bytes.
        mode: of a new file, as far as the process's umask lets it; one that is there keeps its own.
        prefix: of the name that it has until it is whole.

    Raises:
        OSError: it cannot be written; nothing has changed then.
    """
    with contextlib.suppress(FileNotFoundError):
        there = os.lstat(path).st_mode
        if not (stat.S_ISREG(there) or stat.S_ISLNK(there)):  # a device or a folder is never put out of its place
            raise OSError(errno.EINVAL, "is there and no regular file")
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f"{prefix}{name[:64]}.{os.urandom(6).hex()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        with contextlib.suppress(OSError):
            before = os.lstat(path).st_mode
            if stat.S_ISREG(before):
                os.chmod(temporary, stat.S_IMODE(before))
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
