"""Departures: a client leaves when its utility falls below what it has outside, which changes what the others get.

The same client keeps its cost, its offer and what it has outside when the federation shrinks. Sequentially, in every round
the client that
has most to gain leaves; simultaneously, everybody that gains. It ends when nobody wants to leave, or fewer than two are left.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..errors import InputError, NoEquilibriumError
from ..model import Array, GameModel, frozen
from ..model.offers import utilities_of
from ..results.cascade import Cascade, Departure
from .below_caps import settle
from .solve import find_equilibrium

__all__ = ["cascade"]

#: Gains below this share of a client's own stakes (cost and outside utility) are no reason to leave.
RELUCTANT = 1e-9


def cascade(
    game: GameModel,
    prices: Array,
    caps: Array | None,
    outside: Array,
    retainers: Array,
    order: Literal["sequential", "simultaneous"] = "sequential",
) -> Cascade:
    """Let clients leave, round by round."""
    if order not in ("sequential", "simultaneous"):
        raise InputError("order", 'must be "sequential" or "simultaneous"', value=repr(order))
    rounds: list[Departure] = []
    now, inside = game, np.arange(game.count)
    while True:
        taken = None if caps is None else caps[inside]
        x = _settled(now, prices[inside], taken)
        if x is None:  # nobody takes part: there is no model, and everybody goes
            everybody = tuple(int(k) for k in now.remaining)
            nothing = np.full(now.count, -np.inf)
            rounds.append(Departure(everybody, frozen(np.zeros(now.count)), nothing, 0.0, np.inf, everybody))
            break
        profile = now.profile(x)
        utilities = utilities_of(now, prices[inside] * x + retainers[inside], profile)
        gain = outside[inside] - utilities
        stakes = now.costs + np.where(np.isfinite(outside[inside]), np.abs(outside[inside]), 0.0)
        wants = gain > RELUCTANT * stakes
        leaving = np.flatnonzero(wants)
        if order == "sequential" and len(leaving):
            leaving = leaving[[int(np.argmax(gain[leaving]))]]
        clients = tuple(int(k) for k in now.remaining)
        rounds.append(
            Departure(
                clients,
                frozen(x),
                frozen(utilities),
                profile.total,
                now.loss_of(profile),
                tuple(clients[k] for k in leaving),
            )
        )
        if not len(leaving):
            break
        keep = np.setdiff1d(np.arange(now.count), leaving)
        if len(keep) < 2:
            rest = tuple(clients[k] for k in keep)
            if rest:  # one client alone is no federation
                rounds.append(Departure(rest, frozen(np.zeros(1)), frozen([-np.inf]), 0.0, np.inf, rest))
            break
        inside = inside[keep]
        gone = (*now.removed, *(clients[k] for k in leaving))
        own = {} if now.has_paper_loss else {"server_loss": now.loss}
        now = now.replace(removed=gone, costs=now.costs[keep], **own)
    return Cascade(game, frozen(outside), order, tuple(rounds))


def _settled(game: GameModel, prices: Array, caps: Array | None) -> Array | None:
    try:
        if caps is None and game.sampling == 0.0:
            return find_equilibrium(game, frozen(prices)).participation
        return settle(game, prices, np.ones(game.count) if caps is None else caps)
    except NoEquilibriumError:
        return None
