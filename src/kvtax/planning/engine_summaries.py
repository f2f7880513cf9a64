"""The engines in a line each: versions known, real starts they were checked against, and the errors found."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvtax.deployment import COMMON_FIELDS, ENGINES, Deployment
from kvtax.engines.base import Plan, Rule
from kvtax.engines.intervals import engine_record
from kvtax.engines.registry import PLANS, plan_class


class EngineSummary(NamedTuple):
    """An engine, its rules and what is known of their errors.

    Args:
        name: as in `--engine`.
        oldest: first version whose rules are known.
        newest: last one.
        allocates: the cache is allocated for what is asked, instead of taking what is left.
        checked: what the rules were checked against beside real starts.
        rules: what changed from release to release.
        fields: of a deployment that it understands besides the common ones.
        record: errors and margins from real starts; empty where there are none.
    """

    name: str
    oldest: str
    newest: str
    allocates: bool
    checked: str
    rules: tuple[Rule, ...]
    fields: tuple[str, ...]
    record: dict[str, Any]

    @property
    def starts(self) -> int:
        """Real starts that the rules were held against."""
        return int(self.record.get("starts", 0))

    def error(self, quantity: str) -> dict[str, Any]:
        """Starts, median and 90th percentile [%] of the error of `weights`, `pool`, `pool_given_weights` or `concurrency`."""
        rows = self.record.get("errors") or [{}]
        found: dict[str, Any] = rows[0].get(quantity, {"starts": 0})
        return found


def summarise_engines(name: str | None = None) -> list[EngineSummary]:
    """Every engine, or the one that is named."""
    names = [engine for engine in ENGINES if engine in PLANS and name in (None, engine)]
    return [_summary(engine, plan_class(engine)) for engine in names]


def _summary(name: str, plan: type[Plan]) -> EngineSummary:
    fields = tuple(field for field in Deployment._fields if field in plan.FIELDS and field not in COMMON_FIELDS)
    oldest, newest = plan.version_words(plan.OLDEST), plan.version_words(plan.NEWEST)
    return EngineSummary(
        name, oldest, newest, plan.ALLOCATES, plan.CHECKED, plan.RULES, fields, engine_record(plan.NAME)
    )
