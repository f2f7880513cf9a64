"""A stand-in of the Hugging Face hub on loopback, for tests of what talks to it.

    with LoopbackHub({"acme/llama": repository_from_checkpoint("meta-llama--Meta-Llama-3-8B.json", shards=4)}) as hub:
        hub.misbehave(Fails(503), path="config.json", times=1)
        ...  # HF_ENDPOINT=hub.url
        hub.requests, hub.most_at_once, hub.bytes_sent["acme/llama/config.json"], hub.weight_bytes_sent

It answers as huggingface.co does (2026): statuses, X-Error-Code, X-Repo-Commit, X-Linked-Etag, X-Linked-Size, ranges, 304. With
`cdn=True` large files are redirected to a second server, with `cache=True` small ones to /api/resolve-cache. Tests need
`@pytest.mark.allow_hosts(["127.0.0.1"])`, which keeps every other address blocked.

Source: huggingface_hub 2.4.0 (file_download.py, utils/_http.py: what it reads from replies), huggingface.co/docs/hub/rate-limits,
huggingface/swift-transformers pull request 209 (resolve-cache), huggingface/huggingface.js issue 1713 (304).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, unquote

from loopback_http import Host, Ledger, Reply, Request
from loopback_misbehaviour import (
    AnswersWith,
    ClosesAtOnce,
    ClosesMidway,
    Compresses,
    ContentLengthLies,
    ContentRangeSays,
    Drips,
    DripsHeaders,
    EndlessBody,
    EndlessContinue,
    Fails,
    GiantHeaders,
    GzipBomb,
    HtmlPage,
    IgnoresRanges,
    LimitsRate,
    Misbehaviour,
    NeverAnswers,
    NoCommit,
    RedirectsElsewhere,
    RedirectsInALoop,
    RedirectsManyTimes,
    RedirectsTo,
    SendsNoLength,
    SendsOtherRange,
    SendsRaw,
    SetsHeader,
    StopsMidway,
    Waits,
)
from loopback_repositories import (
    Content,
    LazyFile,
    Repository,
    Tensor,
    checkpoint,
    chunks_of,
    etag,
    files_of_tensors,
    git_oid,
    is_large,
    large_oid,
    repository_from_checkpoint,
    repository_of_200_shards,
    safetensors_header,
    shard,
    shard_name,
    tensors_of_checkpoint,
)

__all__ = [
    "API", "FILES", "INFO", "TREE", "AnswersWith", "ClosesAtOnce", "ClosesMidway", "Compresses", "Content", "ContentLengthLies",
    "ContentRangeSays", "Drips", "DripsHeaders", "EndlessBody", "EndlessContinue", "Fails", "GiantHeaders", "GzipBomb", "HtmlPage",
    "IgnoresRanges", "LazyFile", "LimitsRate", "LoopbackHub", "Misbehaviour", "NeverAnswers", "NoCommit", "RedirectsElsewhere",
    "RedirectsInALoop", "RedirectsManyTimes", "RedirectsTo", "Reply", "Repository", "Request", "SendsNoLength", "SendsOtherRange",
    "SendsRaw", "SetsHeader", "StopsMidway", "Tensor", "Waits", "checkpoint", "files_of_tensors", "repository_from_checkpoint",
    "repository_of_200_shards", "safetensors_header", "shard", "shard_name", "tensors_of_checkpoint",
]  # fmt: skip

INFO, TREE, API, FILES = "(info)", "(tree)", "(*)", "[!(]*"
"""Values of `path` of misbehave() for what is no file: /api/models/..., its /tree/, all of the API; and for any file."""
ROUTES = [
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("tree", r"/api/models/(?P<repository>[^/]+(?:/[^/]+)?)/tree/(?P<revision>[^/]+)(?:/(?P<below>.+))?"),
        ("refs", r"/api/models/(?P<repository>[^/]+(?:/[^/]+)?)/refs"),
        ("info", r"/api/models/(?P<repository>[^/]+(?:/[^/]+)?)/revision/(?P<revision>[^/]+)"),
        ("info", r"/api/models/(?P<repository>[^/]+(?:/[^/]+)?)"),
        ("cache", r"/api/resolve-cache/models/(?P<repository>[^/]+/[^/]+)/(?P<revision>[0-9a-f]{40})/(?P<file>.+)"),
        ("resolve", r"/(?P<repository>[^/]+(?:/[^/]+)?)/resolve/(?P<revision>[^/]+)/(?P<file>.+)"),
    )
]
RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@dataclass
class Rule:
    """A misbehaviour and where it shows; `used` counts how often it did."""

    misbehaviour: Misbehaviour
    path: str
    repository: str
    times: int | None
    host: str | None
    used: int = 0

    def matches(self, request: Request) -> bool:
        return (
            self.host in (None, request.host)
            and (self.times is None or self.used < self.times)
            and fnmatchcase(request.subject, self.path)
            and fnmatchcase(request.repository, self.repository)
        )


class LoopbackHub:
    """A hub of these repositories, from `with` to the end of its block; other hosts beside it.

    Args:
        repositories: `org/name` -> Repository, or just its files.
        tokens: tokens that are somebody's; any other is refused (401) even for public repositories. None: any token is somebody's.
        cdn: large files are redirected (302) to `hub.cdn`, with addresses that need no token.
        cache: small files are redirected (307) to /api/resolve-cache.
        renamed: old name -> new name (307).
        latency_seconds: before each reply; makes `most_at_once` of quick requests meaningful.
        tree_page: entries of /tree/ at once; the next page is in the Link header.
    """

    def __init__(
        self,
        repositories: Mapping[str, Repository | Mapping[str, Content]],
        *,
        tokens: Iterable[str] | None = None,
        cdn: bool = False,
        cache: bool = False,
        renamed: Mapping[str, str] | None = None,
        latency_seconds: float = 0.0,
        tree_page: int = 1000,
    ) -> None:
        self.repositories = {
            name: found if isinstance(found, Repository) else Repository(found) for name, found in repositories.items()
        }
        self.tokens = None if tokens is None else frozenset(tokens)
        self.uses_cdn, self.uses_cache, self.renamed = cdn, cache, dict(renamed or {})
        self.tree_page = tree_page
        self.ledger = Ledger()
        self.rules: list[Rule] = []
        self._signed: dict[
            str, tuple[str, str, str, Content]
        ] = {}  # path on the CDN -> repository, commit, file, content
        self.hub = Host("hub", self._answer, self.ledger, latency_seconds)
        self.cdn = Host("cdn", self._answer, self.ledger, latency_seconds)
        self.elsewhere = Host("elsewhere", self._answer, self.ledger, latency_seconds)
        self.url = self.hub.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if error is None and self.ledger.faults:
            raise AssertionError("the stand-in itself failed") from self.ledger.faults[0]

    def close(self) -> None:
        """End all hosts, and whatever they are sending."""
        for host in (self.hub, self.cdn, self.elsewhere):
            host.close()

    def misbehave(
        self,
        misbehaviour: Misbehaviour,
        path: str = "*",
        repository: str = "*",
        times: int | None = None,
        host: str | None = "",
    ) -> Rule:
        """From now on, do this wrong.

        Args:
            misbehaviour: one of loopback_misbehaviour.
            path: pattern of files (`config.json`, `*.safetensors`), or INFO, TREE, API, FILES; `*` for all of these.
            repository: pattern of repositories.
            times: how often; None: always.
            host: `hub`, `cdn`, `elsewhere`, None for all; "" for what suits the misbehaviour.

        Returns:
            The rule; `rule.used` counts, `hub.rules.remove(rule)` ends it.
        """
        rule = Rule(misbehaviour, path, repository, times, misbehaviour.host if host == "" else host)
        self.rules.append(rule)
        return rule

    @property
    def requests(self) -> list[Request]:
        """What came to the hub itself; see `hub.cdn.requests` and `hub.elsewhere.requests` for the others."""
        return self.hub.requests

    @property
    def most_at_once(self) -> int:
        """The largest number of requests in flight, all hosts together."""
        return self.ledger.most_at_once

    @property
    def bytes_sent(self) -> dict[str, int]:
        """Bytes of bodies by `org/name/file` (all hosts together), or by path for what is no file."""
        return dict(self.ledger.bytes_sent)

    @property
    def weight_bytes_sent(self) -> int:
        """Bytes of lazy files beyond their headers; a read that ends in the weights counts its part of them."""
        return self.ledger.weight_bytes_sent

    @property
    def tokens_that_left(self) -> list[str]:
        """Authorization headers that other hosts than the hub got."""
        others = (request for request in self.ledger.requests if request.host != "hub")
        return [request.headers["Authorization"] for request in others if request.headers["Authorization"] is not None]

    # ---- replies ----

    def _answer(self, request: Request) -> Reply:
        route = self._route(request)
        active = []
        for rule in self.rules:
            if rule.matches(request):
                rule.used += 1
                active.append(rule.misbehaviour)
        for misbehaviour in active:
            instead = misbehaviour.before(request, self)
            if instead is not None:
                return instead
        reply = self._honest(request, route)
        for misbehaviour in active:
            reply = misbehaviour.after(request, reply, self)
        return reply

    def _route(self, request: Request) -> dict[str, str]:
        """What the address names; noted in the request."""
        path = request.target.partition("?")[0]
        if path in self._signed:
            request.kind = "content"
            request.repository, request.revision, request.file, _ = self._signed[path]
            return {}
        for kind, pattern in ROUTES:
            if match := pattern.fullmatch(path):
                found = {name: unquote(part) for name, part in match.groupdict().items() if part is not None}
                request.kind, request.repository = kind, found["repository"]
                request.revision, request.file = found.get("revision", "main"), found.get("file", "")
                return found
        return {}

    def _honest(self, request: Request, route: dict[str, str]) -> Reply:
        if request.method not in ("GET", "HEAD"):
            return _error(request, 405, None, "Method Not Allowed")
        if request.kind == "content":
            return content_reply(request, self._signed[request.target.partition("?")[0]][3])
        if request.kind == "other":
            registry = request.path == "/api/agent-harnesses"
            return (
                Reply.of(b"{}", "application/json")
                if registry
                else _error(request, 404, None, "Sorry, we can't find this page")
            )
        if request.repository in self.renamed:
            new = request.target.replace(request.repository, self.renamed[request.repository], 1)
            return Reply(307, [("Location", new)])
        anyone = request.host == "elsewhere"  # the stranger has the same content, and asks for no token
        repository = self.repositories.get(request.repository)
        if not anyone and (refusal := self._refusal(request, repository)):
            return refusal
        if repository is None:
            return _error(request, 404, "RepoNotFound", "Repository not found")
        if request.kind == "refs":
            return _refs(request, repository)
        found = repository.find(request.revision)
        if found is None:
            return _error(request, 404, "RevisionNotFound", f"Invalid rev id: {request.revision}")
        if request.kind == "info":
            return model_info(request, repository, *found)
        if request.kind == "tree":
            return self._tree(request, route.get("below", ""), *found)
        return self._file(request, *found)

    def _refusal(self, request: Request, repository: Repository | None) -> Reply | None:
        """Why this token may not see that; 401 without one where 403 or 404 would say that something is there."""
        name, token = request.repository, request.token
        if token is not None and self.tokens is not None and token not in self.tokens:
            return _error(request, 401, None, "Invalid credentials in Authorization header")
        trusted = repository is not None and token in repository.tokens
        if repository is None or (repository.private and not trusted):
            if token is None:
                return _error(request, 401, "RepoNotFound", "Invalid username or password.")
            return _error(request, 404, "RepoNotFound", "Repository not found")
        if repository.disabled:
            return _error(request, 403, None, "Access to this resource is disabled.")
        if repository.gated and request.kind in ("resolve", "cache") and not trusted:
            restricted = f"Access to model {name} is restricted"
            if token is None:
                detail = f"{restricted}. You must have access to it and be authenticated to access it. Please log in."
                return _error(request, 401, "GatedRepo", detail)
            detail = f"{restricted} and you are not in the authorized list. Visit {self.url}/{name} to ask for access."
            return _error(request, 403, "GatedRepo", detail)
        return None

    def _file(self, request: Request, commit: str, files: dict[str, Content]) -> Reply:
        content = files.get(request.file)
        if content is None:
            return _error(request, 404, "EntryNotFound", "Entry not found", [("X-Repo-Commit", commit)])
        tag, large = etag(request.file, content), is_large(request.file, content)
        headers = [("X-Repo-Commit", commit)]
        if large:
            headers += [("X-Linked-Etag", tag), ("X-Linked-Size", str(len(content)))]
        if request.headers.get("If-None-Match") == tag:
            return Reply(304, [*headers, ("ETag", tag)])
        if self.uses_cdn and large and request.host == "hub":
            return Reply(302, [*headers, ("Location", self._sign(request, commit, content))])
        if self.uses_cache and not large and request.kind == "resolve" and request.host == "hub":
            address = f"/api/resolve-cache/models/{request.repository}/{commit}/{quote(request.file)}"
            query = f"{quote(request.path, safe='')}=&etag={quote(tag)}"
            return Reply(307, [*headers, ("ETag", tag), ("Location", f"{address}?{query}")])
        reply = content_reply(request, content)
        reply.headers = [*headers, *reply.headers]
        return reply

    def _sign(self, request: Request, commit: str, content: Content) -> str:
        """An address on the CDN that is good for one file, without a token."""
        secret = hashlib.sha256(f"{request.repository}/{request.file}".encode()).hexdigest()[:24]
        path = f"/xet-bridge-us/{secret}/{large_oid(content)}"
        self._signed[path] = (request.repository, commit, request.file, content)
        return f"{self.cdn.url}{path}?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=3600&X-Amz-Signature={secret}"

    def _tree(self, request: Request, below: str, commit: str, files: dict[str, Content]) -> Reply:
        entries = tree_entries(files, below, request.query.get("recursive", ["false"])[0].lower() in ("true", "1"))
        if below and not entries:
            return _error(request, 404, "EntryNotFound", f'{below} does not exist on "{request.revision}"')
        start = int(request.query.get("cursor", ["0"])[0])
        reply = _json(request, entries[start : start + self.tree_page], [("X-Repo-Commit", commit)])
        if start + self.tree_page < len(entries):
            address, _, query = request.target.partition("?")
            kept = [part for part in query.split("&") if part and not part.startswith("cursor=")]
            following = "&".join([*kept, f"cursor={start + self.tree_page}"])
            reply.headers.append(("Link", f'<{self.url}{address}?{following}>; rel="next"'))
        return reply


def _error(
    request: Request, status: int, code: str | None, message: str, headers: Iterable[tuple[str, str]] = ()
) -> Reply:
    """A refusal as the hub words it: the API in JSON, files in plain text."""
    given = [("X-Error-Message", message), *headers]
    if code:
        given.append(("X-Error-Code", code))
    if status == 401:
        given.append(("WWW-Authenticate", 'Bearer realm="Authentication required", charset="UTF-8"'))
    if request.target.startswith("/api/"):
        return Reply.of(json.dumps({"error": message}).encode(), "application/json; charset=utf-8", status, given)
    return Reply.of(message.encode(), "text/plain; charset=utf-8", status, given)


def _json(request: Request, value: Any, headers: Iterable[tuple[str, str]] = ()) -> Reply:
    body = json.dumps(value).encode()
    tag = f'W/"{len(body):x}-{hashlib.sha256(body).hexdigest()[:27]}"'
    limits = [("RateLimit", '"api";r=499;t=120'), ("RateLimit-Policy", '"fixed window";"api";q=500;w=300')]
    if request.headers.get("If-None-Match") == tag:
        return Reply(304, [("ETag", tag), *headers, *limits])
    return Reply.of(body, "application/json; charset=utf-8", 200, [("ETag", tag), *headers, *limits])


def content_reply(request: Request, content: Content) -> Reply:
    """A file or the range of it that was asked for: 200, 206 or 416."""
    size = len(content)
    headers = [
        ("Content-Type", "application/octet-stream"),
        ("ETag", etag(request.file, content)),
        ("Accept-Ranges", "bytes"),
    ]
    match = RANGE.fullmatch((request.headers.get("Range") or "").replace(" ", "")) if request.method == "GET" else None
    if match is None or match.groups() == ("", ""):
        return Reply(200, headers, chunks_of(content, 0, size), size)
    first, last = match.groups()
    start = int(first) if first else max(0, size - int(last))
    stop = min(int(last) + 1, size) if first and last else size
    if start >= size or (first and last and int(last) < start):
        return Reply.of(b"", "text/plain", 416, [("Content-Range", f"bytes */{size}")])
    headers.append(("Content-Range", f"bytes {start}-{stop - 1}/{size}"))
    return Reply(206, headers, chunks_of(content, start, stop), stop - start)


def model_info(request: Request, repository: Repository, commit: str, files: dict[str, Content]) -> Reply:
    """What /api/models/{org}/{name} says; sizes with ?blobs=true, only some fields with ?expand=."""
    blobs = request.query.get("blobs", ["false"])[0].lower() in ("true", "1")
    siblings = []
    for path, content in sorted(files.items()):
        entry: dict[str, Any] = {"rfilename": path}
        if blobs:
            entry |= {"blobId": git_oid(content), "size": len(content)}
            if is_large(path, content):
                entry["lfs"] = {"sha256": large_oid(content), "size": len(content), "pointerSize": 135}
        siblings.append(entry)
    info = {
        "_id": commit[:24],
        "id": request.repository,
        "modelId": request.repository,
        "author": request.repository.partition("/")[0],
        "sha": commit,
        "lastModified": "2026-11-30T12:00:00.000Z",
        "createdAt": "2026-11-01T12:00:00.000Z",
        "private": repository.private,
        "gated": repository.gated,
        "disabled": repository.disabled,
        "downloads": 1000,
        "likes": 10,
        "tags": repository.tags,
        "pipeline_tag": repository.pipeline_tag,
        "library_name": repository.library_name,
        "siblings": siblings,
        "usedStorage": sum(len(content) for content in files.values()),
        **repository.info,
    }
    wanted = {*request.query.get("expand", []), *request.query.get("expand[]", [])}
    kept = {
        key: value for key, value in info.items() if value is not None and (not wanted or key in {"_id", "id", *wanted})
    }
    return _json(request, kept)


def _refs(request: Request, repository: Repository) -> Reply:
    """Branches of a repository."""
    branches = [
        {"name": name, "ref": f"refs/heads/{name}", "targetCommit": commit} for name, commit in repository.names.items()
    ]
    return _json(request, {"tags": [], "branches": branches, "converts": []})


def tree_entries(files: dict[str, Content], below: str, recursive: bool) -> list[dict[str, Any]]:
    """Files and folders under a folder, as /tree/ lists them."""
    start = f"{below.strip('/')}/" if below else ""
    folders: dict[str, dict[str, Any]] = {}
    found = []
    for path, content in sorted(files.items()):
        if not path.startswith(start):
            continue
        *parents, _ = path[len(start) :].split("/")
        for depth in range(1, len(parents) + 1 if recursive else min(2, len(parents) + 1)):
            folder = start + "/".join(parents[:depth])
            folders[folder] = {"type": "directory", "oid": git_oid(folder.encode()), "size": 0, "path": folder}
        if parents and not recursive:
            continue
        entry: dict[str, Any] = {"type": "file", "oid": git_oid(content), "size": len(content), "path": path}
        if is_large(path, content):
            entry["lfs"] = {"oid": large_oid(content), "size": len(content), "pointerSize": 135}
        found.append(entry)
    return [*folders.values(), *found]
