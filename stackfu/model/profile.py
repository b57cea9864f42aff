"""A participation profile in the variables that make the game simple.

Client k takes part with a share ``x_k`` of its data, and owns the share ``alpha_k`` of all remaining data. Then

    y_k = alpha_k x_k          what k brings               in [0, alpha_k]
    S   = sum_k y_k            total participation         in (0, 1]
    z   = y / S                the mixture                 in the simplex
    m   = sum_k z_k mu_k       embedding of the data used
    d_k^2 = ||m - mu_k||^2     how far it is from client k

and every quantity of the game is a line or two in these. ``Var(z) = sum_k z_k d_k^2`` is the spread of the data used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .geometry import Array, MixtureDistances

__all__ = ["Profile"]


@dataclass(frozen=True, eq=False)
class Profile:
    """``x`` in [0, 1]^N with at least one participant, and what follows from it."""

    x: Array
    y: Array
    total: float
    mixture: Array
    distances: MixtureDistances

    @property
    def to_clients(self) -> Array:
        """``d_k^2``, squared distance of the mixture's embedding to every remaining client's."""
        return self.distances.to_clients

    @cached_property
    def variance(self) -> float:
        """``Var(z) = sum_k z_k d_k^2``."""
        return float(self.mixture @ self.to_clients)

    @cached_property
    def others(self) -> Array:
        """``S0_k``: total participation of everyone but k."""
        rest = self.total - self.y
        k = int(np.argmax(self.y))
        if self.y[k] > 0.5 * self.total:  # nearly all of it: the others are added up, not left over
            rest[k] = self.y[:k].sum() + self.y[k + 1 :].sum()
        return rest
