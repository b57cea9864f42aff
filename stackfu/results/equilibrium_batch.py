"""Equilibria under many payment vectors, as arrays with a row for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..errors import InputError, StackfuError
from ..html import data_frame
from ..model import Array, GameModel, frozen
from ..model.content import Content
from .equilibrium import Equilibrium, equilibrium_on_path
from .status import Status, Uniqueness

__all__ = ["EquilibriumBatch"]


@dataclass(frozen=True, eq=False)
class EquilibriumBatch(Content):
    """Equilibria under many payment vectors, or of many games: arrays with a row for each, and single equilibria on demand.

    Where there are several equilibria a row holds the one with the largest total participation, as
    :meth:`stackfu.StackelbergGame.equilibrium` returns it. A row without an equilibrium has the status
    ``NO_EQUILIBRIUM`` (``FAILED`` if the search ended with an error) and numbers that are NaN; ``batch[i]`` then raises the error.

    Attributes
    ----------
    games : tuple of StackelbergGame
        The game of every row; one game stands for all rows.
    payments : numpy.ndarray or tuple of numpy.ndarray
        Payments of every row. A tuple if the games have different numbers of clients.
    participation : numpy.ndarray or tuple of numpy.ndarray
        Participation of every row, of the same shape.
    statuses : tuple of Status
        How the search ended in every row.
    uniqueness : tuple of Uniqueness
        How many equilibria there are in every row.
    residuals, regrets : numpy.ndarray
        Largest violation of an equilibrium condition, and largest gain of a client from deviating, in every row.
    counts, pieces : numpy.ndarray
        Number of equilibria, and of pieces of the path that they were found along; 0 in rows that were not settled along the path.
    caps : tuple
        Largest shares that are taken from the clients: nothing, one vector for all rows, or one for each.
    seconds : float
        Seconds that all rows took together.

    Examples
    --------
    >>> import numpy as np, stackfu as sf
    >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [1, 1], costs=[1.0, 1.0])
    >>> batch = sf.equilibria_of(game, [[0.0, 0.0], [0.5, 0.0], [1.0, 1.0]])
    >>> batch.participation.round(3)
    array([[0.5  , 0.5  ],
           [0.804, 0.569],
           [1.   , 1.   ]])
    >>> batch.totals.round(3), batch[1].status.name
    (array([0.5  , 0.686, 1.   ]), 'CERTIFIED')
    """

    games: tuple[GameModel, ...]
    payments: Any
    participation: Any
    statuses: tuple[Status, ...]
    uniqueness: tuple[Uniqueness, ...]
    residuals: Array
    regrets: Array
    counts: Array
    pieces: Array
    caps: tuple[Array, ...] = ()
    seconds: float = 0.0
    #: Equilibria and errors of the rows that were looked at one by one.
    others: Mapping[int, Equilibrium | StackfuError] = field(repr=False, default_factory=dict)

    _not_compared: ClassVar[frozenset[str]] = Content._not_compared | {"others"}

    def game(self, row: int) -> GameModel:
        """Return the game of a row."""
        return self.games[0] if len(self.games) == 1 else self.games[row]

    @property
    def proved(self) -> Any:
        """Return an array that is True for rows with the status ``CERTIFIED``."""
        return np.array([status.proved for status in self.statuses], dtype=bool)

    @cached_property
    def totals(self) -> Array:
        """Return the total participation of every row, the share of the remaining data that takes part."""
        return self._each(lambda game, p, x: np.array([float((game.alpha * row).sum()) for row in x]))

    @cached_property
    def spends(self) -> Array:
        """Return what the server pays in every row."""
        return self._each(lambda game, p, x: np.array([float(a @ b) for a, b in zip(p, x, strict=True)]))

    @cached_property
    def server_losses(self) -> Array:
        """Return the server's loss of every row."""
        return self._each(lambda game, p, x: game.server_losses(x))

    def _each(self, value: Callable[[GameModel, Any, Any], Array]) -> Array:
        """Return a value of every row, computed for all rows of a game at once; NaN where there is no equilibrium."""
        out = np.full(len(self), np.nan)
        there = np.isfinite(self.regrets)
        if len(self.games) == 1:
            if there.any():
                out[there] = value(self.games[0], self.payments[there], self.participation[there])
        else:
            for i in np.flatnonzero(there):
                rows = np.array([self.payments[i]]), np.array([self.participation[i]])
                out[i] = value(self.games[i], *rows)[0]
        return frozen(out)

    def __len__(self) -> int:
        return len(self.statuses)

    def __getitem__(self, row: int) -> Equilibrium:
        """Return the equilibrium of a row; raises the error where there is none."""
        if isinstance(row, bool) or not isinstance(row, (int, np.integer)):
            raise InputError("row", "must be the number of a row", value=repr(row))
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        i = int(row) % len(self)
        one = self.others.get(i)
        if isinstance(one, StackfuError):
            raise type(one)(f"row {i}: {one}") from one
        if isinstance(one, Equilibrium):
            return one
        caps = None if not self.caps else self.caps[min(i, len(self.caps) - 1)]
        return equilibrium_on_path(
            self.game(i),
            frozen(self.payments[i]),
            frozen(self.participation[i]),
            count=int(self.counts[i]),
            pieces=int(self.pieces[i]),
            residual=float(self.residuals[i]),
            regret=float(self.regrets[i]),
            seconds=self.seconds / len(self),
            caps=None if caps is None or caps.min() >= 1.0 else caps,
        )

    def __iter__(self) -> Iterator[Equilibrium]:
        return (self[i] for i in range(len(self)))

    def to_pandas(self) -> Any:
        """Return a DataFrame with a line per row: status, uniqueness, total, spend, loss, residual and regret (needs pandas)."""
        return data_frame(
            {
                "status": [status.name for status in self.statuses],
                "uniqueness": [word.name for word in self.uniqueness],
                "total": self.totals,
                "spend": self.spends,
                "server_loss": self.server_losses,
                "residual": self.residuals,
                "regret": self.regrets,
            },
            list(range(len(self))),
        )

    def __repr__(self) -> str:
        proved = sum(status.proved for status in self.statuses)
        unique = sum(word is Uniqueness.UNIQUE for word in self.uniqueness)
        return f"EquilibriumBatch({len(self)} rows, {proved} CERTIFIED, {unique} UNIQUE)"
