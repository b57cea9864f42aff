"""The mechanism behind a solution, as a function from games to offers: the same request asked again of another game."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..model import GameModel
from ..model.offers import Offers
from ..results import Solution
from .dispatch import solve

__all__ = ["offers_like"]

#: Gap that repeated searches close: what misreporting gains is compared in units of costs, not of the last digit.
REPEATED_GAP = 1e-2


def offers_like(solution: Solution, time_limit: float = 10.0) -> Callable[[GameModel], Offers]:
    """Return the offers of the solution's mechanism in another game, for the same request."""
    goal, kind = solution.goal, solution.offers.kind
    method: Any = solution.method if solution.mechanism is None else solution.mechanism
    options: dict[str, Any] = {**solution.own_options}
    if method == "certified":
        asked = {name: value for name, value in goal.to_dict().items() if name != "budget"}
        options = {**asked, "gap": REPEATED_GAP, "time_limit": time_limit, "progress": False}
    if method != "posted":
        options["offers"] = kind
    if solution.outside is not None:
        options["outside"] = solution.outside
    budget = None if np.isinf(goal.budget) else goal.budget

    def make(game: GameModel) -> Offers:
        return solve(game, budget, method, dict(options)).offers

    return make
