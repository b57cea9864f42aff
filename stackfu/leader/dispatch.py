"""Payments for a budget by any mechanism: look it up, check what was asked of it, wrap what it returns."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import InputError
from ..followers import find_equilibrium
from ..model import GameModel, Objective
from ..model.arguments import number
from ..model.data import FAR_FROM_OVERFLOW
from ..model.game_model import require_formulas
from ..model.offers import KINDS
from ..results import Solution, Status
from .mechanisms import Proposal, mechanism, refuse_unknown
from .tolerances import OVERSPENT

__all__ = ["solve"]


def solve(game: GameModel, budget: float | None, method: Any, options: dict[str, Any]) -> Solution:
    """Run a mechanism, by its name or as a function; options that it does not know are refused before anything is computed.

    The option ``offers`` says what is posted: "linear" payments, "capped" offers or "contract"s (:mod:`stackfu.leader.posting`).
    """
    require_formulas(game)
    _require_moderate_costs(game)
    options = dict(options)
    kind = options.pop("offers", "linear")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError("offers", 'must be "linear", "capped" or "contract"', value=repr(kind))
    if kind != "linear":
        from .posting import solve_by_plan

        return solve_by_plan(game, _limit(budget), method, kind, options, solve)
    if "outside" in options:
        raise InputError(
            "outside",
            "clients are kept by capped offers or contracts: under linear payments paying more changes what everybody does; "
            'ask for offers="capped"',
        )
    if "costs_between" in options:
        raise InputError(
            "costs_between",
            "a plan that is safe for every cost in the box needs caps (linear payments overspend where costs are lower than "
            'assumed); ask for offers="capped"',
        )
    limit = _limit(budget)
    chosen = mechanism(method)
    own = None if isinstance(method, str) else method
    method = chosen.name
    refuse_unknown(chosen, options)
    if chosen.needs_budget and not np.isfinite(limit):
        raise InputError("budget", f'method "{method}" needs a budget', value=budget)
    began = time.perf_counter()
    answer = chosen.run(game, limit, **options)
    if isinstance(answer, Solution):
        return answer if chosen.is_own else _judged(game, limit, method, answer)
    if answer is None:
        raise InputError("method", f'mechanism "{method}" returned no payments', value=None)
    if not isinstance(answer, Proposal):
        answer = Proposal(find_equilibrium(game, game.check_payments(answer)))
    elif answer.equilibrium.game is not game:
        if answer.equilibrium.game != game:
            raise InputError("method", f'mechanism "{method}" returned an equilibrium of another game')
        answer = replace(answer, equilibrium=replace(answer.equilibrium, game=game))
    found = _solution(game, limit, method, options, answer, time.perf_counter() - began)
    return replace(found, mechanism=own)


def _require_moderate_costs(game: GameModel) -> None:
    """Refuse costs with powers that overflow in solvers and checkers, so that every answer can be verified."""
    with np.errstate(over="ignore"):
        ratio = game.kappa / game.lam
    if not (ratio <= FAR_FROM_OVERFLOW).all():
        k = int(np.argmin(ratio <= FAR_FROM_OVERFLOW))
        raise InputError(
            "costs",
            f"are more than {FAR_FROM_OVERFLOW:g} times lambda_q * loss_constant: payments cannot be computed from powers of that",
            client=game.label(k),
            value=game.costs[k],
        )


def _judged(game: GameModel, budget: float, method: str, answer: Solution) -> Solution:
    """A complete solution of a user's own mechanism: about this game, within this budget, and CERTIFIED only if judges agree."""
    if answer.game is not game and answer.game != game:
        raise InputError(
            "method", f'mechanism "{method}" returned a solution of another game', value=answer.method
        )
    status, message = answer.status, answer.message
    if answer.spend > budget * (1.0 + OVERSPENT):
        status, message = Status.FAILED, _overspent(answer.spend, budget)
    elif status is Status.CERTIFIED and answer.budget != budget:
        status, message = Status.CONVERGED, f"certified for a budget of {answer.budget:.9g}, not for this one"
    elif status is Status.CERTIFIED and not (check := answer.verify()):
        status, message = Status.FAILED, f"said to be certified, which judges refuse: {check.message}"
    if status is answer.status:
        return answer
    return replace(answer, status=status, message=message, lower_bound=-np.inf, certificate=None)


def _overspent(spend: float, budget: float) -> str:
    return f"the payments spend {spend:.9g}, more than the budget {budget:.9g}"


def _solution(
    game: GameModel, budget: float, method: str, options: dict[str, Any], answer: Proposal, seconds: float
) -> Solution:
    eq, status, message = answer.equilibrium, answer.status, answer.message
    if eq.spend > budget * (1.0 + OVERSPENT):
        status, message = Status.FAILED, _overspent(eq.spend, budget)
    return Solution(
        game=game,
        budget=budget,
        payments=eq.payments,
        equilibrium=eq,
        status=status,
        method=method,
        objective=eq.server_loss,
        lower_bound=-np.inf,
        goal=Objective(budget=budget),
        own_options=dict(options),
        message=message,
        nodes=len(answer.history),
        seconds=seconds,
        history=answer.history,
    )


def _limit(budget: float | None) -> float:
    if budget is None:
        return float("inf")
    value = number(budget, "budget", "must be a number or None")
    if np.isnan(value) or value < 0:
        raise InputError("budget", "must not be negative or NaN", value=value)
    return value
