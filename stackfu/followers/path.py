"""All equilibria, by following one number along one curve.

Fix the total participation ``S = s``. The profile that satisfies the equilibrium conditions up to a common
level t,

    d_k^2 - s w_k - t    <= 0 where y_k = 0,    = 0 where 0 < y_k < alpha_k,    >= 0 where y_k = alpha_k,

is the maximiser of a concave quadratic programme over ``sum y = s``, ``0 <= y <= alpha``, so its mean
embedding m is unique, and t is its multiplier in disguise. Equilibria are exactly the points where ``t(s) =
0``. At ``s = 1`` everybody takes part fully and t may be any number up to ``min_k g_k(alpha)``; from there
s is followed down to 0. As long as the same clients are inside (0, alpha_k) and the same ones at their
caps, y is a quadratic polynomial in s and ``s^2 t(s)`` a quartic, so both the end of the piece and the
zeros of t on it are roots of polynomials. Where nobody is inside, the curve ``(s, t)`` is vertical. It
comes from ``t = -inf`` and ends at ``t(0+) > 0``, the squared radius of the minimum enclosing ball of the
embeddings, so there is always a zero unless all embeddings coincide.

That none is missing is checked on the way: the optimality conditions in the middle of every piece from the
inner products themselves, that t continues from piece to piece, and that the signs of t agree with the
zeros found.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..model import Array, GameModel

__all__ = ["Path", "Root", "follow_path"]

#: Largest violation of the optimality conditions, and largest jump of t, that count as rounding (relative).
CHECK = 1e-9
#: Totals below this are followed from the largest possible one, not from 1.
SMALL = 1e-3
#: Reluctance further below zero than this many largest squared distances says nothing more.
EAGER = 1e3
_KINDS = ("crossing", "touching", "flat")
_COLUMNS = ("top", "bottom", "level_top", "level_bottom", "inside", "capped", "violation", "jump")


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
    largest squared distance, ``scale``.
    """

    pieces: Array
    scale: float
    roots: tuple[Root, ...]
    finished: bool
    worst: float

    @cached_property
    def complete(self) -> bool:
        """Whether every check on the way to ``s = 0`` held, so that no equilibrium is missing."""
        return self.finished and self.worst <= CHECK and self._signs_agree

    @cached_property
    def table(self) -> Array:
        """A row a piece: s at the upper and lower end, t there (in units of squared distance), how many clients are
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
        """A column of the table: top, bottom, level_top, level_bottom, inside, capped, violation, jump."""
        return self.table[:, _COLUMNS.index(name)]

    def __len__(self) -> int:
        return len(self.pieces)


def follow_path(game: GameModel, payments: Array) -> Path:
    """Trace t(s) for the given payments; the embeddings must not all coincide.

    Where no equilibrium can have more than a small total, the path begins there. If ties bring it to a halt, it is
    followed again with reluctances that differ by rounding errors.
    """
    w = relevant_reluctance(game, payments)
    ceiling = _largest_total(game, w)
    path = _follow(game, w, 0.0, ceiling if ceiling < SMALL else 1.0)
    for attempt in range(4):
        if path.complete:
            break
        again = _follow(game, w, 10.0 ** (attempt - 14) if attempt else 0.0, ceiling)
        path = min(path, again, key=lambda p: (not p.complete, not p.finished, p.worst))
    return path


def relevant_reluctance(game: GameModel, payments: Array) -> Array:
    """``w_k``, but not far below zero: who is paid more than its cost takes part fully, however much more it is."""
    w = game.reluctance_under(payments)
    return w if w.min() > 0 else np.maximum(w, -EAGER * game.geometry.scale)


def _largest_total(game: GameModel, w: Array) -> float:
    """No equilibrium has a larger total than this, at most 1.

    Whoever takes part has ``S w_k <= d_k^2``, and no mixture is further from a client than the furthest of
    the others. At smaller totals nobody can bring more than this either, so it may stand in for larger shares:
    where distances are tiny beside reluctances the path then starts where the two can be compared.
    """
    if w.min() <= 0:
        return 1.0
    return min(1.0, (1.0 + 1e-9) * float((game.geometry.reach / w).max()))


def _follow(game: GameModel, w: Array, noise: float = 0.0, ceiling: float = 1.0) -> Path:
    kernels = _kernels()
    geometry = game.geometry
    alpha = game.alpha if ceiling >= 1.0 else np.minimum(game.alpha, ceiling)
    scale, G, N = geometry.scale, geometry.normalised, len(alpha)
    w = _shaken(w / scale, noise)
    floor = max(1e-14, 4.0 * game.rounding) * N
    length, places = 4 * N + 60, 16
    while True:
        pieces, totals, ys = np.empty((length, 8)), np.empty(places), np.empty((places, N))
        statuses, kinds = np.empty((places, N), dtype=np.int8), np.empty(places, dtype=np.int8)
        tight = np.empty(places, dtype=np.int64)
        try:
            code, n_pieces, n_roots, worst = kernels.follow(
                G, alpha, w, floor, pieces, totals, ys, statuses, kinds, tight
            )
        except ZeroDivisionError:  # numbers so far apart that one of them underflows
            return Path(np.empty((0, len(_COLUMNS))), scale, (), False, np.inf)
        if code != kernels.NO_ROOM:
            break
        length, places = 8 * length, 8 * places
    pieces = pieces[:n_pieces]
    if ceiling < 1.0:  # above it the curve is that of smaller shares, except where nobody is at a cap
        pieces = pieces[(pieces[:, 0] <= ceiling) | (pieces[:, 5] == 0)]
    roots = tuple(
        Root(_shares(ys[i], game.alpha), statuses[i], _KINDS[kinds[i]], int(tight[i]))
        for i in range(n_roots - 1, -1, -1)
    )
    return Path(pieces, scale, roots, code == kernels.DONE, worst)


@cache
def _kernels() -> Any:
    """The compiled core, loaded when it is first needed; an import statement would cost more than the path of two clients."""
    from . import _path_kernels

    return _path_kernels


def _shaken(w: Array, noise: float) -> Array:
    """Reluctances with relative errors up to ``noise``, always the same ones."""
    return w * (1.0 + noise * np.random.default_rng(0).uniform(-1.0, 1.0, len(w))) if noise > 0.0 else w


def _shares(y: Array, alpha: Array) -> Array:
    x = y / alpha  # exactly 1 at the cap
    x.setflags(write=False)
    return x
