"""The widest gap under which an answer is called certified.

A gap that was asked for is relative. It has to be closed against two scales at once: the objective without payments, and the
objective that was reached. The first alone is empty where the second is far smaller: where hardly any data is used without
payments, sampling noise makes the first as large as one likes, and a bound of 0 would do.

A bound that is known beforehand proves nothing either. Losses and payments are never below 0, and the paper's loss is never
below the one at the point between its two targets, so a bound has to come half of the way from there to the objective, or, where
a wider gap than that is asked for, a hundredth of the way; unless the objective equals what is known to a millionth of itself.

Objectives that differ by less than the *resolution*, 1e-12 of the clients' spread, count as equal: an objective of 0 cannot be
proved to any relative gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ..model import GameModel, Objective

__all__ = ["Gap", "GapRule", "gap_at", "known_bound", "resolution_of"]

#: An absolute gap, or one that depends on the objective that was reached.
Gap: TypeAlias = float | Callable[[float], float]

#: Objectives that differ by less than this part of the clients' spread (or of all costs, where the loss does not count) are equal.
RESOLUTION = 1e-12
#: Part of the way from the objective to the known bound that may be left open at most.
HALF_WAY = 0.5
#: An objective equals the known bound if it lies above it by less than this part of itself.
EQUAL = 1e-6
#: The same as half of the way, where the gap that was asked for is wider than that.
NEARLY_ALL = 0.99


@dataclass(frozen=True)
class GapRule:
    """The widest absolute gap at an objective, from a relative one.

    Parameters
    ----------
    relative
        The gap that was asked for.
    reference
        The objective without payments; infinite for one that does not count.
    resolution
        Objectives that are nearer to each other than this count as equal.
    known
        A lower bound that needs no proof.

    Examples
    --------
    >>> rule = GapRule(1e-3, reference=10.0)
    >>> rule(10.0), rule(0.5), rule(0.0)
    (0.01, 0.0005, 0.0)
    >>> GapRule(2.0, reference=10.0)(4.0)
    3.96
    """

    relative: float
    reference: float
    resolution: float = 0.0
    known: float = 0.0

    def __call__(self, objective: float) -> float:
        """Return the widest gap at this objective."""
        widest = self.relative * self.reference if np.isfinite(self.reference) else np.inf
        if not np.isfinite(objective):
            return widest
        size = abs(objective)
        above = max(HALF_WAY, min(self.relative, NEARLY_ALL)) * (objective - self.known)
        return min(widest, max(min(self.relative * size, max(above, EQUAL * size)), self.resolution))


def gap_at(gap: Gap, objective: float) -> float:
    """Return the widest gap at an objective, whichever way the gap is given."""
    return gap(objective) if callable(gap) else gap


def known_bound(game: GameModel, goal: Objective) -> float:
    """Return a bound of the objective that needs no proof: the paper's loss at the best point between its targets, or 0."""
    if goal.loss_weight == 0.0 or not game.has_paper_loss or not game.loss.weight > 0.0:
        return 0.0
    to_remaining, to_original = game.loss.weights
    apart = game.profile(np.ones(game.count)).distances.to_original
    return float(goal.loss_weight * (to_remaining / game.loss.weight) * to_original * apart)


def resolution_of(game: GameModel, goal: Objective, price: float) -> float:
    """Return the difference below which two objectives count as equal; ``price`` is that of all data."""
    if goal.loss_weight * game.loss.weight == 0.0:
        return RESOLUTION * goal.payment_weight * price
    return float(RESOLUTION * goal.loss_weight * game.loss.weight * game.geometry.scale)
