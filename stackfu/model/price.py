"""The price of a participation profile.

Every profile that payments can induce has cheapest payments, in closed form. At profile x with total S,

    p_k = max(0, c_k - 2 lam alpha_k d_k^2 / S)   where x_k > 0,      p_k = 0   where x_k = 0.

They make x an equilibrium iff ``c_k >= 2 lam alpha_k d_k^2 / S`` for everyone with ``x_k < 1``: payments cannot be
negative, so a client that would take part for nothing cannot be kept out. A client with ``x_k = 1`` and a negative
bracket is a *volunteer* and is paid nothing. The total is

    sum_k y_k (kappa_k - 2 lam d_k^2 / S)_+ ,     without volunteers  c.x - 2 lam Var(z).
"""

from __future__ import annotations

import numpy as np

from ..errors import NotInducibleError
from .data import GameData
from .geometry import Array, frozen
from .profile import Profile

__all__ = ["cheapest_payments", "unavoidable"]

#: How far, relative to a client's cost, rounding may push a bracket below zero for a client that is not at full.
SLACK = 1e-10
#: Payments below this share of the cost are rounding errors of 0.
ROUNDING = 1e-13


def brackets(game: GameData, profile: Profile) -> Array:
    """``c_k - 2 lam alpha_k d_k^2 / S``: what client k must be paid per unit to stay where it is."""
    return game.costs - 2.0 * game.lam * game.alpha * profile.to_clients / profile.total


def unavoidable(game: GameData, profile: Profile) -> np.ndarray:
    """Mask of the clients who would take part more than ``profile`` says even when paid nothing."""
    return (profile.x < 1.0) & (brackets(game, profile) < -SLACK * game.costs)


def cheapest_payments(game: GameData, profile: Profile) -> Array:
    """Cheapest payments that make the profile an equilibrium.

    >>> import numpy as np, stackfu as sf
    >>> emb = sf.MeanEmbeddings.from_features(np.eye(3))
    >>> game = sf.GameData(emb, sizes=[1, 1, 2], cost_scale=4.0)
    >>> p = game.payments_for([1.0, 0.5, 0.5])
    >>> bool(game.residual(p, [1.0, 0.5, 0.5]) < 1e-15)
    True

    Raises
    ------
    NotInducibleError
        If some clients cannot be kept as low as the profile asks; it names them.
    """
    stuck = np.flatnonzero(unavoidable(game, profile))
    if len(stuck):
        names = [int(game.remaining[k]) for k in stuck]
        shown = ", ".join(str(k) for k in names[:10]) + (", ..." if len(names) > 10 else "")
        worst = stuck[np.argmin((brackets(game, profile) / game.costs)[stuck])]
        raise NotInducibleError(
            f"participation: no payments induce this profile: client{'s' if len(names) > 1 else ''} {shown} would take "
            f"part more even when paid nothing (client {game.remaining[worst]} at "
            f"{profile.x[worst]:.4g} gains {-brackets(game, profile)[worst]:.4g} per unit)",
            names,
        )
    payments = np.where(profile.x > 0, brackets(game, profile), 0.0)
    # who takes part unpaid must not be paid a rounding error: with a budget of 0 that would already be too much
    return frozen(np.where(payments > ROUNDING * game.costs, payments, 0.0))
