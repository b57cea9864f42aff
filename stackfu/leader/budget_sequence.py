"""Solutions along a list of budgets, each search starting from its neighbours.

The largest budget is searched first. Every other search then starts from the solution before, and from the way between that one
and the largest (and full participation) as far as the budget goes: where time is short, most of what a budget buys lies there. A
search that was stopped all the same gets the way to the next larger budget's answer. What a smaller budget pays is within every
larger one; an answer that is worse is replaced by it. What is taken from a neighbour is played back and judged for the budget it
is taken for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError, NotInducibleError
from ..followers import find_equilibrium
from ..judging.solution_check import promised_gap
from ..model import Array, GameModel
from ..model.arguments import numbers
from ..results import Frontier, Solution, Status
from .asked import starting_profiles
from .dispatch import solve
from .mechanisms import mechanism

__all__ = ["Frontier", "trace_frontier"]

#: Options of a single search that mean nothing to the next one.
_OF_ONE_SEARCH = frozenset({"start", "progress", "callback"})
#: Number of halvings between two profiles to find the one that a budget reaches.
HALVINGS = 8
#: Objectives that differ by less than this part are the same.
ALIKE = 1e-9


def trace_frontier(game: GameModel, budgets: npt.ArrayLike, method: Any, options: dict[str, Any]) -> Frontier:
    """Solve along the budgets; a mechanism that takes a start gets what its neighbours found."""
    values = numbers(budgets, "budgets", "must be a non-empty list of numbers")
    if values.ndim != 1 or len(values) == 0:
        raise InputError("budgets", "must be a non-empty list of numbers", value=budgets)
    if np.isnan(values).any() or (values < 0).any():
        bad = values[np.isnan(values) | (values < 0)][0]
        raise InputError("budgets", "must not be negative or NaN", value=bad)
    ascending = np.sort(values).tolist()
    chosen = mechanism(method)
    if "start" in chosen.options:
        solutions = _warmed(game, ascending, method, options)
    else:
        solutions = [solve(game, budget, method, options) for budget in ascending]
    if method == "certified" and options.get("offers", "linear") == "linear" and not game.is_homogeneous:
        for i in reversed(range(len(solutions) - 1)):
            if not solutions[i].status.success:
                own, more = solutions[i], solutions[i + 1]
                x = _towards(game, own.budget, own.participation, more.participation)
                solutions[i] = _at_least(own, x, _cheapest(game, x))
        for i in range(1, len(solutions)):
            if not solutions[i].objective <= solutions[i - 1].objective * (1.0 + ALIKE):
                before = solutions[i - 1]
                solutions[i] = _at_least(solutions[i], before.participation, before.payments)
    shared = {name: value for name, value in options.items() if name not in _OF_ONE_SEARCH}
    return Frontier(game, tuple(solutions), chosen.name, shared)


def _warmed(game: GameModel, ascending: list[float], method: Any, options: dict[str, Any]) -> list[Solution]:
    """Return solutions of which each starts from the one before, and from the way from there to the last and to what was given."""
    last = solve(game, ascending[-1], method, options)
    far = [last.participation, np.ones(game.count), *starting_profiles(game, options.get("start"))]
    near = find_equilibrium(game, game.no_payments).participation
    solutions: list[Solution] = []
    for budget in ascending[:-1]:
        starts = [near, *(_towards(game, budget, near, x) for x in far)]
        solutions.append(solve(game, budget, method, {**options, "start": starts}))
        near = solutions[-1].participation
    return [*solutions, last]


def _towards(game: GameModel, budget: float, near: Array, far: Array) -> Array:
    """Return the part of the way from one profile to another that is within the budget, by bisection."""
    low, high = 0.0, 1.0
    for step in range(HALVINGS):
        share = 1.0 if step == 0 else 0.5 * (low + high)
        x = (1.0 - share) * near + share * far
        payments = _cheapest(game, x)
        fits = payments is not None and bool(payments @ x <= budget)
        if fits and step == 0:
            return far
        low, high = (share, high) if fits else (low, share)
    return (1.0 - low) * near + low * far


def _cheapest(game: GameModel, x: Array) -> Array | None:
    """Return the cheapest payments for a profile, or None if no payments induce it."""
    try:
        return game.payments_for(x)
    except NotInducibleError:
        return None


def _at_least(own: Solution, x: Array, payments: Array | None) -> Solution:
    """Return the solution, or a neighbour's profile and payments where they are better, with what is proved of this budget."""
    from .certified.certified_payments import judged, play_back

    game, goal = own.game, own.goal
    if payments is None or own.robust:
        return own
    value = goal.value(game.loss_of(game.profile(x), goal.finite_sample), float(payments @ x))
    if own.status is not Status.FAILED and value >= own.objective:
        return own
    equilibrium, reproduced = play_back(game, payments, x, goal)
    if not reproduced:
        return own
    message = "found on the way to what a neighbouring budget pays"
    taken = replace(
        own, payments=payments, equilibrium=equilibrium, status=Status.CERTIFIED, message=message
    )  # fmt: skip
    found = judged(taken, promised_gap(own))
    if found.status is Status.FAILED or not (found.objective < own.objective or own.status is Status.FAILED):
        return own
    stopped = found.status is Status.GAP_OPEN and own.status is not Status.FAILED
    return replace(found, status=own.status) if stopped else found
