"""Cone programmes put together from named variables and named blocks of rows, for the interior-point solver Clarabel."""

from __future__ import annotations

from typing import Any

import clarabel
import numpy as np
import numpy.typing as npt
from scipy import sparse

from ..model import Array

__all__ = ["Blocks", "quiet_settings"]


class Blocks:
    """A cone programme ``min q.x, b - A x in K`` put together from named variables and named blocks of rows.

    Each call of :meth:`entries` says everything about one part of the matrix: which block and variable it belongs to,
    where its entries are, and their values as ``(constant, per S, per 1/S)``."""

    def __init__(self) -> None:
        self.variables: dict[str, slice] = {}
        self.rows: dict[str, slice] = {}
        self.cones: list[Any] = []
        self._parts: list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Array]] = []
        self._right: list[tuple[slice, Array]] = []
        self._cost: list[tuple[slice, Array]] = []
        self.width = self.height = 0

    def variable(self, name: str, count: int) -> None:
        """Declare ``count`` columns."""
        self.variables[name] = slice(self.width, self.width + count)
        self.width += count

    def block(self, name: str, count: int, cone: Any) -> None:
        """Declare ``count`` rows, to lie in a cone of that size."""
        self.rows[name] = slice(self.height, self.height + count)
        self.height += count
        if count:
            self.cones.append(cone(count))

    def entries(
        self,
        block: str,
        variable: str,
        row: npt.ArrayLike,
        col: npt.ArrayLike,
        constant: npt.ArrayLike = 0.0,
        per_s: npt.ArrayLike = 0.0,
        per_v: npt.ArrayLike = 0.0,
    ) -> None:
        """Values at positions (row, col) within a block and a variable; all arguments are broadcast together."""
        shape = np.broadcast(row, col, constant, per_s, per_v).shape
        places, values = np.empty((2, *shape), dtype=np.intp), np.empty((3, *shape))
        places[0], places[1] = row, col
        values[0], values[1], values[2] = constant, per_s, per_v
        places[0] += self.rows[block].start
        places[1] += self.variables[variable].start
        self._parts.append((*places.reshape(2, -1), values.reshape(3, -1)))

    def right(
        self, block: str, constant: Any = 0.0, per_s: Any = 0.0, per_v: Any = 0.0, per_v2: Any = 0.0
    ) -> None:
        """Right-hand side of a block."""
        where = self.rows[block]
        self._right.append((where, self._table((constant, per_s, per_v, per_v2), where)))

    def cost(self, variable: str, constant: Any = 0.0, per_s: Any = 0.0, per_v: Any = 0.0) -> None:
        """Adds to the cost of a variable."""
        where = self.variables[variable]
        self._cost.append((where, self._table((constant, per_s, per_v), where)))

    def square(self, above: str, of: str, coordinates: Array | None = None, scale: float = 1.0) -> None:
        """Rows ``above >= ||coordinates of||^2`` (None: of the variable itself).

        As ``||(2 c, above / scale - scale)|| <= above / scale + scale``, well conditioned where ``scale`` is the size of c.
        """
        width = self.variables[of].stop - self.variables[of].start
        rank = width if coordinates is None else len(coordinates)
        self.block("square", rank + 2, clarabel.SecondOrderConeT)
        self.entries("square", above, [0, 1], 0, -1.0 / scale)
        axes = np.arange(rank)
        if coordinates is None:
            self.entries("square", of, 2 + axes, axes, -2.0)
        else:
            self.entries("square", of, 2 + axes[:, None], np.arange(width)[None, :], -2.0 * coordinates)
        self.right("square", np.r_[scale, -scale, np.zeros(rank)])

    @staticmethod
    def _table(values: tuple[Any, ...], where: slice) -> Array:
        table = np.empty((len(values), where.stop - where.start))
        for line, value in zip(table, values, strict=True):
            line[:] = value
        return table

    def finish(self) -> None:
        """Sort the entries by column once; afterwards only values change."""
        row = np.concatenate([p[0] for p in self._parts])
        col = np.concatenate([p[1] for p in self._parts])
        order = np.lexsort((row, col))
        self.values = np.concatenate([p[2] for p in self._parts], axis=1)[:, order]
        self.indices = row[order]
        self.indptr = np.zeros(self.width + 1, dtype=np.int64)
        np.cumsum(np.bincount(col, minlength=self.width), out=self.indptr[1:])
        self.b, self.q = np.zeros((4, self.height)), np.zeros((3, self.width))
        for where, table in self._right:
            self.b[:, where] += table
        for where, table in self._cost:
            self.q[:, where] += table

    def at(self, total: float) -> tuple[Array, Array, Array]:
        """Matrix values (by column), right-hand side and cost at one S."""
        v = 1.0 / total
        powers = np.array([1.0, total, v, v * v])
        return powers[:3] @ self.values, powers @ self.b, powers[:3] @ self.q

    def solver(self, data: Array, right: Array, cost: Array, settings: Any) -> Any:
        """Return a solver of the programme with these values."""
        matrix = sparse.csc_matrix((data, self.indices, self.indptr), shape=(self.height, self.width))
        nothing = sparse.csc_matrix((self.width, self.width))
        return clarabel.DefaultSolver(nothing, cost, matrix, right, self.cones, settings)


def quiet_settings(tolerance: float) -> Any:
    """Settings that print nothing, use one thread, and ask for this accuracy."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    return settings
