"""Too many clients to show one by one: groups of equal size by distance, with quantiles within each.

Quantiles are those of the clients themselves (no interpolation), so every number shown belongs to somebody.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..followers.cascade import RELUCTANT
from ..model import Array, GameModel
from ..results import Equilibrium

__all__ = ["Groups"]

#: Number of groups, and the quantiles shown of each.
COUNT = 10
LEVELS = (0.0, 0.1, 0.5, 0.9, 1.0)


class Groups:
    """The remaining clients in groups of equal size, nearest first."""

    def __init__(self, game: GameModel, distance: Array, outside: Array | None) -> None:
        self._game, self._distance, self._outside = game, distance, outside
        order = np.argsort(distance, kind="stable")
        self._members = np.array_split(order, COUNT)

    def described(self) -> list[dict[str, Any]]:
        """Return the parts that do not change with the budget."""
        game = self._game
        return [
            {
                "name": f"{i + 1} of {COUNT}",
                "clients": len(members),
                "samples": float(game.sizes[members].sum()),
                "share": float(game.alpha[members].sum()),
                "distance": _quantiles(self._distance[members]),
                "cost": _quantiles(game.costs[members]),
            }
            for i, members in enumerate(self._members)
        ]

    def at(self, eq: Equilibrium) -> list[dict[str, Any]]:
        """Participation, payments, utilities and predicted changes within each group at an equilibrium."""
        change = self._game.impacts(eq.participation).clients
        received = eq.payments * eq.participation
        leaving = None if self._outside is None else self._leaving(eq, self._outside)
        return [
            {
                "participation": _quantiles(eq.participation[members]),
                "payments": _quantiles(eq.payments[members]),
                "utilities": _quantiles(eq.utilities[members]),
                "change": _quantiles(change[members]),
                "receives": float(received[members].sum()),
                "used": float(self._game.alpha[members] @ eq.participation[members]),
                "used_samples": float(self._game.sizes[members] @ eq.participation[members]),
                "out": int((eq.participation[members] == 0).sum()),
                "full": int((eq.participation[members] == 1).sum()),
                "leaving": None if leaving is None else int(leaving[members].sum()),
            }
            for members in self._members
        ]

    def _leaving(self, eq: Equilibrium, outside: Array) -> Array:
        """Return the clients that gain by leaving, by the same rule as the first round of a cascade."""
        stakes = self._game.costs + np.where(np.isfinite(outside), np.abs(outside), 0.0)
        return np.asarray(outside - eq.utilities > RELUCTANT * stakes)


def _quantiles(values: Array) -> list[float]:
    return [float(v) for v in np.quantile(values, LEVELS, method="nearest")]
