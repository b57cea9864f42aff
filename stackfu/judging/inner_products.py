"""Inner products read exactly and in blocks: at 20,000 clients a matrix of them takes 3.2 GB, and only one is made here.

Inner products known by a Gram matrix need not be those of any vectors to the last digit. ``defect`` is a proved number with
``x'Kx >= -defect ||x||^2``, from a Cholesky factorisation in floats: if it runs to its end, the matrix is positive semidefinite
but for ``gamma_{n+1} / (1 - gamma_{n+1})`` times its trace, whatever the rounding.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import VerificationError
from ..model import GameModel
from ..threads import factoring
from .check_tolerances import FACTOR_UNDERFLOW
from .distances import ALL_PAIRS, U
from .numbers import IntervalArithmetic, Intervals

__all__ = ["ALL_PAIRS", "InnerProducts", "gamma", "proved_defect", "symmetric_products"]

Floats = npt.NDArray[np.float64]
WIDE = float(np.finfo(np.longdouble).eps)
#: Rows of inner products that are worked on together.
BLOCK = 512


def gamma(terms: int, unit: float = U) -> float:
    """Relative error of a sum of products of this many terms, in any order, rounded up."""
    return 1.01 * terms * unit / (1.0 - terms * unit)


def symmetric_products(game: GameModel) -> Floats:
    """Return the stored inner products, taken at face value; refused where they contradict themselves."""
    gram = game.embeddings._inner_products
    if not all(np.array_equal(gram[b], gram[:, b].T) for b in _blocks(len(gram))):
        raise VerificationError("the inner products are not symmetric")
    return gram


class InnerProducts:
    """``<mu_i - o, mu_j - o>`` of the remaining clients, o a mixture of theirs, each with a bound on its error.

    Rounded from extended precision. An entry is off by at most ``e_i + e_j``, something that all entries share and its own last
    digit, so that errors take no matrix.
    """

    game: GameModel

    def __init__(self, gram: Floats, keep: Any, origin: Floats, mixes: list[Intervals]) -> None:
        numbers, n = IntervalArithmetic(), len(gram)
        self.count = len(keep)
        o = origin.astype(np.longdouble)
        o = o / o.sum()
        row = np.concatenate([gram[b].astype(np.longdouble) @ o for b in _blocks(n)])
        grand = o @ row
        size = np.concatenate([np.abs(gram[b]).max(axis=1) for b in _blocks(n)])
        # o sums to 1 but for a few wide roundings, and so do all sums here
        each = 8.08 * (n + 8) * WIDE * float(np.abs(o).sum()) ** 2 * size
        self.errors, self.shared = each[keep], float(each.max())
        middles, spreads = [], []
        for mix in mixes:
            low, high = mix.low.astype(np.longdouble), mix.high.astype(np.longdouble)
            m = 0.5 * (low + high)
            sizes = np.abs(np.asarray(m, dtype=np.float64))
            middles.append(m)
            spreads.append(np.asarray(0.5 * (high - low), dtype=np.float64) * 1.01 + 4 * WIDE * sizes)
        towards, off = np.zeros((2, len(mixes), n))
        place = np.full(n, -1)
        place[keep] = np.arange(self.count)
        self.middle = np.empty((self.count, self.count))
        for b in _blocks(n):
            centred = gram[b].astype(np.longdouble) - row[b, None] - row[None, :] + grand
            sizes = np.abs(centred).astype(np.float64)
            for i, (m, spread) in enumerate(zip(middles, spreads, strict=True)):
                weights = np.abs(np.asarray(m, dtype=np.float64))
                inner = np.asarray(centred @ m, dtype=np.float64)
                error = (each[b] + self.shared) * weights.sum() + float(each @ weights) + sizes @ spread
                error = error + 2 * (n + 4) * WIDE * (sizes @ weights)
                towards[i, b], off[i, b] = inner, error * 1.02 + U * np.abs(inner) * 1.01
            mine = np.flatnonzero(place[b] >= 0)
            if len(mine):
                self._mirror(place[b][mine], centred[np.ix_(mine, keep[place[b][mine[0]] :])])
        #: ``<mu_k - o, t - o>`` of every original client with every target of the loss.
        self.towards = [numbers.between(*both) for both in zip(towards, off, strict=True)]
        own = np.diagonal(self.middle)
        self.diagonal = numbers.between(own, 2.0 * self.errors + self.shared + U * np.abs(own) * 1.02)
        sums = np.concatenate([np.abs(self.middle[b]).sum(axis=1) for b in _blocks(self.count)])
        rows = self.count * (self.errors + self.shared) + self.errors.sum() + 1.02 * U * sums
        self.defect = proved_defect(self.middle, float(rows.max()) * 1.02)

    @classmethod
    def of(cls, game: GameModel, keep: Any, origin: Floats, mixes: list[Intervals]) -> InnerProducts:
        """Return the inner products of a game, which does not change: they are cached while in use."""
        found = _held.get(id(game))
        if found is None:
            found = cls(symmetric_products(game), keep, origin, mixes)
            found.game = game  # so that no other gets its number meanwhile
            _held[id(game)] = found
        return found

    def _mirror(self, at: Any, rows: Any) -> None:
        """Rounded once and mirrored: the same float stands for both of two equal entries."""
        inside, first = rows.astype(np.float64), at[0]
        self.middle[at, first:] = inside
        self.middle[first:, at] = inside.T
        within = inside[:, : len(at)]
        self.middle[np.ix_(at, at)] = np.triu(within) + np.triu(within, 1).T

    @property
    def radius(self) -> Floats:
        """Return the error of each entry, as a matrix; for few clients."""
        e = self.errors
        return np.asarray((e[:, None] + e[None, :] + self.shared + U * np.abs(self.middle)) * 1.01)

    @cached_property
    def _sizes(self) -> Floats | None:
        return np.abs(self.middle) if self.count <= ALL_PAIRS else None

    def times(self, clients: Any, weights: Floats) -> Intervals:
        """``<mu_k, sum_j weights_j mu_j>`` over some clients j, for every client k; of many weights, one row each."""
        # the matrix is symmetric, so rows may stand for columns
        sizes, e = np.abs(weights), self.errors
        shape = (*weights.shape[:-1], self.count)
        middle, size = np.zeros(shape), np.zeros(shape)
        for b in _blocks(len(clients)):
            rows = self.middle[clients[b]]
            middle = middle + weights[..., b] @ rows
            known = self._sizes
            size = size + sizes[..., b] @ (np.abs(rows, out=rows) if known is None else known[clients[b]])
        whole = sizes.sum(axis=-1, keepdims=True)
        errors = (sizes @ e[clients])[..., None] + (e + self.shared) * whole
        radius = (gamma(len(clients) + 4) + 1.02 * U) * size + errors
        return IntervalArithmetic().between(middle, radius * 1.02)


_held: weakref.WeakValueDictionary[int, InnerProducts] = weakref.WeakValueDictionary()


def proved_defect(symmetric: Floats, spread: float) -> float:
    """Return a proved ``defect``: ``x'Kx >= -defect ||x||^2`` for K with row sums of errors at most ``spread``."""
    n = len(symmetric)
    trace = float(np.abs(np.diagonal(symmetric)).sum()) * 1.01
    shift = max(4.0 * n * U * trace, FACTOR_UNDERFLOW)  # clients that coincide have no trace at all
    for _ in range(60):
        if _factors(symmetric, shift):
            loss = gamma(n + 1) / (1.0 - gamma(n + 1)) * (trace + n * shift) * 1.01
            return (shift + loss + spread + 4 * U * (trace + shift)) * 1.01
        shift *= 4.0
    raise VerificationError("the inner products are not those of any embeddings")


def _blocks(count: int) -> Iterator[slice]:
    for start in range(0, count, BLOCK):
        yield slice(start, min(start + BLOCK, count))


def _factors(symmetric: Floats, shift: float) -> bool:
    """Return True if a Cholesky factorisation of ``symmetric + shift I`` succeeds.

    Of many clients it is written over the upper triangle of ``symmetric`` itself, which the lower one then makes good again.
    """
    n = len(symmetric)
    if n <= ALL_PAIRS:
        try:
            np.linalg.cholesky(symmetric + shift * np.eye(n))
        except np.linalg.LinAlgError:
            return False
        return True
    from scipy.linalg.lapack import dpotrf

    own = np.diagonal(symmetric).copy()
    try:
        np.fill_diagonal(symmetric, own + shift)
        # columns are what LAPACK calls rows
        with factoring(n):
            factor, info = dpotrf(symmetric.T, lower=1, clean=0, overwrite_a=1)
        return bool(info == 0 and np.isfinite(np.diagonal(factor)).all())
    finally:
        for b in _blocks(n):
            for c in _blocks(b.start):
                symmetric[c, b] = symmetric[b, c].T
            inside = np.tril(symmetric[b, b], -1)
            symmetric[b, b] = inside + inside.T
        np.fill_diagonal(symmetric, own)
