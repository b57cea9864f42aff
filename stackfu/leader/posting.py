"""Offers other than linear payments, by any mechanism.

The certified mechanism searches all plans for the kind of offer (:mod:`stackfu.leader.capped`,
:mod:`stackfu.leader.contract`). Every other mechanism answers with linear payments; where their equilibrium lands is a
plan, which capped offers post at no higher price and as the only equilibrium, and contracts at a lower one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import InputError
from ..model import GameModel
from ..model.offers import Kind, Offers, capped_offers, check_outside, contract_offers, firmness
from ..results import Solution, Status
from .capped import capped
from .capped.capped_offers import plan_equilibrium, value_of
from .contract import accepted, contract
from .mechanisms import mechanism, read, refuse_unknown
from .tolerances import OVERSPENT

__all__ = ["solve_by_plan"]


def solve_by_plan(
    game: GameModel,
    budget: float,
    method: Any,
    kind: Kind,
    options: dict[str, Any],
    solve: Callable[[GameModel, float | None, Any, dict[str, Any]], Solution],
) -> Solution:
    """Run the method for offers of this kind."""
    if method == "certified":
        run = capped if kind == "capped" else contract
        refuse_unknown(read(f"certified, {kind} offers", run, False), options)
        return run(game, budget, **options)
    chosen = mechanism(method)  # an unknown name is an error before anything is computed
    if "costs_between" in options:
        raise InputError(
            "costs_between",
            f'only method "certified" makes plans that are safe for a box of costs, not "{chosen.name}"',
        )
    outside = check_outside(game, options.pop("outside", None))
    linear = solve(game, None if np.isinf(budget) else budget, method, options)
    if linear.status is Status.FAILED:
        return linear
    make = capped_offers if kind == "capped" else contract_offers
    offers = make(game, game.profile(linear.participation), outside)
    if (
        offers.most > linear.budget
    ):  # by the hair that leaves nobody indifferent: a hair less data costs less by more
        x = (1.0 - 2.0 * firmness(game.count)) * linear.participation
        offers = make(game, game.profile(x), outside)
    return _posted(linear, offers, outside)


def _posted(linear: Solution, offers: Offers, outside: Any) -> Solution:
    game, goal = linear.game, linear.goal
    equilibrium = (plan_equilibrium if offers.kind == "capped" else accepted)(game, offers)
    # what was proved of linear payments is not proved of other offers
    status = Status.CONVERGED if linear.status is Status.CERTIFIED else linear.status
    message = linear.message
    if offers.most > linear.budget * (1.0 + OVERSPENT):
        status, message = (
            Status.FAILED,
            f"the offers cost {offers.most:.9g}, more than the budget {linear.budget:.9g}",
        )
    return replace(
        linear,
        payments=offers.prices,
        equilibrium=equilibrium,
        posted=offers,
        outside=outside,
        status=status,
        message=message,
        lower_bound=-np.inf,
        certificate=None,
        objective=value_of(game, goal, offers),
    )
