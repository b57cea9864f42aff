"""Departures: a client leaves when its utility falls below what it has outside, which changes what the others get.

A client keeps its cost, its offer and its outside utility when the federation shrinks. Sequentially, in every
round the client with the largest gain from leaving leaves; simultaneously, all clients that gain. It ends when no client wants to
leave, or fewer than two remain. Between rounds the clients settle: under a contract each brings all of it and is paid, or rejects
and is not.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..embedding.names import Position
from ..errors import ConvergenceError, InputError, NoEquilibriumError
from ..model import Array, GameModel, frozen
from ..model.offers import Offers, utilities_of
from ..results.departures import Cascade, Departure
from .below_caps import settle
from .contracts import settle_contracts
from .solve import find_equilibrium

__all__ = ["cascade"]

#: Gains below this share of a client's own stakes (cost and outside utility) are no reason to leave.
RELUCTANT = 1e-9


def cascade(
    game: GameModel,
    offers: Offers,
    outside: Array,
    order: Literal["sequential", "simultaneous"] = "sequential",
) -> Cascade:
    """Let clients leave, round by round."""
    if not isinstance(order, str) or order not in ("sequential", "simultaneous"):
        raise InputError("order", 'must be "sequential" or "simultaneous"', value=repr(order))
    rounds: list[Departure] = []
    now, inside = game, np.arange(game.count)
    while True:
        here = offers.to(inside)
        x = _settled(now, here)
        if x is None:  # no client takes part: there is no model, and all clients leave
            everybody = tuple(map(Position, now.remaining))
            nothing = np.full(now.count, -np.inf)
            rounds.append(Departure(everybody, frozen(np.zeros(now.count)), nothing, 0.0, np.inf, everybody))
            break
        profile = now.profile(x)
        utilities = utilities_of(now, here.payouts(x), profile)
        gain = outside[inside] - utilities
        stakes = now.costs + np.where(np.isfinite(outside[inside]), np.abs(outside[inside]), 0.0)
        wants = gain > RELUCTANT * stakes
        leaving = np.flatnonzero(wants)
        if order == "sequential" and len(leaving):
            leaving = leaving[[int(np.argmax(gain[leaving]))]]
        clients = tuple(map(Position, now.remaining))
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


def _settled(game: GameModel, offers: Offers) -> Array | None:
    try:
        if offers.kind == "linear" and game.sampling == 0.0:
            return find_equilibrium(game, offers.prices).participation
        if offers.kind != "contract":
            return settle(game, offers.prices, offers.caps)
    except NoEquilibriumError:
        return None
    if not offers.caps.any():
        return None
    found = settle_contracts(game, offers.caps, offers.prices * offers.caps, offers.caps)
    if found is None:
        raise ConvergenceError("best responses to the contracts did not settle")
    return found
