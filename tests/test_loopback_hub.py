"""The stand-in of the hub talks as the real one, counts what it sends, and misbehaves as it is told to."""

from __future__ import annotations

import http.client
import json
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from loopback_hub import (
    API,
    INFO,
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
    LazyFile,
    LimitsRate,
    LoopbackHub,
    NeverAnswers,
    NoCommit,
    RedirectsElsewhere,
    RedirectsInALoop,
    RedirectsManyTimes,
    RedirectsTo,
    Repository,
    SendsNoLength,
    SendsOtherRange,
    SendsRaw,
    StopsMidway,
    Waits,
    checkpoint,
    repository_from_checkpoint,
    repository_of_200_shards,
    shard_name,
    tensors_of_checkpoint,
)
from loopback_repositories import CHECKPOINTS

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

CONFIG = b'{"model_type": "llama"}'
WEIGHTS = LazyFile(5_000_000_000, b"HEADER")
PLAIN = {"config.json": CONFIG, "sub/notes.txt": b"notes", "model.safetensors": WEIGHTS}
AT_CONFIG, AT_WEIGHTS = "/acme/llama/resolve/main/config.json", "/acme/llama/resolve/main/model.safetensors"


class Got(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes


def ask(
    hub: LoopbackHub, target: str, *, method: str = "GET", at: str | None = None, timeout: float = 5, **headers: str
) -> Got:
    """One request on a connection of its own; underscores in names of headers are hyphens."""
    connection = http.client.HTTPConnection((at or hub.url).removeprefix("http://"), timeout=timeout)
    try:
        connection.request(method, target, headers={name.replace("_", "-"): value for name, value in headers.items()})
        reply = connection.getresponse()
        return Got(reply.status, reply.headers, reply.read())
    finally:
        connection.close()


# ---- the honest hub ----


def test_a_file_whole_and_by_range():
    with LoopbackHub({"acme/llama": Repository(PLAIN, commit="c" * 40)}) as hub:
        whole = ask(hub, AT_CONFIG)
        assert (whole.status, whole.body) == (200, CONFIG)
        assert whole.headers["X-Repo-Commit"] == "c" * 40
        assert len(whole.headers["ETag"]) == 42
        assert ask(hub, AT_CONFIG, If_None_Match=whole.headers["ETag"]).status == 304
        head = ask(hub, AT_WEIGHTS, method="HEAD")
        assert (head.headers["Content-Length"], head.headers["X-Linked-Size"], head.body) == (
            "5000000000",
            "5000000000",
            b"",
        )
        assert head.headers["X-Linked-Etag"] == head.headers["ETag"]
        for asked, said, body in (
            ("bytes=2-9", "bytes 2-9/5000000000", b"ADER" + bytes(4)),
            ("bytes=-3", "bytes 4999999997-4999999999/5000000000", bytes(3)),
            ("bytes=4999999998-6000000000", "bytes 4999999998-4999999999/5000000000", bytes(2)),
        ):
            part = ask(hub, AT_WEIGHTS, Range=asked)
            assert (part.status, part.headers["Content-Range"], part.body) == (206, said, body)
        beyond = ask(hub, AT_WEIGHTS, Range="bytes=5000000000-")
        assert (beyond.status, beyond.headers["Content-Range"]) == (416, "bytes */5000000000")
        assert hub.weight_bytes_sent == 4 + 3 + 2
        assert hub.bytes_sent == {"acme/llama/config.json": len(CONFIG), "acme/llama/model.safetensors": 8 + 3 + 2}
        assert [request.headers.get("range") for request in hub.requests[-2:]] == [
            "bytes=4999999998-6000000000",
            "bytes=5000000000-",
        ]


REFUSALS = [
    ("/acme/llama/resolve/main/none.json", "", 404, "EntryNotFound"),
    ("/acme/llama/resolve/v9/config.json", "", 404, "RevisionNotFound"),
    ("/acme/llama/resolve/a%0d%0a%C3%A9%2Fb/config.json", "", 404, "RevisionNotFound"),
    ("/acme/none/resolve/main/config.json", "", 401, "RepoNotFound"),
    ("/acme/none/resolve/main/config.json", "hf_other", 404, "RepoNotFound"),
    ("/acme/private/resolve/main/config.json", "", 401, "RepoNotFound"),
    ("/acme/private/resolve/main/config.json", "hf_other", 404, "RepoNotFound"),
    ("/acme/private/resolve/main/config.json", "hf_mine", 200, None),
    ("/acme/gated/resolve/main/config.json", "", 401, "GatedRepo"),
    ("/acme/gated/resolve/main/config.json", "hf_other", 403, "GatedRepo"),
    ("/acme/gated/resolve/main/config.json", "hf_mine", 200, None),
    ("/acme/llama/resolve/main/config.json", "hf_wrong", 401, None),
    ("/acme/disabled/resolve/main/config.json", "", 403, None),
    ("/api/models/acme/none", "", 401, "RepoNotFound"),
    ("/api/models/acme/gated", "", 200, None),
    ("/api/models/acme/llama/revision/v9", "", 404, "RevisionNotFound"),
]


def test_refusals():
    repositories = {
        "acme/llama": PLAIN,
        "acme/private": Repository(PLAIN, private=True, tokens=["hf_mine"]),
        "acme/gated": Repository(PLAIN, gated="manual", tokens=["hf_mine"]),
        "acme/disabled": Repository(PLAIN, disabled=True),
    }
    with LoopbackHub(repositories, tokens=["hf_mine", "hf_other"]) as hub:
        for target, token, status, code in REFUSALS:
            got = ask(hub, target, **({"Authorization": f"Bearer {token}"} if token else {}))
            assert (got.status, got.headers["X-Error-Code"]) == (status, code), (target, token)
            assert (got.headers["X-Error-Message"] is None) == (status == 200)
        assert ask(hub, "/api/models/acme/llama", method="POST").status == 405


def test_model_info_and_tree():
    with LoopbackHub({"acme/llama": Repository(PLAIN, info={"likes": None, "sha": "x"})}, tree_page=2) as hub:
        found = json.loads(ask(hub, "/api/models/acme/llama?blobs=true").body)
        assert (found["id"], found["sha"], found["private"], found["gated"]) == ("acme/llama", "x", False, False)
        assert "likes" not in found
        sizes = {entry["rfilename"]: (entry["size"], entry.get("lfs", {}).get("size")) for entry in found["siblings"]}
        weights = 5_000_000_000
        assert sizes == {"config.json": (23, None), "sub/notes.txt": (5, None), "model.safetensors": (weights, weights)}
        assert "size" not in json.loads(ask(hub, "/api/models/acme/llama").body)["siblings"][0]
        assert set(json.loads(ask(hub, "/api/models/acme/llama?expand=gated").body)) == {"_id", "id", "gated"}
        first = ask(hub, "/api/models/acme/llama/tree/main?recursive=true")
        following = first.headers["Link"].partition(">")[0].removeprefix(f"<{hub.url}")
        entries = json.loads(first.body) + json.loads(ask(hub, following).body)
        assert [entry["path"] for entry in entries] == ["sub", "config.json", "model.safetensors", "sub/notes.txt"]


def test_redirects_of_the_real_hub():
    with LoopbackHub({"acme/llama": PLAIN}, cdn=True, cache=True, renamed={"acme/old": "acme/llama"}) as hub:
        moved = ask(hub, AT_CONFIG)
        assert moved.status == 307 and moved.headers["X-Repo-Commit"]
        assert moved.headers["Location"].startswith("/api/resolve-cache/models/acme/llama/")
        assert ask(hub, moved.headers["Location"]).body == CONFIG
        large = ask(hub, AT_WEIGHTS, method="HEAD")
        assert large.status == 302 and large.headers["X-Linked-Size"] == "5000000000"
        address = large.headers["Location"].removeprefix(hub.cdn.url)
        part = ask(hub, address, at=hub.cdn.url, Range="bytes=0-5", Authorization="Bearer hf_leak")
        assert (part.status, part.body, part.headers["X-Repo-Commit"]) == (206, b"HEADER", None)
        assert hub.tokens_that_left == ["Bearer hf_leak"]
        assert hub.cdn.requests[0].file == "model.safetensors"
        assert ask(hub, "/acme/old/resolve/main/config.json").headers["Location"] == AT_CONFIG


def test_a_commit_stays_when_the_branch_moves_on():
    with LoopbackHub({"acme/llama": Repository(PLAIN, revisions={"v1": {"config.json": b"one"}})}) as hub:
        repository = hub.repositories["acme/llama"]
        before = repository.commit
        after = repository.push({"config.json": b"two"})
        assert before != after
        for revision, body in (("main", b"two"), (before, CONFIG), (after, b"two"), ("v1", b"one")):
            assert ask(hub, f"/acme/llama/resolve/{revision}/config.json").body == body


def test_requests_at_once_and_connections_are_counted():
    with LoopbackHub({"acme/llama": PLAIN}, latency_seconds=0.3) as hub:
        threads = [threading.Thread(target=ask, args=(hub, AT_CONFIG)) for _ in range(7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert hub.most_at_once == 7
    with LoopbackHub({"acme/llama": PLAIN}) as hub:
        connection = http.client.HTTPConnection(hub.url.removeprefix("http://"), timeout=5)
        for _ in range(50):
            connection.request("GET", AT_CONFIG)
            connection.getresponse().read()
        connection.close()
        assert (hub.most_at_once, hub.hub.connections, len(hub.requests)) == (1, 1, 50)
        assert all(request.ended >= request.began for request in hub.requests)


def test_eight_workers_are_never_counted_as_more():
    """A request is over before its last byte goes out, so that the next one of the same worker does not overlap it."""
    with LoopbackHub({"acme/large": repository_of_200_shards()}, cdn=True) as hub:

        def read(number: int) -> bytes:
            target = f"/acme/large/resolve/main/{shard_name(number, 200)}"
            place = ask(hub, target, Range="bytes=0-99999").headers["Location"].removeprefix(hub.cdn.url)
            return ask(hub, place, at=hub.cdn.url, Range="bytes=0-99999").body

        with ThreadPoolExecutor(8) as pool:
            parts = list(pool.map(read, range(1, 201)))
        files = hub.repositories["acme/large"].files
        shards = [files[shard_name(number, 200)] for number in range(1, 201)]
        assert [len(part) for part in parts] == [min(100_000, shard.size) for shard in shards]
        assert len(hub.requests) == len(hub.cdn.requests) == 200
        assert 1 < hub.most_at_once <= 8
        assert hub.weight_bytes_sent == sum(
            len(part) - len(shard.header) for part, shard in zip(parts, shards, strict=True)
        )


# ---- huggingface_hub takes it for the real one ----


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Makes an HfApi for a hub; nothing is cached from test to test."""
    import huggingface_hub
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield lambda hub, token=False: huggingface_hub.HfApi(endpoint=hub.url, token=token)
    huggingface_hub.close_session()


@pytest.mark.parametrize("behind", [False, True], ids=["direct", "redirected"])
def test_the_official_client_reads_a_sharded_model(api, tmp_path: Path, behind: bool):
    repository = repository_from_checkpoint("meta-llama--Meta-Llama-3-8B.json", 4, header_bytes={2: 150_001})
    with LoopbackHub({"acme/llama": repository}, cdn=behind, cache=behind) as hub:
        info = api(hub).model_info("acme/llama", files_metadata=True)
        assert (info.sha, info.gated, info.safetensors.total) == (repository.commit, False, 8_030_261_248)
        shard = next(one for one in info.siblings if one.rfilename == "model-00002-of-00004.safetensors")
        assert shard.size == shard.lfs.size == repository.files[shard.rfilename].size
        found = api(hub).get_safetensors_metadata("acme/llama")
        assert found.parameter_count == {"BF16": 8_030_261_248}
        assert len(found.files_metadata) == 4
        asked = [
            request for request in hub.requests if request.method == "GET" and request.file.endswith(".safetensors")
        ]
        assert len(asked) == 4 + 1  # each shard, one of them twice
        assert len(hub.cdn.requests) == (len(asked) if behind else 0)
        path = Path(api(hub).hf_hub_download("acme/llama", "config.json", cache_dir=tmp_path))
        assert path.read_bytes() == repository.files["config.json"]
        assert path.parent.name == repository.commit
        listed = {entry.path: entry.size for entry in api(hub).list_repo_tree("acme/llama", recursive=True)}
        assert listed == {name: len(content) for name, content in repository.files.items()}


def test_the_official_client_understands_the_refusals(api):
    from huggingface_hub import errors

    repositories = {
        "acme/llama": PLAIN,
        "acme/private": Repository(PLAIN, private=True, tokens=["hf_mine"]),
        "acme/gated": Repository(PLAIN, gated="auto", tokens=["hf_mine"]),
        "acme/disabled": Repository(PLAIN, disabled=True),
    }
    expected = [
        ("acme/none", "main", "config.json", False, errors.RepositoryNotFoundError),
        ("acme/private", "main", "config.json", "hf_other", errors.RepositoryNotFoundError),
        ("acme/gated", "main", "config.json", False, errors.GatedRepoError),
        ("acme/gated", "main", "config.json", "hf_other", errors.GatedRepoError),
        ("acme/llama", "v9", "config.json", False, errors.RevisionNotFoundError),
        ("acme/llama", "main", "none.json", False, errors.RemoteEntryNotFoundError),
        ("acme/disabled", "main", "config.json", False, errors.DisabledRepoError),
    ]
    with LoopbackHub(repositories, tokens=["hf_mine", "hf_other"]) as hub:
        for name, revision, file, token, error in expected:
            url = f"{hub.url}/{name}/resolve/{revision}/{file}"
            with pytest.raises(error):
                api(hub).get_hf_file_metadata(url=url, token=token)
        url = f"{hub.url}/acme/private/resolve/main/config.json"
        assert api(hub, "hf_mine").get_hf_file_metadata(url=url).size == 23
        hub.misbehave(LimitsRate(reset_seconds=17))
        with pytest.raises(errors.HfHubHTTPError, match="Retry after 17 seconds"):
            api(hub).model_info("acme/llama")


# ---- repositories of real shapes ----

REAL = sorted(path.name for path in CHECKPOINTS.glob("[!v]*.json"))


@pytest.mark.parametrize("name", REAL)
def test_shards_hold_what_the_checkpoint_holds(name: str):
    found, tensors = checkpoint(name), tensors_of_checkpoint(name)
    assert len({tensor.name for tensor in tensors}) == len(tensors) == sum(entry["count"] for entry in found["tensors"])
    assert sum(tensor.bytes for tensor in tensors) == found["bytes"]


def test_layers_that_differ_have_their_numbers():
    deepseek = {tensor.name for tensor in tensors_of_checkpoint("deepseek-ai--DeepSeek-V3.json")}
    for layer, part in (
        (2, "mlp.up_proj"),
        (3, "mlp.experts.255.up_proj"),
        (61, "mlp.experts.0.up_proj"),
        (61, "eh_proj"),
    ):
        assert f"model.layers.{layer}.{part}.weight" in deepseek
    assert not {"model.layers.3.mlp.up_proj.weight", "model.layers.2.mlp.gate.weight"} & deepseek
    qwen = {tensor.name for tensor in tensors_of_checkpoint("Qwen--Qwen3-Next-80B-A3B-Instruct.json")}
    assert {"model.layers.0.linear_attn.A_log", "model.layers.3.self_attn.q_proj.weight"} <= qwen
    assert "model.layers.0.self_attn.q_proj.weight" not in qwen


@pytest.mark.parametrize("shards", [1, 4, 291])
def test_headers_are_those_of_safetensors(shards: int):
    repository = repository_from_checkpoint("meta-llama--Meta-Llama-3-8B.json", shards, header_bytes={shards: 100_003})
    files = {path: content for path, content in repository.files.items() if path.endswith(".safetensors")}
    assert len(files) == shards
    index = json.loads(repository.files["model.safetensors.index.json"]) if shards > 1 else None
    total_bytes = 0
    for number, (path, content) in enumerate(files.items(), 1):
        length = int.from_bytes(content.header[:8], "little")
        assert len(content.header) == 8 + length
        header = json.loads(content.header[8:])
        assert header.pop("__metadata__") == {"format": "pt"}
        ends = [entry["data_offsets"][1] for entry in header.values()]
        assert [entry["data_offsets"][0] for entry in header.values()] == [0, *ends[:-1]]
        assert content.size == 8 + length + ends[-1]
        assert length == 100_003 if number == shards else length % 8 == 0
        assert index is None or {index["weight_map"][tensor] for tensor in header} == {path}
        total_bytes += ends[-1]
    assert total_bytes == 16_060_522_496
    assert index is None or index["metadata"]["total_size"] == total_bytes


def test_two_hundred_shards_of_even_size():
    shards = [content for path, content in repository_of_200_shards().files.items() if path.endswith(".safetensors")]
    assert len(shards) == 200
    assert max(shard.size for shard in shards) < 4 * 2**30


# ---- misbehaviour ----


@pytest.fixture
def hub():
    with LoopbackHub({"acme/llama": PLAIN}) as hub:
        yield hub


def test_ranges_and_lengths(hub: LoopbackHub):
    def so(misbehaviour: object, target: str = AT_CONFIG, **headers: str) -> Got:
        rule = hub.misbehave(misbehaviour)
        try:
            return ask(hub, target, **headers)
        finally:
            hub.rules.remove(rule)

    got = so(IgnoresRanges(), Range="bytes=0-3")
    assert (got.status, got.body, got.headers["Content-Range"]) == (200, CONFIG, None)
    assert hub.requests[-1].headers["Range"] == "bytes=0-3"
    got = so(SendsOtherRange(4), Range="bytes=0-3")
    assert (got.body, got.headers["Content-Range"]) == (CONFIG[4:8], "bytes 4-7/23")
    assert so(ContentRangeSays("bytes {first}-{last}/7"), Range="bytes=0-3").headers["Content-Range"] == "bytes 0-3/7"
    got = so(ContentRangeSays(None), Range="bytes=0-3")
    assert (got.status, got.headers["Content-Range"]) == (206, None)
    assert so(ContentLengthLies(-3)).body == CONFIG[:-3]
    for cut in (ContentLengthLies(+3), ClosesMidway(5)):
        with pytest.raises(http.client.IncompleteRead):
            so(cut)
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        so(ClosesMidway(5, reset=True))
    for chunked in (False, True):
        got = so(SendsNoLength(chunked))
        assert (got.body, got.headers["Content-Length"]) == (CONFIG, None)


def test_redirects(hub: LoopbackHub):
    for url in ("http://169.254.169.254/latest/meta-data/", "file:///etc/passwd"):
        rule = hub.misbehave(RedirectsTo(url), path="config.json")
        got = ask(hub, AT_CONFIG)
        assert (got.status, got.headers["Location"]) == (302, url)
        hub.rules.remove(rule)
    rule = hub.misbehave(RedirectsElsewhere())
    place = ask(hub, AT_CONFIG).headers["Location"]
    assert place == hub.elsewhere.url + AT_CONFIG
    assert ask(hub, AT_CONFIG, at=hub.elsewhere.url, Authorization="Bearer t").body == CONFIG
    assert hub.tokens_that_left == ["Bearer t"]
    hub.rules.remove(rule)
    rule = hub.misbehave(RedirectsInALoop())
    assert ask(hub, AT_CONFIG).headers["Location"] == AT_CONFIG
    hub.rules.remove(rule)
    hub.misbehave(RedirectsManyTimes(6))
    place, hops = AT_CONFIG, 0
    while (got := ask(hub, place)).status == 302:
        place, hops = got.headers["Location"], hops + 1
    assert (hops, got.body) == (6, CONFIG)


def test_statuses_and_other_content(hub: LoopbackHub):
    once = hub.misbehave(Fails(503), path="config.json", times=1)
    assert ask(hub, AT_WEIGHTS, method="HEAD").status == 200
    assert [ask(hub, AT_CONFIG).status for _ in range(3)] == [503, 200, 200]
    assert once.used == 1
    for misbehaviour, status in (
        (Fails(504), 504),
        (LimitsRate("7"), 429),
        (HtmlPage(), 200),
        (AnswersWith(b"{"), 200),
    ):
        rule = hub.misbehave(misbehaviour, path=INFO)
        got = ask(hub, "/api/models/acme/llama")
        assert got.status == status
        assert (got.headers["Retry-After"], got.headers["Content-Type"].startswith("text/html")) == (
            "7" if status == 429 else None,
            isinstance(misbehaviour, HtmlPage),
        )
        assert ask(hub, AT_CONFIG).body == CONFIG
        hub.rules.remove(rule)
    hub.misbehave(NoCommit())
    assert ask(hub, AT_CONFIG).headers["X-Repo-Commit"] is None
    hub.misbehave(GiantHeaders(2, 70_000))
    with pytest.raises(http.client.LineTooLong):
        ask(hub, AT_CONFIG)


@pytest.mark.parametrize(("size_bytes", "start"), [(2**28, b""), (2**26, b'{"a": "')])
def test_gzip_bomb_is_valid_to_its_end(hub: LoopbackHub, size_bytes: int, start: bytes):
    rule = hub.misbehave(GzipBomb(size_bytes, only_if_asked=True, start=start))
    assert ask(hub, AT_CONFIG).body == CONFIG
    got = ask(hub, AT_CONFIG, Accept_Encoding="gzip")
    assert got.headers["Content-Encoding"] == "gzip"
    assert len(got.body) < 1.1 * 2**20
    unpack, size, packed = zlib.decompressobj(16 + zlib.MAX_WBITS), 0, got.body
    while packed:
        size += len(unpack.decompress(packed, 2**20))
        packed = unpack.unconsumed_tail
    assert size + len(unpack.flush()) == size_bytes + len(start)
    assert unpack.eof
    hub.rules.remove(rule)
    hub.misbehave(GzipBomb())
    got = ask(hub, AT_CONFIG, method="HEAD")
    assert (got.headers["Content-Encoding"], int(got.headers["Content-Length"]) // 2**20) == ("gzip", 1)


def test_honest_gzip(hub: LoopbackHub):
    hub.misbehave(Compresses(), path=API)
    plain, packed = (
        ask(hub, "/api/models/acme/llama", Accept_Encoding=coding).body for coding in ("identity", "gzip, br")
    )
    assert zlib.decompress(packed, 16 + zlib.MAX_WBITS) == plain


def test_slowness(hub: LoopbackHub):
    for slow in (NeverAnswers(), StopsMidway(5), Drips(), DripsHeaders(), EndlessContinue()):
        rule = hub.misbehave(slow)
        began = time.monotonic()
        connection = http.client.HTTPConnection(hub.url.removeprefix("http://"), timeout=0.2)
        connection.request("GET", AT_CONFIG)
        if isinstance(slow, EndlessContinue):
            assert connection.sock.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        else:
            with pytest.raises(TimeoutError):
                connection.getresponse().read()
        connection.close()
        assert time.monotonic() - began < 1
        hub.rules.remove(rule)
    hub.misbehave(Waits(0.2))
    began = time.monotonic()
    assert ask(hub, AT_CONFIG).body == CONFIG
    assert time.monotonic() - began >= 0.2


def test_quick_drips_arrive_whole(hub: LoopbackHub):
    hub.misbehave(Drips(0.001))
    hub.misbehave(DripsHeaders(0.0005, bytes_at_once=4))
    assert ask(hub, AT_CONFIG).body == CONFIG


@pytest.mark.parametrize("chunked", [False, True])
def test_an_endless_body_goes_on(hub: LoopbackHub, chunked: bool):
    hub.misbehave(EndlessBody(b'{"a": "', chunked=chunked))
    connection = http.client.HTTPConnection(hub.url.removeprefix("http://"), timeout=5)
    connection.request("GET", "/api/models/acme/llama")
    reply = connection.getresponse()
    assert reply.read(9) == b'{"a": "aa'
    assert len(reply.read(20_000_000)) == 20_000_000
    connection.close()


def test_what_is_no_http(hub: LoopbackHub):
    for misbehaviour, error in (
        (SendsRaw(), http.client.BadStatusLine),
        (ClosesAtOnce(), http.client.RemoteDisconnected),
        (ClosesAtOnce(reset=True), ConnectionResetError),
    ):
        rule = hub.misbehave(misbehaviour)
        with pytest.raises(error):
            ask(hub, AT_CONFIG)
        hub.rules.remove(rule)


def test_closing_ends_what_is_being_sent():
    with LoopbackHub({"acme/llama": PLAIN}) as hub:
        hub.misbehave(NeverAnswers())
        connection = http.client.HTTPConnection(hub.url.removeprefix("http://"), timeout=5)
        connection.request("GET", AT_CONFIG)
        began = time.monotonic()
    assert time.monotonic() - began < 1
    connection.close()
    with pytest.raises(ConnectionRefusedError):
        ask(hub, AT_CONFIG)


def test_a_fault_of_the_stand_in_fails_the_test():
    hub = LoopbackHub({"acme/llama": PLAIN})
    hub.repositories["acme/llama"].names["main"] = []  # type: ignore[assignment]
    with pytest.raises(http.client.RemoteDisconnected):
        ask(hub, AT_CONFIG)
    with pytest.raises(AssertionError, match="stand-in"), hub:
        pass
