"""A sweep that is really killed, at any moment, goes on to the same bytes; its workers end with it, and a worker's death is explained."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from kvtax.errors import NotKnownError
from kvtax.sweeps import executors
from kvtax.sweeps.job import Job, cut
from kvtax.sweeps.lines import Line
from runner import CLEAN

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
MODELS = ("llama-3-8b", "gemma-3-27b", "qwen3-32b", "nope", "gpt-oss-20b")
ROWS = 700


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "many.jsonl"
    rows = [
        {"id": n, "model": MODELS[n % 5], "gpu": "h200", "tp": 1 + n % 2, "max_num_seqs": 1 + n} for n in range(ROWS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def begin(many, out, *words):
    command = [sys.executable, "-m", "kvtax", "sweep", str(many), "-o", str(out), "--resume", "--workers", "2", *words]
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, env={**os.environ, **CLEAN}, text=True, start_new_session=True
    )


def finish(process):
    _, said = process.communicate(timeout=120)
    return process.returncode, said


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def group_is_gone(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def killed(many, out, rows, seconds):
    """Let a run get on a little further than the last one did, and kill it at a moment of no importance."""
    before = rows.stat().st_size if rows.exists() else -1
    process = begin(many, out)
    wait_for(lambda: process.poll() is not None or (rows.exists() and rows.stat().st_size > before))
    time.sleep(seconds)
    process.kill()
    code, _ = finish(process)
    wait_for(lambda: group_is_gone(process.pid))  # workers do not outlive the first process
    return code


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_killed_at_random_moments_it_gives_the_bytes_of_one_run(many, tmp_path, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    whole, out = tmp_path / f"whole.{kind}", tmp_path / f"out.{kind}"
    assert finish(begin(many, whole)) == (2, "note: 140 of 700 deployments have an error in place of an answer\n")
    rows = out.with_name(out.name + ".kvtax-sweep-rows") if kind == "parquet" else out
    kills = code = 0
    chance = random.Random(kind)
    while kills < 4:
        code = killed(many, out, rows, chance.uniform(0, 0.25))
        if code != -signal.SIGKILL:
            break
        kills += 1
    assert kills
    if code == -signal.SIGKILL:
        assert finish(begin(many, out)) == (2, "note: 140 of 700 deployments have an error in place of an answer\n")
    assert out.read_bytes() == whole.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {whole.name, out.name}


def test_an_interrupt_is_130_and_can_be_resumed(many, tmp_path):
    out = tmp_path / "out.jsonl"
    process = begin(many, out, "--vary", "gpu_memory_utilization=0.8,0.85,0.9")
    wait_for(lambda: out.exists() and out.stat().st_size > 0)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: workers get it too
    code, said = finish(process)
    assert code == 130
    assert said == "what is done is kept: the same command with --resume goes on\ninterrupted\n"
    done = out.read_bytes()
    assert done.endswith(b"\n")
    wait_for(lambda: group_is_gone(process.pid))
    other = begin(many, out)
    code, said = finish(other)
    assert code == 2
    assert "of another sweep: vary differs" in said
    assert finish(begin(many, out, "--vary", "gpu_memory_utilization=0.8,0.85,0.9"))[0] == 2
    assert out.read_bytes().startswith(done)
    assert out.read_bytes().count(b"\n") == 3 * ROWS


def test_a_changed_input_is_refused(many, tmp_path):
    copy, out = tmp_path / "many.jsonl", tmp_path / "out.jsonl"
    copy.write_bytes(many.read_bytes())
    process = begin(copy, out)
    wait_for(lambda: out.exists() and out.stat().st_size > 0)
    process.kill()
    finish(process)
    copy.write_bytes(copy.read_bytes() + b"\n")
    code, said = finish(begin(copy, out))
    assert code == 2
    assert "input differs" in said


def _killed(_chunk):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_is_explained(monkeypatch):
    monkeypatch.setattr(executors, "_answer", _killed)
    lines = [Line(n, {"model": "llama-3-8b", "gpu": "l4", "max_num_seqs": n}) for n in range(1, 600)]
    with pytest.raises(NotKnownError) as caught:
        list(executors.run_processes(Job(), cut(lines, 1), 2))
    assert caught.value.code == "worker-died"
    assert caught.value.exit_code == 3
    assert "fewer --workers" in caught.value.hint
