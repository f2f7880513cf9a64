"""`kvtax.sweep`: every figure is that of `kvtax.budget`, errors stay on their line, and models are looked up once."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvtax
from kvtax.sources import recent, resolve
from kvtax.sweeps import answers
from kvtax.sweeps.executors import choose_executor, run_processes
from kvtax.sweeps.job import Job, cut
from kvtax.sweeps.lines import Line
from loopback_hub import LoopbackHub
from loopback_repositories import repository_from_checkpoint

MODELS = [
    "llama-3-8b",
    "gemma-3-27b",
    "deepseek-v3",
    "qwen3-next-80b",
    "gpt-oss-20b",
    "falcon-mamba-7b",
    "bert-base",
    "nope",
    "(none)",
]
deployments = st.fixed_dictionaries(
    {"model": st.sampled_from(MODELS), "gpu": st.sampled_from(["l4", "h200", "mi300x", "m3-max", "no-such-card"])},
    optional={
        "engine": st.sampled_from(["vllm", "sglang", "llama.cpp", "tensorrt-llm", "transformers", "tgi", "lmdeploy"]),
        "tensor_parallel_size": st.sampled_from([1, 2, 8, 3]),
        "max_model_len": st.integers(1, 2**18),
        "concurrency": st.integers(1, 500),
        "kv_cache_dtype": st.sampled_from(["fp8", "nope"]),
        "n_ctx": st.just(4096),
    },
)


@settings(max_examples=60)
@given(st.lists(deployments, min_size=1, max_size=6))
def test_every_figure_is_that_of_budget(rows):
    found = list(kvtax.sweep(rows))
    assert [result.line for result in found] == list(range(1, len(rows) + 1))
    for fields, result in zip(rows, found, strict=True):
        row = result.to_dict()
        try:
            whole = kvtax.budget(**fields).to_dict()
        except kvtax.KvtaxError as error:
            assert row["error"] == error.to_dict()["error"] | {"exit_code": error.exit_code}
            assert row["verdict"] is row["per_gpu"] is result.fits is result.max_concurrency is None
            continue
        assert row["error"] is None
        for part in ("asked", "verdict", "per_gpu", "concurrency", "interval"):
            assert row[part] == whole[part], part
        assert row["kv"] == {name: whole["kv"][name] for name in row["kv"]}
        assert row["notices"] == [notice["code"] for notice in whole["notices"]]
        assert row["fits"] == (whole["verdict"] == "fits")
        asked = kvtax.budget(**row["asked"]).to_dict()
        assert (asked["per_gpu"], asked["verdict"]) == (whole["per_gpu"], whole["verdict"])


def test_the_whole_budget():
    (result,) = kvtax.sweep([{"model": "llama-3-8b", "gpu": "l4"}], full=True)
    assert result.to_dict()["budget"] == kvtax.budget(model="llama-3-8b", gpu="l4").to_dict()


def test_a_grid_crosses_every_line_and_lines_override_the_base():
    found = list(
        kvtax.sweep(
            [{"model": "llama-3-8b", "id": "a", "team": "x"}, {"model": "qwen3-32b", "tp": 2, "id": "b"}],
            vary={"gpu": ["l4", "h200"], "context": ["4k", "8k"]},
            keep=["team"],
            tensor_parallel_size=1,
        )
    )
    assert [(r.row, r.line, r.id, r.asked["gpu"], r.asked["max_model_len"]) for r in found] == [
        (number + 1, number // 4 + 1, "ab"[number // 4], gpu, length)
        for number, (_, gpu, length) in enumerate(itertools.product("ab", ("l4", "h200"), (4096, 8192)))
    ]
    assert [r.asked.get("tensor_parallel_size", 1) for r in found] == [1] * 4 + [2] * 4
    assert [r.kept for r in found] == [{"team": "x"}] * 4 + [{}] * 4


def test_results_come_as_they_are_ready():
    endless = ({"model": "llama-3-8b", "gpu": "l4", "max_model_len": 1 + n % 4096} for n in itertools.count())
    found = list(itertools.islice(kvtax.sweep(endless), 300))
    assert [result.row for result in found] == list(range(1, 301))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, "no-input"),
        ({"vary": {"nope": [1]}}, "unknown-field"),
        ({"vary": {"gpu": ["l4"]}, "tp": "x"}, "invalid-quantity"),
        ({"deployments": "/nowhere/many.jsonl"}, "unreadable-file"),
        ({"vary": {"gpu": ["l4"]}, "workers": 0}, "invalid-quantity"),
    ],
)
def test_what_is_wrong_with_the_whole_is_said_at_once(arguments, code):
    with pytest.raises(kvtax.KvtaxError) as caught:
        kvtax.sweep(**arguments)
    assert caught.value.code == code


def test_things_that_are_no_deployments():
    found = list(kvtax.sweep([5, kvtax.Deployment("llama-3-8b", gpu="l4"), {"model": "llama-3-8b", "gpu": "l4"}]))
    assert [result.error and result.error.code for result in found] == ["invalid-input", None, None]


def test_a_fault_in_one_deployment_is_an_error_of_that_line(monkeypatch):
    real = answers.budget

    def broken(**fields):
        if fields["gpu"] == "t4":
            raise ZeroDivisionError("by zero")
        return real(**fields)

    monkeypatch.setattr(answers, "budget", broken)
    found = list(kvtax.sweep(model="llama-3-8b", vary={"gpu": ["l4", "t4", "h200"]}))
    assert [result.exit_code for result in found] == [0, 70, 0]
    assert found[1].error.code == "internal-error"


def test_processes_give_the_same_in_the_same_order():
    rows = [Line(n, {"model": MODELS[n % 7], "gpu": "h200", "max_model_len": 100 + n}) for n in range(1, 700)]
    job = Job(form="jsonl")
    alone = "".join(chunk.text for chunk in choose_executor(None, None, 1)(job, cut(rows, 1)))
    assert "".join(chunk.text for chunk in run_processes(job, cut(rows, 1), 2)) == alone
    assert alone.count("\n") == 699


@pytest.mark.allow_hosts(["127.0.0.1"])
def test_a_model_on_the_hub_is_looked_up_once_and_so_is_one_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    recent._read.clear()
    name = "acme/tiny"
    repository = repository_from_checkpoint("meta-llama--Meta-Llama-3-8B.json", shards=1)
    with LoopbackHub({name: repository}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("KVTAX_CACHE_DIR", str(tmp_path / "one"))
        whole = kvtax.budget(model=name, gpu="l4", max_model_len=4096).to_dict()
        for model in (name, "acme/missing"):
            recent._read.clear()
            monkeypatch.setenv("KVTAX_CACHE_DIR", str(tmp_path / f"once-{model[5:]}"))
            before = len(hub.requests)
            list(kvtax.sweep([{"model": model, "gpu": "l4"}]))
            once = len(hub.requests) - before
            monkeypatch.setenv("KVTAX_CACHE_DIR", str(tmp_path / f"many-{model[5:]}"))
            rows = [{"model": model, "gpu": "l4", "max_model_len": 4096 + n} for n in range(600)]
            before = len(hub.requests)
            found = list(kvtax.sweep(rows, workers=2))
            assert len(hub.requests) - before == once > 0
            if model == name:
                first = found[0].to_dict()
                assert (first["per_gpu"], first["asked"]) == (whole["per_gpu"], whole["asked"])
                assert {result.error for result in found} == {None}
            else:
                assert {result.error.code for result in found} == {"hub-private"}
    assert not resolve.GIVEN


def test_a_model_on_the_disk_is_what_budget_says(tmp_path):
    config = json.loads((resolve_config("llama-3-8b")).read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    path = str(tmp_path / "config.json")
    (result,) = kvtax.sweep([{"model": path, "gpu": "l4"}])
    whole = kvtax.budget(model=path, gpu="l4").to_dict()
    assert result.to_dict()["per_gpu"] == whole["per_gpu"]
    assert result.to_dict()["asked"] == whole["asked"]
    (inline,) = kvtax.sweep([{"model": config, "gpu": "l4"}])
    assert inline.per_gpu == result.per_gpu
    assert inline.to_dict()["asked"]["model"] == "(config)"


def resolve_config(name):
    import pathlib

    from kvtax.sources.data_files import configs_dir
    from kvtax.sources.models import find_model

    return pathlib.Path(configs_dir(), "models", find_model(name).file)


def test_a_model_of_ones_own_reaches_the_workers(tmp_path):
    from kvtax.sources.user_catalogue import load_catalogue

    (tmp_path / "mine.json").write_text(resolve_config("llama-3-8b").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "kvtax.toml").write_text(
        '[[model]]\nname = "mine"\nconfig = "mine.json"\n[[gpu]]\nid = "lab"\nmemory = "40GiB"\nbandwidth_gb_s = 900\nsource = "us"\n',
        encoding="utf-8",
    )
    models, gpus = load_catalogue(str(tmp_path / "kvtax.toml"))
    rows = [{"model": "mine", "gpu": "lab", "max_model_len": 100 + n} for n in range(300)]
    found = list(kvtax.sweep(rows, models=models, gpus=gpus, workers=2))
    whole = kvtax.budget(model="mine", gpu="lab", max_model_len=100, models=models, gpus=gpus)
    assert found[0].per_gpu == whole.per_gpu
    assert found[0].notices == tuple(notice.code for notice in whole.notices)
    assert not any(result.error for result in found)
