"""What real servers printed at start, beside what kvtax says from their flags (tests/evidence.py has the measures).

The limits are what was reached, with a little room: a change that makes predictions worse fails here.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

import pytest

import evidence
from evidence import Error, quantile

REFRESH = "python tests/evidence.py --write"
# engine -> (median, 90th percentile) of the size of the errors, None where there are too few starts
WEIGHTS_16_AND_8_BIT = {"vllm": (0.2, 3.0), "sglang": (0.6, 42.0)}
WEIGHTS_4_BIT = {"vllm": (0.6, 10.5), "sglang": (2.0, 40.0)}
POOL = {"vllm": (0.3, 2.0), "sglang": (0.6, 0.8)}
POOL_GIVEN_WEIGHTS = {"vllm": (0.2, 1.2), "sglang": (0.2, 0.5)}
CONCURRENCY = {"vllm": (0.8, 12.0), "sglang": (1.4, 2.0)}
CONCURRENCY_GIVEN_POOL = {"vllm": (0.05, 0.4), "sglang": (0.1, 0.3)}


def four_bit(error: Error) -> bool:
    """Whether a start's weights have less than 8 bits."""
    name = str(error.start.get("quantization") or "")
    return any(word in name for word in ("int4", "fp4", "nf4", "q4"))


def v1(errors: list[Error]) -> list[Error]:
    """Starts of vLLM from 0.8 on; all of other engines."""
    return [error for error in errors if error.start["engine"] != "vllm" or error.start["v1"]]


def hold(errors: list[Error], limits: tuple[float, float]) -> None:
    sizes = [abs(error.value) for error in errors]
    worst = sorted(errors, key=lambda error: -abs(error.value))[:12]
    said = [f"{error.start['id']} {error.value:+.2f}" for error in worst]
    assert statistics.median(sizes) <= limits[0], said
    assert quantile(sizes, 0.9) <= limits[1], said


@pytest.mark.parametrize("engine", evidence.FAMILIES)
def test_nearly_all_graded_starts_are_answered(engine: str) -> None:
    graded = [case for case in evidence.cases(engine) if case.start["grade"] in "AB"]
    missing = [(case.start["id"], str(case.budget)) for case in graded if not case.answered]
    assert len(missing) <= 0.03 * len(graded), missing


@pytest.mark.parametrize("engine", WEIGHTS_16_AND_8_BIT)
def test_weights_of_16_and_8_bit(engine: str) -> None:
    hold([error for error in evidence.weight_errors(engine) if not four_bit(error)], WEIGHTS_16_AND_8_BIT[engine])


@pytest.mark.parametrize("engine", WEIGHTS_4_BIT)
def test_weights_of_4_bit_from_the_config_alone(engine: str) -> None:
    hold([error for error in evidence.weight_errors(engine) if four_bit(error)], WEIGHTS_4_BIT[engine])


@pytest.mark.parametrize("engine", POOL)
def test_pool_from_flags_alone(engine: str) -> None:
    hold(v1(evidence.pool_errors(engine, given=False)), POOL[engine])


@pytest.mark.parametrize("engine", POOL_GIVEN_WEIGHTS)
def test_pool_with_the_weights_given(engine: str) -> None:
    hold(v1(evidence.pool_errors(engine, given=True)), POOL_GIVEN_WEIGHTS[engine])


@pytest.mark.parametrize("engine", CONCURRENCY)
def test_concurrency_end_to_end(engine: str) -> None:
    hold(v1(evidence.concurrency_errors(engine)), CONCURRENCY[engine])


@pytest.mark.parametrize("engine", CONCURRENCY_GIVEN_POOL)
def test_concurrency_from_the_printed_pool(engine: str) -> None:
    hold(evidence.concurrency_given_pool_errors(engine), CONCURRENCY_GIVEN_POOL[engine])


@pytest.mark.parametrize("engine", evidence.FAMILIES)
def test_rate_per_token_is_exact(engine: str) -> None:
    """Pool over printed tokens, where layers are plain: within the rounding of the printed figures."""
    errors = evidence.rate_errors(engine)
    off = [f"{error.start['id']} {error.value:+.1f}" for error in errors if abs(error.value) > 1]
    assert len(off) <= 0.02 * len(errors), off


def test_starts_and_failures_are_told_apart() -> None:
    told = evidence.verdicts()
    wrong = [case.start["id"] for case, started, says in told if started != says]
    alarms = [case.start["id"] for case, started, says in told if started and not says]
    assert len(wrong) <= 0.05 * len(told), wrong
    assert len(alarms) <= 0.03 * sum(started for _, started, _ in told), alarms


@pytest.mark.parametrize("engine", evidence.FAMILIES)
def test_intervals_hold_what_servers_printed(engine: str) -> None:
    """Narrow enough to be of use, and wide enough for sources that they were not made from (each judged by the margins of the others)."""
    share, width, count = evidence.coverage(engine)
    assert count == 0 or share >= 0.85
    assert width < 5
    crossed, _, count = evidence.coverage(engine, crossed=True)
    assert count == 0 or crossed >= 0.85


@pytest.mark.parametrize("engine", evidence.FAMILIES)
def test_the_shipped_record_is_fresh(engine: str) -> None:
    shipped = json.loads((evidence.ENGINES / f"{engine}.json").read_text(encoding="utf-8"))
    assert shipped == json.loads(json.dumps(evidence.record(engine))), REFRESH


def test_the_table_in_the_readme_is_fresh() -> None:
    text = (evidence.ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{evidence.BEGIN}\n{evidence.table()}{evidence.END}" in text, REFRESH


@pytest.mark.parametrize("start", evidence.STARTS, ids=lambda start: start["id"])
def test_every_start_is_sourced(start: dict[str, Any]) -> None:
    assert start["source"]
    assert start["observed"]
