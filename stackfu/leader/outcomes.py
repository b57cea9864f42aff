"""Every equilibrium of what is posted, for all kinds of offers.

Linear payments and capped offers are enumerated by the clients' own solver. Contracts are accepted or rejected: all sets that might
reject are tried where few clients have one (:mod:`.acceptance`). Otherwise best responses look for other equilibria, of which only
the worst is kept, and nothing is called complete.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..followers import enumerate_equilibria
from ..model import Array, GameModel, frozen
from ..model.offers import Offers, check_offers
from ..results import Equilibria, Equilibrium, Status, Uniqueness
from .acceptance import MOST_CONTRACTS, acceptance
from .contract import ACCEPTED, accepted, worst_equilibrium
from .tolerances import SNAP

__all__ = ["outcomes"]

REJECTED = "some clients reject their contracts and bring what is best for them unpaid"


def outcomes(game: GameModel, offers: object) -> Equilibria:
    """Return every equilibrium of the offers, ordered by total participation."""
    posted = check_offers(game, offers)
    if posted.kind == "contract":
        return _of_contracts(game, posted)
    found = enumerate_equilibria(game, posted.prices, None if posted.kind == "linear" else posted.caps)
    if not posted.retainers.any():
        return found
    return replace(found, items=tuple(replace(eq, retainers=posted.retainers) for eq in found))


def _of_contracts(game: GameModel, posted: Offers) -> Equilibria:
    plan, transfers = posted.caps, frozen(posted.prices * posted.caps)
    if int(np.count_nonzero(plan)) <= MOST_CONTRACTS:
        found = acceptance(game, plan, transfers)
        others = [rejection.participation for rejection in found.at()]
        complete = found.complete
    else:
        worst, _ = worst_equilibrium(game, plan, transfers)
        others, complete = ([] if worst is None else [worst]), False
    unique = Uniqueness.MULTIPLE if others else Uniqueness.UNIQUE
    known = unique if complete else Uniqueness.UNKNOWN
    whole = accepted(game, posted, known)
    items = [whole, *(_rejected(whole, posted, x) for x in others)]
    items.sort(key=lambda eq: eq.total)
    reason = (
        whole.reason
        if known is Uniqueness.UNIQUE
        else f"{ACCEPTED}; {'all' if complete else 'not all'} sets were tried"
    )
    return Equilibria(game, posted.prices, tuple(items), known, reason, complete)


def _rejected(whole: Equilibrium, posted: Offers, x: Array) -> Equilibrium:
    """Return the equilibrium in which those who do not bring all that their contract says are paid nothing for what they bring."""
    prices = np.where(x >= posted.caps * (1.0 - SNAP), posted.prices, 0.0)
    return replace(
        whole,
        payments=frozen(prices),
        participation=frozen(x),
        status=Status.CONVERGED,
        reason=REJECTED,
    )
