"""Budgets a second in one process: one model over changing lengths and batch sizes, beside the first budget of a model.

    python tests/benchmarks/throughput.py

Prints rates of one core and their ratio; nothing is asserted, since a rate depends on the machine.
"""

from __future__ import annotations

import time

import kvtax
from kvtax.sources import resolve

COUNT = 20_000
MODELS = ("llama-3-8b", "gemma-3-27b", "deepseek-v3", "qwen3-next-80b")


def rate(model: str) -> tuple[float, float]:
    """Budgets a second once the model is known, and seconds of the first one."""
    resolve._FOUND.clear()
    start = time.process_time()
    kvtax.budget(model=model, gpu="h200", tensor_parallel_size=8, max_model_len=1000)
    first = time.process_time() - start
    start = time.process_time()
    for index in range(COUNT):
        kvtax.budget(
            model=model, gpu="h200", tensor_parallel_size=8, max_model_len=1000 + index, concurrency=1 + index % 64
        )
    return COUNT / (time.process_time() - start), first


def main() -> None:
    """Print one line a model."""
    for model in MODELS:
        warm, first = rate(model)
        print(f"{model:16} {warm:10,.0f} budgets/s   first {first * 1000:6.1f} ms = {first * warm:7,.0f} x a later one")


if __name__ == "__main__":
    main()
