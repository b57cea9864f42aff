"""The clients' embeddings as the leader sees them: origin at the server's ideal mixture, and never a matrix that is
not there already.

The loss of a mixture is ``||m - o||^2`` times a weight, plus a constant, where ``o`` is the mean of ``mu_N`` and ``mu_O``
weighted by what the server cares about. Here clients are ``mu_k - o``, in units of the square root of ``scale``. Feature games
hold rows in R^D and work through them in blocks; in Gram games a point is the vector of weights w that stands for ``sum_k w_k
(mu_k - o)``, and inner products come from ``G w``.

The interior-point method wants coordinates. :meth:`Points.rows` gives them in an orthonormal basis of at most
``LARGEST_BASIS`` directions: the
features' own where they are few enough, else the leading ones. What the basis leaves out makes the solver's answer less
sharp and no bound wrong:
bounds use :meth:`Points.inner`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...model import Array, FeatureGeometry
from ...model.geometry import LARGE_PASS, Geometry

__all__ = ["ArrayPoints", "FeaturePoints", "GramPoints", "Points"]

Index = npt.NDArray[np.intp]

#: Directions the interior-point method may see.
LARGEST_BASIS = 256
#: Directions with a smaller share of the spread are left out of the basis.
NEGLIGIBLE = 1e-12
#: Clients from whom a basis is computed when there are more.
LANDMARKS = 2000
#: Part of the longest client's squared length that a basis may omit, if it is used for all clients: the checker has the
#: last word on bounds, and it uses all pairs.
LEFT_OUT = 1e-11
_BLOCK = 8192


class Points(ABC):
    """``mu_k - o`` for every remaining client, in normalised units."""

    count: int
    scale: float  # squared distances are divided by it
    has_coordinates = True  # points are coordinates: their inner products need no client

    @abstractmethod
    def combine(self, weights: Array) -> Array:
        """Return the point ``sum_k weights_k (mu_k - o)``, in the form that the other methods take."""

    @abstractmethod
    def inner(self, point: Array) -> Array:
        """``<mu_k - o, point>`` for every client."""

    @abstractmethod
    def dot(self, first: Array, second: Array, along: Array | None = None) -> float:
        """Inner product of two points; ``along`` is ``inner(second)``, if it is known."""

    @property
    @abstractmethod
    def diagonal(self) -> Array:
        """``||mu_k - o||^2``."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """Return the number of directions in the basis of :meth:`rows`."""

    @abstractmethod
    def rows(self, clients: Index) -> Array:
        """Coordinates of some clients in the basis, (n, rank)."""

    @abstractmethod
    def coordinates(self, point: Array) -> Array:
        """Coordinates of a point in the basis, (rank,)."""

    @abstractmethod
    def away(self, point: Array) -> float:
        """``<o - mu_N, point>``."""

    @property
    @abstractmethod
    def away_square(self) -> float:
        """``||o - mu_N||^2``."""

    def squared_distances(
        self, point: Array, square: float | None = None, inner: Array | None = None
    ) -> Array:
        """``||mu_k - o - point||^2`` for every client."""
        square = self.dot(point, point) if square is None else square
        inner = self.inner(point) if inner is None else inner
        return np.maximum(self.diagonal - 2.0 * inner + square, 0.0)


class ArrayPoints(Points):
    """Coordinates that are there already, (N, r)."""

    def __init__(self, coordinates: Array) -> None:
        self.array, self.count, self.scale = coordinates, len(coordinates), 1.0

    def combine(self, weights: Array) -> Array:
        return np.asarray(weights @ self.array)

    def inner(self, point: Array) -> Array:
        return np.asarray(self.array @ point)

    def dot(self, first: Array, second: Array, along: Array | None = None) -> float:
        return float(first @ second)

    @cached_property
    def diagonal(self) -> Array:
        return np.asarray(np.einsum("ij,ij->i", self.array, self.array))

    @property
    def rank(self) -> int:
        return int(self.array.shape[1])

    def rows(self, clients: Index) -> Array:
        return np.asarray(self.array[clients])

    def coordinates(self, point: Array) -> Array:
        return point

    def away(self, point: Array) -> float:
        return 0.0  # coordinates that are given count from their own origin

    away_square = 0.0


class FeaturePoints(Points):
    """Feature rows; no row is copied but those that the interior-point method asks for."""

    def __init__(self, geometry: FeatureGeometry, origin: Array) -> None:
        self.geometry, self.count, self.scale = geometry, geometry.count, geometry.scale
        self.origin = origin
        self._unit = float(np.sqrt(self.scale))
        self._away: Array = (origin - geometry.mean_remaining) / self._unit

    def combine(self, weights: Array) -> Array:
        return np.asarray((self.geometry.combine(weights) - float(weights.sum()) * self.origin) / self._unit)

    def inner(self, point: Array) -> Array:
        geometry, direction = self.geometry, point / self._unit
        if self.count * len(point) >= LARGE_PASS:
            from . import _point_kernels as kernels

            return np.asarray(kernels.inner(geometry.features, geometry.remaining, self.origin, direction))
        out = np.empty(self.count)
        for start in range(0, self.count, _BLOCK):
            chosen = geometry.remaining[start : start + _BLOCK]
            out[start : start + _BLOCK] = (
                np.asarray(geometry.features[chosen], dtype=np.float64) - self.origin
            ) @ direction
        return out

    def dot(self, first: Array, second: Array, along: Array | None = None) -> float:
        return float(first @ second)

    @cached_property
    def diagonal(self) -> Array:
        return np.asarray(self.geometry.squared_distances(self.origin) / self.scale)

    @cached_property
    def _basis(self) -> Array | None:
        """Leading directions (D, r), None where all D are used."""
        width = self.geometry.features.shape[1]
        if width <= LARGEST_BASIS:
            return None
        few = np.random.default_rng(0).permutation(self.count)[: LANDMARKS + width]
        rows = self._all_rows(np.sort(few))
        _, vectors = np.linalg.eigh(rows.T @ rows)
        return np.ascontiguousarray(vectors[:, -LARGEST_BASIS:])

    def _all_rows(self, clients: Index) -> Array:
        chosen = np.asarray(self.geometry.features[self.geometry.remaining[clients]], dtype=np.float64)
        return np.asarray((chosen - self.origin) / self._unit)

    @property
    def rank(self) -> int:
        return int(self.geometry.features.shape[1] if self._basis is None else LARGEST_BASIS)

    def rows(self, clients: Index) -> Array:
        rows = self._all_rows(clients)
        return rows if self._basis is None else np.asarray(rows @ self._basis)

    def coordinates(self, point: Array) -> Array:
        return point if self._basis is None else np.asarray(point @ self._basis)

    def away(self, point: Array) -> float:
        return float(self._away @ point)

    @property
    def away_square(self) -> float:
        return float(self._away @ self._away)


class GramPoints(Points):
    """Inner products; the basis spans the leading directions of the clients, or of a sample of them."""

    has_coordinates = False

    def __init__(self, geometry: Geometry, towards: Array, square: float) -> None:
        """``towards`` is ``<mu_k, o>`` and ``square`` is ``||o||^2``, seen from mu_N."""
        self.count, self.scale = geometry.count, geometry.scale
        self._gram, self._towards, self._square = geometry.gram, towards, square

    def combine(self, weights: Array) -> Array:
        return weights

    def inner(self, point: Array) -> Array:
        if self._spanned:
            return np.asarray(self._coordinates @ self.coordinates(point))
        total = float(point.sum())
        raw = self._gram @ point - float(self._towards @ point)
        return np.asarray((raw + (self._square - self._towards) * total) / self.scale)

    def dot(self, first: Array, second: Array, along: Array | None = None) -> float:
        return float(first @ (self.inner(second) if along is None else along))

    @cached_property
    def diagonal(self) -> Array:
        return np.maximum((np.diag(self._gram) - 2.0 * self._towards + self._square) / self.scale, 0.0)

    @cached_property
    def _coordinates(self) -> Array:
        """(N, r): inner products with an orthonormal basis."""
        n = self.count
        few = np.arange(n) if n <= LANDMARKS else np.sort(np.random.default_rng(0).permutation(n)[:LANDMARKS])
        block = self._gram[:, few] if n > LANDMARKS else self._gram
        block = (block - self._towards[:, None] - self._towards[few][None, :] + self._square) / self.scale
        values, vectors = np.linalg.eigh(block[few])
        keep = values > NEGLIGIBLE * max(float(values.sum()), 0.0)
        keep[: max(len(keep) - LARGEST_BASIS, 0)] = False
        return np.ascontiguousarray(block @ (vectors[:, keep] / np.sqrt(values[keep])))

    @cached_property
    def _spanned(self) -> bool:
        """Return True if many clients lie in the basis up to rounding: a pass over coordinates then replaces one over all pairs.

        What the basis leaves out of two clients has an inner product of at most what it leaves out of either with itself.
        """
        if self.count <= LANDMARKS:
            return False
        inside = np.einsum("ij,ij->i", self._coordinates, self._coordinates)
        return bool(np.abs(self.diagonal - inside).max() <= LEFT_OUT * float(self.diagonal.max()))

    @property
    def rank(self) -> int:
        return int(self._coordinates.shape[1])

    def rows(self, clients: Index) -> Array:
        return np.asarray(self._coordinates[clients])

    def coordinates(self, point: Array) -> Array:
        return np.asarray(point @ self._coordinates)

    def away(self, point: Array) -> float:
        return float(point @ (self._towards - self._square)) / self.scale

    @property
    def away_square(self) -> float:
        return self._square / self.scale
