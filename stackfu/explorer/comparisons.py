"""Lines to hold the certified payments against: what other mechanisms reach with the same budgets.

A line is drawn only where it means the same as the frontier's own: the frontier must minimise the server loss. Capped offers
need a floor under the data used (a loss that sees only the mixture is least with no data at all), so where the game and the
frontier set none they must use at least as much data as the certified payments do at the same budget; those payments with their
participation as caps are then among them, and the line cannot lie above the frontier's but for its gap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ConvergenceError, InfeasibleError, InputError, NoEquilibriumError, without_warnings
from ..results import Frontier, Solution
from ..results.facade import facade

__all__ = ["COMPARED", "comparison_lines"]

_LABELS = {
    "uniform": "one price for all",
    "haipo": "HAIPO",
    "capped": "capped offers",
}
#: Lines for comparison with the certified payments.
COMPARED = tuple(_LABELS)


def comparison_lines(frontier: Frontier, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return one record per line: its label and, per budget, the loss it reaches and the data it uses; gaps where it fails."""
    for name in names:
        if name not in _LABELS:
            raise InputError("compare", f"must be among {', '.join(COMPARED)}", value=repr(name))
    if not frontier.solutions[0].goal.is_loss:
        return []
    solvers: dict[str, Callable[[Frontier, Solution], Solution]] = {"capped": _capped}
    return [
        {
            "name": name,
            "label": _LABELS[name],
            "points": [
                _point(solvers.get(name, _mechanism(name)), frontier, s) for s in frontier if s.budget > 0
            ],
        }
        for name in names
    ]


def _point(
    solve: Callable[[Frontier, Solution], Solution], frontier: Frontier, beside: Solution
) -> dict[str, Any]:
    try:
        with without_warnings():
            found = solve(frontier, beside)
    except (InfeasibleError, NoEquilibriumError, ConvergenceError) as error:
        return {"budget": beside.budget, "server_loss": None, "total": None, "words": str(error)}
    return {
        "budget": beside.budget,
        "server_loss": found.server_loss,
        "total": found.equilibrium.total,
        "words": found.status.value,
    }


def _mechanism(name: str) -> Callable[[Frontier, Solution], Solution]:
    def solve(frontier: Frontier, beside: Solution) -> Solution:
        found: Solution = facade(frontier.game).solve(beside.budget, method=name)
        return found

    return solve


def _capped(frontier: Frontier, beside: Solution) -> Solution:
    options = dict(frontier.options)
    if frontier.game.sampling_constant == 0.0 and not any(
        options.get(name) for name in ("min_total", "min_samples", "finite_sample")
    ):
        options["min_total"] = beside.equilibrium.total
    found: Solution = facade(frontier.game).solve(
        beside.budget, offers="capped", **{**options, "progress": False}
    )
    return found
