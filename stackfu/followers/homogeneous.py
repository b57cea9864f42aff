"""The special case that all clients own the same data: nobody drifts, payment and cost alone decide.

With all ``d_k = 0`` the conditions read ``-S w_k <= 0, = 0, >= 0``: who is paid more than the cost takes
part fully, who is paid less stays out, and who is paid exactly the cost may do anything. If everybody is
paid less than the cost nobody takes part, and that is no profile: every client alone would shrink towards 0
but loses all at 0.
"""

from __future__ import annotations

import numpy as np

from ..model import Array, GameModel, frozen
from ..results import Face

__all__ = ["COLLAPSE", "homogeneous_equilibrium"]

COLLAPSE = (
    "all clients own the same data and are paid less than their costs, so nobody takes part: "
    "there is no equilibrium with a participant"
)


def homogeneous_equilibrium(game: GameModel, payments: Array) -> tuple[Array, Face | None] | None:
    """The equilibrium with the largest total and the face it belongs to; None if there is none."""
    net = payments - game.costs
    if np.all(net < 0):
        return None
    free = net == 0
    x = (net >= 0).astype(np.float64)
    if not free.any():
        return frozen(x), None
    count = int(free.sum())
    most = float(payments @ x)
    # the free clients may all stay out, unless nobody else is there: then one of them takes part, ever so little
    least = most - float(payments[free].sum())
    face = Face(
        tuple(int(k) for k in game.remaining[free]),
        frozen(np.zeros(count)),
        frozen(np.ones(count)),
        count,
        (least, most),
        tuple(frozen(v) for v in ((x - free) if (x - free).any() else 1e-3 * x, x)),
    )
    return frozen(x), face
