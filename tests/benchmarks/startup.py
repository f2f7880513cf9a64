"""What a start of `kvtax` costs, as multiples of `python -c pass` in the same run: CPU time, the least of several runs.

python tests/benchmarks/startup.py          prints the ratios; exit 1 where one is above its limit
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

RUNS = 15
QUESTION = ("-m", "kvtax", "budget", "--model", "llama-3-8b", "--gpu", "a100-80")
MEASURED = (
    # name, words, at most so many times `python -c pass`
    ("budget --json", (*QUESTION, "--json"), 8.0),
    ("budget (table)", QUESTION, 12.0),
    ("--version", ("-m", "kvtax", "--version"), 8.0),
    ("--help", ("-m", "kvtax", "--help"), 12.0),
)


def cpu_seconds(words: tuple[str, ...], runs: int = RUNS) -> float:
    """User and system time of one start, the least of `runs`; compiled modules are kept, as they are for users."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    best = float("inf")
    for _ in range(runs):
        before = _children()
        subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=False, env=environment)
        best = min(best, _children() - before)
    return best


def _children() -> float:
    """CPU time of the processes that have ended [s]; wall time where the system does not say."""
    times = os.times()
    spent = times.children_user + times.children_system
    try:
        import resource

        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    except ImportError:
        return spent or time.perf_counter()
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Print the ratios."""
    base = cpu_seconds(("-c", "pass"), 2 * RUNS)
    print(f"{'python -c pass':<16} {base * 1000:6.1f} ms")
    failed = False
    for name, words, limit in MEASURED:
        seconds = cpu_seconds(words)
        ratio = seconds / base
        failed |= ratio > limit
        print(f"{name:<16} {seconds * 1000:6.1f} ms  {ratio:5.1f} x  (at most {limit:g} x)")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
