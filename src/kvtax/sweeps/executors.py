"""Who answers the chunks: this process, or processes on all cores. Answers come in the order of the chunks, whoever is first."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from itertools import chain, count
from typing import Protocol

from kvtax.errors import InputError, NotKnownError
from kvtax.sweeps.answers import Answers, answer_chunk
from kvtax.sweeps.job import Chunk, Job

SMALL_ROWS = 256
"""So few deployments are answered sooner than a process starts."""
MOST_WORKERS = 1024
_TURNS_BETWEEN = 64
"""Chunks between two looks for cycles of objects."""
_turns = count(1)
_job = Job()


class Pending(Protocol):
    """An answer that is on its way."""

    def result(self) -> Answers:
        """It, once it is there."""


def usable_cores() -> int:
    """Cores that this process may use."""
    counted = getattr(os, "process_cpu_count", None)
    if counted is not None:
        return counted() or 1
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def check_workers(workers: int | None) -> int:
    """How many processes answer.

    Raises:
        InputError: a number that cannot be.
    """
    if workers is None:
        return usable_cores()
    if not 1 <= workers <= MOST_WORKERS:
        raise InputError(
            f"must be between 1 and {MOST_WORKERS}, not {workers}", code="invalid-quantity", where="workers"
        )
    return workers


def run_here(job: Job, chunks: Iterable[Chunk]) -> Generator[Answers, None, None]:
    """Answers of this process."""
    for chunk in chunks:
        yield answer_chunk(job, chunk)


def run_processes(job: Job, chunks: Iterable[Chunk], workers: int) -> Generator[Answers, None, None]:
    """Answers of processes, in order; few deployments are answered here.

    Args:
        job: what is asked.
        chunks: read only a little ahead of the answers.
        workers: processes.

    Raises:
        NotKnownError: a process ended before its answer (`worker-died`).
    """
    chunks = iter(chunks)
    first: list[Chunk] = []
    while sum(chunk.rows for chunk in first) < SMALL_ROWS:
        more = next(chunks, None)
        if more is None:
            yield from run_here(job, first)
            return
        first.append(more)
    if workers == 1:
        yield from run_here(job, chain(first, chunks))
        return
    yield from _in_pool(job, chain(first, chunks), workers)


def _in_pool(job: Job, chunks: Iterable[Chunk], workers: int) -> Generator[Answers, None, None]:
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    try:
        pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin, initargs=(job,))
    except (OSError, NotImplementedError, ImportError):  # a sandbox without semaphores: slower, and the same
        yield from run_here(job, chunks)
        return
    try:
        yield from in_order(lambda chunk: pool.submit(_answer, chunk), chunks, 2 * workers + 2)
    except BrokenProcessPool:
        raise NotKnownError(
            "a worker process ended before its answer: out of memory, or killed",
            code="worker-died",
            hint="fewer --workers take less memory; from Python, workers > 1 needs `if __name__ == '__main__':` around it",
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def in_order(submit: Callable[[Chunk], Pending], chunks: Iterable[Chunk], ahead: int) -> Generator[Answers, None, None]:
    """Answers in the order of their chunks, of which at most `ahead` are on their way at once: memory does not grow with the sweep."""
    waiting: deque[Pending] = deque()
    for chunk in chunks:
        waiting.append(submit(chunk))
        if len(waiting) >= ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _begin(job: Job) -> None:
    """What a worker does first: keep the job, leave Ctrl-C to the first process, and end when that one does."""
    global _job
    _job = job
    gc.disable()  # looking for cycles at every turn costs a tenth: `_answer` does it now and then
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _answer(chunk: Chunk) -> Answers:
    answers = answer_chunk(_job, chunk)
    if next(_turns) % _TURNS_BETWEEN == 0:
        gc.collect()
    return answers


Executor = Callable[[Job, Iterable[Chunk]], Generator[Answers, None, None]]


def choose_executor(name: str | None, scheduler: str | None, workers: int | None) -> Executor:
    """Who answers.

    Args:
        name: processes or dask; None: dask where a scheduler is named, else processes.
        scheduler: address of a Dask scheduler that runs.
        workers: processes here; None: as many as cores.

    Raises:
        InputError: no such executor, or options that exclude each other.
    """
    chosen = name or ("dask" if scheduler else "processes")
    if chosen not in ("processes", "dask"):
        raise InputError(f"executor {chosen[:64]!r} is not known", code="invalid-input", hint="known: processes, dask")
    if chosen == "processes":
        if scheduler:
            raise InputError("--scheduler goes with --executor dask", code="usage")
        processes = check_workers(workers)
        return lambda job, chunks: run_processes(job, chunks, processes)
    if not scheduler:
        raise InputError(
            "no scheduler is named", code="usage", hint="--scheduler tcp://HOST:8786, as `dask scheduler` prints it"
        )
    if workers is not None:
        raise InputError("--workers counts processes here; a cluster has its own", code="usage")
    address = scheduler

    def on_cluster(job: Job, chunks: Iterable[Chunk]) -> Generator[Answers, None, None]:
        from kvtax.sweeps.dask_cluster import run_dask

        return run_dask(job, chunks, address)

    return on_cluster
