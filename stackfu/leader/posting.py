"""Offers other than linear payments, by any mechanism.

The certified mechanism searches all plans for the kind of offer (:mod:`stackfu.leader.capped`, :mod:`stackfu.leader.contract`). Every other
mechanism answers with linear payments; where their equilibrium lands is a plan, which capped offers post at no higher price and as the
only equilibrium, and contracts at a lower one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import InputError
from ..model import GameModel, frozen
from ..model.offers import Kind, Offers, capped_prices, check_outside, contract_transfers, loss_of_plan, utilities_of
from ..results import Solution, Status
from .mechanisms import _read, mechanism

__all__ = ["as_capped", "as_contract", "solve_by_plan"]

ACCEPTED = "everybody accepting is an equilibrium of the contracts, perhaps not the only one"


def solve_by_plan(
    game: GameModel,
    budget: float,
    method: str,
    kind: Kind,
    options: dict[str, Any],
    solve: Callable[[GameModel, float | None, str, dict[str, Any]], Solution],
) -> Solution:
    """Run the method for offers of this kind."""
    from .dispatch import refuse_unknown

    if method == "certified":
        from .capped import capped
        from .contract import contract

        run = capped if kind == "capped" else contract
        refuse_unknown(_read(f"certified, {kind} offers", run, False), options)
        return run(game, budget, **options)
    mechanism(method)  # an unknown name is an error before anything is computed
    outside = check_outside(game, options.pop("outside", None))
    linear = solve(game, None if np.isinf(budget) else budget, method, options)
    if linear.status is Status.FAILED:
        return linear
    if game.is_homogeneous:
        raise InputError("offers", "the remaining clients' data are all alike; post linear payments", value=kind)
    make = as_capped if kind == "capped" else as_contract
    offers = make(game, linear.participation, outside)
    return _posted(linear, offers, outside)


def as_capped(game: GameModel, participation: Any, outside: Any = None) -> Offers:
    """The cheapest capped offers for a plan."""
    profile = game.profile(participation)
    prices, retainers = capped_prices(game, profile, outside)
    return Offers("capped", prices, frozen(profile.x), retainers)


def as_contract(game: GameModel, participation: Any, outside: Any = None) -> Offers:
    """The cheapest contracts for a plan, given that everybody else accepts."""
    profile = game.profile(participation)
    transfers = np.array(contract_transfers(game, profile))
    takes_part = profile.x > 0
    retainers = np.zeros(game.count)
    if outside is not None:
        short = np.where(np.isfinite(outside), outside - utilities_of(game, transfers, profile), 0.0)
        missing = np.maximum(short, 0.0)
        transfers = transfers + np.where(takes_part, missing, 0.0)
        retainers = np.where(takes_part, 0.0, missing)
    prices = np.where(takes_part, transfers / np.where(takes_part, profile.x, 1.0), 0.0)
    return Offers("contract", frozen(prices), frozen(profile.x), frozen(retainers))


def _posted(linear: Solution, offers: Offers, outside: Any) -> Solution:
    from .capped.mechanism import plan_equilibrium

    game, goal = linear.game, linear.goal
    reason = {} if offers.kind == "capped" else {"reason": ACCEPTED}
    equilibrium = plan_equilibrium(game, offers, **reason)
    status, message = linear.status, linear.message
    if offers.most > linear.budget * (1.0 + 1e-9):
        status, message = Status.FAILED, f"the offers cost {offers.most:.9g}, more than the budget {linear.budget:.9g}"
    return replace(
        linear,
        payments=offers.prices,
        equilibrium=equilibrium,
        offers=offers,
        outside=outside,
        status=status,
        message=message,
        objective=goal.value(loss_of_plan(game, equilibrium.profile, goal.finite_sample), offers.most),
    )
