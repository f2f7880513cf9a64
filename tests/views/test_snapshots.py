"""What people see, kept as text: exit code, stdout and stderr at fixed widths, without colour.

KVTAX_UPDATE_SNAPSHOTS=1 python -m pytest tests/views/test_snapshots.py        writes them anew
"""

import os
import pathlib

import pytest

from runner import run_here

FOLDER = pathlib.Path(__file__).parent.parent / "snapshots"


def words(line: str) -> tuple[str, ...]:
    """A command line as words."""
    return tuple(line.split())


CASES = {
    "fits": ("budget", "-m", "llama-3-8b", "-g", "a100-80", "--context", "8192"),
    "over-budget": ("budget", "-m", "llama-3-8b", "-g", "a100-80", "--context", "8192", "-n", "64"),
    "out-of-memory": ("budget", "-m", "deepseek-v3", "-g", "h200", "--context", "8192"),
    "kv-too-small": (
        "budget",
        "-m",
        "llama-3-8b",
        "-g",
        "l4",
        "--context",
        "8192",
        "--kv-cache-memory-bytes",
        "512MiB",
    ),
    "refused": ("budget", "-m", "llama-3-8b", "-g", "t4", "--dtype", "bfloat16"),
    "no-engine-rule": ("budget", "-m", "llama-3-8b", "-g", "m3-max", "--context", "8192"),
    "windows-and-experts": ("budget", "-m", "gpt-oss-20b", "-g", "h100-sxm", "--context", "32768", "--tp", "2"),
    "state": ("budget", "-m", "falcon-mamba-7b", "-g", "l4"),
    "common-cards": ("budget", "-m", "qwen3-32b", "--context", "32k"),
    "cards-with-an-error": (
        "budget",
        "-m",
        "llama-3-8b",
        "-g",
        "l4",
        "-g",
        "no-such-card",
        "-g",
        "rtx-3080-laptop-16gb",
    ),
    "help": ("--help",),
    "budget-help": ("budget", "--help"),
    "inspect-windows": ("inspect", "gemma-3-27b"),
    "inspect-latent": ("inspect", "deepseek-v3.2"),
    "inspect-hybrid": ("inspect", "qwen3-next-80b"),
    "inspect-cross-attention": ("inspect", "llama-3.2-11b-vision"),
    "inspect-tensors": ("inspect", "gpt-oss-20b", "--tensors"),
    "inspect-state": ("inspect", "falcon-mamba-7b"),
    "inspect-help": ("inspect", "--help"),
    "models": ("models", "qwen3", "moe"),
    "models-few": ("models", "gemma-3-27b"),
    "models-help": ("models", "--help"),
    "models-nothing": ("models", "lamma-3-8b"),
    "gpus-h100": ("gpus", "h100"),
    "gpus-all": ("gpus",),
    "gpus-slices": ("gpus", "a100-80gb-sxm", "--mig"),
    "gpus-help": ("gpus", "--help"),
    "stages": words("budget -m deepseek-v3 -g h200 --tp 8 --pp 2 --context 32k --speculative mtp:1"),
    "sglang": words("budget -m gpt-oss-20b -g h100-sxm --engine sglang --context 32k --free-memory 78.4GiB"),
    "tensorrt-llm": words("budget -m llama-3.1-8b -g h100-sxm --engine tensorrt-llm --context 8k -n 32"),
    "llama-cpp-cards": words(
        "budget -m qwen3-30b-a3b -g rtx-4090+rtx-3060 --engine llama.cpp -q q4_k_m -c 64k -np 2 -ctk q8_0 -ctv q8_0"
    ),
    "llama-cpp-too-large": words("budget -m llama-3.1-70b -g rtx-4090 --engine llama.cpp -q q4_k_m --context 8k"),
    "ollama": words("budget -m gpt-oss-20b -g rtx-4090 --engine ollama"),
    "transformers": words("budget -m llama-3-8b -g l4 --engine transformers --context 4k -n 2"),
    "field-not-in-engine": words("budget -m llama-3-8b -g l4 --engine sglang -np 4"),
    "engines": ("engines",),
    "engines-vllm": ("engines", "vllm"),
    "engines-help": ("engines", "--help"),
    "gguf-help": ("gguf", "--help"),
    "cache-help": ("cache", "--help"),
    "sweep-help": ("sweep", "--help"),
    "whatif-changes": words("whatif llama-3-8b -g l4 --context 8k -s kv_cache_dtype=fp8 -s tp=2 -s gpu=t4 --explain"),
    "whatif-grid": words("whatif qwen3-32b -g h100-sxm --vary context=8k,32k --vary kv_cache_dtype=auto,fp8"),
    "whatif-levers": words("whatif llama-3-8b -g l4 --context 8k -n 12"),
    "whatif-help": ("whatif", "--help"),
    "concurrency": words("concurrency llama-3-8b qwen3-32b gpt-oss-120b --context 8k"),
    "concurrency-interval": words("concurrency llama-3-8b -g l4,h100-sxm,mi300x --context 4k,16k --interval"),
    "concurrency-longest": words("concurrency qwen3-32b --show longest --vary kv_cache_dtype=auto,fp8"),
    "concurrency-help": ("concurrency", "--help"),
    "fit": words("fit qwen3-32b -n 40 --context 32k --prices examples --by price"),
    "fit-mix": words("fit llama-3.1-70b --traffic 36x4k,4x32k --vary kv_cache_dtype=auto,fp8 --most 8"),
    "fit-nothing": words("fit deepseek-v3 -n 4000 --context 32k"),
    "fit-models": words("fit -g rtx-4090 --engine llama.cpp --context 64k --search qwen3"),
    "fit-help": ("fit", "--help"),
    "diff-releases": words("diff -m llama-3-8b -g a100-80 engine_version=0.12 engine_version=0.33"),
    "diff-deployments": (
        "diff",
        "-m",
        "qwen3-32b",
        "--context",
        "16k",
        "gpu=h100-sxm",
        "gpu=l40s tensor_parallel_size=2",
    ),
    "diff-help": ("diff", "--help"),
    "unknown-model": ("budget", "-m", "lama-3-8b", "-g", "l4"),
}
FIXED = {
    "plain": ("budget", "-m", "llama-3-8b", "-g", "a100-80", "--context", "8192", "-n", "64", "--format", "plain"),
    "markdown": (
        "budget",
        "-m",
        "llama-3-8b",
        "-g",
        "a100-80",
        "--context",
        "8192",
        "-n",
        "64",
        "--format",
        "markdown",
    ),
    "markdown-cards": ("budget", "-m", "llama-3-8b", "-g", "l4", "-g", "h100-sxm", "--format", "markdown"),
    "csv": ("budget", "-m", "llama-3-8b", "-g", "l4", "-g", "h100-sxm", "--format", "csv"),
    "explain": ("budget", "-m", "llama-3-8b", "-g", "l4", "--context", "8192", "--format", "plain", "--explain"),
    "inspect-plain": ("inspect", "gpt-oss-20b", "--format", "plain"),
    "inspect-markdown": ("inspect", "gpt-oss-20b", "--format", "markdown"),
    "inspect-csv": ("inspect", "gpt-oss-20b", "--format", "csv"),
    "models-markdown": ("models", "mixtral", "--format", "markdown"),
    "gpus-markdown": ("gpus", "h100", "--format", "markdown"),
    "html": ("budget", "-m", "llama-3-8b", "-g", "l4", "--context", "8192", "--format", "html"),
}
ALL = [(f"{name}-{width}", words, width) for name, words in CASES.items() for width in (80, 120)]
ALL += [(name, words, 100) for name, words in FIXED.items()]


@pytest.mark.parametrize(("name", "words", "width"), ALL, ids=[name for name, _, _ in ALL])
def test_snapshot(capsys, monkeypatch, tmp_path, name, words, width):
    monkeypatch.chdir(tmp_path)
    ran = run_here(capsys, monkeypatch, *words, env={"COLUMNS": str(width), "NO_COLOR": "1"})
    text = f"$ kvtax {' '.join(words)}\nexit {ran.code}\n--- stdout\n{ran.out}--- stderr\n{ran.err}"
    path = FOLDER / f"{name}.txt"
    if os.environ.get("KVTAX_UPDATE_SNAPSHOTS"):
        path.write_text(text, encoding="utf-8", newline="\n")
    assert path.read_text(encoding="utf-8") == text


def test_no_snapshot_is_left_over():
    assert {path.stem for path in FOLDER.glob("*.txt")} >= {name for name, _, _ in ALL}
