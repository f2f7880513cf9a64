"""What a sweep costs, as ratios within one run: against bare budgets, two workers against one, and memory as it grows longer.

python tests/benchmarks/sweep.py            all of it, up to a million lines: some minutes on two idle cores
python tests/benchmarks/sweep.py --small    what CI runs: half a minute; two workers against one are shown and not judged

Exit 1 where a ratio is beyond its limit. Models, cards, lengths and parallel sizes are drawn at random from the whole catalogue, which is the
worst case: hardly anything that one deployment needs was worked out for one before it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time

from kvtax.sources.gpus import list_gpus
from kvtax.sources.models import list_models

MOST_OVER_BUDGETS = 1.4
"""CPU time of a sweep in one process over that of its budgets alone."""
LEAST_OF_TWO = 1.7
"""How much faster two workers are than one."""
MOST_GROWTH = 1.15
"""Peak memory of the longest sweep over that of the shortest."""
_BARE = """
import json, sys, time
import kvtax
rows = [json.loads(line) for line in open(sys.argv[1])]
start = time.process_time()
for row in rows:
    try:
        kvtax.budget(**row)
    except kvtax.KvtaxError:
        pass
print(time.process_time() - start)
"""
_SWEEP = """
import resource, sys, time
from kvtax.cli import main
start, cpu = time.perf_counter(), time.process_time()
main(["sweep", *sys.argv[1:], "--quiet", "--overwrite"])
wall, cpu = time.perf_counter() - start, time.process_time() - cpu
peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(wall, cpu, *peaks)
"""


def deployments(count: int, path: str) -> None:
    """A file of `count` mixed deployments."""
    chance = random.Random(2026)
    models, cards = [entry.id for entry in list_models()], [gpu.id for gpu in list_gpus()]
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            row = {
                "model": chance.choice(models),
                "gpu": chance.choice(cards),
                "engine": chance.choice(("vllm", "vllm", "vllm", "sglang")),
                "tensor_parallel_size": chance.choice((1, 2, 4, 8)),
                "max_model_len": chance.choice((4096, 8192, 32768)),
                "concurrency": chance.choice((1, 4, 16)),
            }
            file.write(json.dumps(row) + "\n")


def alike(count: int, path: str) -> None:
    """A long file whose lines are answered fast: one model on one card, over lengths and numbers of requests."""
    with open(path, "w", encoding="utf-8") as file:
        for number in range(count):
            row = {"id": number, "context": 1024 + number % 7000, "concurrency": 1 + number % 64}
            file.write(json.dumps({"model": "llama-3-8b", "gpu": "h200", **row}) + "\n")


def measured(script: str, *words: str) -> list[float]:
    """What a script prints, run in a process of its own."""
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def judged(name: str, value: float, limit: float, *, least: bool = False, counts: bool = True) -> bool:
    """Print a ratio with its limit; True where it is beyond."""
    word = "at least" if least else "at most"
    print(f"{name:<44} {value:6.2f} x  ({word} {limit:g} x{'' if counts else ', not judged here'})", flush=True)
    return counts and (value < limit if least else value > limit)


def main() -> int:
    """Print the ratios."""
    small = "--small" in sys.argv
    count, lengths = (4_000, (2_000, 40_000)) if small else (10_000, (10_000, 100_000, 1_000_000))
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        mixed, out, rows = (os.path.join(folder, name) for name in ("mixed.jsonl", "out.jsonl", "rows.jsonl"))
        deployments(count, mixed)
        bare = measured(_BARE, mixed)[0]
        one = measured(_SWEEP, mixed, "-o", out, "--workers", "1")
        two = measured(_SWEEP, mixed, "-o", out, "--workers", "2")
        print(
            f"{count:,} mixed deployments: {one[0]:.1f} s with one worker ({count / one[0]:,.0f}/s), {two[0]:.1f} s with two"
        )
        failed |= judged("a sweep over its budgets alone", one[1] / bare, MOST_OVER_BUDGETS)
        failed |= judged("two workers over one", one[0] / two[0], LEAST_OF_TWO, least=True, counts=not small)
        peaks = []
        for length in lengths:
            alike(length, rows)
            start = time.perf_counter()
            _, _, first, workers = measured(_SWEEP, rows, "-o", out, "--workers", "2")
            seconds = time.perf_counter() - start
            peaks.append((first, workers))
            print(
                f"{length:>9,} lines: {first / 1024:.0f} MiB, each worker {workers / 1024:.0f} MiB, {length / seconds:,.0f}/s",
                flush=True,
            )
        for who, name in enumerate(("the first process", "a worker")):
            failed |= judged(
                f"memory of {name}, {lengths[-1]:,} lines over {lengths[0]:,}",
                peaks[-1][who] / peaks[0][who],
                MOST_GROWTH,
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
