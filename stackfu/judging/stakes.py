"""Proved upper bounds on every client's gain from deviating, relative to its stakes.

With the others fixed, client k's utility is concave in its own participation, so its gain is bounded by its slope:

    gain_k <= max( (dU_k/dx_k)_+ (cap_k - x_k),  (-dU_k/dx_k)_+ x_k ),
    dU_k/dx_k = p_k - c_k + 2 lam alpha_k d_k^2 / S + lam alpha_k a / S^2 .

``check_stakes`` bounds that from above, with all rounding accounted for, and divides it by the client's own stakes, the largest
of its cost, its payment and ``lam d_k^2``. A client a million times smaller than the others is judged by its own terms. Floats
with proved error bounds come first; where they cannot tell, balls of python-flint decide (up to :data:`LARGEST_BALLS` clients).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..model import Array, FeatureGeometry, GameModel
from .check_tolerances import NEGLIGIBLE
from .completeness import OUT_OF_RANGE, Completeness
from .distances import ALL_PAIRS, RANGE, U, distances_of, in_range, kernels, roundings

__all__ = ["NEGLIGIBLE", "bound_gains", "check_at_caps", "check_stakes"]

#: Binary digits of the balls.
PRECISION = 192
#: Up to this many clients balls decide where floats cannot.
LARGEST_BALLS = 300


def check_stakes(
    game: GameModel,
    payments: npt.ArrayLike | None,
    participation: npt.ArrayLike,
    caps: npt.ArrayLike | None = None,
    enough: float = NEGLIGIBLE,
) -> Array:
    """For every client a proved upper bound on its gain from deviating, relative to its own stakes.

    Balls are asked where floats do not show that all of them are at most ``enough``.

    >>> import stackfu as sf
    >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [1, 1], costs=[1.0, 1.0])
    >>> bool(check_stakes(game, None, [0.5, 0.5]).max() < 1e-12), bool(check_stakes(game, None, [0.5, 0.6]).max() > 1e-3)
    (True, True)
    """
    p, x, most = game.check_payments(payments), game.check_participation(participation), game.check_caps(caps)
    return bound_gains(game, p, x, most, enough)


def bound_gains(game: GameModel, p: Array, x: Array, caps: Array, enough: float = NEGLIGIBLE) -> Array:
    """:func:`check_stakes` for payments, a participation in [0, 1] and caps that need no checking."""
    bounds = _in_floats(game, p, x, caps)
    if bounds.max() <= enough or game.count > LARGEST_BALLS or not x.any() or (x > caps).any():
        return bounds
    return np.asarray(np.fmin(bounds, _in_balls(game, p, x, caps)))


def check_at_caps(
    game: GameModel, payments: npt.ArrayLike | None, caps: npt.ArrayLike | None = None
) -> Completeness:
    """Check that the profile at all caps is the only equilibrium: true if every client then wants to bring more.

    That is Theorem 1 of ``docs/theory/offers.md`` with strict inequalities, which leave no exception, whatever the caps (None: all
    data) and the sampling term. Proved for any number of clients, as long as rounding leaves the signs of the slopes in no doubt.

    >>> import stackfu as sf
    >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [1, 1], costs=[1.0, 1.0])
    >>> bool(check_at_caps(game, None, [0.4, 0.4])), bool(check_at_caps(game, None, [0.6, 0.6]))
    (True, False)
    """
    p, most = game.check_payments(payments), game.check_caps(caps)
    asked = most > 0  # who may not take part has no choice
    if not in_range(game, p) or not float((game.alpha * most).sum()) >= RANGE:
        return Completeness(False, (), OUT_OF_RANGE)
    slope, doubt, *_ = _slopes(game, p, most)
    wants_more = slope > doubt
    if not np.all(wants_more[asked]) and game.count <= LARGEST_BALLS:
        wants_more = _wants_more_in_balls(game, p, most)
    if np.all(wants_more[asked]):
        total = float(game.alpha @ most)
        return Completeness(
            True,
            ((total, total),),
            "everybody brings all that is taken and would rather bring more, so no other is possible",
        )
    return Completeness(False, (), "not everybody is certain to want more than is taken of it")


def _in_floats(game: GameModel, p: Array, x: Array, caps: Array) -> Array:
    """Return the bounds; infinite where the profile is none or floats prove nothing."""
    bounds = np.full(game.count, np.inf)
    if _by_pairs(game):
        read = distances_of(game)
        if read.fits:
            kernels().stakes(
                read.squares, read.error, read.alpha, read.costs, read.weights, p, x, caps, read.lam, read.a, read.few, RANGE,
                bounds
            )  # fmt: skip
    elif kernels().total(game.alpha, x, caps) >= RANGE and in_range(game, p):
        slope, doubt, drift, few = _slopes(game, p, x)
        kernels().gains(slope, doubt, drift, game.costs, p, x, caps, game.lam, few, bounds)
    return bounds


def _by_pairs(game: GameModel) -> bool:
    """Return True if all pairs of clients are used."""
    by_rows, stored = isinstance(game.geometry, FeatureGeometry), game.embeddings.features is None
    return game.count <= ALL_PAIRS or not (by_rows or stored)


def _slopes(game: GameModel, p: Array, x: Array) -> tuple[Array, Array, Array, float]:
    """``dU_k/dx_k`` of every client, how far rounding may have put it off, ``d_k^2`` at least, and roundings of a sum."""
    if _by_pairs(game):
        read = distances_of(game)
        found = kernels().slopes(
            read.squares, read.error, read.alpha, read.costs, p, x, read.lam, read.a, read.few
        )
        return found[0], found[1], found[2], read.few
    few = roundings(game.count)
    geometry, alpha, lam = game.geometry, game.alpha, game.lam
    y = alpha * x
    total = float(y.sum())
    z = y / total
    if isinstance(geometry, FeatureGeometry):
        m = geometry.combine(z)
        squares = geometry.squared_distances(m)
        largest = float(np.sqrt(geometry.squared_distances(np.zeros(len(m))).max()))
        off = few * largest  # of m itself; its weights sum to one
        error = 2.0 * np.sqrt(squares) * off + off**2 + (len(m) + 8) * U * squares
    else:
        few, spread, size = _apart_in_blocks(game, z, few)
        squares = np.maximum(spread - 0.5 * float(z @ spread), 0.0)
        error = few * (size + 0.5 * float(z @ size))
    pull = 2.0 * lam * alpha * squares / total
    thin = lam * alpha * game.sampling / total**2
    slope = (p - game.costs) + pull + thin
    doubt = 2.0 * lam * alpha * error / total + 8.0 * few * (np.abs(p - game.costs) + pull + thin)
    return slope, doubt, np.maximum(squares - error, 0.0), few


def _apart_in_blocks(game: GameModel, z: Array, few: float) -> tuple[float, Array, Array]:
    """Return roundings of a sum, ``sum_j z_j ||mu_k - mu_j||^2``, and the same with the further error of each distance.

    What :mod:`.distances` holds for few clients, for a block of rows at a time.
    """
    keep, few = game.remaining, few + 8 * U
    stored = game.embeddings._inner_products
    own = np.diagonal(stored)[keep]
    spread, size = np.empty(len(keep)), np.empty(len(keep))
    for start in range(0, len(keep), 512):
        b = slice(start, start + 512)
        inner = stored[np.ix_(keep[b], keep)]
        squares = own[b, None] + own[None, :] - 2.0 * inner
        slack = 4.0 * U * (np.abs(own)[b, None] + np.abs(own)[None, :] + 2.0 * np.abs(inner))
        slack += np.maximum(-squares, 0.0)
        squares = np.maximum(squares, 0.0)
        squares[np.arange(len(squares)), np.arange(start, start + len(squares))] = 0.0
        spread[b], size[b] = squares @ z, (squares + slack / few) @ z
    return few, spread, size


def _in_balls(game: GameModel, p: Array, x: Array, caps: Array) -> Array:
    """Return the same bound in ball arithmetic."""
    from flint import arb

    from .numbers import BallArithmetic

    out = np.empty(game.count)
    with BallArithmetic(PRECISION).context():
        for k, (slope, drift) in enumerate(_slopes_in_balls(game, p, x)):
            pay, cost, share, cap = (arb(float(v[k])) for v in (p, game.costs, x, caps))
            gain = (slope * (cap - share)).upper().max((-slope * share).upper()).max(arb(0))
            stakes = pay.max(cost).max(drift.lower())
            out[k] = float((gain / stakes).upper()) * (1.0 + 4.0 * U) if slope.is_finite() else np.inf
    return out


def _wants_more_in_balls(game: GameModel, p: Array, caps: Array) -> npt.NDArray[np.bool_]:
    """Return the clients that certainly want to exceed their caps if all are at their caps."""
    from .numbers import BallArithmetic

    with BallArithmetic(PRECISION).context():
        return np.array([bool(slope > 0) for slope, _ in _slopes_in_balls(game, p, caps)])


def _slopes_in_balls(game: GameModel, p: Array, x: Array) -> Iterator[tuple[Any, Any]]:
    """``dU_k/dx_k`` and ``lam d_k^2`` of every client, enclosed."""
    from .ball_game import BallGame

    exact = BallGame.of(game, p)
    y = exact.amounts(x.tolist())
    total = exact.total(y)
    squares = exact.squares([v / total for v in y])
    for net, alpha, square in zip(exact.net, exact.alpha, squares, strict=True):
        pulled = exact.lam * alpha * (2 * square / total + exact.a / total**2)
        yield net + pulled, exact.lam * square
