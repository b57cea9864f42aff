"""Results by client name and as tables: ``solution["York"]``, ``payments_by_name``, dictionaries, CSV and Excel files."""

from __future__ import annotations

import io
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic import write_atomically
from ..embedding.names import Position
from ..errors import InputError
from ..html import in_currency
from ..model import Array, GameModel

__all__ = ["ByClient", "ClientRecord", "Tables", "plain", "write_csv", "write_excel"]


@dataclass(frozen=True)
class ClientRecord:
    """One client in a result.

    ``samples`` are those that it brings, its size times its participation; ``receives`` is what it is paid at that participation,
    a retainer included; ``cap`` is the largest share that is taken of its data (None: everything).
    """

    name: str
    number: int
    size: float
    cost: float
    payment: float
    participation: float
    samples: float
    receives: float
    utility: float
    cap: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record as a dictionary."""
        return asdict(self)


class Tables:
    """Base of results with ``summary()`` and ``to_pandas()``: dictionaries, CSV and Excel files of them."""

    __slots__ = ()

    def summary(self) -> Any:
        """Return the result as plain values and arrays."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Return the result as a table."""
        raise NotImplementedError

    def to_dict(self) -> Any:
        """Return :meth:`summary` with lists in place of arrays: numbers, text, lists and dictionaries only.

        Examples
        --------
        >>> from stackfu.demo import digits_game
        >>> digits_game().equilibrium().to_dict()["names"][:2]
        ['3', '4']
        """
        return plain(self.summary())

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table of :meth:`to_pandas` to a CSV file; the file is complete or not there (needs pandas).

        Raises
        ------
        InputError
            If pandas is not installed, or the path is no file name.
        """
        write_csv(self.to_pandas(), path)

    def to_excel(self, path: str | os.PathLike[str]) -> None:
        """Write the table of :meth:`to_pandas` to an Excel file; the file is complete or not there (needs pandas and openpyxl).

        Raises
        ------
        InputError
            If pandas or openpyxl is not installed, or the path does not end in .xlsx.
        """
        write_excel(self.to_pandas(), path)


def write_csv(frame: Any, path: str | os.PathLike[str]) -> None:
    """Write a table to a CSV file; headings of amounts of money name the currency."""
    write_atomically(_target(path), _in_its_currency(frame).to_csv(lineterminator="\n").encode())


def write_excel(frame: Any, path: str | os.PathLike[str]) -> None:
    """Write a table to an Excel file; headings of amounts of money name the currency."""
    target = _target(path)
    if target.suffix != ".xlsx":
        raise InputError("path", "must end in .xlsx", value=str(target))
    content = io.BytesIO()
    try:
        import pandas

        with pandas.ExcelWriter(content, engine="openpyxl") as writer:
            _in_its_currency(frame).to_excel(writer)
            for row in writer.book.active.iter_rows():
                for cell in row:
                    if cell.data_type == "f":
                        cell.data_type = "s"  # a name that begins with "=" is text, not a formula
    except ModuleNotFoundError as error:
        raise InputError(str(error.name), f"is not installed; pip install {error.name}") from None
    write_atomically(target, content.getvalue())


def _in_its_currency(frame: Any) -> Any:
    currency = frame.attrs.get("currency")
    return frame.rename(columns=lambda heading: in_currency(str(heading), currency))


def _target(path: Any) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise InputError("path", "must be a file name", value=repr(path))
    return Path(path)


class ByClient(Tables):
    """Base of results with one payment and one participation per remaining client: access by name.

    Clients without names are named by their numbers.
    """

    __slots__ = ()
    game: GameModel
    payments: Array

    def __getitem__(self, client: Any) -> ClientRecord:
        """Return the record of a remaining client, by its name (by its number where clients have no names).

        Examples
        --------
        >>> from stackfu.demo import digits_game
        >>> record = digits_game().equilibrium({"4": 0.01})["4"]
        >>> record.name, record.payment, record.cap
        ('4', 0.01, None)
        """
        return self._record(self.game.client_names.position(client, "client", remaining=True))

    #: A result is no sequence of clients: ``result.clients`` is one.
    __iter__ = None

    def __contains__(self, client: object) -> bool:
        try:
            self.game.client_names.position(client, "client", remaining=True)
        except InputError:
            return False
        return True

    @property
    def clients(self) -> tuple[ClientRecord, ...]:
        """Records of all remaining clients, in their order."""
        return tuple(self._record(Position(number)) for number in self.game.remaining)

    @property
    def payments_by_name(self) -> dict[str, float]:
        """Payment per unit of every remaining client, by name."""
        return dict(zip(self.game.names, map(float, self.payments), strict=True))

    def _posted(self) -> tuple[Array, Array, Array, Array | None]:
        """Participation, what is received, utilities and caps of all remaining clients."""
        raise NotImplementedError

    def _record(self, number: Position) -> ClientRecord:
        game, k = self.game, int(np.searchsorted(self.game.remaining, number))
        x, receives, utilities, caps = self._posted()
        size = float(game.all_sizes[number])
        return ClientRecord(
            name=game.called(number),
            number=number,
            size=size,
            cost=float(game.costs[k]),
            payment=float(self.payments[k]),
            participation=float(x[k]),
            samples=size * float(x[k]),
            receives=float(receives[k]),
            utility=float(utilities[k]),
            cap=None if caps is None else float(caps[k]),
        )


def plain(value: Any) -> Any:
    """Return a value with lists in place of arrays and Python's numbers in place of NumPy's."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
