"""Replies as the hub makes them: content by range, /api/models in JSON, refusals with their codes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

from loopback_http import Reply, Request
from loopback_repositories import Content, Repository, chunks_of, etag, git_oid, is_large, large_oid

RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def error_reply(
    request: Request, status: int, code: str | None, message: str, headers: Iterable[tuple[str, str]] = ()
) -> Reply:
    """A refusal as the hub words it: the API in JSON, files in plain text."""
    in_header = message.encode("unicode_escape").decode("ascii")  # a name in it may hold a line break
    given = [("X-Error-Message", in_header), *headers]
    if code:
        given.append(("X-Error-Code", code))
    if status == 401:
        given.append(("WWW-Authenticate", 'Bearer realm="Authentication required", charset="UTF-8"'))
    if request.target.startswith("/api/"):
        return Reply.of(json.dumps({"error": message}).encode(), "application/json; charset=utf-8", status, given)
    return Reply.of(message.encode(), "text/plain; charset=utf-8", status, given)


def json_reply(request: Request, value: Any, headers: Iterable[tuple[str, str]] = ()) -> Reply:
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
    match = RANGE.fullmatch((request.range or "").replace(" ", "")) if request.method == "GET" else None
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
    return json_reply(request, kept)


def refs_reply(request: Request, repository: Repository) -> Reply:
    """Branches of a repository."""
    branches = [
        {"name": name, "ref": f"refs/heads/{name}", "targetCommit": commit} for name, commit in repository.names.items()
    ]
    return json_reply(request, {"tags": [], "branches": branches, "converts": []})


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
