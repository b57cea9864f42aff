"""Costs revealed by observed answers.

At payments p and participation x with total S, client k's margin is ``v_k = p_k + 2 lam alpha_k D_k / S``:

    0 < x_k < cap_k    indifferent:  c_k = v_k
    x_k = cap_k        eager:        c_k <= v_k
    x_k = 0            reluctant:    c_k >= v_k

Answers to several requests intersect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..embedding.names import PerClient, by_name
from ..errors import InputError
from .content import Content
from .data import GameData, vector
from .geometry import Array, frozen
from .offers import stakes
from .profile import Profile

__all__ = ["CostIntervals", "check_interval", "revealed_costs"]

#: Answers contradict each other if the intervals miss each other by more than this, relative to their ends.
AGREE = 1e-6
#: Answers this close to 0 or to the cap, relative to the cap, are 0 or the cap.
EDGE = 1e-9


@dataclass(frozen=True, eq=False)
class CostIntervals(Content):
    """An interval per remaining client that holds its cost."""

    low: Array
    high: Array

    @property
    def known(self) -> np.ndarray:
        """Mask of the clients with an exactly known cost (up to rounding)."""
        return np.asarray(np.isfinite(self.high) & (self.low >= (1.0 - AGREE) * self.high))

    def meet(self, other: CostIntervals, game: GameData) -> CostIntervals:
        """Return the intersection of both; an error names the client if they contradict each other."""
        low, high = np.maximum(self.low, other.low), np.minimum(self.high, other.high)
        bad = np.flatnonzero(low > high * (1.0 + AGREE))
        if len(bad):
            k = int(bad[0])
            raise InputError(
                "participation",
                f"contradicts an earlier answer: its cost would be at least {low[k]:.6g} and at most {high[k]:.6g}",
                client=game.label(k),
            )
        return CostIntervals(frozen(np.minimum(low, high)), frozen(high))

    def summary(self) -> dict[str, Any]:
        """Return the intervals as plain values."""
        return {"low": self.low, "high": self.high, "known": self.known}

    def __repr__(self) -> str:
        return f"CostIntervals({len(self.low)} clients, {int(self.known.sum())} known)"


def check_interval(
    game: GameData, low: PerClient, high: PerClient, names: tuple[str, str] = ("costs_between",) * 2
) -> CostIntervals:
    """Costs between two vectors; an error that names the client if they are upside down."""
    below, above = (
        vector(by_name(end, name, game.client_names), name, game.count, "{} clients remain", game.label)
        for end, name in zip((low, high), names, strict=True)
    )
    bad = np.flatnonzero((below > above) | (below < 0) | (above <= 0))
    if len(bad):
        k = int(bad[0])
        raise InputError(
            names[0] if names[0] == names[1] else " and ".join(names),
            "must go from a smaller to a larger positive cost",
            client=game.label(k),
            value=f"({below[k]:g}, {above[k]:g})",
        )
    return CostIntervals(frozen(below), frozen(above))


def revealed_costs(game: GameData, payments: Array, profile: Profile, caps: Array) -> CostIntervals:
    """Return the costs revealed by one answer; the game's own costs are not used."""
    beyond = np.flatnonzero(profile.x > (1.0 + EDGE) * caps)
    if len(beyond):
        k = int(beyond[0])
        raise InputError(
            "participation", f"is more than the cap {caps[k]:g}", client=game.label(k), value=profile.x[k]
        )
    margin = payments + game.drift_weight * stakes(game, profile) / profile.total
    out, full = profile.x <= EDGE * caps, profile.x >= (1.0 - EDGE) * caps
    asked = caps > 0.0  # who is offered nothing reveals nothing
    low = np.where(asked & ~full, margin, 0.0)
    high = np.where(asked & ~out, margin, np.inf)
    return CostIntervals(frozen(low), frozen(high))
