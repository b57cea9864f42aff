"""Equilibria in one compiled call: the path, and the checks of what it found, for one payment vector or many.

Most games are settled this way: every client's gain is proved to be negligible, and no other equilibrium is possible. A row that
is not settled at once (ties, faces of equilibria, numbers that floats cannot tell apart) is left to :mod:`.solve`, which takes the
same steps one by one and goes on where they end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..embedding.parallel import cores, in_order
from ..judging.completeness import DEPTHS, FEW_LEAVES, RESOLVED
from ..judging.distances import RANGE, distances_of
from ..judging.stakes import NEGLIGIBLE
from ..model import Array, GameModel
from .path.tracing import CLEARLY_BELOW, SHORT, numbers_of
from .solver_tolerances import RESIDUAL

__all__ = ["LARGEST_AT_ONCE", "Settled", "settle_at_once"]

#: Up to this many clients a game is settled in one call; of more the path alone takes far longer than the calls between its steps.
LARGEST_AT_ONCE = 300
#: Up to this many numbers feature rows are copied for the compiled code.
MOST_FEATURES = 1_000_000
#: Rows that one thread works through at a time.
ROWS_PER_BLOCK = 256


@dataclass(frozen=True, eq=False)
class Settled:
    """Results of :func:`settle_at_once`, with a row for each payment vector.

    Rows that are ``accepted`` have an equilibrium in ``profiles``, the one with the largest total. ``columns`` are those of
    :data:`stackfu.followers._at_once.ROW_COLUMNS`.
    """

    profiles: Array
    columns: Array

    @property
    def accepted(self) -> npt.NDArray[np.bool_]:
        """True for rows of which everything was accepted."""
        return np.asarray(self.columns[:, 0] == 1.0)


def settle_at_once(
    game: GameModel,
    payments: Array,
    caps: Array | None = None,
    enough: float = NEGLIGIBLE,
    residual: float = RESIDUAL,
) -> Settled | None:
    """Return what is known at once under every row of ``payments``; None for games that are not settled this way.

    ``caps`` has a row for each row of payments, or one for all. Everything is taken to be checked.
    """
    numbers = _numbers_of(game)
    if numbers is None:
        return None
    count = len(payments)
    profiles, columns = np.empty((count, game.count)), np.empty((count, 6))
    caps = np.ones((1, game.count)) if caps is None else np.array(caps, order="C", ndmin=2)
    payments = np.array(payments, order="C")
    run = _kernel()
    if count <= ROWS_PER_BLOCK or cores() == 1:
        run(payments, caps, enough, residual, *numbers, profiles, columns)
        return Settled(profiles, columns)

    def block(start: int) -> None:
        rows = slice(start, start + ROWS_PER_BLOCK)
        most = caps if len(caps) == 1 else caps[rows]
        run(payments[rows], most, enough, residual, *numbers, profiles[rows], columns[rows])

    for _ in in_order(block, range(0, count, ROWS_PER_BLOCK)):
        pass
    return Settled(profiles, columns)


@cache
def _kernel() -> Any:
    """Return the compiled core, loaded when it is first needed."""
    from ._at_once import settle_rows

    return settle_rows


def _numbers_of(game: GameModel) -> tuple[Any, ...] | None:
    """Return what the compiled code reads of a game, worked out once; None for games that it does not settle."""
    known: dict[str, Any] = game.__dict__
    if "_numbers_at_once" not in known:
        known["_numbers_at_once"] = _read(game)
    found: tuple[Any, ...] | None = known["_numbers_at_once"]
    return found


def _read(game: GameModel) -> tuple[Any, ...] | None:
    if game.count > LARGEST_AT_ONCE or game.is_homogeneous:
        return None
    judged = distances_of(game)
    if not judged.fits:
        return None
    features = game.embeddings.features
    if features is not None and game.count * features.shape[1] > MOST_FEATURES:
        return None
    rows, numbers, origin = _rows(game)
    solver, geometry = numbers_of(game), game.geometry
    return (
        solver.normalised, np.array(geometry.gram, order="C"), solver.scale, np.array(geometry.pairwise, order="C"),
        np.array(geometry.reach), solver.shares, judged.costs, judged.weights, float(game.sampling), float(game.lam),
        solver.floor * game.count, SHORT * judged.defect, CLEARLY_BELOW,
        rows, numbers, origin,
        np.array(judged.squares, order="C"), np.array(judged.error, order="C"), np.array(judged.slack, order="C"),
        judged.by_client, np.array(judged.reach), np.array(judged.apart, order="C"),
        np.array([judged.rho, judged.defect, judged.even, judged.largest]), judged.few, RANGE,
        DEPTHS[0], FEW_LEAVES, RESOLVED,
    )  # fmt: skip


def _rows(game: GameModel) -> tuple[Array, npt.NDArray[np.intp], Array]:
    """Return the feature rows that distances to a mixture are taken from, their numbers and their origin, or nothing."""
    found = game.geometry.rows_to_subtract()
    if found is None:
        return np.empty((0, 0)), np.empty(0, dtype=np.intp), np.empty(0)
    rows, origin = found
    return np.array(rows, order="C"), np.arange(len(rows)), np.array(origin)
