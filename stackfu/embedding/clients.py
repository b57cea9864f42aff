"""Read clients from a sequence with an entry per client, a dictionary {name: entry}, or a table with a client column.

Clients keep the order in which they come, that of the sequence or of the dictionary. Those of a table are numbered in ascending
order of their names (ward 2 before ward 10), whatever the order of its rows, as on the command line; rows are counted from 1.
pandas is never imported; a table is recognised by what it can do, and so is a tensor, which decides where its sums are computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackfu.embedding.missing_values import gap_problem
from stackfu.embedding.names import check_names, natural_order
from stackfu.embedding.on_device import TensorSamples
from stackfu.embedding.samples import Backend, Names, Samples, is_tensor, refuse_no_clients
from stackfu.errors import InputError, warn

#: A client column is suspicious if so many clients, or more, have fewer rows than this on average.
FEWEST_SUSPICIOUS, SUSPICIOUS_ROWS = 20, 1.5


def is_table(thing: Any) -> bool:
    """Return True for a DataFrame."""
    return hasattr(thing, "columns") and hasattr(thing, "groupby") and hasattr(thing, "to_numpy")


def warn_of_odd_clients(column: str, clients: int, rows: int) -> None:
    """Warn if a client column looks like another one: nearly every row would be a client of its own.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_odd_clients("patient", 2774, 3235)
    >>> print(caught[0].message)
    the client column 'patient' names 2774 clients in 3235 rows, so nearly every row is its own client: is it the right column?
    """
    if clients >= FEWEST_SUSPICIOUS and rows < SUSPICIOUS_ROWS * clients:
        warn(
            f"the client column {column!r} names {clients} clients in {rows} rows, so nearly every row is its own client: "
            "is it the right column?"
        )


def split_by_client(
    samples: Any,
    labels: Any,
    client: str,
    names: Sequence[Any] | None,
    *,
    labels_only: bool = False,
    gaps: bool = False,
) -> tuple[Sequence[Any] | None, Sequence[Any] | None, Names | None]:
    """Return samples and labels as sequences with one entry per client, and the names if there are any.

    With ``labels_only`` there need not be samples, and the other columns of a table are not looked at. With ``gaps`` values of a
    table may be missing.
    """
    if is_table(samples):
        return _split_table(samples, labels, client, names, labels_only, gaps)
    if client != "client":
        raise InputError("client", "names a column, but the samples are not a DataFrame", value=repr(client))
    if samples is None and labels_only:
        entries, _, called = split_by_client(labels, None, client, names)
        return None, entries, called
    if isinstance(samples, Mapping):
        return _split_mapping(samples, labels, names)
    if isinstance(labels, Mapping):
        raise InputError("labels", "are a dictionary, but the samples are not: whose are they?")
    if isinstance(labels, (str, bytes)):
        raise InputError("labels", "name a column, but the samples are not a DataFrame", value=repr(labels))
    count = len(samples) if hasattr(samples, "__len__") else 0
    return samples, labels, None if names is None else check_names(names, count)


def column_names(samples: Any, labels: Any, client: str) -> tuple[str, ...]:
    """Return what the columns of samples are called; nothing where the samples are not a table."""
    if not is_table(samples):
        return ()
    return tuple(str(name) for name in samples.columns if name != client and not _is_named(labels, name))


def _is_named(labels: Any, column: Any) -> bool:
    return isinstance(labels, str) and bool(labels == column)


def _split_mapping(
    samples: Mapping[Any, Any], labels: Any, names: Sequence[Any] | None
) -> tuple[Sequence[Any], Sequence[Any] | None, Names]:
    _refuse_names(names, "dictionary of samples")
    called = check_names(list(samples), None, "samples")
    if labels is not None:
        if not isinstance(labels, Mapping):
            raise InputError("labels", "must be a dictionary with the clients of the samples as keys")
        for key in samples:
            if key not in labels:
                raise InputError("labels", "are missing", client=str(key))
        for key in labels:
            if key not in samples:
                raise InputError("labels", "there are no samples of this client", client=str(key))
        labels = [labels[key] for key in samples]
    return list(samples.values()), labels, called


def _split_table(
    table: Any, labels: Any, client: str, names: Sequence[Any] | None, labels_only: bool, gaps: bool
) -> tuple[Sequence[Any] | None, Sequence[Any] | None, Names]:
    _refuse_names(names, "client column")
    owners = _column(table, client, "client")
    codes, values = owners.factorize()
    if len(codes) == 0:
        raise InputError("samples", "must hold at least one client: the table has no rows")
    if codes.min() < 0:
        raise InputError("client", f"column {client!r} has no client in row {int(codes.argmin()) + 1}")
    ascending = natural_order(list(values))
    called = check_names([values[i] for i in ascending], None, "client")
    warn_of_odd_clients(client, len(called), len(codes))
    codes = np.argsort(ascending)[codes]
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(1, len(called)))
    marks: list[NDArray[Any]] | None = None
    used = [client]
    if labels is not None:
        if isinstance(labels, str):
            used.append(labels)
            column = _column(table, labels, "labels")
            missing = np.array([label is None or label != label for label in column.to_numpy().tolist()])
            if missing.any():
                raise InputError(
                    "labels", f"column {labels!r} has no label in row {int(missing.argmax()) + 1}"
                )
            labels = column
        elif not hasattr(labels, "__len__") or isinstance(labels, Mapping) or len(labels) != len(table):
            raise InputError(
                "labels", f"must be a column or hold one label per row of the table ({len(table)})"
            )
        elif (
            hasattr(labels, "index") and hasattr(labels, "to_numpy") and not labels.index.equals(table.index)
        ):
            raise InputError(
                "labels",
                "has another index than the table; bring it into the order of the rows and pass labels.to_numpy()",
            )
        marks = np.split(np.asarray(labels)[order], cuts)
    if labels_only:
        return None, marks, called
    coordinates = table.drop(columns=used)
    if coordinates.shape[1] == 0:
        raise InputError("samples", "the table has no column of samples besides those of clients and labels")
    for name, kind in zip(coordinates.columns, coordinates.dtypes, strict=True):
        if getattr(kind, "kind", "O") not in "fiub":
            raise InputError(
                "samples",
                f"column {name!r} has dtype {kind}, which are no numbers; drop it, or name it by client= or labels=",
            )
    numbers = coordinates.to_numpy()
    if numbers.dtype.kind == "O":  # pandas has numbers of its own that may be missing
        numbers = coordinates.to_numpy(dtype=np.float64, na_value=np.nan)
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        wrong = np.isinf(numbers)
        if wrong.any():
            row, place = (int(k) for k in np.argwhere(wrong)[0])
            raise InputError(
                "samples",
                f"row {row + 1} of column {coordinates.columns[place]!r} is not a finite number",
                value=numbers[row, place],
            )
        if not gaps:
            raise InputError(
                "samples", gap_problem(np.isnan(numbers), [str(name) for name in coordinates.columns])
            )
    return np.split(numbers[order], cuts), marks, called


def _column(table: Any, name: str, argument: str) -> Any:
    found = sum(1 for column in table.columns if column == name)
    if found != 1:
        problem = "is the name of several columns" if found else "there is no such column"
        shown = ", ".join(map(str, table.columns[:12])) + (", ..." if len(table.columns) > 12 else "")
        raise InputError(argument, f"{problem}; the table has {shown}", value=repr(name))
    return table[name]


def _refuse_names(names: Sequence[Any] | None, source: str) -> None:
    if names is not None:
        raise InputError("names", f"the {source} names the clients already")


def check_samples(
    samples: Any, argument: str = "samples", names: Names | None = None, backend: Backend = "auto"
) -> Samples | TensorSamples:
    """Return a :class:`Samples`, or a :class:`~stackfu.embedding.on_device.TensorSamples` for tensors that live elsewhere.

    CPU tensors share their memory with NumPy and take the compiled path, unless ``backend="torch"`` asks for the other.
    """
    if backend not in ("auto", "numpy", "torch"):
        raise InputError("backend", 'must be "auto", "numpy" or "torch"', value=repr(backend))
    refuse_no_clients(samples, argument)
    elsewhere = any(is_tensor(one) and one.device.type != "cpu" for one in samples)
    if backend == "torch" or (backend == "auto" and elsewhere):
        return TensorSamples.check(samples, argument, names)
    return Samples.check(samples, argument, names)
