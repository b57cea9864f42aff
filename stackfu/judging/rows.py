"""Passes over feature rows that copy none of them: what the checker reads of a game of any size.

Rows are seen from an origin, ``features_k - origin`` in float64. Up to :data:`LARGE` numbers NumPy works through blocks of rows,
beyond that jitted kernels do on all cores. Both sum in some order of their own; callers bound the error for every order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FeatureRows"]

Floats = npt.NDArray[np.float64]
#: Rows in one partial sum.
BLOCK = 512
#: From this many numbers on the kernels are worth compiling.
LARGE = 10_000_000


class FeatureRows:
    """``features[which] - origin``."""

    def __init__(self, features: Any, which: Any, origin: Floats) -> None:
        self.features, self.which, self.origin = features, np.asarray(which, dtype=np.intp), origin

    def __len__(self) -> int:
        return len(self.which)

    @property
    def terms(self) -> int:
        """Largest number of additions behind an entry of :meth:`combine`."""
        return min(len(self), BLOCK) + len(self) // BLOCK + 1

    @property
    def _large(self) -> bool:
        return len(self) * len(self.origin) >= LARGE

    def among(self, clients: Any) -> FeatureRows:
        """Some of these rows."""
        return FeatureRows(self.features, self.which[clients], self.origin)

    def some(self, clients: Any) -> Floats:
        """Some of these rows, as an array of their own."""
        return np.asarray(self.features[self.which[clients]], dtype=np.float64) - self.origin

    def _blocks(self) -> Iterator[tuple[slice, Floats]]:
        for start in range(0, len(self), BLOCK):
            block = slice(start, min(start + BLOCK, len(self)))
            yield block, self.some(block)

    def squares(self) -> Floats:
        """``||row_k||^2``, with a relative error below gamma of the width and a few."""
        if self._large:
            from . import _row_kernels as kernels

            return np.asarray(kernels.squares(self.features, self.which, self.origin))
        out = np.empty(len(self))
        for block, rows in self._blocks():
            out[block] = np.einsum("ij,ij->i", rows, rows)
        return out

    def inner(self, point: Floats) -> Floats:
        """``<row_k, point>`` for every k."""
        if self._large:
            from . import _row_kernels as kernels

            return np.asarray(kernels.inner(self.features, self.which, self.origin, point))
        out = np.empty(len(self))
        for block, rows in self._blocks():
            out[block] = rows @ point
        return out

    def combine(self, weights: Floats) -> Floats:
        """``sum_k weights_k row_k``, in blocks so that the error grows with their number only."""
        if self._large:
            from . import _row_kernels as kernels

            return np.asarray(kernels.combine(self.features, self.which, self.origin, weights, BLOCK))
        out = np.zeros(len(self.origin))
        for block, rows in self._blocks():
            out = out + weights[block] @ rows
        return out
