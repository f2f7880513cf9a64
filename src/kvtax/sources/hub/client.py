"""Requests to the hub: few, bounded in time and size, and the token goes to no other host.

Connections, proxies and certificates are those of huggingface_hub's own session, the token is found by its rules; redirects, ranges, limits and
the sentences for what goes wrong are here, as the session follows any redirect and reads any length.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urljoin

from kvtax.errors import KvtaxError, SourceError
from kvtax.safe_text import safe
from kvtax.sources.hub import failures, settings
from kvtax.sources.hub.redirects import check_redirect
from kvtax.version import __version__

AT_ONCE = 8
"""Requests in flight."""
MAXIMUM_REDIRECTS = 5
TRIES = 2
"""A request whose connection broke, or that a gateway refused, is made once more."""
LEAST_BYTES_PER_SECOND = 256 * 1024
"""A long answer may take longer: as long as this rate takes."""
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_AGAIN = frozenset((502, 503, 504))
_CHUNK_BYTES = 2**16
_WHOLE_SECONDS = ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT")
Result = TypeVar("Result")


class Reply(NamedTuple):
    """What came back.

    Args:
        status: of HTTP, after redirects.
        headers: of the last answer, names in lower case.
        hub_headers: of the hub's own answer, before it pointed elsewhere.
        body: not more than was asked for.
    """

    status: int
    headers: Mapping[str, str]
    hub_headers: Mapping[str, str]
    body: bytes


class Client:
    """Requests to one endpoint.

    Args:
        endpoint: its address, without a slash at the end.

    Raises:
        SourceError: the endpoint is no address of a web server.
    """

    def __init__(self, endpoint: str) -> None:
        try:
            scheme, host, port = settings.origin_of(endpoint)
        except ValueError:
            scheme = host = ""
            port = -1
        if scheme not in ("http", "https") or not host or port < 0:
            raise SourceError("HF_ENDPOINT is not an address such as https://huggingface.co", code="invalid-endpoint")
        self.endpoint = endpoint
        self.session, token = _session_and_token()
        self.has_token = token is not None
        self.token_withheld = token is not None and not settings.may_carry_token(endpoint)
        self._token = None if self.token_withheld else token
        self._http: Any = sys.modules[type(self.session).__module__.partition(".")[0]]

    def get(self, path: str, limit_bytes: int, *, first: int = 0, ranged: bool = False, name: str = "") -> Reply:
        """One file, or `limit_bytes` of it from `first` on; never more, whatever the server sends.

        Args:
            path: below the endpoint, already quoted.
            limit_bytes: the most that is read [bytes].
            first: where a range begins [bytes].
            ranged: whether a range is asked for.
            name: of the model, for messages.

        Raises:
            SourceError: it cannot be had: the code says why.
        """
        seconds = settings.request_seconds() + limit_bytes / LEAST_BYTES_PER_SECOND * ranged
        late = failures.timed_out(name, self.endpoint, seconds)

        def work() -> Reply:
            return self._try(f"{self.endpoint}/{path}", limit_bytes, first, ranged, seconds, name)

        # the session's own timeout is that of one read: headers that come byte by byte would never end
        return in_parallel([work], seconds + 1, lambda: late)[0]

    def _try(self, url: str, limit_bytes: int, first: int, ranged: bool, seconds: float, name: str) -> Reply:
        """The answer, at the second try where the first broke off."""
        deadline = time.monotonic() + seconds
        for attempt in range(TRIES):
            last = attempt == TRIES - 1
            try:
                reply = self._follow(url, limit_bytes, first, ranged, deadline, name)
            except self._http.TimeoutException:
                raise failures.timed_out(name, self.endpoint, seconds) from None
            except (self._http.HTTPError, self._http.InvalidURL, OSError, ValueError, ImportError) as error:
                if last or time.monotonic() > deadline:
                    raise failures.unreachable(name, self.endpoint, type(error).__name__) from None
                continue
            if reply.status in _AGAIN and not last:
                continue
            return reply
        raise failures.unreachable(name, self.endpoint, "no answer")

    def _follow(self, url: str, limit: int, first: int, ranged: bool, deadline: float, name: str) -> Reply:
        """The answer at the end of the redirects."""
        hub_headers: Mapping[str, str] = {}
        for _ in range(MAXIMUM_REDIRECTS + 1):
            reply = self._once(url, limit, first, ranged, deadline, name)
            hub_headers = hub_headers or reply.headers
            location = reply.headers.get("location", "")
            if reply.status not in _REDIRECTS or not location:
                return reply._replace(hub_headers=hub_headers)
            target = urljoin(url, location)
            check_redirect(self.endpoint, url, target, name)
            url = target
        raise failures.refused(name, "points from one address to the next without end", "hub-redirects")

    def _once(self, url: str, limit: int, first: int, ranged: bool, deadline: float, name: str) -> Reply:
        headers = {"accept-encoding": "identity", "user-agent": f"kvtax/{__version__}"}
        if ranged:
            headers["range"] = f"bytes={first}-{first + limit - 1}"
        if self._token and settings.origin_of(url) == settings.origin_of(self.endpoint):
            headers["authorization"] = f"Bearer {self._token}"
        left = max(deadline - time.monotonic(), 0.1)
        with self.session.stream("GET", url, headers=headers, timeout=left, follow_redirects=False) as response:
            found = {key.lower(): value for key, value in response.headers.items()}
            if response.status_code in _REDIRECTS:
                return Reply(response.status_code, found, {}, b"")
            skip = first if ranged and response.status_code == 200 else 0  # the server does not know ranges
            wanted = limit if response.status_code < 300 else min(limit, 4096)
            body = self._read(response, skip + wanted, deadline, found, name)
            return Reply(response.status_code, found, {}, body[skip:])

    def _read(self, response: Any, limit: int, deadline: float, headers: Mapping[str, str], name: str) -> bytes:
        """At most `limit` bytes of the body, in time; compressed ones are unpacked no further."""
        encoding = headers.get("content-encoding", "identity").lower()
        unpack: Callable[[bytes, int], bytes] | None = None
        if encoding in ("gzip", "deflate"):
            unpacker = zlib.decompressobj(47 if encoding == "gzip" else 15)
            unpack = unpacker.decompress
        elif encoding not in ("", "identity"):
            raise failures.refused(
                name, f"answers in an encoding that was not asked for ({safe(encoding, 32)})", "hub-encoding"
            )
        parts: list[bytes] = []
        held = packed = 0
        for chunk in response.iter_raw(_CHUNK_BYTES):
            if time.monotonic() > deadline:
                raise self._http.ReadTimeout("too slow")
            packed += len(chunk)
            try:
                part = chunk if unpack is None else unpack(chunk, limit - held)
            except zlib.error:
                raise failures.refused(name, "sends a compressed answer that is broken", "hub-encoding") from None
            parts.append(part[: limit - held])
            held += len(parts[-1])
            if held >= limit or packed >= limit:
                break
        return b"".join(parts)


def _session_and_token() -> tuple[Any, str | None]:
    """huggingface_hub's session and the token that it finds; its package reads the environment when it is imported, and takes whole seconds only.

    Raises:
        SourceError: code `hub-environment`: a variable of the environment that it cannot take.
    """
    kept = {name: os.environ[name] for name in _WHOLE_SECONDS if not os.environ.get(name, "0").isdecimal()}
    for name in kept:
        del os.environ[name]
    try:
        from huggingface_hub import get_session, get_token

        return get_session(), get_token()
    except (OSError, ValueError, ImportError) as error:
        raise SourceError(
            f"huggingface_hub cannot work with this environment ({type(error).__name__})",
            code="hub-environment",
            hint="look at HTTPS_PROXY and its kin, HF_HOME, HF_HUB_CACHE, HF_TOKEN_PATH, HF_HUB_DOWNLOAD_TIMEOUT and HF_HUB_ETAG_TIMEOUT",
        ) from None
    finally:
        os.environ.update(kept)


def in_parallel(tasks: Sequence[Callable[[], Result]], seconds: float, late: Callable[[], KvtaxError]) -> list[Result]:
    """The results of tasks, at most eight at once, in order; the first failure ends the rest.

    The threads are daemons: one that hangs in the network holds nobody up.

    Args:
        tasks: to run.
        seconds: that all of them together may take [s].
        late: the error where they take longer.

    Raises:
        KvtaxError: of the first task that fails, or that of `late`.
    """
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Result | None, BaseException | None]] = queue.SimpleQueue()
    stop = threading.Event()
    for index in range(len(tasks)):
        todo.put(index)

    def work() -> None:
        while not stop.is_set():
            try:
                index = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((index, tasks[index](), None))
            except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
                done.put((index, None, error))

    for _ in range(min(AT_ONCE, len(tasks))):
        threading.Thread(target=work, name="kvtax-hub", daemon=True).start()
    deadline = time.monotonic() + seconds
    found: dict[int, Any] = {}
    try:
        while len(found) < len(tasks):
            try:
                index, result, error = done.get(timeout=max(deadline - time.monotonic(), 0.001))
            except queue.Empty:
                raise late() from None
            if error is not None:
                raise error
            found[index] = result
    finally:
        stop.set()
    return [found[index] for index in range(len(tasks))]
