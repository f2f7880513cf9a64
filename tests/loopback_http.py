"""Servers on 127.0.0.1 that record what they are asked and send replies as they are told to, honest or not."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import parse_qs, unquote

BLOCK_BYTES = 64 * 1024


class Zeros(bytes):
    """Weights made up on the fly: counted apart when they are sent."""


@dataclass
class Request:
    """What a client asked, and what became of it."""

    host: str  # "hub", "cdn" or "elsewhere"
    method: str
    target: str  # as sent, query and escapes included
    headers: Message  # .get() knows no case
    began: float  # time.monotonic() [seconds]
    connection: int  # which connection of that host, counted from 1
    kind: str = "other"  # "info", "tree", "refs", "resolve", "cache", "content" or "other"
    repository: str = ""
    revision: str = ""
    file: str = ""
    status: int = 0
    sent_bytes: int = 0  # of the body
    ended: float | None = None
    range: str | None = None  # the Range header; misbehaviours change this one, not the record

    def __post_init__(self) -> None:
        self.range = self.headers.get("Range")

    @property
    def path(self) -> str:
        """The target without its query, escapes undone."""
        return unquote(self.target.partition("?")[0])

    @property
    def query(self) -> dict[str, list[str]]:
        """What follows the question mark."""
        return parse_qs(self.target.partition("?")[2], keep_blank_values=True)

    @property
    def token(self) -> str | None:
        """The bearer token, if one was sent."""
        word, _, token = (self.headers.get("Authorization") or "").partition(" ")
        return token if word.lower() == "bearer" else None

    @property
    def subject(self) -> str:
        """What misbehaviours are matched with: the file, or the kind in brackets."""
        return self.file or f"({self.kind})"


@dataclass
class Reply:
    """What is sent; every field may be a lie."""

    status: int = 200
    headers: list[tuple[str, str]] = field(default_factory=list)
    chunks: Iterable[bytes] = ()
    length: int | None = 0  # Content-Length; None: no such header, the end of the connection is the end of the body
    close: bool = False  # end the connection after this reply
    reset: bool = False  # and with RST instead of FIN
    chunked: bool = False
    body_pace: tuple[int, float] | None = None  # bytes at once, seconds between
    head_pace: tuple[int, float] | None = None
    raw: Iterable[bytes] | None = None  # sent instead of all this

    @classmethod
    def of(cls, body: bytes, content_type: str, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Reply:
        """A small body that is at hand."""
        return cls(status, [("Content-Type", content_type), *headers], (body,), len(body))

    def set(self, name: str, value: str | None) -> None:
        """Put a header in place of those of that name, or take them away."""
        self.headers = [(key, old) for key, old in self.headers if key.lower() != name.lower()]
        if value is not None:
            self.headers.append((name, value))

    def get(self, name: str) -> str | None:
        """The header of that name."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


class Ledger:
    """What all hosts of a test count together."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests: list[Request] = []
        self.most_at_once = 0
        self.in_flight = 0
        self.bytes_sent: dict[str, int] = {}  # "org/name/file" or the path -> bytes of bodies
        self.weight_bytes_sent = 0
        self.faults: list[Exception] = []  # of the stand-in itself
        self.closing = threading.Event()

    def begin(self, request: Request) -> None:
        with self.lock:
            self.requests.append(request)
            self.in_flight += 1
            self.most_at_once = max(self.most_at_once, self.in_flight)

    def end(self, request: Request) -> None:
        with self.lock:
            if request.ended is None:
                request.ended = time.monotonic()
                self.in_flight -= 1

    def sent(self, request: Request, chunk: bytes) -> None:
        key = f"{request.repository}/{request.file}" if request.file else request.path
        with self.lock:
            request.sent_bytes += len(chunk)
            self.bytes_sent[key] = self.bytes_sent.get(key, 0) + len(chunk)
            if isinstance(chunk, Zeros):
                self.weight_bytes_sent += len(chunk)


def in_pieces(chunks: Iterable[bytes], pace: tuple[int, float], closing: threading.Event) -> Iterator[bytes]:
    """The chunks, a few bytes at once with pauses between."""
    size, pause = pace
    for chunk in chunks:
        for start in range(0, len(chunk), size):
            yield type(chunk)(chunk[start : start + size])
            if closing.wait(pause):
                return


class _Handler(BaseHTTPRequestHandler):
    """One connection: parses requests, asks the host for replies, sends them."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60  # for a connection that is kept and not used [seconds]
    server: _Server

    def setup(self) -> None:
        # little lies underway between the two ends, so that what is counted as sent is about what was read
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * BLOCK_BYTES)
        super().setup()
        self.number = self.server.host.opened(self.connection)

    def finish(self) -> None:
        super().finish()
        self.server.host.ended(self.number)

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def _serve(self) -> None:
        host, ledger = self.server.host, self.server.host.ledger
        request = Request(host.name, self.command, self.path, self.headers, time.monotonic(), self.number)
        ledger.begin(request)
        try:
            # a request's body must not be taken for the next request
            self.rfile.read(min(int(self.headers.get("Content-Length") or 0), 2**20))
            reply = host.answer(request)
            if ledger.closing.wait(host.latency_seconds):
                raise ConnectionAbortedError
            request.status = reply.status
            self._send(request, reply)
        except OSError:  # the client went away, or the test is over
            self.close_connection = True
        except Exception as error:  # noqa: BLE001 - a fault of the stand-in: the test that uses it must fail
            ledger.faults.append(error)
            self.close_connection = True
        finally:
            ledger.end(request)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - names of http.server

    def _send(self, request: Request, reply: Reply) -> None:
        """The reply; the last piece goes only after the request is counted as done, lest the client's next one overlap."""
        ledger = self.server.host.ledger
        held: tuple[bytes, bool] | None = None
        for piece in self._pieces(request, reply):
            if held is not None:
                self._put(request, *held)
            held = piece
        ledger.end(request)
        if held is not None:
            self._put(request, *held)
        if reply.reset:
            linger = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
        if reply.close or reply.reset or reply.raw is not None or (reply.length is None and not reply.chunked):
            self.close_connection = True

    def _put(self, request: Request, piece: bytes, of_body: bool) -> None:
        if self.server.host.ledger.closing.is_set():
            raise ConnectionAbortedError
        self.connection.sendall(piece)
        if of_body:
            self.server.host.ledger.sent(request, piece)

    def _pieces(self, request: Request, reply: Reply) -> Iterator[tuple[bytes, bool]]:
        """What goes over the wire, and whether it belongs to the body."""
        closing = self.server.host.ledger.closing
        if reply.raw is not None:
            yield from ((piece, True) for piece in reply.raw)
            return
        head: Iterable[bytes] = (self._head(reply),)
        if reply.head_pace:
            head = in_pieces(head, reply.head_pace, closing)
        yield from ((piece, False) for piece in head)
        if request.method == "HEAD" or reply.status in (204, 304):
            return
        chunks = in_pieces(reply.chunks, reply.body_pace, closing) if reply.body_pace else reply.chunks
        for chunk in chunks:
            if reply.chunked and chunk:
                yield f"{len(chunk):x}\r\n".encode(), False
            if chunk:
                yield chunk, True
            if reply.chunked and chunk:
                yield b"\r\n", False
        if reply.chunked:
            yield b"0\r\n\r\n", False

    def _head(self, reply: Reply) -> bytes:
        try:
            phrase = HTTPStatus(reply.status).phrase
        except ValueError:
            phrase = "Odd"
        lines = [f"HTTP/1.1 {reply.status} {phrase}", f"Date: {self.date_time_string()}"]
        lines += [f"{name}: {value}" for name, value in reply.headers]
        if reply.chunked:
            lines.append("Transfer-Encoding: chunked")
        elif reply.length is not None and reply.status not in (204, 304):
            lines.append(f"Content-Length: {reply.length}")
        if reply.close or (reply.length is None and not reply.chunked):
            lines.append("Connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def log_message(self, *_: object) -> None:
        """Nothing: the ledger has it all."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    host: Host

    def server_bind(self) -> None:
        # http.server's own asks the name service what this host is called
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]


class Host:
    """One server with a port of its own.

    Args:
        name: `hub`, `cdn` or `elsewhere`.
        answer: makes the reply to a request.
        ledger: where it is all written down.
        latency_seconds: before each reply, so that requests which a client sends at once are seen at once.
    """

    def __init__(
        self,
        name: Literal["hub", "cdn", "elsewhere"],
        answer: Callable[[Request], Reply],
        ledger: Ledger,
        latency_seconds: float = 0.0,
    ) -> None:
        self.name, self.answer, self.ledger, self.latency_seconds = name, answer, ledger, latency_seconds
        self.connections = 0
        self._open: dict[int, tuple[socket.socket, threading.Thread]] = {}
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.host = self
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def requests(self) -> list[Request]:
        """Those that came to this host, in the order in which they came."""
        return [request for request in self.ledger.requests if request.host == self.name]

    def opened(self, connection: socket.socket) -> int:
        with self.ledger.lock:
            self.connections += 1
            self._open[self.connections] = (connection, threading.current_thread())
            return self.connections

    def ended(self, number: int) -> None:
        with self.ledger.lock:
            self._open.pop(number, None)

    def close(self) -> None:
        """Stop listening and cut what is open; `ledger.closing` ends whatever sleeps."""
        self.ledger.closing.set()
        self._server.shutdown()
        self._server.server_close()
        with self.ledger.lock:
            still_open = list(self._open.values())
        for connection, _ in still_open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for _, thread in still_open:
            thread.join(2)
        self._thread.join(2)
