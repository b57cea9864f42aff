"""The multipliers that a search has found, each with its products for all clients as long as there is room for them.

A knot's products ``<mu_k, T c>`` and ``<mu_k, T c - M>`` take as much as two features of every client. With very many clients they
are kept in single precision (any multipliers will do) and only of those knots that were used last; the others come back by two
passes over the clients.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...model import Array
from .payment_bound import BoundProblem, Multipliers

__all__ = ["COMPACT", "Knots", "compact"]

#: From this many clients on knots are kept in single precision.
COMPACT = 200_000
#: Products are kept of as many knots as have this many clients in all, and of a few at least.
MOST_KEPT, FEWEST_KEPT = 10_000_000, 6


def compact(values: Array) -> Array:
    """Half of the digits of what very many clients have, which is all that a guess or a knot needs."""
    return values.astype(np.float32) if len(values) >= COMPACT else values


class Knots:
    """Knots by number, in the order in which they were found."""

    def __init__(self, problem: BoundProblem) -> None:
        self.problem = problem
        self._bare: list[
            Multipliers
        ] = []  # without anything that is as long as there are clients, in games of features
        self._kept: OrderedDict[int, Multipliers] = OrderedDict()
        self._packed: dict[int, tuple[npt.NDArray[np.int32], Array]] = {}  # rows of those that are not kept
        self._most = max(FEWEST_KEPT, MOST_KEPT // len(problem.alpha))

    def __len__(self) -> int:
        return len(self._bare)

    def add(self, y: Multipliers) -> int:
        """Keep a knot, and its number."""
        number, nothing = len(self._bare), np.zeros(0)
        self._bare.append(replace(y, rows=nothing, along=nothing, slope=nothing))
        self._keep(number, y.rows, y.along, y.slope)
        return number

    def __getitem__(self, number: int) -> Multipliers:
        if number in self._kept:
            self._kept.move_to_end(number)
        else:
            place, rows = self.problem.place, self._rows(number)
            along = place.inner(self._bare[number].pull)
            slope = along - place.inner(place.combine(rows)) if rows.any() else along
            self._keep(number, rows, along, slope)
        return self._kept[number]

    def _keep(self, number: int, rows: Array, along: Array, slope: Array) -> None:
        short = compact(along)
        self._kept[number] = replace(
            self._bare[number],
            rows=compact(rows),
            along=short,
            slope=short if slope is along else compact(slope),
        )
        self._packed.pop(number, None)
        while len(self._kept) > self._most:
            number, last = self._kept.popitem(last=False)
            clients = np.flatnonzero(last.rows).astype(np.int32)
            self._packed[number] = clients, last.rows[clients]

    def _rows(self, number: int) -> Array:
        if number in self._kept:
            return np.asarray(self._kept[number].rows, dtype=np.float64)
        rows: Array = np.zeros(len(self.problem.alpha))
        clients, values = self._packed[number]
        rows[clients] = values
        return rows

    def clear(self) -> None:
        """Forget them all."""
        self._bare.clear()
        self._kept.clear()
        self._packed.clear()

    def total(self, number: int) -> float:
        """Return the total participation at which a knot was found."""
        return self._bare[number].total

    def without_products(self, number: int) -> Multipliers:
        """Return a knot without products, for callers that compute their own."""
        return replace(self._bare[number], rows=self._rows(number))
