"""The same sweep on a real Dask cluster of two workers on this machine: the same bytes, and clear words where it cannot be."""

import contextlib
import json
import os
import subprocess
import sys
import time

import pytest

import kvtax
from runner import CLEAN, run

pytest.importorskip("distributed")
MODELS = ("llama-3-8b", "gemma-3-27b", "qwen3-32b", "nope", "gpt-oss-20b")
OLD = "import kvtax.version\nkvtax.version.__version__ = '0.0.1'\n"


@contextlib.contextmanager
def started(*words, env=None):
    environment = {**os.environ, **CLEAN, **(env or {})}
    with subprocess.Popen(
        [sys.executable, "-m", "dask", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def cluster(folder, envs):
    """A scheduler and a worker for each environment."""
    file = folder / "scheduler.json"
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            started("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        )
        end = time.monotonic() + 60
        while not (file.exists() and file.read_text(encoding="utf-8").strip()):
            assert time.monotonic() < end
            time.sleep(0.1)
        for number, env in enumerate(envs):
            place = str(folder / f"worker-{number}")
            stack.enter_context(
                started(
                    "worker",
                    "--scheduler-file",
                    str(file),
                    "--host",
                    "127.0.0.1",
                    "--nthreads",
                    str(number + 1),
                    "--no-nanny",
                    "--no-dashboard",
                    "--local-directory",
                    place,
                    env=env,
                )
            )
        yield json.loads(file.read_text(encoding="utf-8"))["address"]


def wait_for_workers(address, count):
    """In a process of its own: tests have no sockets."""
    script = "import sys, distributed; distributed.Client(sys.argv[1], timeout=30).wait_for_workers(int(sys.argv[2]), timeout=60)"
    subprocess.run([sys.executable, "-c", script, address, str(count)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster"), [{}, {}]) as found:
        wait_for_workers(found, 2)
        yield found


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_two_workers_give_the_same_bytes(address, tmp_path, kind):
    path = tmp_path / "many.jsonl"
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
                    "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 1000}),
        encoding="utf-8",
    )  # fmt: skip
    models = (*MODELS, str(tmp_path / "config.json"))  # workers of a cluster need not see this disk
    rows = [{"id": n, "model": models[n % 6], "gpu": "h200", "max_num_seqs": 1 + n} for n in range(500)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{\n", encoding="utf-8")
    here = run("sweep", str(path), "--format", kind, "--workers", "1")
    there = run("sweep", str(path), "--format", kind, "--scheduler", address)
    assert here.out.count("\n") == 501 + (kind == "csv")
    assert there == here


def test_a_worker_with_another_kvtax_is_refused(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "sitecustomize.py").write_text(OLD, encoding="utf-8")
    with cluster(tmp_path, [{}, {"PYTHONPATH": str(tmp_path / "old")}]) as found:
        wait_for_workers(found, 2)
        ran = run("sweep", "-m", "llama-3-8b", "--vary", "gpu=l4,h200", "--scheduler", found)
    assert ran.code == 2
    assert ran.out == ""
    assert "has kvtax 0.0.1 with the catalogue of" in ran.err
    assert f"this is kvtax {kvtax.__version__}" in ran.err
    assert len(ran.err.splitlines()) == 2


@pytest.mark.parametrize(
    ("scheduler", "code", "words"),
    [
        ("tcp://127.0.0.1:1", 3, "is not reached"),
        ("nonsense://x", 2, "is not the address of a scheduler"),
        ("8786", 2, "is not the address of a scheduler"),
    ],
)
def test_no_scheduler_there(scheduler, code, words):
    ran = run("sweep", "-m", "llama-3-8b", "--vary", "gpu=l4,h200", "--scheduler", scheduler)
    assert (ran.code, ran.out) == (code, "")
    assert words in ran.err
    assert len(ran.err.splitlines()) == 2
