"""The price of a participation profile.

Every profile that payments can induce has cheapest payments, in closed form. At profile x with total S,

    p_k = max(0, c_k - 2 lam alpha_k e_k / S)   where x_k > 0,      p_k = 0   where x_k = 0,       e_k = d_k^2 + a / (2 S).

They make x an equilibrium iff ``c_k >= 2 lam alpha_k e_k / S`` for everyone with ``x_k < 1``: payments cannot be
negative, so a client that would take part for nothing cannot be kept out. A client with ``x_k = 1`` and a negative
bracket is a *volunteer* and is paid nothing. The total is

    sum_k y_k (kappa_k - 2 lam e_k / S)_+ ,     without volunteers  c.x - 2 lam (Var(z) + a / (2 S)).
"""

from __future__ import annotations

import numpy as np

from ..embedding.names import Position
from ..errors import NotInducibleError
from .data import GameData
from .geometry import Array, frozen
from .profile import Profile

__all__ = ["cheapest_payments", "unavoidable"]

#: Rounding tolerance of a bracket below zero, relative to the cost of a client that is not at full.
SLACK = 1e-10
#: Payments below this share of the cost are rounding errors of 0.
ROUNDING = 1e-13


def brackets(game: GameData, profile: Profile) -> Array:
    """``c_k - 2 lam alpha_k (d_k^2 + a / (2 S)) / S``: what client k must be paid per unit to stay where it is."""
    wish = game.drift_weight * profile.to_clients / profile.total
    if game.sampling:
        wish = wish + game.lam * game.alpha * game.sampling / profile.total**2
    return game.costs - wish


def unavoidable(game: GameData, profile: Profile) -> np.ndarray:
    """Mask of the clients who would take part more than ``profile`` says even when paid nothing."""
    return (profile.x < 1.0) & (brackets(game, profile) < -SLACK * game.costs)


def cheapest_payments(game: GameData, profile: Profile) -> Array:
    """Cheapest payments that make the profile an equilibrium.

    >>> import numpy as np, stackfu as sf
    >>> emb = sf.MeanEmbeddings.from_features(np.eye(3))
    >>> game = sf.StackelbergGame(emb, sizes=[1, 1, 2], cost_scale=4.0)
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
        numbers = [Position(game.remaining[k]) for k in stuck]
        shown = ", ".join(str(game.label(k)) for k in stuck[:10]) + (", ..." if len(stuck) > 10 else "")
        worst = stuck[np.argmin((brackets(game, profile) / game.costs)[stuck])]
        raise NotInducibleError(
            f"participation: no payments induce this profile: client{'s' if len(stuck) > 1 else ''} {shown} would take "
            f"part more even when paid nothing (client {game.label(worst)} at "
            f"{profile.x[worst]:.4g} gains {-brackets(game, profile)[worst]:.4g} per unit)",
            numbers,
        )
    payments = np.where(profile.x > 0, brackets(game, profile), 0.0)
    # who takes part unpaid must not be paid a rounding error: with a budget of 0 that would already be too much
    return frozen(np.where(payments > ROUNDING * game.costs, payments, 0.0))
