"""Tracing the path of a game: units, room, ties, and what is handed to the compiled loop."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ...model import Array, GameModel
from ..tolerances import EAGER, MARGIN, PIVOT, PIVOT_OF_ROUNDING, SHAKE, SHAKES, SMALL
from .curve import COLUMNS, Path, Root

__all__ = ["follow_path", "relevant_reluctance"]

_KINDS = ("crossing", "touching", "flat")


def follow_path(game: GameModel, payments: Array) -> Path:
    """Trace t(s) for the given payments; the embeddings must not all coincide.

    Where no equilibrium can have more than a small total, the path begins there. If ties bring it to a halt, it is
    followed again with reluctances that differ by rounding errors.
    """
    w = relevant_reluctance(game, payments)
    ceiling = _largest_total(game, w)
    path = _follow(game, w, 0.0, ceiling if ceiling < SMALL else 1.0)
    for attempt in range(SHAKES):
        if path.complete:
            break
        again = _follow(game, w, SHAKE * 10.0**attempt if attempt else 0.0, ceiling)
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
    return min(1.0, (1.0 + MARGIN) * float((game.geometry.reach / w).max()))


def _follow(game: GameModel, w: Array, noise: float = 0.0, ceiling: float = 1.0) -> Path:
    kernels = _kernels()
    geometry = game.geometry
    alpha = game.alpha if ceiling >= 1.0 else np.minimum(game.alpha, ceiling)
    scale, G, N = geometry.scale, geometry.normalised, len(alpha)
    w = _shaken(w / scale, noise)
    floor = max(PIVOT, PIVOT_OF_ROUNDING * game.rounding) * N
    length, places = 4 * N + 60, 16
    while True:
        pieces, totals, ys = np.empty((length, len(COLUMNS))), np.empty(places), np.empty((places, N))
        statuses, kinds = np.empty((places, N), dtype=np.int8), np.empty(places, dtype=np.int8)
        tight = np.empty(places, dtype=np.int64)
        try:
            code, n_pieces, n_roots, worst = kernels.follow(
                G, alpha, w, floor, pieces, totals, ys, statuses, kinds, tight
            )
        except ZeroDivisionError:  # numbers so far apart that one of them underflows
            return Path(np.empty((0, len(COLUMNS))), scale, (), False, np.inf)
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
    from . import _loop

    return _loop


def _shaken(w: Array, noise: float) -> Array:
    """Reluctances with relative errors up to ``noise``, always the same ones."""
    return w * (1.0 + noise * np.random.default_rng(0).uniform(-1.0, 1.0, len(w))) if noise > 0.0 else w


def _shares(y: Array, alpha: Array) -> Array:
    x = y / alpha  # exactly 1 at the cap
    x.setflags(write=False)
    return x
