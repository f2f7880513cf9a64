"""kvtax: where the VRAM of an inference server goes, how many requests fit, and what to change.

>>> import kvtax
>>> b = kvtax.budget(model="llama-3-8b", gpu="a100-80", max_model_len=8192, concurrency=16)
>>> b.verdict
'fits'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvtax.version import __version__

if TYPE_CHECKING:
    from kvtax.architectures.architecture import Architecture
    from kvtax.budgets import Budget, budget
    from kvtax.deployment import Deployment
    from kvtax.errors import (
        ConfigError,
        InputError,
        KvtaxError,
        NotKnownError,
        SourceError,
        UnknownNameError,
        UnsupportedArchitectureError,
    )
    from kvtax.planning.diff import Diff, diff
    from kvtax.planning.fit import Fit, fit
    from kvtax.planning.fit_models import FitModels, fit_models
    from kvtax.planning.matrix import Matrix, matrix
    from kvtax.planning.whatif import WhatIf, whatif
    from kvtax.sweeps.results import SweepResult
    from kvtax.sweeps.running import sweep
    from kvtax.terms import Input, Notice, Term

_PLACES = {
    "Architecture": "kvtax.architectures.architecture",
    "Budget": "kvtax.budgets",
    "ConfigError": "kvtax.errors",
    "Deployment": "kvtax.deployment",
    "Diff": "kvtax.planning.diff",
    "Fit": "kvtax.planning.fit",
    "FitModels": "kvtax.planning.fit_models",
    "Input": "kvtax.terms",
    "InputError": "kvtax.errors",
    "KvtaxError": "kvtax.errors",
    "Matrix": "kvtax.planning.matrix",
    "NotKnownError": "kvtax.errors",
    "Notice": "kvtax.terms",
    "SourceError": "kvtax.errors",
    "SweepResult": "kvtax.sweeps.results",
    "Term": "kvtax.terms",
    "UnknownNameError": "kvtax.errors",
    "UnsupportedArchitectureError": "kvtax.errors",
    "WhatIf": "kvtax.planning.whatif",
    "diff": "kvtax.planning.diff",
    "fit": "kvtax.planning.fit",
    "fit_models": "kvtax.planning.fit_models",
    "matrix": "kvtax.planning.matrix",
    "whatif": "kvtax.planning.whatif",
}

__all__ = [
    "Architecture",
    "Budget",
    "ConfigError",
    "Deployment",
    "Diff",
    "Fit",
    "FitModels",
    "Input",
    "InputError",
    "KvtaxError",
    "Matrix",
    "NotKnownError",
    "Notice",
    "SourceError",
    "SweepResult",
    "Term",
    "UnknownNameError",
    "UnsupportedArchitectureError",
    "WhatIf",
    "__version__",
    "architecture",
    "budget",
    "diff",
    "fit",
    "fit_models",
    "matrix",
    "sweep",
    "whatif",
]


def architecture(model: Any) -> Architecture:
    """The Architecture of a model: an alias, a hub id, a path, or a parsed config.json.

    Args:
        model: as in `budget`.

    Returns:
        One copy of the model before any sharding.

    Raises:
        KvtaxError: the name is not known, or the config cannot be read or is not understood.
    """
    from kvtax.sources.resolve import find

    return find(model).architecture


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'kvtax' has no attribute {name!r}")


if not TYPE_CHECKING:

    def budget(*arguments: Any, **fields: Any) -> Any:
        """The budget of one deployment: see `kvtax.budgets.budget`."""
        from kvtax.budgets import budget as answer

        return answer(*arguments, **fields)

    def sweep(*arguments: Any, **fields: Any) -> Any:
        """Results of many deployments, as they come: see `kvtax.sweeps.running.sweep`."""
        from kvtax.sweeps.running import sweep as answers

        return answers(*arguments, **fields)
