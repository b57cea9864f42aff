"""Samples from a table with a client column: ``.npz``, ``.csv`` (commas, semicolons or tabs), ``.tsv`` or ``.parquet``."""

from __future__ import annotations

import csv
import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..embedding.clients import warn_of_odd_clients
from ..embedding.missing_values import SPELLED, gap_problem
from ..embedding.names import check_names, natural_order
from ..errors import FileFormatError, InputError

__all__ = ["TABLES", "ClientSamples", "read_columns", "read_samples"]

#: Endings of the files that are read as tables.
TABLES = (".npz", ".csv", ".tsv", ".parquet")


@dataclass(frozen=True, eq=False)
class ClientSamples:
    """One array per client, what each client is called in the file, in ascending order, and labels if they were asked for."""

    names: tuple[str, ...]
    samples: tuple[npt.NDArray[Any], ...]
    labels: tuple[npt.NDArray[Any], ...] | None = None
    #: Names of the coordinates in the file.
    coordinates: tuple[str, ...] = ()
    #: The one number of each client in the columns that hold such.
    numbers: dict[str, dict[str, float]] = field(default_factory=dict)


def read_samples(
    path: Path,
    client: str = "client",
    drop: Sequence[str] = (),
    labels: str | None = None,
    *,
    labels_only: bool = False,
    gaps: bool = False,
    of_clients: Mapping[str, str] | None = None,
) -> ClientSamples:
    """Read a table and split its rows by client; the columns that are neither labels nor dropped are coordinates.

    Parameters
    ----------
    path
        The table.
    client, drop, labels
        The column of the clients, those to leave out, and that of the labels.
    labels_only
        Whether there are no coordinates.
    gaps
        Whether coordinates may be missing; they are NaN then.
    of_clients
        Columns that hold one number per client, by the arguments they are for (``{"costs": "fee"}``); they are no coordinates.
    """
    of_clients = of_clients or {}
    columns = read_columns(path, "samples")
    if client not in columns:
        raise InputError(
            "client", f"{_told(path)} has no such column; it has {', '.join(columns)}", value=repr(client)
        )
    asked = [("drop", name) for name in drop] + ([] if labels is None else [("labels", labels)])
    for argument, name in [*asked, *of_clients.items()]:
        if name not in columns:
            raise InputError(
                argument, f"{_told(path)} has no such column; it has {', '.join(columns)}", value=repr(name)
            )
    if labels == client:
        raise InputError("labels", "this column says whose sample it is", value=repr(labels))
    for argument, name in of_clients.items():
        if name == client:
            raise InputError(argument, "this column says whose sample it is", value=repr(name))
    apart = (client, labels, *drop, *of_clients.values())
    coordinates = [] if labels_only else [name for name in columns if name not in apart]
    if not (coordinates or labels_only):
        raise InputError("samples", f"{_told(path)} has no column of samples besides the client column")
    rows = len(columns[client])
    blocks = [_numeric(path, name, columns[name], rows) for name in coordinates]
    table = np.concatenate(blocks, axis=1) if blocks else np.empty((rows, 0))
    _refuse_what_is_not_finite(path, table, coordinates, blocks, gaps)
    names, owner = _owners(path, columns[client], client)
    warn_of_odd_clients(client, len(names), rows)
    order = np.argsort(owner, kind="stable")
    cuts = np.searchsorted(owner[order], np.arange(1, len(names)))
    marks = None
    if labels is not None:
        marks = tuple(np.split(_labels(path, labels, columns[labels], rows)[order], cuts))
    called = tuple(
        name if block.shape[1] == 1 else f"{name}[{i}]"
        for name, block in zip(coordinates, blocks, strict=True)
        for i in range(block.shape[1])
    )
    numbers = {
        argument: _one_each(path, argument, name, columns[name], names, owner)
        for argument, name in of_clients.items()
    }
    return ClientSamples(names, tuple(np.split(table[order], cuts)), marks, called, numbers)


def _one_each(
    path: Path,
    argument: str,
    name: str,
    column: npt.NDArray[Any],
    names: tuple[str, ...],
    owner: npt.NDArray[np.intp],
) -> dict[str, float]:
    """Return the number that all rows of a client agree on, by client; rows in which it is missing say nothing."""
    values = _numeric(path, name, column, len(owner), argument)
    if values.shape[1] != 1:
        raise InputError(argument, f"column {name!r} must hold one number per row", value=values.shape[1:])
    found = {}
    for k, client in enumerate(names):
        said = np.unique(values[owner == k, 0])
        said = said[~np.isnan(said)] if said.dtype.kind == "f" else said
        if len(said) == 0:
            raise InputError(
                argument, f"{_told(path)}: column {name!r} has no number in any row", client=client
            )
        if len(said) > 1:
            raise InputError(
                argument,
                f"{_told(path)}: column {name!r} must hold one number per client, and rows of this one differ",
                client=client,
                value=f"{said[0]:g} and {said[1]:g}",
            )
        found[client] = float(said[0])
    return found


def _refuse_what_is_not_finite(
    path: Path,
    table: npt.NDArray[Any],
    coordinates: Sequence[str],
    blocks: Sequence[npt.NDArray[Any]],
    gaps: bool,
) -> None:
    if table.dtype.kind != "f" or np.isfinite(table).all():
        return
    called = [name for name, block in zip(coordinates, blocks, strict=True) for _ in range(block.shape[1])]
    if np.isinf(table).any():
        row, place = np.argwhere(np.isinf(table))[0]
        raise InputError(
            "samples",
            f"{_told(path)}: row {row + 1} of column {called[place]!r} is not a finite number",
            value=table[row, place],
        )
    if not gaps:
        raise InputError("samples", f"{_told(path)}: {gap_problem(np.isnan(table), called)}")


def read_columns(path: Path, argument: str) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of a table by name; ``-`` is a ``.csv`` table on standard input."""
    if str(path) == "-":
        return _table(sys.stdin.buffer.read(), "standard input")
    readers = {".npz": _npz, ".csv": _csv, ".tsv": _csv, ".parquet": _parquet}
    if path.suffix not in TABLES:
        raise InputError(argument, "must end in .npz, .csv, .tsv or .parquet", value=str(path))
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    return readers[path.suffix](path)


def _labels(path: Path, name: str, column: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """Return one label per row: whole numbers also where a text file spells them, else strings."""
    if column.shape != (rows,):
        raise InputError(
            "labels", f"column {name!r} must hold one label per row ({rows}), not shape {column.shape}"
        )
    if column.dtype == object:
        missing = np.array([value is None or value != value for value in column.tolist()])
    elif column.dtype.kind == "U":
        missing = np.char.strip(column) == ""
    else:
        missing = np.isnan(column) if column.dtype.kind == "f" else np.zeros(rows, dtype=bool)
    if missing.any():
        raise InputError(
            "labels", f"{_told(path)}: column {name!r} has no label in row {int(missing.argmax()) + 1}"
        )
    return _whole_numbers(column)


def _owners(
    path: Path, column: npt.NDArray[Any], client: str
) -> tuple[tuple[str, ...], npt.NDArray[np.intp]]:
    if column.ndim != 1:
        raise InputError(
            "client", f"column {client!r} must hold one entry per row, not shape {column.shape[1:]}"
        )
    entries: list[Any] = column.tolist()
    nameless = [i for i, name in enumerate(entries) if name != name or str(name).strip().lower() in SPELLED]
    if nameless:
        raise InputError("client", f"{_told(path)}: column {client!r} has no client in row {nameless[0] + 1}")
    # of floats every value is named, or refused, by itself
    values, owner = np.unique(
        column if column.dtype.kind == "f" else _whole_numbers(column), return_inverse=True
    )
    order = natural_order(values.tolist())
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    return check_names([values[i] for i in order], None, "client"), place[owner]


def _whole_numbers(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The column as whole numbers if it is made of them (2 comes before 10 also where a text file spells them), else as it is."""
    try:
        numbers = column.astype(np.int64)
        if np.array_equal(numbers.astype(column.dtype), column):
            return numbers
    except (ValueError, TypeError, OverflowError):
        pass
    return column.astype(str) if column.dtype == object else column


def _numeric(
    path: Path, name: str, column: npt.NDArray[Any], rows: int, argument: str = "samples"
) -> npt.NDArray[Any]:
    """Return a column as numbers, one row per row of the table; what is missing is NaN."""
    if len(column) != rows:
        raise InputError(argument, f"column {name!r} has {len(column)} rows, the client column has {rows}")
    try:
        values = column if column.dtype.kind in "fiub" else _with_gaps(column).astype(np.float64)
    except (ValueError, TypeError):
        cells = column.reshape(rows, -1)
        wrong = [(i, value) for i, values in enumerate(cells) for value in values if not _is_number(value)]
        # next to a word, 1,5 would have been read as a number
        row, bad = next((one for one in wrong if not _DECIMAL_COMMA.fullmatch(str(one[1]).strip())), wrong[0])
        mend = f"mend it, or leave the column out with --drop {name}" if argument == "samples" else "mend it"
        raise InputError(
            argument,
            f"{_told(path)}: row {row + 1} of column {name!r} is not a number; {mend}",
            value=repr(bad.item() if isinstance(bad, np.generic) else bad),
        ) from None
    return values.reshape(rows, -1)


def _with_gaps(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the column with NaN in place of the words that stand for a missing value."""
    if column.dtype.kind == "U":
        empty = np.isin(np.char.lower(np.char.strip(column)), list(SPELLED))
    elif column.dtype.kind == "O" and column.ndim == 1:
        empty = np.array([v is None or (isinstance(v, str) and v.strip().lower() in SPELLED) for v in column])
    else:
        return column
    return np.where(empty, "nan", column) if empty.any() else column


def _told(path: Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return value is None or str(value).strip().lower() in SPELLED
    return True


def _npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            columns = {name: stored[name] for name in stored.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise FileFormatError(f"{path}: not a readable .npz file ({error})") from error
    for name, column in columns.items():
        if column.ndim == 0:
            raise FileFormatError(f"{path}: {name!r} is a single number, not an array with a row per sample")
    return {
        name: np.char.decode(column) if column.dtype.kind == "S" else column
        for name, column in columns.items()
    }


def _csv(path: Path) -> dict[str, npt.NDArray[Any]]:
    return _table(path.read_bytes(), str(path))


def _table(content: bytes, path: str) -> dict[str, npt.NDArray[Any]]:
    """Columns of text; whatever cuts the header into most fields, comma, semicolon or tab, cuts the rows."""
    try:
        text = content.decode("utf-8-sig")
        lines = text.splitlines(keepends=True)
        cuts = {mark: len(next(csv.reader(lines[:1], delimiter=mark), [])) for mark in ",;\t"}
        mark = max(cuts, key=lambda m: cuts[m])  # the first of equals: a comma
        reader = csv.reader(lines, delimiter=mark)
        header = next(reader, None)
        if not header:
            raise FileFormatError(f"{path}: empty; the first line must name the columns")
        if len(set(header)) != len(header):
            raise FileFormatError(f"{path}: two columns have the same name")
        rows: list[list[str]] = []
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise FileFormatError(
                    f"{path}: row {len(rows) + 1} (line {reader.line_num}) has {len(row)} fields, the header has {len(header)}"
                )
            rows.append(row)
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"{path}: not a readable .csv file ({error})") from error
    if not rows:
        raise FileFormatError(f"{path}: no rows below the header")
    table = np.array(rows, dtype=str)
    columns = {name: table[:, i] for i, name in enumerate(header)}
    return columns if mark == "," else {name: _with_points(column) for name, column in columns.items()}


def _with_points(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the column with decimal points; where a comma does not cut columns, 0,5 is a half if all of the column reads so."""
    cells = [cell for cell in column.tolist() if cell.strip().lower() not in SPELLED]
    if any("," in cell for cell in cells) and all(_DECIMAL_COMMA.fullmatch(cell.strip()) for cell in cells):
        return np.char.replace(column, ",", ".")
    return column


#: A number with at most one comma and no point.
_DECIMAL_COMMA = re.compile(r"[-+]?\d+(,\d+)?([eE][-+]?\d+)?")


def _parquet(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "samples", "parquet files need pyarrow; install it with: pip install 'stackfu[tables]'"
        ) from None
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise FileFormatError(f"{path}: not a readable .parquet file ({error})") from error
    return {name: _rectangular(path, name, table[name]) for name in table.column_names}


def _rectangular(path: Path, name: str, column: Any) -> npt.NDArray[Any]:
    """Return a column of numbers or text, or of equally long lists (feature vectors), as an array."""
    values = column.to_numpy()
    if values.dtype == object and len(values) and isinstance(values[0], np.ndarray):
        if len({len(value) for value in values}) > 1:
            raise FileFormatError(f"{path}: the lists in column {name!r} differ in length")
        values = np.stack(values)
    return np.asarray(values)
