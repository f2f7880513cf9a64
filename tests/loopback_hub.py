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
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Self
from urllib.parse import quote, unquote

from loopback_gzip import Compresses, GzipBomb
from loopback_http import Host, Ledger, Reply, Request
from loopback_misbehaviour import (
    AnswersWith,
    ClosesAtOnce,
    ClosesMidway,
    ContentLengthLies,
    ContentRangeSays,
    Drips,
    DripsHeaders,
    EndlessBody,
    EndlessContinue,
    Fails,
    GiantHeaders,
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
from loopback_replies import content_reply, error_reply, json_reply, model_info, refs_reply, tree_entries
from loopback_repositories import (
    Content,
    LazyFile,
    Repository,
    Tensor,
    checkpoint,
    etag,
    files_of_tensors,
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
        """End all hosts, and whatever they are sending; from then on connections to `url` are refused."""
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
        with self.ledger.lock:
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
            return error_reply(request, 405, None, "Method Not Allowed")
        if request.kind == "content":
            return content_reply(request, self._signed[request.target.partition("?")[0]][3])
        if request.kind == "other":
            registry = request.path == "/api/agent-harnesses"
            return (
                Reply.of(b"{}", "application/json")
                if registry
                else error_reply(request, 404, None, "Sorry, we can't find this page")
            )
        if request.repository in self.renamed:
            new = request.target.replace(request.repository, self.renamed[request.repository], 1)
            return Reply(307, [("Location", new)])
        anyone = request.host == "elsewhere"  # the stranger has the same content, and asks for no token
        repository = self.repositories.get(request.repository)
        if not anyone and (refusal := self._refusal(request, repository)):
            return refusal
        if repository is None:
            return error_reply(request, 404, "RepoNotFound", "Repository not found")
        if request.kind == "refs":
            return refs_reply(request, repository)
        found = repository.find(request.revision)
        if found is None:
            return error_reply(request, 404, "RevisionNotFound", f"Invalid rev id: {request.revision}")
        if request.kind == "info":
            return model_info(request, repository, *found)
        if request.kind == "tree":
            return self._tree(request, route.get("below", ""), *found)
        return self._file(request, *found)

    def _refusal(self, request: Request, repository: Repository | None) -> Reply | None:
        """Why this token may not see that; 401 without one where 403 or 404 would say that something is there."""
        name, token = request.repository, request.token
        if token is not None and self.tokens is not None and token not in self.tokens:
            return error_reply(request, 401, None, "Invalid credentials in Authorization header")
        trusted = repository is not None and token in repository.tokens
        if repository is None or (repository.private and not trusted):
            if token is None:
                return error_reply(request, 401, "RepoNotFound", "Invalid username or password.")
            return error_reply(request, 404, "RepoNotFound", "Repository not found")
        if repository.disabled:
            return error_reply(request, 403, None, "Access to this resource is disabled.")
        if repository.gated and request.kind in ("resolve", "cache") and not trusted:
            restricted = f"Access to model {name} is restricted"
            if token is None:
                detail = f"{restricted}. You must have access to it and be authenticated to access it. Please log in."
                return error_reply(request, 401, "GatedRepo", detail)
            detail = f"{restricted} and you are not in the authorized list. Visit {self.url}/{name} to ask for access."
            return error_reply(request, 403, "GatedRepo", detail)
        return None

    def _file(self, request: Request, commit: str, files: dict[str, Content]) -> Reply:
        content = files.get(request.file)
        if content is None:
            return error_reply(request, 404, "EntryNotFound", "Entry not found", [("X-Repo-Commit", commit)])
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
            return error_reply(request, 404, "EntryNotFound", f'{below} does not exist on "{request.revision}"')
        start = int(request.query.get("cursor", ["0"])[0])
        reply = json_reply(request, entries[start : start + self.tree_page], [("X-Repo-Commit", commit)])
        if start + self.tree_page < len(entries):
            address, _, query = request.target.partition("?")
            kept = [part for part in query.split("&") if part and not part.startswith("cursor=")]
            following = "&".join([*kept, f"cursor={start + self.tree_page}"])
            reply.headers.append(("Link", f'<{self.url}{address}?{following}>; rel="next"'))
        return reply
