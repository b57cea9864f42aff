"""Solutions along a list of budgets, each search starting from the solution before."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..model import GameModel
from ..results import Frontier, Solution
from .dispatch import solve
from .mechanisms import mechanism

__all__ = ["Frontier", "trace_frontier"]

#: Options of a single search that mean nothing to the next one.
_OF_ONE_SEARCH = frozenset({"start", "progress", "callback"})


def trace_frontier(game: GameModel, budgets: npt.ArrayLike, method: str, options: dict[str, Any]) -> Frontier:
    """Solve along the budgets, smallest first; a mechanism that takes a start gets the solution before."""
    try:
        values = np.asarray(budgets, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("budgets", "must be a non-empty list of numbers", value=repr(budgets)) from None
    if values.ndim != 1 or len(values) == 0:
        raise InputError("budgets", "must be a non-empty list of numbers", value=budgets)
    if np.isnan(values).any() or (values < 0).any():
        bad = values[np.isnan(values) | (values < 0)][0]
        raise InputError("budgets", "must not be negative or NaN", value=bad)
    warmed = "start" in mechanism(method).options
    solutions: list[Solution] = []
    for budget in np.sort(values):
        warm = {"start": solutions[-1].participation} if solutions and warmed else {}
        solutions.append(solve(game, float(budget), method, {**options, **warm}))
    shared = {name: value for name, value in options.items() if name not in _OF_ONE_SEARCH}
    return Frontier(game, tuple(solutions), method, shared)
