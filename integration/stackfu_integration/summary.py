"""A solution of the game as plain values, for files, the ledger and tables."""

from __future__ import annotations

import math
from typing import Any

from stackfu.results import Solution

__all__ = ["solution_summary"]


def solution_summary(solution: Solution) -> dict[str, Any]:
    """Return the figures of a solution that JSON can hold; a bound that is not finite is ``None``.

    Payments and participation are left to the caller, who knows the clients' numbers.
    """
    found = solution.summary()
    equilibrium = found["equilibrium"]
    return {
        "status": found["status"],
        "meaning": solution.status.value,
        **{name: float(found[name]) for name in ("server_loss", "objective", "spend")},
        **{name: _finite(found[name]) for name in ("lower_bound", "gap")},
        **{name: float(equilibrium[name]) for name in ("regret", "residual", "total")},
        "uniqueness": equilibrium["uniqueness"],
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
