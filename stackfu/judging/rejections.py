"""Search for equilibria of contracts in which a client rejects, from the definition.

For every set of clients that might reject: the others bring what their contracts say, the set plays the unpaid game below its caps,
and each of its equilibria is one of the contracts if no client gains by changing its mind. Utilities are those of the
definition at the whole profile, and unpaid answers are searched for over a refined grid.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from ..errors import NoEquilibriumError
from ..model import Array, GameModel
from ..results import Status, Uniqueness
from ..results.facade import facade

__all__ = ["MOST_CONTRACTS", "is_an_outcome", "other_outcome"]

#: Up to this many contracts all sets of clients that might reject are tried.
MOST_CONTRACTS = 6
#: A client that would gain less than this part of its stakes by the other choice counts as indifferent; the excess of contracts
#: over the least transfer settles its choice.
CLEARLY = 1e-9
#: A client that brings this part of its contract's participation does not hold back.
ALL = 1.0 - 1e-9


def other_outcome(game: GameModel, caps: Array, transfers: Array) -> tuple[Array | None, bool]:
    """Return an equilibrium of the contracts other than acceptance by all, if found, and whether the search was complete."""
    asked = np.flatnonzero(caps)
    if len(asked) > MOST_CONTRACTS:
        return None, False
    complete = True
    for size in range(1, len(asked) + 1):
        for who in combinations(asked.tolist(), size):
            rejects = np.isin(np.arange(game.count), who)
            # twice its cost brings every client to its cap, whatever the others do
            paid = np.where((caps > 0) & ~rejects, 2.0 * game.costs, 0.0)
            try:
                every = facade(game).equilibria(paid, caps=caps)
            except NoEquilibriumError:
                continue
            complete = complete and every.complete and every.uniqueness is not Uniqueness.CONTINUUM
            for eq in every:
                complete = complete and eq.status is Status.CERTIFIED and eq.face is None
                x = eq.participation
                if np.all(x[rejects] < ALL * caps[rejects]) and is_an_outcome(game, caps, transfers, x):
                    return x, complete
    return None, complete


def is_an_outcome(game: GameModel, caps: Array, transfers: Array, x: Array) -> bool:
    """Return True if no client gains by changing its mind, and those that hold back would clearly lose by accepting."""
    accepts = x >= ALL * caps
    for k in np.flatnonzero(caps).tolist():
        here = _utility(game, x, k, float(x[k]), float(transfers[k]) if accepts[k] else 0.0)
        into = _utility(game, x, k, float(caps[k]), float(transfers[k]))
        stakes = max(float(game.costs[k]), float(transfers[k]), abs(here), abs(into))
        if not accepts[k]:
            if not here - into > CLEARLY * stakes:
                return False
        elif _best_unpaid(game, x, k, float(caps[k])) > here:
            return False
    return True


def _utility(game: GameModel, x: Array, k: int, share: float, payout: float) -> float:
    """Return ``payout - c_k x_k - lam (d_k^2 + a / S)`` if client k brings ``share`` and all others follow x."""
    changed = np.array(x)
    changed[k] = share
    if not changed.any():
        return -np.inf
    profile = game.profile(changed)
    drift = float(profile.to_clients[k]) + game.sampling / profile.total
    return float(payout - game.costs[k] * share - game.lam * drift)


def _best_unpaid(game: GameModel, x: Array, k: int, cap: float) -> float:
    """Return the most that client k gets without a payout: its utility is concave in what it brings."""
    low, high, best = 0.0, cap, -np.inf
    for _ in range(5):
        grid = np.linspace(low, high, 17)
        values = [_utility(game, x, k, float(share), 0.0) for share in grid]
        place = int(np.argmax(values))
        best = max(best, values[place])
        low, high = float(grid[max(place - 1, 0)]), float(grid[min(place + 1, 16)])
    return best
