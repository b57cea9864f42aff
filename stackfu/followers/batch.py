"""Equilibria under many payment vectors of one game, or of many games, in one call."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..embedding.names import rows_by_name
from ..errors import ConvergenceError, InputError, NoEquilibriumError, StackfuError
from ..model import Array, GameModel, frozen
from ..model.arguments import numbers
from ..results import Equilibrium, Status, Uniqueness
from ..results.equilibrium_batch import EquilibriumBatch
from .at_once import settle_at_once
from .solve import find_equilibrium

__all__ = ["equilibria_of"]


def equilibria_of(games: Any, payments: Any = None, *, caps: Any = None) -> EquilibriumBatch:
    """Return the equilibria under many payment vectors of one game, or of many games, each checked like a single one.

    Rows are worked through in compiled code on all cores. Every row equals what
    :meth:`stackfu.StackelbergGame.equilibrium` returns for it.

    Parameters
    ----------
    games : StackelbergGame or sequence of StackelbergGame
        One game for all rows of ``payments``, or a game for each.
    payments : array_like, optional
        A payment vector per row: a matrix with a column per client, a table with clients as columns, or a list with
        rows that may be dictionaries. Without payments, several games are required.
    caps : array_like, optional
        Largest shares of their data that are taken from the clients: one vector for all rows, or a row for each.

    Returns
    -------
    EquilibriumBatch
        Arrays with a row for each payment vector; ``batch[i]`` is the :class:`~stackfu.Equilibrium` of row i.

    Raises
    ------
    InputError
        If a row is not acceptable; the error names the row and the client.

    Examples
    --------
    >>> import stackfu as sf
    >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(3)), [1, 2, 1], costs=[1.0, 1.0, 1.0])
    >>> batch = sf.equilibria_of(game, np.linspace(0.0, 1.0, 5)[:, None] * game.costs)
    >>> batch
    EquilibriumBatch(5 rows, 5 CERTIFIED, 5 UNIQUE)
    >>> batch.totals.round(3)
    array([0.417, 0.557, 0.835, 1.   , 1.   ])
    >>> sf.equilibria_of(game, [[0.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    Traceback (most recent call last):
    stackfu.errors.InputError: payments[row 1][client 1] = -1.0: must not be negative
    """
    began = time.perf_counter()
    if isinstance(games, GameModel):
        rows = _matrix(games, payments, "payments")
        most = None if caps is None else _matrix(games, caps, "caps", len(rows))
        return _of_one(games, rows, most, began)
    several = _games(games)
    count = len(several)
    given = _per_game(several, payments, "payments")
    limits = _per_game(several, caps, "caps")
    parts: list[EquilibriumBatch] = []
    for i in range(count):
        game = several[i]
        own = game.no_payments[None, :] if given is None else _matrix(game, given[i], "payments", row=i)
        most = None if limits is None else _matrix(game, limits[i], "caps", row=i)
        parts.append(_of_one(game, own, most, began))
    return _together(several, parts, began)


def _games(games: Any) -> tuple[GameModel, ...]:
    several = tuple(games) if isinstance(games, Sequence) else ()
    if not several:
        raise InputError("games", "must be a game or a list of games", value=type(games).__name__)
    for i, game in enumerate(several):
        if not isinstance(game, GameModel):
            raise InputError(f"games[{i}]", "must be a game", value=type(game).__name__)
    return several


def _per_game(games: tuple[GameModel, ...], values: Any, name: str) -> list[Any] | None:
    """Return one vector per game, None where nothing was given."""
    if values is None:
        return None
    if isinstance(values, (str, bytes, dict)) or not hasattr(values, "__len__") or len(values) != len(games):
        raise InputError(name, f"must have a row for each of the {len(games)} games")
    return [values[i] for i in range(len(games))]


def _matrix(
    game: GameModel, values: Any, name: str, count: int | None = None, row: int | None = None
) -> Array:
    """Return a row of checked numbers for every payment vector (of caps: one may stand for ``count`` rows), or name the bad one."""
    if values is None:
        raise InputError(
            name, "must have a row for each payment vector; a single game has an equilibrium() of its own"
        )
    named = rows_by_name(values, name, game.client_names, 1.0 if name == "caps" else 0.0)
    if isinstance(named, list) and not any(isinstance(v, (int, float, np.generic)) for v in named):
        for i, one in enumerate(named):
            if len(np.shape(one)) == 1 and len(one) != game.count:
                raise InputError(_row(name, i), f"needs {game.count} numbers ({game.count} clients remain)")
    matrix = numbers(named, name, "must have a row of numbers for each payment vector")
    if row is not None or (name == "caps" and matrix.ndim == 1):
        matrix = matrix[None, :] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or matrix.shape[1] != game.count or not len(matrix):
        raise InputError(
            name,
            f"needs rows of {game.count} numbers ({game.count} clients remain), got shape {matrix.shape}",
        )
    if row is not None and len(matrix) != 1:
        raise InputError(_row(name, row), f"needs {game.count} numbers, got shape {matrix.shape}")
    if count is not None and len(matrix) not in (1, count):
        raise InputError(name, f"needs one row or {count}, as payments has, got {len(matrix)}")
    limits = (0.0, 1.0, "must lie in [0, 1]") if name == "caps" else (0.0, np.inf, "must not be negative")
    for wrong, problem in (
        (~np.isfinite(matrix), "must be finite"),
        ((matrix < limits[0]) | (matrix > limits[1]), limits[2]),
    ):
        if wrong.any():
            i, k = map(int, np.argwhere(wrong)[0])
            where = _row(name, i if row is None else row)
            raise InputError(where, problem, client=game.label(k), value=matrix[i, k])
    if name == "caps" and not matrix.any(axis=1).all():
        i = int(np.argmin(matrix.any(axis=1)))
        raise InputError(_row(name, i if row is None else row), "nothing is taken from anybody", value="0")
    return frozen(np.array(matrix))


def _row(name: str, row: int) -> str:
    return f"{name}[row {row}]"


def _of_one(game: GameModel, payments: Array, caps: Array | None, began: float) -> EquilibriumBatch:
    count = len(payments)
    profiles = np.full((count, game.count), np.nan)
    residuals, regrets = np.full(count, np.nan), np.full(count, np.nan)
    statuses, words = [Status.FAILED] * count, [Uniqueness.UNKNOWN] * count
    counts, pieces = np.zeros(count), np.zeros(count)
    others: dict[int, Equilibrium | StackfuError] = {}
    binding = None if caps is None or caps.min() >= 1.0 else caps
    found = None
    if binding is None or binding.min() > 0.0:
        with np.errstate(all="ignore"):
            found = settle_at_once(game, payments, binding)
    accepted = np.zeros(count, dtype=bool) if found is None else found.accepted
    if found is not None:
        profiles[accepted] = found.profiles[accepted]
        for column, name in enumerate((counts, pieces, residuals, regrets), start=1):
            name[accepted] = found.columns[accepted, column]
        for i in np.flatnonzero(accepted).tolist():
            statuses[i] = Status.CERTIFIED
            words[i] = Uniqueness.MULTIPLE if counts[i] > 1.0 else Uniqueness.UNIQUE
    for i in np.flatnonzero(~accepted).tolist():
        most = None if caps is None else frozen(caps[min(i, len(caps) - 1)])
        try:
            others[i] = one = find_equilibrium(game, frozen(payments[i]), caps=most)
        except NoEquilibriumError as error:
            others[i], statuses[i] = error, Status.NO_EQUILIBRIUM
        except ConvergenceError as error:
            others[i] = error
        else:
            statuses[i], words[i] = one.status, one.uniqueness
            profiles[i], residuals[i], regrets[i] = one.participation, one.residual, one.regret
    return EquilibriumBatch(
        games=(game,),
        payments=payments,
        participation=frozen(profiles),
        statuses=tuple(statuses),
        uniqueness=tuple(words),
        residuals=frozen(residuals),
        regrets=frozen(regrets),
        counts=frozen(counts),
        pieces=frozen(pieces),
        caps=() if caps is None else tuple(map(frozen, caps)),
        seconds=time.perf_counter() - began,
        others=others,
    )


def _together(games: tuple[GameModel, ...], parts: list[EquilibriumBatch], began: float) -> EquilibriumBatch:
    """Return the batch of several games, each of a single row."""
    payments, profiles = [part.payments[0] for part in parts], [part.participation[0] for part in parts]
    alike = len({game.count for game in games}) == 1

    def column(name: str) -> Array:
        return frozen(np.concatenate([getattr(part, name) for part in parts]))

    return EquilibriumBatch(
        games=games,
        payments=frozen(np.array(payments)) if alike else tuple(payments),
        participation=frozen(np.array(profiles)) if alike else tuple(profiles),
        statuses=tuple(part.statuses[0] for part in parts),
        uniqueness=tuple(part.uniqueness[0] for part in parts),
        residuals=column("residuals"),
        regrets=column("regrets"),
        counts=column("counts"),
        pieces=column("pieces"),
        caps=tuple(part.caps[0] for part in parts) if parts[0].caps else (),
        seconds=time.perf_counter() - began,
        others={i: part.others[0] for i, part in enumerate(parts) if 0 in part.others},
    )
