"""Content-Encoding: gzip, as a bomb and as a courtesy."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from loopback_http import Reply, Request
from loopback_misbehaviour import Misbehaviour, OfContent

if TYPE_CHECKING:
    from loopback_hub import LoopbackHub


class GzipBomb(Misbehaviour):
    """Zeros that gzip makes a thousandth of (1 GiB: 1 MB), sent with Content-Encoding: gzip.

    Args:
        size_bytes: unpacked; whole MiB.
        only_if_asked: honest where Accept-Encoding does not name gzip.
        start: honest bytes before the zeros.
    """

    def __init__(self, size_bytes: int = 2**30, only_if_asked: bool = False, start: bytes = b"") -> None:
        self.mebibytes, self.only_if_asked, self.start = size_bytes // 2**20, only_if_asked, start

    def before(self, request: Request, hub: LoopbackHub) -> Reply | None:
        if self.only_if_asked and not accepts_gzip(request):
            return None
        first, block, last = _gzip_pieces(self.start)
        length = len(first) + self.mebibytes * len(block) + len(last) + 8
        headers = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")]
        return Reply(200, headers, self._chunks(first, block, last), length)

    def _chunks(self, first: bytes, block: bytes, last: bytes) -> Iterator[bytes]:
        yield first
        for _ in range(self.mebibytes):
            yield block
        checksum = zlib.crc32(self.start)
        for _ in range(self.mebibytes):
            checksum = zlib.crc32(_MEBIBYTE, checksum)
        size = (len(self.start) + self.mebibytes * 2**20) % 2**32
        yield last + checksum.to_bytes(4, "little") + size.to_bytes(4, "little")


_MEBIBYTE = bytes(2**20)


@lru_cache(maxsize=8)
def _gzip_pieces(start: bytes) -> tuple[bytes, bytes, bytes]:
    """Header and start, a MiB of zeros that can be repeated, and the end of the stream: one member of gzip."""
    stream = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    first = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff" + stream.compress(start) + stream.flush(zlib.Z_FULL_FLUSH)
    block = stream.compress(_MEBIBYTE) + stream.flush(zlib.Z_FULL_FLUSH)
    return first, block, stream.flush(zlib.Z_FINISH)


class Compresses(OfContent):
    """Honest gzip for those who ask for it, as the real hub does with JSON."""

    def spoil(self, request: Request, reply: Reply) -> None:
        if accepts_gzip(request) and reply.status == 200:
            body = gzip.compress(b"".join(reply.chunks), mtime=0)
            reply.set("Content-Encoding", "gzip")
            reply.chunks, reply.length = (body,), len(body)


def accepts_gzip(request: Request) -> bool:
    """Whether the client asked for gzip."""
    words = [word.strip().lower() for word in (request.headers.get("Accept-Encoding") or "").split(",")]
    return any(word.partition(";")[0] in ("gzip", "*") and not word.endswith("q=0") for word in words)
