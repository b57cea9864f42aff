"""Which participation profiles share an equilibrium's total and mean embedding.

Given S and m, the clients with ``g_k = 0`` may trade participation as long as neither changes: the profiles
form the polytope

    { y + v :  sum v = 0,  sum v_k mu_k = 0,  v_k = 0 where g_k != 0,  0 <= y + v <= alpha },

a single point where the embeddings of those clients are affinely independent or the bounds leave no room.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..model import Array, GameModel, Profile, frozen
from ..results import Face
from .tolerances import NULL, NULL_OF_ROUNDING, PINNED, STILL, TIGHT

__all__ = ["equilibrium_face", "span_of"]


def equilibrium_face(
    game: GameModel, payments: Array, participation: Array, profile: Profile | None = None
) -> Face | None:
    """The polytope of equilibria through this one that share S and m; None if it is a point."""
    profile = game.profile(participation) if profile is None else profile
    w = game.reluctance(payments)
    scale = game.geometry.scale
    g = profile.to_clients - profile.total * w
    inside = (participation > 0) & (participation < 1)
    tight = inside | (np.abs(g) <= TIGHT * np.maximum(scale, np.abs(profile.total * w)))
    clients = np.flatnonzero(tight)
    directions = _dependences(game, clients)
    if directions.shape[1] == 0:
        return None
    y, alpha = profile.y[clients], game.alpha[clients]
    return _face(game, clients, directions, -y, alpha - y, alpha, participation[clients])


def _dependences(game: GameModel, clients: npt.NDArray[np.intp]) -> Array:
    """Orthonormal basis of ``{v : sum v = 0, sum v_k mu_k = 0}`` over the given clients."""
    values, vectors = np.linalg.eigh(game.geometry.products(clients) / game.geometry.scale + 1.0)
    zero = max(NULL, NULL_OF_ROUNDING * game.rounding) * len(clients)
    return np.ascontiguousarray(vectors[:, values <= zero])


def _face(
    game: GameModel,
    clients: npt.NDArray[np.intp],
    directions: Array,
    low: Array,
    high: Array,
    alpha: Array,
    x: Array,
) -> Face | None:
    from scipy.optimize import linprog

    bounds = np.column_stack([np.minimum(low, 0.0), np.maximum(high, 0.0)]) / alpha.max()
    # movements are orthogonal to everything the directions do not span
    rest = np.linalg.qr(directions, mode="complete")[0][:, directions.shape[1] :].T

    def furthest(objective: Array) -> Array:
        """The largest movement of y within the polytope along ``objective``."""
        result = linprog(-objective, A_eq=rest, b_eq=np.zeros(len(rest)), bounds=bounds, method="highs")
        return alpha.max() * result.x if result.status == 0 else np.zeros(len(objective))

    lower, upper = x.copy(), x.copy()
    axes = np.eye(len(clients))
    for i in np.flatnonzero(np.abs(directions).max(axis=1) > PINNED):
        upper[i] = min(max(x[i] + furthest(axes[i])[i] / alpha[i], x[i]), 1.0)
        lower[i] = max(min(x[i] + furthest(-axes[i])[i] / alpha[i], x[i]), 0.0)
    loose = upper - lower > STILL
    if not loose.any():
        return None
    # dimension: look along directions not yet known to move or to be fixed, until none is left
    known = np.zeros((directions.shape[1], 0))
    dimension = 0
    while known.shape[1] < directions.shape[1]:
        axis = np.linalg.qr(known, mode="complete")[0][:, known.shape[1]]
        move = furthest(directions @ axis) - furthest(-(directions @ axis))
        moves = bool(np.any(np.abs(move) > STILL * alpha))
        dimension += moves
        known = np.column_stack([known, directions.T @ move / np.abs(move).max() if moves else axis])
    return Face(
        tuple(int(k) for k in game.remaining[clients[loose]]),
        frozen(lower[loose]),
        frozen(upper[loose]),
        dimension,
    )


def span_of(game: GameModel, payments: Array, first: Array, second: Array) -> Face:
    """The equilibria between two with different totals, between which t is zero throughout."""
    lower, upper = np.minimum(first, second), np.maximum(first, second)
    dimension = 1
    for end in (first, second):
        face = equilibrium_face(game, payments, end)
        if face is not None:
            place = np.searchsorted(game.remaining, face.clients)
            lower[place] = np.minimum(lower[place], face.lower)
            upper[place] = np.maximum(upper[place], face.upper)
            dimension = max(dimension, 1 + face.dimension)
    loose = upper - lower > STILL
    return Face(
        tuple(int(k) for k in game.remaining[loose]), frozen(lower[loose]), frozen(upper[loose]), dimension
    )
