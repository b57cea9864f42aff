"""Budgets to try where none were typed: grids that end where more money buys nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InputError, without_warnings

if TYPE_CHECKING:
    from ..game import StackelbergGame
    from ..results import Frontier, Solution

__all__ = ["MANY", "even_grid", "grid", "open_note"]

#: With more clients than this a search takes seconds, and a search per budget minutes.
MANY = 50
#: Number of trials with half of the budget where the best plan is also best for less.
HALVES = 6
#: A search that was stopped knows where money stops helping if its gap is at most this part of all that payments can change.
MOSTLY = 0.1


def _top(game: StackelbergGame, to: float | None, **options: Any) -> float:
    """Return the end of a grid of budgets: ``to``, by default what the best payments without a budget spend."""
    if to is None:
        with without_warnings():
            return _unlimited_spend(game, **options)
    if not 0 < to < float("inf"):
        raise InputError("to", "must be positive", value=to)
    return to


def _unlimited_spend(game: StackelbergGame, **options: Any) -> float:
    """Return what the best payments without a budget spend.

    If the search for those has found little of the possible saving, their spend is unknown: the price of full participation.
    """
    best = game.solve(None, progress=False, **options)
    unpaid = best.goal.value(game.equilibrium().server_loss, 0.0)
    if not best.status.success and best.gap > MOSTLY * (unpaid - best.lower_bound):
        return game.full_participation_price
    return _least_spend(game, best, options) if game.count > MANY else best.spend


def _least_spend(game: StackelbergGame, best: Solution, options: dict[str, Any]) -> float:
    """Return the approximate least spend for a plan as good as the best one; many clients bring one mixture at different costs."""
    assert best.limits is not None
    enough = best.objective + best.limits.gap * game.equilibrium().server_loss
    top = best.spend
    for _ in range(HALVES):
        if not top > 0:
            break  # it comes for free
        for_less = game.solve(top / 2, progress=False, start=best.participation, **options)
        if for_less.status.name == "FAILED" or not for_less.objective <= enough:
            break
        top = for_less.spend
    return top


def open_note(traced: Frontier, time_limit: float | None) -> str | None:
    """Return a note about unsettled budgets and the remedy, or None: the reason for exit code 1."""
    unsettled = [solution for solution in traced if not solution.status.success]
    if not unsettled:
        return None
    without = sum(solution.lower_bound == -float("inf") for solution in unsettled)
    unbounded = f", and of {without} nothing is proved at all" if without else ""
    limit = "" if time_limit is None else f" in {time_limit:g} s each"
    return (
        f"{len(unsettled)} of {len(traced)} budgets were not settled{limit}{unbounded}: exit code 1; a longer --time-limit, or a "
        "machine with less to do, narrows gaps"
    )


def grid(game: StackelbergGame, to: float | None, points: int, **options: Any) -> list[float]:
    """Budgets up to the top, denser near 0."""
    top = _top(game, to, **options)
    if not top > 0:
        return [0.0]  # the best that can be had comes for free: no budget changes anything
    return [top * (i / points) ** 2 for i in range(1, points + 1)]


def even_grid(game: StackelbergGame, to: float | None, points: int, **options: Any) -> list[float]:
    """Return budgets in even round steps up to the top; exact if it was typed or if full participation costs less."""
    from ..explorer import even_budgets

    top = _top(game, to, **options)
    if not top > 0:
        return [0.0]
    if to is not None:
        return [top * i / points for i in range(1, points + 1)]
    most = max(top, game.full_participation_price)
    return [min(budget, most) for budget in even_budgets(top, points)]
