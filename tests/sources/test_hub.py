"""Models from the hub, read from a stand-in on loopback: what is asked, what is answered, what is kept."""

from __future__ import annotations

import json
import os
import re
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvtax
from gguf_files import TensorOf, gguf_bytes, vocabulary
from kvtax.errors import KvtaxError
from kvtax.sources import recent
from kvtax.sources.hub import answers
from kvtax.sources.hub.names import parse_hub_name
from kvtax.sources.resolve import find
from kvtax.units import format_bytes
from loopback_hub import (
    API,
    Drips,
    DripsHeaders,
    EndlessBody,
    Fails,
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
    RedirectsTo,
    Repository,
    StopsMidway,
    checkpoint,
    repository_from_checkpoint,
    repository_of_200_shards,
)
from safetensors_files import build, whole

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])
LLAMA = "meta-llama--Meta-Llama-3-8B.json"
NAME = "acme/some-model"
SMALL_KEYS = {
    "general.architecture": "llama", "llama.block_count": 1, "llama.context_length": 4096, "llama.embedding_length": 256,
    "llama.feed_forward_length": 512, "llama.attention.head_count": 4, "llama.vocab_size": 320,
}  # fmt: skip
SMALL_TENSORS = [
    TensorOf("token_embd.weight", (256, 320), "q8_0"),
    TensorOf("output_norm.weight", (256,)),
    TensorOf("blk.0.attn_q.weight", (256, 256), "q8_0"),
    TensorOf("blk.0.ffn_down.weight", (512, 256), "q8_0"),
]
TOKEN = "hf_" + "s3cret" * 5


@pytest.fixture
def online(monkeypatch, tmp_path):
    """Requests are allowed, to whatever hub the test names; caches are empty."""
    monkeypatch.setenv("KVTAX_CACHE_DIR", str(tmp_path / "kvtax"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "2")
    recent._read.clear()

    def use(hub):
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        return hub

    yield use
    recent._read.clear()


def again():
    """Forget what this process has read, as a new one would."""
    recent._read.clear()


def code_of(name=NAME):
    with pytest.raises(KvtaxError) as caught:
        find(name)
    error = caught.value
    text = f"{error} {error.hint}"
    assert "\n" not in text
    assert TOKEN not in text
    return error.code


# ---- what is asked and answered ----


@pytest.mark.parametrize("file", [
    LLAMA, "Qwen--Qwen3-30B-A3B.json", "google--gemma-3-27b-it.json", "openai--gpt-oss-20b.json",
    "hugging-quants--Meta-Llama-3.1-70B-Instruct-AWQ-INT4.json", "deepseek-ai--DeepSeek-V3.json",
])  # fmt: skip
def test_weights_are_those_of_the_headers(online, file):
    with online(LoopbackHub({NAME: repository_from_checkpoint(file, shards=4)})) as hub:
        model = find(NAME)
        assert model.architecture.checkpoint_bytes == checkpoint(file)["bytes"]
        assert len(hub.requests) <= 2 + 2 * 4
        assert [request.path.rpartition("/")[2] for request in hub.requests[:2]] == [
            "config.json",
            "model.safetensors.index.json",
        ]
        assert hub.weight_bytes_sent <= 4 * 100_000
    assert model.weights_source == "headers of 4 safetensors files"
    assert re.fullmatch(r"hub, acme/some-model at commit [0-9a-f]{12}", model.source)
    assert "headers-differ" not in {notice.code for notice in model.notices}


def test_one_file_without_an_index(online):
    with online(LoopbackHub({NAME: repository_from_checkpoint(LLAMA, shards=1)})) as hub:
        budget = kvtax.budget(model=NAME, gpu="a100-80", max_model_len=8192)
        assert len(hub.requests) <= 3
    assert budget.to_dict()["per_gpu"]["weights_bytes"] == checkpoint(LLAMA)["bytes"]
    assert budget.to_dict()["model"]["weights_source"] == "header of model.safetensors"


def test_two_hundred_shards_in_seconds_eight_at_once(online):
    with online(LoopbackHub({NAME: repository_of_200_shards()}, latency_seconds=0.02)) as hub:
        begun = time.monotonic()
        find(NAME)
        assert time.monotonic() - begun < 20
        assert len(hub.requests) == 202
        assert 2 <= hub.most_at_once <= 8


def test_an_unchanged_model_takes_one_request_and_none_offline(online, monkeypatch):
    with online(LoopbackHub({NAME: repository_from_checkpoint(LLAMA, shards=4)})) as hub:
        first = find(NAME)
        asked = len(hub.requests)
        again()
        second = find(NAME)
        assert len(hub.requests) == asked + 1
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        again()
        third = find(NAME)
        assert len(hub.requests) == asked + 1
    for model in (second, third):
        assert model.architecture.stored_tensors() == first.architecture.stored_tensors()
        assert (model.id, model.source, model.weights_source) == (first.id, first.source, first.weights_source)


def test_a_commit_is_never_asked_for_twice(online):
    with online(LoopbackHub({NAME: repository_from_checkpoint(LLAMA, shards=2)})) as hub:
        commit = next(iter(hub.repositories.values())).commit
        find(f"{NAME}@{commit}")
        asked = len(hub.requests)
        again()
        find(f"{NAME}@{commit}")
        assert len(hub.requests) == asked


def test_a_model_that_moved_is_read_again(online):
    with online(LoopbackHub({NAME: repository_from_checkpoint(LLAMA, shards=2)})) as hub:
        find(NAME)
    again()
    with online(LoopbackHub({NAME: repository_from_checkpoint("Qwen--Qwen2.5-7B.json", shards=3)})) as hub:
        os.environ["HF_ENDPOINT"] = hub.url
        assert find(NAME).architecture.model_type == "qwen2"


def test_a_cached_snapshot_takes_no_request(online, tmp_path):
    with online(LoopbackHub({})) as hub:
        folder = tmp_path / "hub" / "models--acme--some-model"
        commit = "0123456789abcdef" * 2 + "01234567"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text(commit)
        (folder / "snapshots" / commit).mkdir(parents=True)
        (folder / "snapshots" / commit / "config.json").write_text(json.dumps(checkpoint(LLAMA)["config"]))
        model = find(NAME)
        assert hub.requests == []
    assert model.source == "hub cache on this disk, acme/some-model at commit 0123456789ab"
    assert model.weights_source == "worked out from config.json"


@pytest.mark.parametrize("how", ["cdn", "cache", "renamed", "no commit", "no ranges"])
def test_other_ways_of_a_hub(online, how):
    files = {NAME: repository_from_checkpoint(LLAMA, shards=2)}
    options = {"cdn": {"cdn": True}, "cache": {"cache": True}, "renamed": {"renamed": {"acme/old": NAME}}}.get(how, {})
    with online(LoopbackHub(files, **options)) as hub:
        if how == "no commit":
            hub.misbehave(NoCommit())
        if how == "no ranges":
            hub.misbehave(IgnoresRanges())
        model = find("acme/old" if how == "renamed" else NAME)
        assert hub.tokens_that_left == []
    assert model.architecture.checkpoint_bytes == checkpoint(LLAMA)["bytes"]


@pytest.mark.parametrize("length", range(99_980, 100_012))
def test_headers_around_the_first_read(online, length):
    repository = repository_from_checkpoint("Qwen--Qwen2.5-0.5B.json", shards=1, header_bytes={1: length})
    with online(LoopbackHub({NAME: repository})) as hub:
        assert find(NAME).architecture.checkpoint_bytes == checkpoint("Qwen--Qwen2.5-0.5B.json")["bytes"]
        reads = [request for request in hub.requests if request.path.endswith("model.safetensors")]
        assert len(reads) == (1 if length + 8 <= 100_000 else 2)


# ---- tokens ----


def test_the_token_goes_to_the_hub_alone(online, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    repository = repository_from_checkpoint(LLAMA, shards=2)
    with online(LoopbackHub({NAME: Repository(repository.files, private=True, tokens=(TOKEN,))}, cdn=True)) as hub:
        model = find(NAME)
        assert hub.tokens_that_left == []
        assert all(request.headers["Authorization"] == f"Bearer {TOKEN}" for request in hub.requests)
    assert "token-sent" in {notice.code for notice in model.notices}
    for root, _, files in os.walk(tmp_path / "kvtax"):
        for file in files:
            with open(os.path.join(root, file), encoding="ascii") as kept:
                assert TOKEN not in kept.read()


def test_a_redirect_to_another_host_takes_no_token_along(online, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with online(LoopbackHub({NAME: repository_from_checkpoint(LLAMA, shards=1)})) as hub:
        hub.misbehave(RedirectsElsewhere())
        try:
            find(NAME)
        except KvtaxError as error:
            assert TOKEN not in f"{error} {error.hint}"
        assert hub.elsewhere.requests
        assert hub.tokens_that_left == []


# ---- what goes wrong, each in its own words ----


def test_gated_private_missing_are_told_apart(online, monkeypatch):
    files = repository_from_checkpoint(LLAMA, shards=1).files
    repositories = {
        "acme/gated": Repository(files, gated="manual"),
        "acme/private": Repository(files, private=True, tokens=("somebody",)),
    }
    with online(LoopbackHub(repositories, tokens=[TOKEN, "somebody"])):
        assert code_of("acme/gated") == "hub-gated"
        assert code_of("acme/private") == "hub-private"
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        assert code_of("acme/gated") == "hub-gated"
        assert code_of("acme/nothing-here") == "hub-missing"
        assert code_of("acme/gated@no-such-branch") in ("hub-no-revision", "hub-gated")


@pytest.mark.parametrize(
    ("misbehaviour", "code"),
    [
        (LimitsRate(), "hub-rate-limited"),
        (Fails(500), "hub-error"),
        (Fails(504), "hub-error"),
        (NeverAnswers(), "hub-timeout"),
        (Drips(), "hub-timeout"),
        (DripsHeaders(), "hub-timeout"),
        (RedirectsInALoop(), "hub-redirects"),
        (RedirectsTo("http://169.254.169.254/latest/meta-data"), "hub-redirects"),
        (RedirectsTo("file:///etc/passwd"), "hub-redirects"),
        (GzipBomb(), "file-too-large"),
        (EndlessBody(), "file-too-large"),
        (HtmlPage(), "invalid-json"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_every_fault_has_its_own_words_and_an_end(online, misbehaviour, code):
    with online(LoopbackHub({NAME: repository_from_checkpoint(LLAMA, shards=1)})) as hub:
        hub.misbehave(misbehaviour, path="config.json")
        begun = time.monotonic()
        assert code_of() == code
        assert time.monotonic() - begun < 10


def test_a_server_that_fails_once_is_asked_again(online):
    with online(LoopbackHub({NAME: repository_from_checkpoint(LLAMA, shards=2)})) as hub:
        hub.misbehave(Fails(503), path="*.safetensors", times=1)
        assert find(NAME).architecture.checkpoint_bytes == checkpoint(LLAMA)["bytes"]


def test_a_header_that_breaks_off(online):
    with online(LoopbackHub({NAME: repository_from_checkpoint(LLAMA, shards=2)})) as hub:
        hub.misbehave(StopsMidway(1000), path="*.safetensors")
        assert code_of().startswith(("hub-", "header-"))


def test_nobody_listens(online):
    hub = online(LoopbackHub({}))
    hub.close()
    assert code_of() == "hub-unreachable"


def test_offline_says_what_would_be_asked(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert code_of() == "hub-offline"


def test_a_repository_without_a_model(online):
    with online(LoopbackHub({NAME: {"README.md": b"# hello"}})) as hub:
        assert code_of() == "no-config"
        hub.misbehave(HtmlPage(), path=API)
        again()
        assert code_of() == "hub-listing"


# ---- the answers that are kept ----


def test_a_broken_answer_counts_as_absent(online, tmp_path):
    with online(LoopbackHub({NAME: repository_from_checkpoint(LLAMA, shards=2)})) as hub:
        first = find(NAME)
        count, size = answers.kept()
        assert (count, size > 0) == (1, True)
        (file,) = (tmp_path / "kvtax" / "hub").iterdir()
        whole = file.read_text()
        for text in ("", "{", whole[:-40], whole.replace('"tensors":[', '"tensors":[1,'), "[]", '{"schema":1}'):
            file.write_text(text)
            again()
            assert find(NAME).architecture.stored_tensors() == first.architecture.stored_tensors()
        assert hub.weight_bytes_sent < 10**8
        assert answers.clear()[0] == 1
        assert answers.kept() == (0, 0)


# ---- GGUF on the hub ----


def quantised(dtype):
    tensors = [one._replace(dtype=dtype) if len(one.shape) > 1 else one for one in SMALL_TENSORS]
    return gguf_bytes(SMALL_KEYS | {f"test.{index}": "x" * 1000 for index in range(20)}, tensors)


GGUF_FILES = {
    "README.md": b"# quantised",
    "small-Q4_K_M.gguf": quantised("q4_k"),
    "small-Q8_0.gguf": quantised("q8_0"),
    "mmproj-F16.gguf": gguf_bytes({"general.architecture": "clip"}),
    "config.json": b"{}",
}


@pytest.mark.parametrize("variant", ["Q4_K_M", "q4_k_m", "small-Q4_K_M.gguf"])
def test_a_quantisation_on_the_hub(online, monkeypatch, variant):
    with online(LoopbackHub({"acme/small-GGUF": GGUF_FILES})) as hub:
        model = find(f"acme/small-GGUF:{variant}")
        assert model.architecture.gguf.label == "Q4_K_M"
        assert model.architecture.checkpoint_bytes == find_local("small-Q4_K_M.gguf")
        assert "mmproj-in-repository" in {notice.code for notice in model.notices}
        assert len(hub.requests) <= 4
        asked = len(hub.requests)
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        again()
        assert find(f"acme/small-GGUF:{variant}").architecture.gguf == model.architecture.gguf
        assert len(hub.requests) == asked
    budget = kvtax.budget(model=f"acme/small-GGUF:{variant}", gpu="rtx-4090", max_model_len=2048)
    assert (budget.deployment.engine, budget.verdict) == ("llama.cpp", "fits")


def find_local(name):
    from kvtax.sources.byte_source import BytesInMemory
    from kvtax.sources.gguf import read_gguf

    return read_gguf(BytesInMemory(GGUF_FILES[name])).tensor_bytes


def test_several_quantisations_are_listed(online):
    files = {name: data for name, data in GGUF_FILES.items() if name != "config.json"}
    with online(LoopbackHub({"acme/small-GGUF": files})):
        with pytest.raises(KvtaxError) as caught:
            find("acme/small-GGUF")
        assert caught.value.code == "ambiguous-quantization"
        assert "Q4_K_M (" in caught.value.message
        assert "Q8_0 (" in caught.value.message
        assert code_of("acme/small-GGUF:Q2_K") == "unknown-quantization"
        assert code_of("acme/small-GGUF:small-Q2_K.gguf") == "unknown-quantization"


def test_a_long_header_in_few_requests(online):
    words = vocabulary(60_000, 60_000)
    data = gguf_bytes(SMALL_KEYS | words, SMALL_TENSORS)
    with online(LoopbackHub({"acme/big-GGUF": {"big-Q4_K_M.gguf": data}})) as hub:
        assert find("acme/big-GGUF").architecture.gguf.label == "Q4_K_M"
        assert len(hub.requests) <= 2 + 4


# ---- names ----


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("org/name", ("org/name", "main", "")),
        ("org/name@v1.0", ("org/name", "v1.0", "")),
        ("org/name@refs/pr/3", ("org/name", "refs/pr/3", "")),
        ("org/name:Q4_K_M", ("org/name", "main", "Q4_K_M")),
        ("org/name@dev:sub/file-Q4_K_M.gguf", ("org/name", "dev", "sub/file-Q4_K_M.gguf")),
        ("https://huggingface.co/org/name", ("org/name", "main", "")),
        ("https://huggingface.co/org/name/tree/dev", ("org/name", "dev", "")),
        ("hf.co/org/name/blob/main/x/y.gguf?download=true", ("org/name", "main", "x/y.gguf")),
    ],
)
def test_names_that_are_understood(name, parts):
    assert tuple(parse_hub_name(name)) == parts


@pytest.mark.parametrize(
    "name",
    [
        "org/..", "../name", "org/na--me", "org/na..me", "org/name.git", "org/ name", "org/na\x1bme", "a/b/c", "org/", "/name",
        "org/name@", "org/name@../x", "org/name@-x", "org/name@a b", "org/name:../x", "org/name:/x", "org/name:-x", "x" * 200 + "/y", "org/" + "y" * 97,
        "org/name@" + "r" * 129, "org/name:" + "q" * 256, "http://evil.example/org/name", "file:///etc/passwd",
    ],
)  # fmt: skip
def test_names_that_are_refused(name):
    with pytest.raises(KvtaxError) as caught:
        parse_hub_name(name)
    assert caught.value.code == "invalid-hub-name"
    assert caught.value.message.isprintable()


@given(st.text(max_size=60))
def test_any_text_is_a_name_or_an_error(text):
    try:
        name = parse_hub_name(text)
    except KvtaxError:
        return
    assert ".." not in str(name)
    assert str(name).isprintable()


# ---- adapters ----


def test_an_adapter_on_the_hub_and_in_a_folder(online, tmp_path):
    tensors = [
        (f"base_model.model.model.layers.{layer}.self_attn.{name}.lora_{side}.weight", "F32", shape)
        for layer in range(32)
        for name, side, shape in (
            ("q_proj", "A", (8, 4096)), ("q_proj", "B", (4096, 8)), ("v_proj", "A", (8, 4096)), ("v_proj", "B", (1024, 8)),
        )
    ]  # fmt: skip
    size = 4 * 32 * 8 * (4096 + 4096 + 4096 + 1024)
    files = {
        "adapter_config.json": json.dumps(
            {"peft_type": "LORA", "r": 8, "target_modules": ["q_proj", "v_proj"]}
        ).encode(),
        "adapter_model.safetensors": whole(tensors),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with online(LoopbackHub({"acme/adapter": files})) as hub:
        for adapter in ("acme/adapter:2", f"{tmp_path}:2"):
            budget = kvtax.budget(model="llama-3-8b", gpu="a100-80", lora=adapter, max_model_len=4096)
            said = next(notice.message for notice in budget.notices if notice.code == "adapter-in-slot")
            assert "q_proj, v_proj with rank 8" in said
            assert format_bytes(size) in said
        assert len(hub.requests) == 2
        with pytest.raises(KvtaxError) as caught:
            kvtax.budget(model="llama-3-8b", gpu="a100-80", lora="acme/nothing")
        assert caught.value.code in ("hub-private", "hub-missing")


def test_names_in_a_config_are_never_followed(online):
    repository = repository_from_checkpoint(LLAMA, shards=1)
    config = checkpoint(LLAMA)["config"] | {
        "_name_or_path": "evil/other", "base_model": "evil/base", "auto_map": {"AutoConfig": "evil/code--config.Config"},
        "trust_remote_code": True, "_attn_implementation_internal": "evil/kernels", "quantization_config": None,
    }  # fmt: skip
    files = {**repository.files, "config.json": json.dumps(config).encode()}
    before = set(sys.modules)
    with online(LoopbackHub({NAME: files, "evil/other": files, "evil/base": files, "evil/code": files})) as hub:
        model = find(NAME)
        assert {request.repository for request in hub.requests} == {NAME}
    assert "remote-code" in {notice.code for notice in model.notices}
    assert not {name for name in set(sys.modules) - before if name.startswith(("transformers", "torch", "evil"))}


EVIL = "evil\x1b]8;;http://x\x07\u202e[bold]|<img src=x>=cmd"


@pytest.mark.parametrize("form", ["table", "plain", "json", "markdown", "csv", "html"])
def test_nothing_from_a_header_reaches_a_terminal_unescaped(online, capsys, form):
    from kvtax.cli import main

    tensors = [
        ("model.embed_tokens.weight", "BF16", (128256, 4096)),
        (f"{EVIL}.weight", "F32", (3,)),
        (f"{EVIL}\n.b", "U8", (7,)),
    ]
    config = checkpoint(LLAMA)["config"] | {
        "num_hidden_layers": 1,
        "architectures": [EVIL],
        "quantization_config": {"quant_method": EVIL},
    }
    header, size = build(tensors)
    files = {"config.json": json.dumps(config).encode(), "model.safetensors": LazyFile(size, header)}
    plain = {
        "config.json": json.dumps(config | {"quantization_config": None}).encode(),
        "model.safetensors": LazyFile(size, header),
    }
    with online(LoopbackHub({NAME: files, "acme/plain": plain})):
        for words in (
            ["budget", "acme/plain", "-g", "l4"],
            ["inspect", "acme/plain", "--tensors"],
            ["budget", NAME, "-g", "l4"],
        ):
            if words[0] == "inspect" and form == "html":
                continue
            main([*words, "--format", form])
            shown = capsys.readouterr()
            for text in (shown.out, shown.err):
                assert not {letter for letter in text if not letter.isprintable()} - {"\n", "\r"}
                assert text is shown.err or form != "html" or "<img" not in text


def test_many_large_headers_together_have_a_limit(online, monkeypatch):
    monkeypatch.setattr("kvtax.sources.folder_model.MAXIMUM_TENSORS", 250)
    with online(LoopbackHub({NAME: repository_from_checkpoint("Qwen--Qwen2.5-0.5B.json", shards=3)})):
        assert code_of() == "too-many-tensors"
