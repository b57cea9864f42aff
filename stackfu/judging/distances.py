"""A game's squared distances with proved errors, and whatever else of it the float judges of equilibria need: read once per game.

Floats prove something only where products of the game's numbers neither overflow nor lose digits (:meth:`Distances.fit`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from ..model import Array, GameModel

__all__ = ["ALL_PAIRS", "HALVINGS", "RANGE", "Distances", "U", "distances_of", "in_range", "roundings"]

#: Unit roundoff.
U = float(np.finfo(np.float64).eps) / 2
#: Up to this many clients all pairs are looked at; beyond, distances are bounded through the origin or from rows.
ALL_PAIRS = 1500
#: A chain's segments are halved this often at most; every halving is a rounding or two.
HALVINGS = 42
#: Harmless error of distances relative to the largest one, in rounding errors: covers underflow.
UNSEEN = 1e-30
#: Shares, costs, payments, weights, distances, reluctances and totals between this and one over it can be multiplied in floats,
#: four at a time, without leaving their range; elsewhere floats prove nothing.
RANGE = 1e-60


@dataclass(frozen=True, eq=False)
class Distances:
    """``squares`` are off by a relative rounding of ``terms`` operations and by ``error``.

    ``defect`` is a number with ``-x'Dx / 2 >= -defect ||x||^2`` for all x that sum to zero: stored inner products need not be those
    of any embeddings to the last digit. Shares and costs are writable copies: compiled code tells those from frozen ones.
    """

    squares: Array
    error: Array
    terms: int
    defect: float
    alpha: Array
    costs: Array
    weights: Array  # 2 lam alpha_k
    a: float
    lam: float

    @cached_property
    def largest(self) -> float:
        """The largest squared distance."""
        return float(self.squares.max())

    @cached_property
    def few(self) -> float:
        """Relative error of a profile's distances and totals."""
        return roundings(len(self.alpha)) + self.terms * U

    @cached_property
    def rho(self) -> float:
        """Relative error of whatever a chain's judge adds up.

        Shares: a sum of N sizes and a division; amounts, totals, D y, pairs: two more sums of N; a few products; the averages
        of halves; and cutting out a piece, two cuts of six roundings.
        """
        return (6 * len(self.alpha) + self.terms + 3 * HALVINGS + 12 + 64) * U

    @cached_property
    def slack(self) -> Array:
        """Error of distances beyond rounding and :attr:`even`, over rho; empty for features, which have none."""
        return self.error / self.rho if self.error.any() else np.empty((0, 0))

    @cached_property
    def by_client(self) -> Array:
        """Numbers, over rho: no distance is off by more than those of its two clients and :attr:`even`; empty for features.

        Stored inner products are off by ``4 u (|a| + |b| + 2 |c|)``, and ``2 |c| <= |a| + |b|`` where they are those of embeddings;
        what is missing elsewhere is shared by the two.
        """
        if not len(self.slack):
            return np.empty(0)
        own = 0.5 * np.diagonal(self.slack)
        beyond = np.maximum(self.slack - own[:, None] - own[None, :], 0.0)
        return np.asarray((own + 0.5 * beyond.max(axis=1)) * (1.0 + 8.0 * U))

    @cached_property
    def even(self) -> float:
        """Common error of all distances, over rho."""
        return UNSEEN * self.largest

    @cached_property
    def off(self) -> Array:
        """Total error of distances beyond rounding."""
        return self.error + self.rho * self.even

    @cached_property
    def apart(self) -> Array:
        """Lower bounds of ``(d_i + d_j)^2`` at any mixture, not positive where nothing is known."""
        apart = self.squares * (1.0 - self.rho) - self.off
        if self.defect > 0.0:  # d_i + d_j >= sqrt(D_ij) up to twice the root of twice the defect
            lost = 2.0 * np.sqrt(2.0 * self.defect) * (1.0 + 4.0 * U)
            apart = np.square(np.maximum(np.sqrt(np.maximum(apart, 0.0)) - lost, 0.0)) * (1.0 - 16.0 * U)
        return np.asarray(apart)

    @cached_property
    def reach(self) -> Array:
        """Upper bounds of ``max_j D_kj``."""
        return np.asarray(((self.squares + self.off) * (1.0 + self.rho)).max(axis=1))

    @cached_property
    def fits(self) -> bool:
        """True if the game's own numbers can be multiplied in floats."""
        return _fits(self.alpha.min(), self.costs.min(), self.costs.max(), self.lam, self.largest, self.a)

    def reluctance(self, payments: Array) -> Array | None:
        """``w_k = (c_k - p_k) / (2 lam alpha_k)``, None if not all numbers can be multiplied in floats under these payments.

        Who is paid more than its cost takes part fully whatever the others do: how much more does not matter.
        """
        w = np.empty(len(self.costs))
        fit = self.fits and kernels().reluctances(self.costs, self.weights, payments, self.largest, RANGE, w)
        return w if fit else None


def roundings(count: int) -> float:
    """Relative error of shares, amounts and their total: sums of so many non-negative numbers and a few products."""
    return (6 * count + 64) * U


@cache
def kernels() -> Any:
    """Return the compiled passes, loaded when they are first needed."""
    from . import _stake_kernels

    return _stake_kernels


def distances_of(game: GameModel) -> Distances:
    """Return the distances of a game, worked out once: a game does not change."""
    known: dict[str, Any] = game.__dict__
    if "_judged_distances" not in known:
        known["_judged_distances"] = _read(game)
    found: Distances = known["_judged_distances"]
    return found


def in_range(game: GameModel, payments: Array) -> bool:
    """Return True if products of the game's numbers neither overflow nor lose digits to underflow."""
    if game.count <= ALL_PAIRS:
        return distances_of(game).reluctance(payments) is not None
    own = (game.alpha.min(), game.costs.min(), game.costs.max(), game.lam, game.geometry.scale, game.sampling)
    return _fits(*own, payments.max()) and bool(np.abs(game.reluctance_under(payments)).max() <= 1.0 / RANGE)


def _fits(*values: float) -> bool:
    return all(v == 0.0 or RANGE <= v <= 1.0 / RANGE for v in values)


def _read(game: GameModel) -> Distances:
    keep, features = game.remaining, game.embeddings.features
    alpha, costs = np.array(game.alpha), np.array(game.costs)
    rest = (alpha, costs, 2.0 * game.lam * alpha, game.sampling, game.lam)
    if features is not None:
        rows = np.asarray(features[keep], dtype=np.float64)
        squares = np.empty((len(keep), len(keep)))
        for i, row in enumerate(rows):
            gap = rows - row
            squares[i] = np.einsum("kd,kd->k", gap, gap)
        squares = np.maximum(squares, squares.T)
        return Distances(squares, np.zeros_like(squares), rows.shape[1] + 8, 0.0, *rest)
    inner = -np.asarray(game.embeddings._best[np.ix_(keep, keep)], dtype=np.float64)
    diagonal = np.diag(inner)
    squares = diagonal[:, None] + diagonal[None, :] - 2.0 * inner
    error = 4.0 * U * (np.abs(diagonal)[:, None] + np.abs(diagonal)[None, :] + 2.0 * np.abs(inner))
    error = error + np.maximum(-squares, 0.0)
    squares = np.maximum(0.5 * (squares + squares.T), 0.0)
    np.fill_diagonal(squares, 0.0)
    return Distances(squares, error, 8, _defect(squares, error), *rest)


def _defect(squares: Array, error: Array) -> float:
    n = len(squares)
    means = squares.mean(axis=1)
    centred = -0.5 * (squares - means[:, None] - means[None, :] + means.mean())
    values, vectors = np.linalg.eigh(centred)
    rest = np.abs(centred - (vectors * values) @ vectors.T)
    rest = rest + 4 * n * U * (np.abs(vectors) * np.abs(values)) @ np.abs(vectors.T)
    rest = rest + error + 8 * n * U * (squares + means[:, None] + means[None, :])
    skew = np.abs(vectors.T @ vectors - np.eye(n)).sum(axis=1).max() + 4 * n * n * U
    return float(max(-values.min(), 0.0) * (1.0 + skew) + rest.sum(axis=1).max() * (1.0 + 8 * n * U))
