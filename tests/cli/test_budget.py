"""`kvtax budget` from the outside: exit codes, both streams, files and pipes."""

import json
import os
import subprocess
import sys

import pytest

from runner import CLEAN, run, run_here
from schemas import validate

FITS = ("budget", "-m", "llama-3-8b", "-g", "a100-80", "--context", "8192")
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
}  # fmt: skip


@pytest.fixture
def here(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words, **more: run_here(capsys, monkeypatch, *words, **more)


# ---- exit codes ----


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (FITS, 0),
        ((*FITS, "-n", "16"), 0),
        ((*FITS, "-n", "1000"), 1),
        (("budget", "llama-3-70b", "-g", "l4"), 1),
        (("budget", "llama-3-8b", "-g", "t4", "--dtype", "bfloat16"), 1),
        (("budget",), 2),
        (("budget", "no-such-model", "-g", "l4"), 2),
        (("budget", "llama-3-8b", "-g", "no-such-card"), 2),
        (("budget", "llama-3-8b", "-g", "a100"), 2),
        (("budget", "llama-3-8b", "-m", "llama-3-8b", "-g", "l4"), 2),
        (("budget", "llama-3-8b", "-g", "l4", "--context", "8q"), 2),
        (("budget", "llama-3-8b", "-g", "l4", "--gpu-memory-utilization", "lots"), 2),
        (("budget", "llama-3-8b", "-g", "l4", "--format", "xml"), 2),
        (("budget", "llama-3-8b", "-g", "l4", "--color", "pink"), 2),
        (("budget", "llama-3-8b", "-g", "l4", "--no-such-option"), 2),
        (("budgte",), 2),
        (("budget", "some-org/some-model", "-g", "l4"), 3),
        (("budget", "llama-3-8b", "-g", "l4", "-g", "no-such-card", "--context", "4k"), 2),
        (("budget", "llama-3-70b", "-g", "l4", "-g", "no-such-card"), 1),
        (("budget", "llama-3-8b"), 0),
        (("budget", "deepseek-v3"), 1),
        (("--version",), 0),
        (("--help",), 0),
        (("budget", "--help"), 0),
        ((), 0),
    ],
)
def test_exit_codes(here, words, code):
    ran = here(*words)
    assert ran.code == code
    assert "Traceback" not in ran.out + ran.err
    assert code < 2 or ran.err.startswith("error: ")


def test_strict_fails_on_assumptions_and_not_on_information(here):
    assert here(*FITS, "--strict").code == 0
    assert here("budget", "llama-3-8b", "-g", "a100-80", "--context", "8k", "--strict").code == 0
    ran = here(*FITS, "--engine-version", "nightly", "--strict")
    assert ran.code == 1
    assert "engine-version-newest" in ran.err
    assert json.loads(here(*FITS, "--engine-version", "nightly", "--strict", "--json").out)["verdict"] == "fits"


def test_interrupted_is_130(here, monkeypatch):
    def stop(values):
        raise KeyboardInterrupt

    monkeypatch.setattr(
        "kvtax.cli.budget.COMMAND", __import__("kvtax.cli.budget").cli.budget.COMMAND._replace(run=stop)
    )
    ran = here(*FITS)
    assert (ran.code, ran.out, ran.err) == (130, "", "interrupted\n")


def test_a_bug_is_one_line_and_70(here, monkeypatch):
    def fail(values):
        raise ZeroDivisionError("by zero\x1b[31m")

    monkeypatch.setattr(
        "kvtax.cli.budget.COMMAND", __import__("kvtax.cli.budget").cli.budget.COMMAND._replace(run=fail)
    )
    ran = here(*FITS, "--json")
    assert ran.code == 70
    assert "internal error" in ran.err
    assert "Traceback" not in ran.err
    assert "\x1b" not in ran.err
    assert json.loads(ran.out)["error"]["code"] == "internal-error"
    assert "Traceback" in here(*FITS, "--debug").err


# ---- JSON ----


def test_json_has_the_contract(here):
    document = json.loads(here(*FITS, "-n", "16", "--json", "--explain").out)
    validate(document, "budget")
    part = document["per_gpu"]
    names = (
        "weights_bytes",
        "activation_bytes",
        "cuda_graph_bytes",
        "runtime_bytes",
        "kv_pool_bytes",
        "unallocated_bytes",
    )
    assert part["total_bytes"] == sum(part[name] for name in names)
    assert part["weights_bytes"] == 16_060_522_496
    assert document["deployment"]["gpu"] == "a100-80gb-sxm"
    assert document["concurrency"]["requested"] == 16
    assert document["concurrency"]["at_context"] == 8192


@pytest.mark.parametrize(
    "words",
    [
        ("deepseek-v3", "-g", "h200", "--tp", "8"),
        ("gpt-oss-20b", "-g", "m3-max"),
        ("llama-3-8b", "-g", "t4", "--dtype", "bfloat16"),
        ("falcon-mamba-7b", "-g", "l4"),
        ("llama-3-8b", "--vram", "24GiB"),
    ],
)
def test_json_is_valid_whatever_the_verdict(here, words):
    validate(json.loads(here("budget", *words, "--json").out), "budget")


def test_json_of_several_cards(here):
    ran = here(
        "budget", "llama-3-8b", "-g", "l4", "-g", "no-such-card", "-g", "h100-sxm", "--context", "4096", "--json"
    )
    document = json.loads(ran.out)
    validate(document, "budgets")
    assert [row["gpu"] if "error" in row else row["gpu"]["id"] for row in document["budgets"]] == [
        "l4",
        "no-such-card",
        "h100-sxm",
    ]
    assert document["budgets"][1]["error"]["code"] == "unknown-gpu"
    assert "no-such-card" in ran.err


def test_without_a_card_the_common_ones_are_answered(here):
    document = json.loads(here("budget", "llama-3-8b", "--json").out)
    assert len(document["budgets"]) == 12
    totals = [row["gpu"]["total_bytes"] for row in document["budgets"]]
    assert totals == sorted(totals)


@pytest.mark.parametrize("form", [("--json",), ("--format", "json"), ("--format=json",)])
def test_errors_are_json_too(here, form):
    for words in (
        ("budget", "no-such-model", "-g", "l4"),
        ("budget", "--no-such-option"),
        ("budget", "llama-3-8b", "-g", "a100"),
    ):
        ran = here(*words, *form)
        assert ran.code == 2
        validate(json.loads(ran.out), "error")
        assert ran.err.startswith("error: ")


def test_version_as_json(here):
    document = json.loads(here("--version", "--json").out)
    assert document["schema"] == "kvtax.version/1"
    assert here("--version").out == f"kvtax {document['kvtax']}\n"


def test_a_size_with_a_letter_is_1024_and_said(here):
    document = json.loads(here("budget", "llama-3-8b", "-g", "a100-80", "--context", "4K", "--json").out)
    assert document["deployment"]["max_model_len"] == 4096
    assert [notice["message"] for notice in document["notices"] if notice["code"] == "size-taken"] == [
        "--context 4K is taken as 4,096"
    ]
    assert not [notice for notice in json.loads(here(*FITS, "--json").out)["notices"] if notice["code"] == "size-taken"]


# ---- words ----


def test_short_forms_and_the_names_of_engines_mean_the_same(here):
    base = here(
        "budget", "llama-3-8b", "-g", "h100-sxm", "--context", "4096", "--tp", "2", "--max-num-seqs", "64", "--json"
    ).out
    for words in (
        (
            "-m",
            "llama-3-8b",
            "--gpu=h100-sxm",
            "--seq",
            "4096",
            "--tensor-parallel-size",
            "2",
            "--max-running-requests",
            "64",
        ),
        ("-mllama-3-8b", "-gh100-sxm", "--max-model-len=4096", "--tp=2", "--max-batch-size", "64"),
    ):
        assert here("budget", *words, "--json").out == base


def test_wrong_options_and_commands_get_the_closest(here):
    assert "--model" in here("budget", "--modle", "x").err
    assert "budget" in here("budgte").err
    assert "is more than one GPU" in here("budget", "llama-3-8b", "-g", "h100").err


def test_a_config_on_stdin():
    ran = run("budget", "-", "-g", "a100-80", "--json", stdin=json.dumps(CONFIG).encode())
    assert ran.code == 0
    assert json.loads(ran.out)["per_gpu"]["weights_bytes"] == 16_060_522_496
    assert run("budget", "-m", "-", "-g", "a100-80", stdin=b"{]").code == 2
    assert run("budget", "-", "-g", "a100-80", stdin=b"[" * 100_000).code == 2
    assert run("budget", "-", "-g", "a100-80", stdin=b" " * (5 * 2**20)).code == 2


def test_a_catalogue_of_ones_own(here, tmp_path):
    (tmp_path / "private.json").write_text(json.dumps(CONFIG))
    text = '[[model]]\nname = "acme/private"\nconfig = "private.json"\n[[gpu]]\nid = "lab"\nmemory = "40GiB"\nvendor = "NVIDIA"\n'
    (tmp_path / "mine.toml").write_text(text)
    document = json.loads(here("budget", "acme/private", "-g", "lab", "--catalogue", "mine.toml", "--json").out)
    assert document["gpu"]["total_bytes"] == 40 * 2**30
    assert here("budget", "acme/private", "-g", "lab", "--json").code != 0
    (tmp_path / "kvtax.toml").write_text(text)
    assert json.loads(here("budget", "acme/private", "-g", "lab", "--json").out)["model"]["id"] == "acme/private"
    (tmp_path / "kvtax.toml").write_text("[[gpu]]\nid = 1\n")
    ran = here("budget", "llama-3-8b", "-g", "l4")
    assert ran.code == 2
    assert "kvtax.toml" in ran.err


# ---- files, pipes, colours ----


def test_output_is_written_whole_or_not_at_all(here, tmp_path):
    target = tmp_path / "b.json"
    target.write_text("old")
    assert here("budget", "no-such-model", "-g", "l4", "-o", str(target), "--json").code == 2
    assert target.read_text() == "old"
    ran = here(*FITS, "--json", "-o", str(target))
    assert (ran.code, ran.out) == (0, "")
    assert json.loads(target.read_text())["verdict"] == "fits"
    assert os.listdir(tmp_path) == ["b.json"]


def test_a_file_that_cannot_be_written_is_said_before_the_work(here, tmp_path):
    for place in (tmp_path, tmp_path / "no" / "such" / "folder", "bad\0name"):
        ran = here("budget", "no-such-model", "-g", "l4", "-o", str(place))
        assert ran.code == 2
        assert "no-such-model" not in ran.err


@pytest.mark.skipif(os.name == "nt", reason="links and modes of POSIX")
def test_output_follows_a_link_and_keeps_the_mode(here, tmp_path):
    target = tmp_path / "real.txt"
    target.write_text("old")
    target.chmod(0o640)
    (tmp_path / "link.txt").symlink_to(target)
    assert here(*FITS, "--format", "plain", "-o", str(tmp_path / "link.txt")).code == 0
    assert (tmp_path / "link.txt").is_symlink()
    assert target.read_text().startswith("budget: ")
    assert target.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.name == "nt", reason="needs a pipe that closes early")
@pytest.mark.parametrize("form", [(), ("--json",), ("--explain",)])
def test_a_closed_pipe_is_0(form):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "kvtax", *FITS, *form]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env={**os.environ, **CLEAN}, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_said():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "kvtax", *FITS], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr.decode().startswith("error: the result cannot be written")
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437", "utf-8"])
@pytest.mark.parametrize("form", ["table", "plain", "markdown", "csv", "html", "json"])
def test_every_encoding_can_show_every_format(encoding, form):
    command = [
        sys.executable,
        "-m",
        "kvtax",
        "budget",
        "gpt-oss-20b",
        "-g",
        "l4",
        "--format",
        form,
        "--context",
        "4096",
    ]
    done = subprocess.run(
        command, capture_output=True, env={**os.environ, **CLEAN, "PYTHONIOENCODING": encoding}, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    assert b"\\u" not in done.stdout
    done.stdout.decode(encoding)


def test_colours_come_when_asked_for(here):
    assert "\x1b[" not in here(*FITS).out
    assert "\x1b[" in here(*FITS, "--color", "always").out
    assert "\x1b[" in here(*FITS, env={"FORCE_COLOR": "1"}).out
    assert "\x1b[" not in here(*FITS, env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).out
    assert "\x1b[" not in here(*FITS, "--color", "never", env={"FORCE_COLOR": "1"}).out
    assert "\x1b[" in here(*FITS, "--color", "always", env={"NO_COLOR": "1"}).out


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_line_is_wider_than_asked_for(here, width):
    for words in (
        FITS,
        ("budget", "llama-3-8b"),
        ("budget", "deepseek-v3", "-g", "h200"),
        ("budget", "gemma-3-27b", "-g", "m3-max"),
    ):
        out = here(*words, env={"COLUMNS": str(width)}).out
        assert max(map(len, out.splitlines())) <= max(width, 75)


def test_nothing_on_stderr_where_all_is_well(here):
    for form in ("table", "plain", "json", "markdown", "html"):
        assert here(*FITS, "--format", form).err == ""
    assert here(*FITS, "--format", "csv", "--quiet").err == ""
    assert "engine-version-newest" in here(*FITS, "--engine-version", "nightly", "--format", "csv").err


def test_help_has_groups_and_three_examples(here):
    out = here("budget", "--help").out
    for heading in ("Model:", "Cards:", "Requests:", "Engine:", "Output:", "Examples:"):
        assert heading in out
    assert out.count("  kvtax budget ") == 3
    assert "--max-running-requests" not in out
    assert max(map(len, out.splitlines())) <= 100
    assert here("budget", "-h").out == out


# ---- what a new user does ----


@pytest.mark.skipif(os.name == "nt", reason="closes a descriptor with the shell of POSIX")
@pytest.mark.parametrize(
    ("words", "code"),
    [("-m llama-3-8b -g a100-80", 0), ("-m llama-3-8b -g a100-80 --json -n 1000", 1), ("--no-such-option --json", 2)],
)
def test_without_stdout_the_exit_code_still_answers(words, code):
    line = f"'{sys.executable}' -m kvtax budget {words} >&-"
    done = subprocess.run(["sh", "-c", line], capture_output=True, env={**os.environ, **CLEAN}, check=False)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr


def test_a_folder_called_like_an_alias_hides_nothing(here, tmp_path):
    (tmp_path / "llama-3-8b").mkdir()
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir(parents=True)
    (tmp_path / "my-runs").mkdir()
    assert here(*FITS).code == 0
    assert here("budget", "Qwen/Qwen3-8B", "-g", "a100-80").code == 0
    assert "holds no config.json" in here("budget", "my-runs", "-g", "a100-80").err
    (tmp_path / "llama-3-8b" / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 16}))
    assert json.loads(here(*FITS, "--json").out)["model"]["source"] == "folder llama-3-8b"


def test_an_empty_stdin_is_said():
    ran = run("budget", "-", "-g", "l4")
    assert (ran.code, ran.err) == (2, "error: stdin: is empty\n")


@pytest.mark.parametrize(
    ("flag", "value", "says"),
    [
        ("--vram", "48", "write 48GiB"),
        ("--vram", "0", "at least"),
        ("--weights-bytes", "0", "at least 1"),
        ("--context", "8.3", "whole number"),
        ("--context", "-1", "negative"),
        ("-n", "1.5", "whole number"),
        ("-n", "-3", "negative"),
    ],
)
def test_a_number_that_cannot_be_meant_is_refused(here, flag, value, says):
    ran = here(*FITS[:5], flag, value)
    assert ran.code == 2
    assert says in ran.err


def test_a_narrow_table_of_cards_drops_columns_and_cuts_no_number(here):
    wide, narrow = (here("budget", "llama-3-8b", env={"COLUMNS": width}).out for width in ("100", "60"))
    assert "needed" in wide
    assert "needed" not in narrow
    assert "\u2026" not in narrow
    for card in ("rtx-4090", "a100-80gb-sxm", "mi300x"):
        assert any(line.startswith(card) for line in narrow.splitlines())


def test_what_is_free_above_the_card_is_an_assumption(here):
    ran = here(*FITS, "--free-memory", "200GiB", "--strict", "--json")
    assert ran.code == 1
    assert "free-above-total" in [notice["code"] for notice in json.loads(ran.out)["notices"]]
