"""The curve ``(s, t(s))`` and its zeros, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ...model import Array
from ..solver_tolerances import CHECK

__all__ = ["COLUMNS", "Path", "Root"]

#: The columns of a path's table.
COLUMNS = ("top", "bottom", "level_top", "level_bottom", "inside", "capped", "violation", "jump")


@dataclass(frozen=True, eq=False)
class Root:
    """A zero of t: an equilibrium, as the path found it.

    ``kind`` is "crossing" (t changes sign), "touching" (t is zero within rounding and does not) or "flat"
    (an end of an interval on which t is zero throughout).
    """

    participation: Array
    status: npt.NDArray[np.int8]
    kind: str
    tight: int


@dataclass(frozen=True, eq=False)
class Path:
    """The curve ``(s, t(s))`` from ``s = 1`` to 0, piece by piece, and its zeros by ascending s.

    ``worst`` is the largest violation or jump of any piece; ``pieces`` are those of the game itself, t in units of the
    largest squared distance, ``scale``. ``chain`` holds the participation along the curve, control points of quadratic
    pieces, for :func:`stackfu.judging.completeness.check_complete`; empty if there are too many clients. ``exact`` is the same in
    several hundred bits, where the path was followed in those.
    """

    pieces: Array
    scale: float
    roots: tuple[Root, ...]
    finished: bool
    worst: float
    chain: Array
    exact: Sequence[Sequence[Any]] = ()

    @cached_property
    def complete(self) -> bool:
        """True if every check on the way to ``s = 0`` held, so that no equilibrium is missing."""
        return self.finished and self.worst <= CHECK and self._signs_agree

    @cached_property
    def table(self) -> Array:
        """One row per piece: s at the upper and lower end, t there (in units of squared distance), how many clients are
        inside and at their cap, and the two checks: violation of the optimality conditions in the middle and jump
        of t against the piece before, both relative.
        """
        table: Array = np.array(self.pieces)
        table[:, 2:4] *= self.scale
        table.setflags(write=False)
        return table

    @cached_property
    def violation(self) -> float:
        """Largest violation of the optimality conditions in the middle of a piece."""
        return float(self.table[:, 6].max(initial=0.0))

    @cached_property
    def jump(self) -> float:
        """Largest jump of t between consecutive pieces, against the direction it may jump in."""
        return float(self.table[:, 7].max(initial=0.0))

    @property
    def _signs_agree(self) -> bool:
        # from t < 0 to t > 0 the sign changes an odd number of times; an interval of zeros hides one change
        # or none
        kinds = [root.kind for root in self.roots]
        return "flat" in kinds or kinds.count("crossing") % 2 == 1

    def column(self, name: str) -> Array:
        """Return a column of the table: top, bottom, level_top, level_bottom, inside, capped, violation, jump."""
        return self.table[:, COLUMNS.index(name)]

    def __len__(self) -> int:
        return len(self.pieces)
