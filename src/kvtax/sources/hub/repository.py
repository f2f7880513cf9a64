"""One revision of a repository on the hub: its files, each read as little as serves."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

from kvtax.errors import ConfigError, SourceError
from kvtax.safe_text import safe
from kvtax.sources.hub import failures
from kvtax.sources.hub.client import Client, Reply
from kvtax.sources.hub.names import HubName, is_commit
from kvtax.sources.hub.remote_file import RemoteFile, is_missing_file
from kvtax.sources.safe_json import parse_json

MAXIMUM_LISTING_BYTES = 16 * 2**20
MAXIMUM_FILES = 50_000


class Repository:
    """A revision; once the first answer has named its commit, everything else is asked of that commit.

    Args:
        client: of the hub.
        name: of the model.
    """

    def __init__(self, client: Client, name: HubName) -> None:
        self.client, self.hub_name, self.title = client, name, safe(str(name))
        self.commit = name.revision if name.is_pinned else ""
        self.pin = self.commit
        self.gguf_parameters: int | None = None

    def read_whole(self, file: str, limit_bytes: int) -> bytes | None:
        """A small file, None where the repository has none of this name; one byte more than the limit where it is longer.

        Raises:
            SourceError: it cannot be had.
        """
        reply = self.client.get(self._path(file), limit_bytes + 1, name=self.title)
        self._note(reply)
        if is_missing_file(reply):
            return None
        if reply.status != 200:
            raise self._failed(reply)
        expected = reply.headers.get("content-length", "")
        plain = reply.headers.get("content-encoding", "identity") in ("", "identity")
        if (
            plain
            and expected.isascii()
            and expected.isdecimal()
            and len(reply.body) < min(int(expected[:19]), limit_bytes)
        ):
            raise failures.refused(self.title, f"breaks off in {file}", "hub-cut")
        return reply.body

    def open(self, file: str) -> RemoteFile:
        """A large file, to be read by range."""
        return RemoteFile(self.client, self._path(file), f"{self.title}: {file}", self.title)

    def list_files(self) -> dict[str, int | None]:
        """Every file with its size: one request. What the hub says of the parameters of GGUF files is kept in `gguf_parameters`.

        Source: huggingface_hub 2.4.0 hf_api.py ModelInfo (sha, siblings, gguf).

        Raises:
            SourceError: it cannot be had, or is no listing.
        """
        revision = quote(self.commit or self.hub_name.revision, safe="")
        path = f"api/models/{self.hub_name.repository}/revision/{revision}?blobs=true"
        reply = self.client.get(path, MAXIMUM_LISTING_BYTES + 1, name=self.title)
        if reply.status != 200:
            raise self._failed(reply)
        try:
            listing, _ = parse_json(reply.body, "the listing", maximum_bytes=MAXIMUM_LISTING_BYTES)
        except ConfigError as error:
            raise failures.refused(self.title, f"sends no listing: {error.message}", "hub-listing") from None
        commit = listing.get("sha")
        if not self.commit and isinstance(commit, str) and is_commit(commit):
            self.commit = self.pin = commit
        gguf = listing.get("gguf")
        total = gguf.get("total") if isinstance(gguf, dict) else None
        if isinstance(total, int) and not isinstance(total, bool) and 0 < total < 2**50:
            self.gguf_parameters = total
        siblings = listing.get("siblings")
        if not isinstance(siblings, list) or len(siblings) > MAXIMUM_FILES:
            raise failures.refused(self.title, "sends no listing of its files", "hub-listing")
        files: dict[str, int | None] = {}
        for one in siblings:
            name = one.get("rfilename") if isinstance(one, dict) else None
            if (
                isinstance(name, str)
                and 0 < len(name) <= 1024
                and ".." not in name.split("/")
                and not name.startswith("/")
            ):
                size = one.get("size")
                files[name] = size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None
        return files

    def _path(self, file: str) -> str:
        revision = quote(self.commit or self.hub_name.revision, safe="")
        return f"{self.hub_name.repository}/resolve/{revision}/{quote(file)}"

    def _note(self, reply: Reply) -> None:
        """Keep the commit of the first answer; where a hub names none, the file's tag or hash stands for it."""
        if self.pin:
            return
        commit = reply.hub_headers.get("x-repo-commit", "")
        if is_commit(commit):
            self.commit = self.pin = commit
        elif reply.status == 200:
            tag = reply.hub_headers.get("etag", "") or hashlib.sha256(reply.body).hexdigest()
            self.pin = f"tag:{tag[:128]}"

    def _failed(self, reply: Reply) -> SourceError:
        client = self.client
        return failures.of_status(
            self.title, client.endpoint, reply.status, reply.hub_headers,
            has_token=client.has_token, withheld=client.token_withheld,
        )  # fmt: skip
