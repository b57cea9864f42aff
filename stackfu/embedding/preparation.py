"""Samples made ready for a kernel: gaps left out or filled, columns brought to one scale, with a count of all that changed.

A gap is a missing value: NaN in an array, an empty cell in a table. Gaps come first, scales second.

Standardising subtracts a column's mean and divides by its standard deviation, both over all rows of all clients, those who ask
to be forgotten included: the original and the new model are compared in one unit, so it is that of the original federation. Two
things follow. Where rows stay with the clients, each has to reveal the count, sum and sum of squares of every column (or add
them up with the others under secure aggregation). And the unit itself still depends on the forgotten rows; to remove that trace
too, prepare the samples of those who remain again before the new model is trained.

Medians are a client's own: filling gaps reveals nothing to others, and does not draw the client towards them. Only where a
client has no value at all in a column is the median of all clients' values taken, in which it then looks like an average client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stackfu.embedding.clients import check_samples, column_names, split_by_client
from stackfu.embedding.samples import Names, is_tensor
from stackfu.errors import InputError

__all__ = ["Missing", "PreparedSamples", "check_missing", "prepare", "prepare_samples"]

Missing = Literal["refuse", "drop", "median"]
#: A larger ratio of two columns' spreads leads to a warning: the kernel hardly sees the smaller one.
WILD = 100.0
#: Clients that lose more than this part of their rows, and columns of which more than this part is filled, are pointed out.
MUCH = 0.5
#: Most clients or columns that a sentence lists.
LISTED = 6


@dataclass(frozen=True, eq=False)
class PreparedSamples:
    """Samples without gaps, as :func:`prepare_samples` returns them; :meth:`MeanEmbeddings.from_samples` takes them as samples.

    Attributes
    ----------
    samples
        One array per client.
    labels
        One label per remaining row, per client; None where there were none.
    names
        What the clients are called; None where they came without names.
    columns
        What the columns are called; empty where they came without names.
    rows
        Number of rows per client before any was left out.
    dropped
        Number of rows per client that were left out.
    filled
        Number of gaps that were filled, one row per client and one column per column.
    borrowed
        Where the median of all clients had to be taken, in the shape of ``filled``.
    centres, units
        What was subtracted from every column, and what it was divided by; None where nothing was standardised.
    """

    samples: tuple[NDArray[Any], ...]
    labels: tuple[NDArray[Any], ...] | None
    names: Names | None
    columns: tuple[str, ...]
    rows: tuple[int, ...]
    dropped: tuple[int, ...]
    filled: NDArray[np.intp]
    borrowed: NDArray[np.bool_]
    centres: NDArray[np.float64] | None = None
    units: NDArray[np.float64] | None = None

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of rows that each client has now."""
        return tuple(len(one) for one in self.samples)

    @property
    def changed(self) -> bool:
        """True if rows were left out or gaps were filled."""
        return any(self.dropped) or bool(self.filled.any())

    def _client(self, k: int) -> str:
        return str(k) if self.names is None else self.names[k]

    def _column(self, j: int) -> str:
        return self.columns[j] if self.columns else str(j)

    def summary(self) -> dict[str, Any]:
        """Return the counts as plain values: in all, per client, and of filled gaps per column."""
        return {
            "rows": sum(self.rows),
            "dropped": sum(self.dropped),
            "filled": int(self.filled.sum()),
            "per_client": {
                self._client(k): {
                    "rows": self.rows[k],
                    "dropped": self.dropped[k],
                    "filled": int(self.filled[k].sum()),
                }
                for k in range(len(self.samples))
            },
            "filled_per_column": {
                self._column(j): int(n) for j, n in enumerate(self.filled.sum(axis=0)) if n
            },
            "standardised": self.units is not None,
        }

    def to_pandas(self) -> Any:
        """Return a DataFrame with one row per client: rows, rows left out, gaps filled in every column (needs pandas)."""
        from stackfu.html import data_frame

        columns: dict[str, Any] = {"rows": self.rows, "dropped": self.dropped}
        for j in range(self.filled.shape[1]):
            columns[f"filled {self._column(j)}"] = self.filled[:, j]
        return data_frame(columns, [self._client(k) for k in range(len(self.samples))])

    def __str__(self) -> str:
        said = []
        if any(self.dropped):
            worst = _largest(
                self.dropped, [f"{self._client(k)} {d} of {self.rows[k]}" for k, d in enumerate(self.dropped)]
            )
            said.append(f"{sum(self.dropped)} of {sum(self.rows)} rows with gaps were left out ({worst})")
        if self.filled.any():
            clients, columns = self.filled.sum(axis=1), self.filled.sum(axis=0)
            cells = sum(self.rows) * self.filled.shape[1]
            said.append(
                f"{int(clients.sum())} of {cells} cells were filled with medians (by client: "
                f"{_largest(clients, [f'{self._client(k)} {n}' for k, n in enumerate(clients)])}; by column: "
                f"{_largest(columns, [f'{self._column(j)} {n}' for j, n in enumerate(columns)])})"
            )
        if self.units is not None:
            said.append("columns are in units of their standard deviation over all clients")
        return "; ".join(said) or "nothing was changed"

    @property
    def doubts(self) -> tuple[str, ...]:
        """Sentences about likely mistakes: clients that lose most of their rows, mostly missing columns, scales far apart."""
        found = []
        lost = [k for k, n in enumerate(self.dropped) if n > MUCH * self.rows[k]]
        if lost:
            told = _some([f"{self._client(k)} {self.dropped[k]} of {self.rows[k]}" for k in lost])
            found.append(f'missing="drop" leaves out most rows of some clients: {told}')
        guessed = np.flatnonzero(self.filled.sum(axis=0) > MUCH * sum(self.rows))
        if len(guessed):
            where = _some([repr(self._column(int(j))) for j in guessed])
            found.append(f"more than half of the values in column {where} were missing, and are medians now")
        if self.borrowed.any():
            who = [k for k in range(len(self.samples)) if self.borrowed[k].any()]
            told = _some([f"{self._client(k)} in {_columns(int(self.borrowed[k].sum()))}" for k in who])
            found.append(f"no value of their own, and so the median of all clients: {told}")
        if self.units is None and self.columns:
            found += _uneven(self.samples, self.columns)
        return tuple(found)


def prepare_samples(
    samples: Any,
    *,
    labels: Any = None,
    client: str = "client",
    names: Sequence[Any] | None = None,
    missing: Missing = "refuse",
    standardise: bool = False,
) -> PreparedSamples:
    """Return the samples without gaps and, if asked for, on one scale, with counts of what was changed.

    Parameters
    ----------
    samples, labels, client, names
        As for :meth:`MeanEmbeddings.from_samples`: a sequence with an array per client, a dictionary, or a DataFrame.
    missing
        What is done about gaps: ``"refuse"`` raises an error, ``"drop"`` leaves out the rows that have any, ``"median"`` fills
        them with the median of the client's own values in the column (of all clients' where it has none).
    standardise
        Subtract every column's mean and divide by its standard deviation, over all rows of all clients, those to be
        forgotten included. A constant column becomes 0.

    Returns
    -------
    PreparedSamples
        Input for :meth:`MeanEmbeddings.from_samples`; printed, it gives the number of changed rows and cells by client.

    Raises
    ------
    InputError
        If there are gaps and ``missing`` is ``"refuse"``, if no row of a client is without gaps, or no value of a column is there.

    Examples
    --------
    >>> import numpy as np
    >>> nan = np.nan
    >>> wards = {"Leeds": [[1.0, nan], [3.0, 5.0]], "York": [[nan, 7.0], [2.0, 9.0], [4.0, 8.0]]}
    >>> print(prepare_samples(wards, missing="drop"))
    2 of 5 rows with gaps were left out (Leeds 1 of 2, York 1 of 3)
    >>> filled = prepare_samples(wards, missing="median")
    >>> filled.samples[1]
    array([[3., 7.],
           [2., 9.],
           [4., 8.]])
    >>> filled.summary()["per_client"]["York"]
    {'rows': 3, 'dropped': 0, 'filled': 1}
    """
    check_missing(missing)
    entries, marks, called = split_by_client(samples, labels, client, names, gaps=missing != "refuse")
    return prepare(entries, marks, called, column_names(samples, labels, client), missing, standardise)


def check_missing(missing: object) -> None:
    """Refuse what is no way to treat gaps."""
    if missing not in ("refuse", "drop", "median"):
        raise InputError("missing", 'must be "refuse", "drop" or "median"', value=repr(missing))


def prepare(
    entries: Sequence[Any] | None,
    marks: Sequence[Any] | None,
    names: Names | None,
    columns: tuple[str, ...],
    missing: Missing,
    standardise: bool,
) -> PreparedSamples:
    """Return the prepared samples of clients with separated rows; the only implementation, used by all callers."""
    if not isinstance(standardise, (bool, np.bool_)):
        raise InputError("standardise", "must be True or False", value=repr(standardise))
    arrays, holes = _checked(entries, names, missing)
    labels = None if marks is None else tuple(np.asarray(one) for one in marks)
    _refuse_unequal(labels, arrays, names)
    rows = tuple(len(one) for one in arrays)
    shape = (len(arrays), arrays[0].shape[1])
    dropped, filled, borrowed = (
        (0,) * len(arrays),
        np.zeros(shape, dtype=np.intp),
        np.zeros(shape, dtype=bool),
    )
    gaps = any(hole.any() for hole in holes)
    if gaps:
        _refuse_empty_columns(holes, columns)
    if gaps and missing == "drop":
        keep = [~hole.any(axis=1) for hole in holes]
        for k, kept in enumerate(keep):
            if not kept.any():
                who = k if names is None else names[k]
                raise InputError(
                    "missing",
                    'no row of this client is without gaps; missing="median" fills them',
                    client=who,
                    value="'drop'",
                )
        dropped = tuple(int((~kept).sum()) for kept in keep)
        arrays = [one[kept] for one, kept in zip(arrays, keep, strict=True)]
        labels = None if labels is None else tuple(one[kept] for one, kept in zip(labels, keep, strict=True))
    elif gaps:
        filled = np.array([hole.sum(axis=0) for hole in holes], dtype=np.intp)
        borrowed = np.array([hole.all(axis=0) for hole in holes])
        arrays = _filled(arrays, holes, borrowed)
    centres = units = None
    if standardise:
        arrays, centres, units = _standardised(arrays, columns)
    return PreparedSamples(
        tuple(arrays), labels, names, columns, rows, dropped, filled, borrowed, centres, units
    )


def _checked(
    entries: Sequence[Any] | None, names: Names | None, missing: Missing
) -> tuple[list[NDArray[Any]], list[NDArray[np.bool_]]]:
    """Return the clients' arrays and where they have gaps; everything else that is wrong with them is refused."""
    assert entries is not None
    read: list[Any] = list(entries)
    holes: list[Any] = [None] * len(read)
    if missing != "refuse":
        for k, one in enumerate(read):
            if is_tensor(one) and one.device.type != "cpu":
                continue
            try:
                values = np.asarray(one.detach() if is_tensor(one) else one)
                if values.dtype.kind == "O":  # None among numbers is a gap
                    values = values.astype(np.float64)
            except (TypeError, ValueError):
                continue
            if values.dtype.kind == "f" and np.isnan(values).any():
                holes[k] = np.isnan(values)
                values = np.where(holes[k], values.dtype.type(0), values)
            read[k] = values
    checked: Any = check_samples(read, names=names)
    if not hasattr(checked, "arrays"):
        raise InputError(
            "samples",
            "are tensors on another device, and are prepared before they are moved there",
            value=type(read[0]).__name__,
        )
    arrays = list(checked.arrays)
    return arrays, [
        np.zeros(one.shape, dtype=bool) if hole is None else hole
        for one, hole in zip(arrays, holes, strict=True)
    ]


def _refuse_unequal(
    labels: Sequence[NDArray[Any]] | None, arrays: Sequence[NDArray[Any]], names: Names | None
) -> None:
    if labels is None:
        return
    if len(labels) != len(arrays):
        raise InputError("labels", f"must hold an array per client ({len(arrays)})", value=len(labels))
    for k, (one, array) in enumerate(zip(labels, arrays, strict=True)):
        if one.shape[:1] != (len(array),):
            who = k if names is None else names[k]
            raise InputError(
                "labels", f"must hold one label per sample ({len(array)})", client=who, value=one.shape
            )


def _refuse_empty_columns(holes: Sequence[NDArray[np.bool_]], columns: tuple[str, ...]) -> None:
    empty = np.flatnonzero(np.all([hole.all(axis=0) for hole in holes], axis=0))
    if len(empty):
        called = [repr(columns[j]) if columns else str(j) for j in empty]
        raise InputError("samples", f"no value at all in column {_some(called)}; leave it out")


def _filled(
    arrays: Sequence[NDArray[Any]], holes: Sequence[NDArray[np.bool_]], borrowed: NDArray[np.bool_]
) -> list[NDArray[Any]]:
    """Return the arrays with medians in place of gaps."""
    everybody = np.zeros(borrowed.shape[1])
    for j in np.flatnonzero(borrowed.any(axis=0)):
        there = [one[~hole[:, j], j] for one, hole in zip(arrays, holes, strict=True)]
        everybody[j] = np.median(np.concatenate(there))
    result = []
    for k, (one, hole) in enumerate(zip(arrays, holes, strict=True)):
        whole = one.copy() if hole.any() else one
        for j in np.flatnonzero(hole.any(axis=0)):
            gaps = hole[:, j]
            whole[gaps, j] = everybody[j] if borrowed[k, j] else np.median(one[~gaps, j])
        result.append(whole)
    return result


def _standardised(
    arrays: Sequence[NDArray[Any]], columns: tuple[str, ...]
) -> tuple[list[NDArray[Any]], NDArray[np.float64], NDArray[np.float64]]:
    """Return the arrays in units of the columns' spread over all of them, in the precision they came in."""
    centres, spreads = _moments(arrays)
    if not (np.isfinite(centres).all() and np.isfinite(spreads).all()):
        j = int(np.argmin(np.isfinite(centres) & np.isfinite(spreads)))
        raise InputError(
            "standardise",
            f"column {columns[j] if columns else j} holds values too large for that",
            value=True,
        )
    units = np.where(spreads > 0, spreads, 1.0)
    return [((one - centres) / units).astype(one.dtype, copy=False) for one in arrays], centres, units


def _moments(arrays: Sequence[NDArray[Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of every column over all rows of all clients; a constant column spreads exactly 0."""
    count = sum(len(one) for one in arrays)
    with np.errstate(over="ignore", invalid="ignore"):
        centres = np.sum([one.sum(axis=0, dtype=np.float64) for one in arrays], axis=0) / count
        squares = [((one - centres) ** 2).sum(axis=0, dtype=np.float64) for one in arrays]
        spreads = np.sqrt(np.sum(squares, axis=0) / count)
    low, high = (pick([pick(one, axis=0) for one in arrays], axis=0) for pick in (np.min, np.max))
    constant = low == high
    return np.where(constant, low, centres), np.where(constant, 0.0, spreads)


def _uneven(arrays: Sequence[NDArray[Any]], columns: tuple[str, ...]) -> list[str]:
    """Return a sentence if the spreads of two columns are far apart."""
    _, spreads = _moments(arrays)
    moving = np.flatnonzero(spreads > 0)
    if len(moving) < 2:
        return []
    high, low = (int(moving[pick(spreads[moving])]) for pick in (np.argmax, np.argmin))
    if not spreads[high] > WILD * spreads[low]:
        return []
    return [
        f"column {columns[high]!r} spreads {spreads[high]:.3g} and {columns[low]!r} {spreads[low]:.3g}: "
        "distances hardly see the second; standardise=True puts all columns on one scale"
    ]


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


def _some(words: Sequence[str]) -> str:
    more = f" and {len(words) - LISTED} more" if len(words) > LISTED else ""
    return ", ".join(words[:LISTED]) + more


def _largest(counts: Any, words: Sequence[str]) -> str:
    """Return the words of the largest counts, the largest first."""
    order = [int(k) for k in np.argsort(-np.asarray(counts), kind="stable") if counts[k]]
    return _some([words[k] for k in order])
