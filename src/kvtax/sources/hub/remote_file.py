"""A file on the hub, read by range."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvtax.safe_text import safe
from kvtax.sources.hub import failures
from kvtax.sources.hub.client import Client, Reply

_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")


class RemoteFile:
    """A file of a repository; each read is one request.

    Args:
        client: of the hub.
        path: below the endpoint, quoted.
        name: of the file, for messages.
        model: that it belongs to, for messages.
    """

    def __init__(self, client: Client, path: str, name: str, model: str) -> None:
        self._client, self._path, self._model = client, path, model
        self.name = safe(name)
        self.size: int | None = None
        self.found = True

    def read(self, start: int, length: int) -> bytes:
        """A range of the file; nothing where the file is not there (`found` is then False).

        Raises:
            SourceError: it cannot be had.
        """
        if length <= 0 or (self.size is not None and start >= self.size):
            return b""
        reply = self._client.get(self._path, length, first=start, ranged=True, name=self._model)
        if reply.status == 416:
            self._set_size(_total(reply.headers.get("content-range", "")))
            return b""
        if is_missing_file(reply):
            self.found = False
            return b""
        if reply.status not in (200, 206):
            client = self._client
            raise failures.of_status(
                self._model, client.endpoint, reply.status, reply.hub_headers,
                has_token=client.has_token, withheld=client.token_withheld,
            )  # fmt: skip
        if reply.status == 206:
            return self._part(reply, start, length)
        self._set_size(_length(reply.headers))
        return reply.body

    def _part(self, reply: Reply, start: int, length: int) -> bytes:
        """The body of a partial answer, which must be the part that was asked for."""
        found = _RANGE.fullmatch(reply.headers.get("content-range", "").strip())
        if found is None or int(found[1]) != start or not start <= int(found[2]) < start + length:
            raise failures.refused(self._model, f"sends another part of {self.name} than was asked for", "hub-range")
        total = None if found[3] == "*" else int(found[3])
        if total is not None and total <= int(found[2]):
            raise failures.refused(self._model, f"sends a range beyond the end of {self.name}", "hub-range")
        self._set_size(total)
        promised = int(found[2]) - start + 1
        if len(reply.body) != promised:
            problem = f"breaks off: {len(reply.body)} of {promised} bytes of {self.name}"
            raise failures.refused(self._model, problem, "hub-cut")
        return reply.body

    def _set_size(self, size: int | None) -> None:
        if size is None:
            return
        if self.size is not None and self.size != size:
            raise failures.refused(self._model, f"says two lengths of {self.name}", "hub-range")
        self.size = size


def is_missing_file(reply: Reply) -> bool:
    """Whether an answer says that the repository is there and has no such file."""
    word = reply.hub_headers.get("x-error-code", "")
    return reply.status == 404 and word not in ("RepoNotFound", "RevisionNotFound")


def _total(content_range: str) -> int | None:
    """The length in `bytes */123`."""
    text = content_range.rpartition("/")[2]
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def _length(headers: Mapping[str, str]) -> int | None:
    """The length of the whole file, from the answer of a server that does not know ranges."""
    text = headers.get("content-length", "")
    encoded = headers.get("content-encoding", "identity") not in ("", "identity")
    return int(text) if not encoded and text.isascii() and text.isdecimal() and len(text) < 20 else None
