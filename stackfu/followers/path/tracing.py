"""Tracing the path of a game: units, room, ties, and what is handed to the compiled loop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...judging.distances import distances_of
from ...model import Array, GameModel
from ..solver_tolerances import EAGER, MARGIN, PIVOT, PIVOT_OF_ROUNDING, SHAKE, SHAKES, SMALL
from .curve import COLUMNS, Path, Root

__all__ = ["follow_path", "relevant_reluctance", "smallest_total"]

#: Up to this many clients the path leaves a chain for the judge: it takes about 12 N^2 numbers.
LARGEST_CHAIN = 1000
#: A chain has at most about this many profiles per client.
MOST_LINKS = 200
#: Squared distances below this many defects of the inner products say nothing: ``(1 - 2 sqrt(2 / SHORT))^2 > CLEARLY_BELOW``.
SHORT = 100.0
#: The chain ends at this part of the smallest total an equilibrium can have.
CLEARLY_BELOW = 0.5
_KINDS = ("crossing", "touching", "flat")


def follow_path(game: GameModel, payments: Array, caps: Array | None = None) -> Path:
    """Trace t(s) for the given payments and caps; the embeddings of those who may take part must not all coincide.

    Where no equilibrium can have more than a small total, the path begins there. If ties bring it to a halt, it is
    followed again with reluctances that differ by rounding errors.
    """
    w = relevant_reluctance(game, payments)
    ceiling = _largest_total(game, w)
    path = _follow(game, w, 0.0, ceiling if ceiling < SMALL else 1.0, caps)
    for attempt in range(SHAKES):
        if path.complete:
            break
        again = _follow(game, w, SHAKE * 10.0**attempt if attempt else 0.0, ceiling, caps)
        path = min(path, again, key=lambda p: (not p.complete, not p.finished, p.worst))
    return path


def relevant_reluctance(game: GameModel, payments: Array) -> Array:
    """``w_k``, but not far below zero: who is paid more than its cost takes part fully, however much more it is."""
    w = game.reluctance_under(payments)
    return w if w.min() > 0 else np.maximum(w, -EAGER * game.geometry.scale)


def _largest_total(game: GameModel, w: Array) -> float:
    """No equilibrium has a larger total than this, at most 1.

    Each participant has ``S w_k <= d_k^2 + a / (2 S)``, and no mixture is further from a client than the furthest of
    the others. At smaller totals no client can bring more than this either, so it may replace larger shares:
    if distances are tiny relative to reluctances the path then starts where the two are comparable.
    """
    if w.min() <= 0:
        return 1.0
    most = game.geometry.reach / w
    if game.sampling > 0.0:
        most = 0.5 * (most + np.sqrt(most**2 + 2.0 * game.sampling / w))
    return min(1.0, (1.0 + MARGIN) * float(most.max()))


def smallest_total(game: GameModel, w: Array, caps: Array | None = None) -> float:
    """Return every equilibrium has a larger total than this; 0 if nothing can be said.

    Two clients i, j always have ``d_i + d_j >= sqrt(D_ij)``, so below ``D_ij / (sqrt(w_i) + sqrt(w_j))^2`` one of them wants more
    whatever the mixture, and brings more than the smaller of what is taken from them only if that is more than the total. With a
    sampling term whoever has ``s w_k < a / (2 s)`` wants more as well.
    """
    # stored inner products fall a little short of those of embeddings: about clients that are so close they say nothing
    short = SHORT * distances_of(game).defect
    most = game.no_caps if caps is None else caps
    found = _kernels().smallest_total(game.geometry.pairwise, w, game.alpha, most, game.sampling, short)
    return float(CLEARLY_BELOW * found)


@dataclass(frozen=True, eq=False)
class SolverNumbers:
    """Writable copies of what the path reads of a game: compiled code is made once for those, and again for frozen arrays.

    ``normalised`` are the inner products in units of the largest squared distance, ``floor`` is the smallest pivot.
    """

    normalised: Array
    shares: Array
    scale: float
    floor: float


def numbers_of(game: GameModel) -> SolverNumbers:
    """Return the solver's numbers of a game, worked out once."""
    known: dict[str, Any] = game.__dict__
    if "_solver_numbers" not in known:
        geometry = game.geometry
        known["_solver_numbers"] = SolverNumbers(
            np.array(geometry.normalised, order="C"),
            np.array(game.alpha),
            float(geometry.scale),
            float(max(PIVOT, PIVOT_OF_ROUNDING * game.rounding)),
        )
    found: SolverNumbers = known["_solver_numbers"]
    return found


def _follow(
    game: GameModel, w: Array, noise: float = 0.0, ceiling: float = 1.0, caps: Array | None = None
) -> Path:
    kernels = _kernels()
    read = numbers_of(game)
    shares, scale, G = read.shares, read.scale, read.normalised
    tops, whole, who = np.ones(game.count), 1.0, None
    highest, lowest = min(ceiling, 1.0), smallest_total(game, w, caps) if game.count <= LARGEST_CHAIN else 0.0
    if caps is not None:
        who = np.flatnonzero(caps > 0)  # nothing is taken from the others: they only look on
        shares, tops, w, G = shares[who], caps[who], w[who], np.ascontiguousarray(G[np.ix_(who, who)])
        whole = float((shares * tops).sum())
    owned = shares if caps is None else shares * tops
    alpha = owned if ceiling >= 1.0 else np.minimum(owned, ceiling)
    N = len(alpha)
    w = _shaken(w / scale, noise)
    floor = read.floor * N
    length, places, links = 4 * N + 60, 16, 12 * N + 160 if lowest > 0.0 else 0
    while True:
        pieces, totals, ys = np.empty((length, len(COLUMNS))), np.empty(places), np.empty((places, N))
        statuses, kinds = np.empty((places, N), dtype=np.int8), np.empty(places, dtype=np.int8)
        tight, chain = np.empty(places, dtype=np.int64), np.empty((links, N))
        try:
            code, n_pieces, n_roots, n_links, worst = kernels.follow(
                G, alpha, w, floor, pieces, totals, ys, statuses, kinds, tight, chain, shares, highest, lowest,
                tops, game.sampling / scale, True
            )  # fmt: skip
        except ZeroDivisionError:  # numbers so far apart that one of them underflows
            return Path(np.empty((0, len(COLUMNS))), scale, (), False, np.inf, np.empty((0, game.count)))
        if code != kernels.NO_ROOM:
            break
        # a chain that is still too short then is no chain along a few hundred pieces
        length, places, links = 8 * length, 8 * places, 8 * links if links < MOST_LINKS * N else 0
    pieces = pieces[:n_pieces]
    if ceiling < whole:  # above it the curve is that of smaller shares, except where no client is at a cap
        pieces = pieces[(pieces[:, 0] <= ceiling) | (pieces[:, 5] == 0)]
    roots = tuple(
        Root(
            _spread(_shares(ys[i], shares, owned, caps if who is None else tops), who, game.count),
            _spread(statuses[i], who, game.count, -1),
            _KINDS[kinds[i]],
            int(tight[i]),
        )
        for i in range(n_roots - 1, -1, -1)
    )
    chain = np.array(chain[:n_links])
    if ceiling >= whole and n_links:
        chain[0] = tops  # where the curve begins: everybody takes part as much as it may
    return Path(pieces, scale, roots, code == kernels.DONE, worst, _spread(chain, who, game.count))


@cache
def _kernels() -> Any:
    """The compiled core, loaded when it is first needed; an import statement would cost more than the path of two clients."""
    from . import _loop

    return _loop


def _shaken(w: Array, noise: float) -> Array:
    """Reluctances with relative errors up to ``noise``, always the same ones."""
    return w * (1.0 + noise * np.random.default_rng(0).uniform(-1.0, 1.0, len(w))) if noise > 0.0 else w


def _shares(y: Array, alpha: Array, owned: Array, caps: Array | None) -> Array:
    """Participation, exactly the cap where all that is taken is brought."""
    x = y / alpha if caps is None else np.where(y >= owned, caps, np.minimum(y / alpha, caps))
    x.setflags(write=False)
    return x


def _spread(values: Any, who: npt.NDArray[np.intp] | None, count: int, fill: int = 0) -> Any:
    """Spread values of some clients, along the last axis, over all of them."""
    if who is None or len(who) == count:
        return values
    out = np.full((*values.shape[:-1], count), fill, dtype=values.dtype)
    out[..., who] = values
    out.setflags(write=False)
    return out
