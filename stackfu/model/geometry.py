"""Positions of the remaining clients' mean embeddings, and distances from mixtures of them.

The game never needs the embeddings themselves, only squared distances between mixtures ``m = sum z_k mu_k`` of the
remaining clients and three kinds of points: a client's own ``mu_k``, the mean ``mu_N`` of all remaining clients, and
the mean ``mu_O`` of all original ones. Distances do not change when everything is translated, so ``mu_N`` is taken
as the origin: the numbers are then as small as the distances they stand for, and little cancels.

Two forms, one interface: :class:`GramGeometry` holds inner products (any kernel, up to some thousands of clients),
:class:`FeatureGeometry` holds feature rows (up to millions of clients; rows are never copied).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .losses import Target

__all__ = ["FeatureGeometry", "Geometry", "GramGeometry", "MixtureDistances", "Surroundings"]

Array = npt.NDArray[np.float64]
Clients = npt.NDArray[np.intp]

#: Above this share of a mixture, the distance to it of the client that owns the share is taken from the others'.
MOSTLY = 0.5
EPS = float(np.finfo(np.float64).eps)

#: Above this many remaining clients an N x N matrix is refused rather than swapped to disk.
LARGEST_GRAM = 20_000
#: From this many numbers on, passes over feature rows run in jitted kernels on all cores.
LARGE_PASS = 10_000_000
#: Up to this many numbers feature rows are copied to look at their differences.
CLOSE_LOOK = 1_000_000


def frozen(array: npt.ArrayLike) -> Array:
    """Return a read-only, contiguous float64 copy of an array."""
    out = np.array(array, dtype=np.float64, order="C")
    out.setflags(write=False)
    return out


@dataclass(frozen=True, slots=True, eq=False)
class MixtureDistances:
    """Squared distances from a mixture ``m``: to every client, to ``mu_N`` and to ``mu_O``."""

    to_clients: Array
    to_remaining: float
    to_original: float


class Surroundings(ABC):
    """Some clients and the mixture they make with others who do not move."""

    @abstractmethod
    def products(self, share: Array, total: float) -> Array:
        """Return ``<mu_i - m, mu_j - m>`` of the clients, if they bring ``share`` and all clients together ``total``."""


class Geometry(ABC):
    """Squared distances between mixtures of the remaining clients' embeddings."""

    count: int

    @abstractmethod
    def mixture(self, z: Array) -> MixtureDistances:
        """Return squared distances from ``m = sum z_k mu_k``, ``z`` in the simplex."""

    def distances_of(self, mixtures: Array) -> tuple[Array, Array]:
        """Return the squared distances of every row's mixture to ``mu_N`` and to ``mu_O``."""
        each = [self.mixture(z) for z in mixtures]
        return np.array([m.to_remaining for m in each]), np.array([m.to_original for m in each])

    @abstractmethod
    def drifts(self, z: Array) -> Array:
        """``to_clients`` of a mixture from differences of feature rows, where there are any and they are not too many.

        That is slower, and keeps each client's own distance accurate next to larger ones.
        """

    @abstractmethod
    def rows_to_subtract(self) -> tuple[Array, Array] | None:
        """Return the feature rows of the remaining clients that :meth:`drifts` reads and their origin; None if it reads none."""

    @property
    @abstractmethod
    def gram(self) -> Array:
        """Inner products ``<mu_i - mu_N, mu_j - mu_N>`` of the remaining clients, (N, N), read-only."""

    @property
    @abstractmethod
    def original(self) -> tuple[Array, float]:
        """``<mu_k - mu_N, mu_O - mu_N>`` for every k, and ``||mu_O - mu_N||^2``."""

    @abstractmethod
    def inner(self, z: Array) -> Array:
        """``<mu_k - mu_N, m - mu_N>`` for every k, ``m = sum z_k mu_k``."""

    @abstractmethod
    def mixture_of_original(self, shares: Array) -> tuple[Array, float]:
        """``<mu_k - mu_N, t - mu_N>`` for every k and ``||t - mu_N||^2``, with t the mixture of original clients' embeddings."""

    @abstractmethod
    def feature_point(self, row: Array) -> tuple[Array, float]:
        """Return the same for a feature row t; refused where the embeddings are inner products."""

    def target(self, target: Target) -> tuple[Array, float]:
        """``<mu_k - mu_N, t - mu_N>`` for every k, and ``||t - mu_N||^2``, for a target t of the server's loss."""
        if target.kind == "remaining":
            return np.zeros(self.count), 0.0
        if target.kind == "original":
            return self.original
        known = self.__dict__.setdefault("_targets", {})
        if target not in known:
            values = np.array(target.values)
            known[target] = (
                self.mixture_of_original(values) if target.kind == "mixture" else self.feature_point(values)
            )
        pull, square = known[target]
        return pull, square

    def to_target(self, z: Array, distances: MixtureDistances, target: Target) -> float:
        """Return squared distance of a mixture to a target of the server's loss."""
        if target.kind == "remaining":
            return distances.to_remaining
        if target.kind == "original":
            return distances.to_original
        pull, square = self.target(target)
        return max(distances.to_remaining - 2.0 * float(pull @ z) + square, 0.0)

    @abstractmethod
    def products(self, clients: Clients) -> Array:
        """Inner products ``<mu_i - mu_N, mu_j - mu_N>`` of some remaining clients."""

    @abstractmethod
    def typical_square(self, alpha: Array) -> float:
        """Roughly the mean squared distance of a client to ``mu_N``."""

    @abstractmethod
    def around(
        self, clients: Clients, held: Array, point: Array | None = None, share: Array | None = None
    ) -> Surroundings:
        """Return each client's view while the others bring ``held`` (zero for themselves).

        ``point``, if it is known, is ``sum y mu`` where the clients themselves bring ``share``.
        """

    @property
    @abstractmethod
    def to_original(self) -> Array:
        """``||mu_k - mu_O||^2`` for every client."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """The yardstick of residuals: the largest squared distance between two clients.

        For features with very many clients, where all pairs are too many, the largest squared distance to ``mu_N``,
        which is at most that.
        """

    @property
    @abstractmethod
    def rounding(self) -> float:
        """Rounding error of squared distances relative to the largest one, infinite where all clients coincide."""

    @cached_property
    def pairwise(self) -> Array:
        """Squared distances ``||mu_i - mu_j||^2``, (N, N), read-only."""
        squares = np.empty((self.count, self.count))
        for rows in _slices(self.count):
            squares[rows] = self._pairwise_rows(rows)
        squares.setflags(write=False)
        return squares

    def _pairwise_rows(self, rows: slice) -> Array:
        """Some rows of :attr:`pairwise`, without the others."""
        diagonal = np.diag(self.gram)
        squares = np.multiply(self.gram[rows], -2.0)
        squares += diagonal[rows, None] + diagonal[None, :]
        np.maximum(squares, 0.0, out=squares)
        squares[np.arange(len(squares)), np.arange(self.count)[rows]] = 0.0
        return squares

    @cached_property
    def normalised(self) -> Array:
        """The inner products in units of the largest squared distance, (N, N), read-only."""
        return frozen(self.gram / self.scale)

    @cached_property
    def reach(self) -> Array:
        """Largest squared distance of every client to another; no mixture is further from it."""
        far = np.empty(self.count)
        for rows in _slices(self.count):
            far[rows] = self._pairwise_rows(rows).max(axis=1)
        return frozen(far)


def _slices(count: int, size: int = 1024) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def _rounding_of_differences(largest_square: float, scale: float) -> float:
    """Differences of rows are as exact as the rows: an error of eps times their size."""
    return EPS * max(1.0, 2.0 * float(np.sqrt(largest_square / scale))) if scale > 0 else float("inf")


class GramGeometry(Geometry):
    """Geometry from the inner products of all original clients' embeddings."""

    #: Largest squared norm of the feature rows that the inner products were computed from, if they were.
    _rows: float | None = None
    #: The mean of the remaining clients' feature rows, if there are any, and the rows of all clients relative to it.
    _mean: Array | None = None
    _centred: Array | None = None

    @classmethod
    def of_features(
        cls,
        features: npt.NDArray[Any],
        remaining: Clients,
        alpha: Array,
        original_weights: Array,
    ) -> GramGeometry:
        """From feature rows, centred before they are multiplied, so that what all rows share is not rounded."""
        rows = np.asarray(features, dtype=np.float64)
        mean = alpha @ rows[remaining]
        centred = rows - mean
        out = cls(centred @ centred.T, remaining, alpha, original_weights)
        out._mean, out._centred = mean, centred
        out._rows = float(np.einsum("ij,ij->i", rows, rows)[remaining].max())
        return out

    def __init__(self, gram: Array, remaining: Clients, alpha: Array, original_weights: Array) -> None:
        everyone = np.zeros(len(gram))
        everyone[remaining] = alpha
        row_means = gram @ everyone
        grand = everyone @ row_means
        self.count = len(remaining)
        self._remaining = remaining
        self._gone = np.setdiff1d(np.arange(len(gram)), remaining)
        # written once, in place: at 20,000 clients every matrix of this size takes 3.2 GB
        centred = np.empty((self.count, self.count))
        largest = 0.0
        for rows in _slices(self.count):
            inner = gram[np.ix_(remaining[rows], remaining)]
            largest = max(largest, float(inner.max(initial=0.0)), -float(inner.min(initial=0.0)))
            inner -= row_means[remaining[rows], None]
            inner -= row_means[None, remaining]
            inner += grand
            centred[rows] = inner
        for rows in _slices(self.count):
            for columns in _slices(rows.stop):
                both = centred[rows, columns] + centred[columns, rows].T
                both *= 0.5
                centred[rows, columns] = both
                centred[columns, rows] = both.T
        centred.setflags(write=False)
        self._largest, self._gram = largest, centred
        gone, means = self._gone, row_means
        there = gram[gone] - means[gone, None] - means[None, :] + grand
        back = gram[:, gone].T - means[None, :] - means[gone, None] + grand
        self._gone_rows = 0.5 * (there + back)  # of those removed, beside everybody
        self._diagonal = frozen(np.diag(centred))
        self._original = self.mixture_of_original(original_weights)

    @property
    def gram(self) -> Array:
        return self._gram

    @property
    def original(self) -> tuple[Array, float]:
        return self._original

    @property
    def to_original(self) -> Array:
        pull, square = self._original
        return np.asarray(np.maximum(self._diagonal - 2.0 * pull + square, 0.0))

    def inner(self, z: Array) -> Array:
        return np.asarray(self._gram @ z)

    def mixture_of_original(self, shares: Array) -> tuple[Array, float]:
        stay, gone = shares[self._remaining], shares[self._gone]
        pull = self._gram @ stay + gone @ self._gone_rows[:, self._remaining]
        square = stay @ pull + gone @ (self._gone_rows @ shares)
        return frozen(pull), float(max(square, 0.0))

    def feature_point(self, row: Array) -> tuple[Array, float]:
        if self._mean is None or self._centred is None:
            raise InputError("server_loss", "the embeddings are inner products, not feature rows")
        shift = row - self._mean
        return frozen(self._centred[self._remaining] @ shift), float(shift @ shift)

    def products(self, clients: Clients) -> Array:
        return self._gram[np.ix_(clients, clients)]

    def typical_square(self, alpha: Array) -> float:
        return float(alpha @ self.mixture(alpha).to_clients)

    def around(
        self, clients: Clients, held: Array, point: Array | None = None, share: Array | None = None
    ) -> Surroundings:
        return _GramSurroundings(self._gram, clients, held)

    @cached_property
    def scale(self) -> float:
        return float(self.reach.max(initial=0.0))

    @cached_property
    def rounding(self) -> float:
        if self._rows is not None:
            return _rounding_of_differences(self._rows, self.scale)
        return EPS * self._largest / self.scale if self.scale > 0 else float("inf")

    def drifts(self, z: Array) -> Array:
        compiled = kernels()
        if self._centred is None:
            return np.asarray(compiled.drifts(self._gram, z))
        origin = np.zeros(self._centred.shape[1])
        return np.asarray(compiled.drifts_of_rows(self._centred, self._remaining, origin, z))

    def rows_to_subtract(self) -> tuple[Array, Array] | None:
        if self._centred is None:
            return None
        return self._centred[self._remaining], np.zeros(self._centred.shape[1])

    def mixture(self, z: Array) -> MixtureDistances:
        inner = self._gram @ z
        square = float(z @ inner)
        to_clients = np.maximum(self._diagonal - 2.0 * inner + square, 0.0)
        k = int(np.argmax(z))
        if z[k] > MOSTLY:  # the mixture is hardly different from mu_k: from what the others add to it
            v = np.array(z)
            v[k] = 0.0
            spread = np.zeros(self.count)
            for rows in _slices(self.count):
                spread += v[rows] @ self._pairwise_rows(rows)
            to_clients[k] = max(float(v.sum() * spread[k] - 0.5 * (spread @ v)), 0.0)
        pull, original_square = self._original
        to_original = max(square - 2.0 * float(pull @ z) + original_square, 0.0)
        return MixtureDistances(to_clients, max(square, 0.0), to_original)

    def distances_of(self, mixtures: Array) -> tuple[Array, Array]:
        squares = np.einsum("ij,ij->i", mixtures @ self._gram, mixtures)
        pull, original_square = self._original
        to_original = squares - 2.0 * (mixtures @ pull) + original_square
        return np.maximum(squares, 0.0), np.maximum(to_original, 0.0)


class _GramSurroundings(Surroundings):
    def __init__(self, gram: Array, clients: Clients, held: Array) -> None:
        pull = gram @ held
        self._gram = gram[np.ix_(clients, clients)]
        self._pull, self._square = pull[clients], float(held @ pull)

    def products(self, share: Array, total: float) -> Array:
        own = self._gram @ share
        inner = (self._pull + own) / total
        square = (self._square + share @ (2.0 * self._pull + own)) / total**2
        return self._gram - inner[:, None] - inner[None, :] + square


class _FeatureSurroundings(Surroundings):
    def __init__(self, rows: Array, pull: Array) -> None:
        self._rows, self._pull = rows, pull

    def products(self, share: Array, total: float) -> Array:
        gaps = self._rows - (self._pull + share @ self._rows) / total
        return np.asarray(gaps @ gaps.T)


class FeatureGeometry(Geometry):
    """Geometry from feature rows, one per client; works in blocks of rows and copies none of them."""

    _BLOCK = 8192

    def __init__(
        self,
        features: npt.NDArray[Any],
        remaining: Clients,
        alpha: Array,
        original_weights: Array,
    ) -> None:
        self.features = features
        self.remaining = remaining
        self.count = len(remaining)
        self.mean_remaining = self.combine(alpha)
        if len(remaining) == len(features):
            self.mean_original = self.mean_remaining
        else:
            self.mean_original = self._weighted_rows(np.arange(len(features)), original_weights)

    def _rows(self, start: int) -> npt.NDArray[Any]:
        chosen = self.remaining[start : start + self._BLOCK]
        if chosen[-1] - chosen[0] == len(chosen) - 1:  # consecutive rows: a view, no gathering
            return self.features[chosen[0] : chosen[-1] + 1]
        return self.features[chosen]

    def _rows_from(self, start: int, origin: Array) -> Array:
        return np.asarray(self._rows(start), dtype=np.float64) - origin

    def _weighted_rows(self, rows: npt.NDArray[np.intp], weights: Array) -> Array:
        total = np.zeros(self.features.shape[1])
        for start in range(0, len(rows), self._BLOCK):
            block = rows[start : start + self._BLOCK]
            chosen = (
                self.features[block[0] : block[-1] + 1]
                if block[-1] - block[0] == len(block) - 1
                else self.features[block]
            )
            total += weights[start : start + self._BLOCK] @ np.asarray(chosen, dtype=np.float64)
        return total

    @property
    def _large(self) -> bool:
        """True if a pass over the rows is large enough for the jitted kernels."""
        return bool(self.count * self.features.shape[1] >= LARGE_PASS)

    def drifts(self, z: Array) -> Array:
        if self.count * self.features.shape[1] > CLOSE_LOOK:
            return self.mixture(z).to_clients
        origin = np.asarray(self.features[self.remaining[0]], dtype=np.float64)
        return np.asarray(kernels().drifts_of_rows(self.features, self.remaining, origin, z))

    def rows_to_subtract(self) -> tuple[Array, Array] | None:
        if self.count * self.features.shape[1] > CLOSE_LOOK:
            return None
        rows = np.asarray(self.features[self.remaining], dtype=np.float64)
        return rows, rows[0]

    def combine(self, weights: Array) -> Array:
        """``sum_k weights_k mu_k`` over the remaining clients, (D,), float64."""
        if self._large:
            return np.asarray(kernels().combine(self.features, self.remaining, weights))
        return self._weighted_rows(self.remaining, weights)

    def squared_distances(self, point: Array) -> Array:
        """``||mu_k - point||^2`` for every remaining client, from differences, never from expanded squares."""
        if self._large:
            return np.asarray(kernels().squared_distances(self.features, self.remaining, point))
        out = np.empty(self.count)
        for start in range(0, self.count, self._BLOCK):
            difference = np.asarray(self._rows(start), dtype=np.float64) - point
            out[start : start + self._BLOCK] = np.einsum("ij,ij->i", difference, difference)
        return out

    @cached_property
    def gram(self) -> Array:
        if self.count > LARGEST_GRAM:
            raise InputError(
                "embeddings",
                f"a {self.count} x {self.count} Gram matrix would take {self.count**2 * 8 / 1e9:.0f} GB; "
                "this computation needs one and only supports smaller games",
            )
        centred = np.asarray(self.features[self.remaining], dtype=np.float64) - self.mean_remaining
        return frozen(centred @ centred.T)

    @cached_property
    def original(self) -> tuple[Array, float]:
        return self.feature_point(self.mean_original)

    @property
    def to_original(self) -> Array:
        return self.squared_distances(self.mean_original)

    def inner(self, z: Array) -> Array:
        return self.feature_point(self.combine(z))[0]

    def row_of_original(self, shares: Array) -> Array:
        """Return the feature row of a mixture of original clients."""
        return self._weighted_rows(np.arange(len(self.features)), shares)

    def mixture_of_original(self, shares: Array) -> tuple[Array, float]:
        return self.feature_point(self.row_of_original(shares))

    def rows(self, clients: Clients) -> Array:
        """Feature rows of some remaining clients, float64."""
        return np.asarray(self.features[self.remaining[clients]], dtype=np.float64)

    def products(self, clients: Clients) -> Array:
        rows = self.rows(clients) - self.mean_remaining
        return np.asarray(rows @ rows.T)

    def typical_square(self, alpha: Array) -> float:
        few = np.linspace(0, self.count - 1, min(self.count, 1000)).astype(
            np.intp
        )  # unweighted: a sample is enough
        return float(np.mean(np.sum((self.rows(few) - self.mean_remaining) ** 2, axis=1)))

    def around(
        self, clients: Clients, held: Array, point: Array | None = None, share: Array | None = None
    ) -> Surroundings:
        rows = self.rows(clients)
        others = self.combine(held) if point is None or share is None else point - share @ rows
        return _FeatureSurroundings(
            rows - self.mean_remaining, others - float(held.sum()) * self.mean_remaining
        )

    def feature_point(self, row: Array) -> tuple[Array, float]:
        shift = row - self.mean_remaining
        pull = np.empty(self.count)
        for start in range(0, self.count, self._BLOCK):
            pull[start : start + self._BLOCK] = self._rows_from(start, self.mean_remaining) @ shift
        return frozen(pull), float(shift @ shift)

    @cached_property
    def scale(self) -> float:
        if self.count <= 2000:
            return float(self.pairwise.max(initial=0.0))
        return float(self.squared_distances(self.mean_remaining).max())

    @cached_property
    def rounding(self) -> float:
        norms = self.squared_distances(np.zeros(self.features.shape[1]))
        return _rounding_of_differences(float(norms.max()), self.scale)

    def mixture(self, z: Array) -> MixtureDistances:
        centre = self.combine(z)
        if self._large:
            m = centre - self.mean_remaining
            to_clients = self.squared_distances(centre)
        else:  # rows are measured from next to m, so that each client's distance is as exact as its own size allows
            off = np.zeros(len(centre))
            for start in range(0, self.count, self._BLOCK):
                off += z[start : start + self._BLOCK] @ self._rows_from(start, centre)
            to_clients = np.empty(self.count)
            for start in range(0, self.count, self._BLOCK):
                difference = self._rows_from(start, centre) - off
                to_clients[start : start + self._BLOCK] = np.einsum("ij,ij->i", difference, difference)
            m = (centre - self.mean_remaining) + off
        shift = self.mean_original - self.mean_remaining
        return MixtureDistances(to_clients, float(m @ m), float(np.sum((m - shift) ** 2)))


@cache
def kernels() -> Any:
    """Return the compiled passes, loaded when they are first needed."""
    from . import _geometry_kernels

    return _geometry_kernels
