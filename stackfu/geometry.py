"""Where the remaining clients' mean embeddings lie, and how far mixtures of them are from anything.

The game never needs the embeddings themselves, only squared distances between mixtures ``m = sum z_k mu_k`` of the
remaining clients and three kinds of points: a client's own ``mu_k``, the mean ``mu_N`` of all remaining clients, and
the mean ``mu_O`` of all original ones. Distances do not change when everything is translated, so ``mu_N`` is taken
as the origin: the numbers are then as small as the distances they stand for, and little cancels.

Two forms, one interface: :class:`GramGeometry` holds inner products (any kernel, up to some thousands of clients),
:class:`FeatureGeometry` holds feature rows (up to millions of clients; rows are never copied).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InputError

__all__ = ["FeatureGeometry", "Geometry", "GramGeometry", "MixtureDistances"]

Array = npt.NDArray[np.float64]

#: Above this many remaining clients an N x N matrix is refused rather than swapped to disk.
LARGEST_GRAM = 20_000
#: From this many numbers on, passes over feature rows run in jitted kernels on all cores.
LARGE_PASS = 10_000_000


def frozen(array: npt.ArrayLike) -> Array:
    """A read-only, contiguous float64 copy of an array."""
    out = np.array(array, dtype=np.float64, order="C")
    out.setflags(write=False)
    return out


@dataclass(frozen=True, slots=True, eq=False)
class MixtureDistances:
    """Squared distances from a mixture ``m``: to every client, to ``mu_N`` and to ``mu_O``."""

    to_clients: Array
    to_remaining: float
    to_original: float


class Geometry(ABC):
    """Squared distances between mixtures of the remaining clients' embeddings."""

    count: int

    @abstractmethod
    def mixture(self, z: Array) -> MixtureDistances:
        """Squared distances from ``m = sum z_k mu_k``, ``z`` in the simplex."""

    @property
    @abstractmethod
    def gram(self) -> Array:
        """Inner products ``<mu_i - mu_N, mu_j - mu_N>`` of the remaining clients, (N, N), read-only."""

    @property
    @abstractmethod
    def original(self) -> tuple[Array, float]:
        """``<mu_k - mu_N, mu_O - mu_N>`` for every k, and ``||mu_O - mu_N||^2``."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """The yardstick of residuals: the largest squared distance between two clients.

        For features with very many clients, where all pairs are too many, the largest squared distance to ``mu_N``,
        which is at most that.
        """

    @cached_property
    def pairwise(self) -> Array:
        """Squared distances ``||mu_i - mu_j||^2``, (N, N), read-only."""
        diagonal = np.diag(self.gram)
        squares = diagonal[:, None] + diagonal[None, :] - 2.0 * self.gram
        np.maximum(squares, 0.0, out=squares)
        np.fill_diagonal(squares, 0.0)
        return frozen(squares)


class GramGeometry(Geometry):
    """Geometry from the inner products of all original clients' embeddings."""

    def __init__(
        self, gram: Array, remaining: npt.NDArray[np.intp], alpha: Array, original_weights: Array
    ) -> None:
        everyone = np.zeros(len(gram))
        everyone[remaining] = alpha
        row_means = gram @ everyone
        centred = gram - row_means[:, None] - row_means[None, :] + everyone @ row_means
        centred = 0.5 * (centred + centred.T)
        self.count = len(remaining)
        self._gram = frozen(centred[np.ix_(remaining, remaining)])
        pull = centred @ original_weights
        self._original = frozen(pull[remaining]), float(max(original_weights @ pull, 0.0))
        self._diagonal = frozen(np.diag(self._gram))

    @property
    def gram(self) -> Array:
        return self._gram

    @property
    def original(self) -> tuple[Array, float]:
        return self._original

    @cached_property
    def scale(self) -> float:
        return float(self.pairwise.max(initial=0.0))

    def mixture(self, z: Array) -> MixtureDistances:
        inner = self._gram @ z
        square = float(z @ inner)
        to_clients = np.maximum(self._diagonal - 2.0 * inner + square, 0.0)
        pull, original_square = self._original
        to_original = max(square - 2.0 * float(pull @ z) + original_square, 0.0)
        return MixtureDistances(to_clients, max(square, 0.0), to_original)


class FeatureGeometry(Geometry):
    """Geometry from feature rows, one a client; works in blocks of rows and copies none of them."""

    _BLOCK = 8192

    def __init__(
        self,
        features: npt.NDArray[Any],
        remaining: npt.NDArray[np.intp],
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
        """Whether a pass over the rows is worth the jitted kernels."""
        return bool(self.count * self.features.shape[1] >= LARGE_PASS)

    def combine(self, weights: Array) -> Array:
        """``sum_k weights_k mu_k`` over the remaining clients, (D,), float64."""
        if self._large:
            from . import _geometry_kernels as kernels

            return np.asarray(kernels.combine(self.features, self.remaining, weights))
        return self._weighted_rows(self.remaining, weights)

    def squared_distances(self, point: Array) -> Array:
        """``||mu_k - point||^2`` for every remaining client, from differences, never from expanded squares."""
        if self._large:
            from . import _geometry_kernels as kernels

            return np.asarray(kernels.squared_distances(self.features, self.remaining, point))
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
                "this computation needs one and is meant for smaller games",
            )
        centred = np.asarray(self.features[self.remaining], dtype=np.float64) - self.mean_remaining
        return frozen(centred @ centred.T)

    @cached_property
    def original(self) -> tuple[Array, float]:
        shift = self.mean_original - self.mean_remaining
        pull = np.empty(self.count)
        for start in range(0, self.count, self._BLOCK):
            rows = np.asarray(self._rows(start), dtype=np.float64) - self.mean_remaining
            pull[start : start + self._BLOCK] = rows @ shift
        return frozen(pull), float(shift @ shift)

    @cached_property
    def scale(self) -> float:
        if self.count <= 2000:
            return float(self.pairwise.max(initial=0.0))
        return float(self.squared_distances(self.mean_remaining).max())

    def mixture(self, z: Array) -> MixtureDistances:
        m = self.combine(z)
        return MixtureDistances(
            self.squared_distances(m),
            float(np.sum((m - self.mean_remaining) ** 2)),
            float(np.sum((m - self.mean_original) ** 2)),
        )
