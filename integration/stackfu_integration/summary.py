"""A solution of the game as plain values, for files, the ledger and tables."""

from __future__ import annotations

import math
from typing import Any

from stackfu.result import Solution

__all__ = ["solution_summary"]


def solution_summary(solution: Solution) -> dict[str, Any]:
    """Return what a solution says, in numbers and words that JSON can hold; an absent bound is ``None``."""
    equilibrium = solution.equilibrium
    return {
        "status": solution.status.name,
        "meaning": solution.status.value,
        "server_loss": float(solution.server_loss),
        "objective": float(solution.objective),
        "lower_bound": _finite(solution.lower_bound),
        "gap": _finite(solution.gap),
        "spend": float(solution.spend),
        "regret": float(equilibrium.regret),
        "residual": float(equilibrium.residual),
        "uniqueness": equilibrium.uniqueness.name,
        "total": float(equilibrium.total),
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
