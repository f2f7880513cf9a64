"""What servers do wrong, one class each: `hub.misbehave(IgnoresRanges(), path="*.safetensors")` turns it on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING

from loopback_http import BLOCK_BYTES, Reply, Request

if TYPE_CHECKING:
    from loopback_hub import LoopbackHub

HTML = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body><h1>Welcome to this network</h1></body></html>"


class Misbehaviour:
    """Something a server does wrong: in place of its reply, or to it."""

    host: str | None = "hub"
    """Which server does it, unless `misbehave` is told otherwise; None: any that is asked."""

    def before(self, request: Request, hub: LoopbackHub) -> Reply | None:
        """A reply in place of the honest one (None: the honest one); may change the request."""
        return None

    def after(self, request: Request, reply: Reply, hub: LoopbackHub) -> Reply:
        """The honest reply, made worse."""
        return reply


class OfContent(Misbehaviour):
    """Wrong with replies that carry content (200, 206), wherever they are sent from."""

    host = None

    def after(self, request: Request, reply: Reply, hub: LoopbackHub) -> Reply:
        if reply.status in (200, 206):
            self.spoil(request, reply)
        return reply

    def spoil(self, request: Request, reply: Reply) -> None:
        """Change the reply."""


# ---- ranges and lengths ----


class IgnoresRanges(OfContent):
    """Sends 200 and the whole file, whatever range was asked for."""

    def before(self, request: Request, hub: LoopbackHub) -> None:
        request.range = None

    def spoil(self, request: Request, reply: Reply) -> None:
        reply.set("Accept-Ranges", None)


class SendsOtherRange(OfContent):
    """Sends bytes that lie `shift` further on than those asked for, and says so in Content-Range."""

    def __init__(self, shift: int) -> None:
        self.shift = shift

    def before(self, request: Request, hub: LoopbackHub) -> None:
        asked = request.range or ""
        if asked.startswith("bytes="):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            request.range = f"bytes={int(first) + self.shift}-{int(last) + self.shift if last else ''}"


class ContentRangeSays(OfContent):
    """Writes this Content-Range, whatever is sent (`bytes 0-99/5`, `nonsense`); None: a 206 without one.

    `{first}`, `{last}` and `{total}` stand for the honest figures.
    """

    def __init__(self, value: str | None) -> None:
        self.value = value

    def spoil(self, request: Request, reply: Reply) -> None:
        honest = reply.get("Content-Range")
        if honest:
            span, _, total = honest.removeprefix("bytes ").partition("/")
            first, _, last = span.partition("-")
            reply.set("Content-Range", self.value and self.value.format(first=first, last=last, total=total))


class ContentLengthLies(OfContent):
    """Content-Length says `by` more (the body ends early) or less (more follows) than is sent."""

    def __init__(self, by: int) -> None:
        self.by = by

    def spoil(self, request: Request, reply: Reply) -> None:
        if reply.length is not None:
            reply.length, reply.close = max(0, reply.length + self.by), True


class SendsNoLength(OfContent):
    """No Content-Length: the body ends with the connection, or comes in HTTP's chunks."""

    def __init__(self, chunked: bool = False) -> None:
        self.chunked = chunked

    def spoil(self, request: Request, reply: Reply) -> None:
        reply.length, reply.chunked = None, self.chunked


class ClosesMidway(OfContent):
    """Sends so many bytes of the body and closes (`reset`: with RST)."""

    def __init__(self, after_bytes: int, reset: bool = False) -> None:
        self.after_bytes, self.reset = after_bytes, reset

    def spoil(self, request: Request, reply: Reply) -> None:
        reply.chunks, reply.close, reply.reset = _first(reply.chunks, self.after_bytes), True, self.reset


class StopsMidway(OfContent):
    """Sends so many bytes of the body, then nothing, and keeps the connection open."""

    def __init__(self, after_bytes: int) -> None:
        self.after_bytes = after_bytes

    def after(self, request: Request, reply: Reply, hub: LoopbackHub) -> Reply:
        if reply.status in (200, 206):
            first = b"".join(_first(reply.chunks, self.after_bytes))

            def chunks() -> Iterator[bytes]:
                yield first
                yield b""  # a piece is sent when the next one is there
                hub.ledger.closing.wait()

            reply.chunks = chunks()
        return reply


def _first(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    for chunk in chunks:
        if size <= 0:
            return
        yield type(chunk)(chunk[:size])
        size -= len(chunk)


class EndlessBody(Misbehaviour):
    """A body that never ends; `start` is its beginning, after which `filler` is repeated."""

    def __init__(self, start: bytes = b"", filler: bytes = b"a", chunked: bool = False) -> None:
        self.start, self.filler, self.chunked = start, filler * (BLOCK_BYTES // len(filler)), chunked

    def before(self, request: Request, hub: LoopbackHub) -> Reply:
        chunks = (self.start if number == 0 else self.filler for number in count())
        return Reply(200, [("Content-Type", "application/json")], chunks, None, chunked=self.chunked)


# ---- time ----


class Drips(OfContent):
    """The body comes a byte a second."""

    def __init__(self, seconds: float = 1.0, bytes_at_once: int = 1) -> None:
        self.pace = bytes_at_once, seconds

    def spoil(self, request: Request, reply: Reply) -> None:
        reply.body_pace = self.pace


class DripsHeaders(Misbehaviour):
    """The status line and headers come a byte a second."""

    def __init__(self, seconds: float = 1.0, bytes_at_once: int = 1) -> None:
        self.pace = bytes_at_once, seconds

    def after(self, request: Request, reply: Reply, hub: LoopbackHub) -> Reply:
        reply.head_pace = self.pace
        return reply


class Waits(Misbehaviour):
    """Answers right, but so many seconds late."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def before(self, request: Request, hub: LoopbackHub) -> None:
        hub.ledger.closing.wait(self.seconds)


class NeverAnswers(Misbehaviour):
    """Takes the request and says nothing until the hub closes."""

    def before(self, request: Request, hub: LoopbackHub) -> Reply:
        hub.ledger.closing.wait()
        return Reply(503, close=True)


# ---- redirects ----


class RedirectsTo(Misbehaviour):
    """To any URL: http://169.254.169.254/latest/meta-data/, file:///etc/passwd, //host/path, or none at all (None)."""

    def __init__(self, url: str | None, status: int = 302) -> None:
        self.url, self.status = url, status

    def before(self, request: Request, hub: LoopbackHub) -> Reply:
        return Reply(self.status, [("Location", self.url)] if self.url is not None else [])


class RedirectsElsewhere(Misbehaviour):
    """To another host, which serves the same content to anybody: `hub.elsewhere.requests` has the headers that it got."""

    def __init__(self, status: int = 302) -> None:
        self.status = status

    def before(self, request: Request, hub: LoopbackHub) -> Reply:
        return Reply(self.status, [("Location", hub.elsewhere.url + request.target)])


class RedirectsInALoop(Misbehaviour):
    """To itself, for ever."""

    def __init__(self, status: int = 302) -> None:
        self.status = status

    def before(self, request: Request, hub: LoopbackHub) -> Reply:
        return Reply(self.status, [("Location", request.target)])


class RedirectsManyTimes(Misbehaviour):
    """Through so many addresses of its own, then answers."""

    def __init__(self, hops: int, status: int = 302) -> None:
        self.hops, self.status = hops, status

    def before(self, request: Request, hub: LoopbackHub) -> Reply | None:
        hop = int(request.query.get("hop", ["0"])[0])
        if hop >= self.hops:
            return None
        return Reply(self.status, [("Location", f"{request.target.partition('?')[0]}?hop={hop + 1}")])


# ---- statuses ----


class Fails(Misbehaviour):
    """A status of failure (500, 502, 503, 504 ...): once with `times=1`, always without."""

    def __init__(self, status: int = 500, retry_after: str | None = None) -> None:
        self.status, self.retry_after = status, retry_after

    def before(self, request: Request, hub: LoopbackHub) -> Reply:
        headers = [("Retry-After", self.retry_after)] if self.retry_after is not None else []
        return Reply.of(
            b'{"error":"Internal Error - We\'re working hard to fix this"}', "application/json", self.status, headers
        )


class LimitsRate(Misbehaviour):
    """429 with RateLimit headers, and Retry-After if given (seconds or a date, as text)."""

    def __init__(self, retry_after: str | None = "55", reset_seconds: int | None = 55) -> None:
        self.retry_after, self.reset_seconds = retry_after, reset_seconds

    def before(self, request: Request, hub: LoopbackHub) -> Reply:
        bucket = "resolvers" if request.kind in ("resolve", "cache") else "api"
        headers = [("Retry-After", self.retry_after)] if self.retry_after is not None else []
        if self.reset_seconds is not None:
            headers.append(("RateLimit", f'"{bucket}";r=0;t={self.reset_seconds}'))
            headers.append(("RateLimit-Policy", f'"fixed window";"{bucket}";q=500;w=300'))
        return Reply.of(b'{"error":"We had to rate limit your IP"}', "application/json", 429, headers)


# ---- content and headers ----


class AnswersWith(Misbehaviour):
    """This body, whatever was asked."""

    def __init__(self, body: bytes, status: int = 200, content_type: str = "application/json") -> None:
        self.body, self.status, self.content_type = body, status, content_type

    def before(self, request: Request, hub: LoopbackHub) -> Reply:
        return Reply.of(self.body, self.content_type, self.status)


class HtmlPage(AnswersWith):
    """A page for people, as the sign-in page of a network sends it in place of everything."""

    def __init__(self, status: int = 200) -> None:
        super().__init__(HTML, status, "text/html; charset=utf-8")


class SetsHeader(Misbehaviour):
    """A header of every reply gets this value; None: it is missing."""

    host = None

    def __init__(self, name: str, value: str | None) -> None:
        self.name, self.value = name, value

    def after(self, request: Request, reply: Reply, hub: LoopbackHub) -> Reply:
        reply.set(self.name, self.value)
        return reply


class NoCommit(SetsHeader):
    """No X-Repo-Commit: something that is no hub."""

    def __init__(self) -> None:
        super().__init__("X-Repo-Commit", None)


class GiantHeaders(Misbehaviour):
    """So many headers of so many bytes each."""

    def __init__(self, headers: int = 1, length: int = 2**20) -> None:
        self.headers, self.length = headers, length

    def after(self, request: Request, reply: Reply, hub: LoopbackHub) -> Reply:
        reply.headers += [(f"X-Filler-{number}", "a" * self.length) for number in range(self.headers)]
        return reply


# ---- no HTTP at all ----


class SendsRaw(Misbehaviour):
    """These bytes and nothing else, then closes: no HTTP, or not quite."""

    def __init__(self, raw: bytes = b"SSH-2.0-OpenSSH_9.9\r\n") -> None:
        self.raw = raw

    def before(self, request: Request, hub: LoopbackHub) -> Reply:
        return Reply(0, raw=(self.raw,))


class EndlessContinue(Misbehaviour):
    """`100 Continue`, again and again, and never an answer."""

    def before(self, request: Request, hub: LoopbackHub) -> Reply:
        return Reply(100, raw=(b"HTTP/1.1 100 Continue\r\n\r\n" for _ in count()))


class ClosesAtOnce(Misbehaviour):
    """Takes the request and closes (`reset`: with RST) without a byte."""

    def __init__(self, reset: bool = False) -> None:
        self.reset = reset

    def before(self, request: Request, hub: LoopbackHub) -> Reply:
        return Reply(0, raw=(), reset=self.reset)
