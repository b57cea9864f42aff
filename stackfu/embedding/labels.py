"""Checked labels: one class per sample, and the geometry of class histograms.

With p_i the class shares of client i and pi those of all data together, the kernel ``1[y = y'] / pi_y`` has the exact
features ``p_iy / sqrt(pi_y)``, K numbers for each client, and

    |mu_i - mu_j|^2 = sum_y (p_iy - p_jy)^2 / pi_y,

a chi-square distance. Half of it is the quadratic term of the log loss that a model pays at client i for having
learned the class shares of client j, which is why rare classes weigh more. One sample's embedding has ``k(a, a) = 1 /
pi_y``, not 1; the mean over client i is ``sum_y p_iy / pi_y``, and the mean of that over all samples is K.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stackfu.embedding.samples import Array, Block, Names, Samples, called_by, is_tensor
from stackfu.errors import InputError

Class = int | str
# Of what is declared; sums of so many shares as there are classes are off by rounding only.
_SUM_TOLERANCE = 1e-9
_BATCH_BYTES = 16 << 20


@dataclass(frozen=True, eq=False)
class Labels:
    """One class number per sample of each client, and what the classes are called, in ascending order."""

    classes: tuple[Class, ...]
    codes: tuple[NDArray[np.int64], ...]

    @classmethod
    def check(
        cls,
        labels: Any,
        lengths: Sequence[int] | None,
        names: Names | None = None,
        classes: Sequence[Any] | None = None,
    ) -> Labels:
        """Accept one label per sample (``lengths`` of them), or say which client and label stand in the way."""
        called = called_by(names)
        if isinstance(labels, (str, bytes)) or not hasattr(labels, "__len__"):
            raise InputError("labels", "must be a sequence with one array of labels per client")
        if len(labels) == 0:
            raise InputError("labels", "must hold at least one client")
        if lengths is not None and len(labels) != len(lengths):
            raise InputError(
                "labels", f"must hold labels of every client ({len(lengths)}), not of {len(labels)}"
            )
        marks = [as_labels(one, called(i)) for i, one in enumerate(labels)]
        for i, mark in enumerate(marks):
            if lengths is not None and len(mark) != lengths[i]:
                raise InputError("labels", f"{len(mark)} labels for {lengths[i]} samples", client=called(i))
            if len(mark) == 0:
                raise InputError(
                    "labels", "are empty: a client without samples has no mean embedding", client=called(i)
                )
            if mark.dtype.kind != marks[0].dtype.kind:
                raise InputError(
                    "labels",
                    f"are {_kind(mark)}, but those of client {called(0)} are {_kind(marks[0])}",
                    client=called(i),
                    value=repr(mark[0].item()),
                )
        known = np.unique(np.concatenate([np.unique(mark) for mark in marks]))
        if classes is None:
            order = np.arange(len(known))
            listed = tuple(known.tolist())
        else:
            listed = check_classes(classes)
            ranks = {value: k for k, value in enumerate(listed)}
            order = np.array([ranks.get(value, -1) for value in known.tolist()])
        codes = []
        for i, mark in enumerate(marks):
            code = order[np.searchsorted(known, mark)].astype(np.int64)
            if (code < 0).any():
                row = int((code < 0).argmax())
                shown = ", ".join(map(repr, listed[:12])) + (", ..." if len(listed) > 12 else "")
                raise InputError(
                    "labels",
                    f"the label of row {row} is not among the classes {shown}",
                    client=called(i),
                    value=repr(mark[row].item()),
                )
            codes.append(code)
        return cls(listed, tuple(codes))

    @cached_property
    def counts(self) -> NDArray[np.float64]:
        """The (M, K) number of samples of each class at each client."""
        return np.array([np.bincount(code, minlength=len(self.classes)) for code in self.codes], dtype=float)

    def rows(self) -> Iterator[tuple[int, list[int], list[NDArray[np.int64]]]]:
        """Yield each class that occurs, the clients that have it, and their rows of it in ascending order."""
        order = [np.argsort(code, kind="stable") for code in self.codes]
        wanted = np.arange(len(self.classes) + 1)
        bounds = [np.searchsorted(code[o], wanted) for code, o in zip(self.codes, order, strict=True)]
        for k in range(len(self.classes)):
            clients = [i for i, b in enumerate(bounds) if b[k + 1] > b[k]]
            if clients:
                yield k, clients, [order[i][bounds[i][k] : bounds[i][k + 1]] for i in clients]


def class_blocks(samples: Samples, labels: Labels) -> Iterator[tuple[int, list[int], Block]]:
    """Yield each class that occurs, the clients that have it, and their samples of it.

    Samples are sorted by class for as many classes at a time as fit into some megabytes, so that many small classes
    cost little.
    """
    counts = labels.counts.astype(np.int64)
    order = [np.argsort(code, kind="stable") for code in labels.codes]
    ends = np.cumsum(counts, axis=1)
    row_bytes = samples.dimension * samples.dtype.itemsize
    first = 0
    while first < counts.shape[1]:
        sizes = np.cumsum(counts[:, first:].sum(axis=0)) * row_bytes
        last = first + max(1, int(np.searchsorted(sizes, _BATCH_BYTES, side="right")))
        begin = ends[:, first] - counts[:, first]
        rows = np.concatenate(
            [
                array[o[b:e]]
                for array, o, b, e in zip(samples.arrays, order, begin, ends[:, last - 1], strict=True)
            ]
        )
        part = counts[:, first:last]
        # Rows come client by client; the place of each class of each client among the classes says where they go.
        starts = (np.cumsum(part.T.ravel()) - part.T.ravel()).reshape(part.T.shape).T
        lengths = part.ravel()
        shift = starts.ravel() - (np.cumsum(lengths) - lengths)
        sorted_rows = np.empty_like(rows)
        sorted_rows[np.arange(len(rows)) + np.repeat(shift, lengths)] = rows
        stop = 0
        for k in range(first, last):
            clients = np.flatnonzero(counts[:, k])
            start, stop = stop, stop + int(counts[:, k].sum())
            if stop > start:
                block = Block((sorted_rows[start:stop],), None, tuple(counts[clients, k].tolist()))
                yield k, clients.tolist(), block
        first = last


def as_labels(labels: Any, client: int | str | None = None) -> Array:
    """Return one client's labels as an array of int64 or of strings."""
    if is_tensor(labels):
        labels = labels.detach().cpu().numpy()
    if isinstance(labels, np.ma.MaskedArray):
        raise InputError("labels", "are a masked array; drop the masked samples first", client=client)
    try:
        array = np.asarray(labels)
    except ValueError:
        raise InputError("labels", "are not one label per sample", client=client) from None
    if array.ndim != 1:
        raise InputError("labels", f"must have one dimension, not shape {array.shape}", client=client)
    if array.dtype.kind == "U" and not isinstance(labels, np.ndarray) and hasattr(labels, "__iter__"):
        array = np.array(list(labels), dtype=object)  # NumPy writes numbers among strings as strings
    if array.dtype.kind == "O":
        array = _of_one_kind(array, client)
    if array.dtype.kind == "f":
        missing = np.isnan(array)
        if missing.any():
            raise _missing(int(missing.argmax()), client)
        whole = np.isfinite(array) & (np.trunc(array) == array) & (np.abs(array) < 2**63)
        if not whole.all():
            row = int((~whole).argmax())
            raise InputError(
                "labels",
                f"must be whole numbers or strings, see row {row}",
                client=client,
                value=repr(array[row].item()),
            )
    if array.dtype.kind in "biuf":
        if array.dtype == np.uint64 and len(array) and array.max() > np.iinfo(np.int64).max:
            raise InputError("labels", "must be below 2^63", client=client, value=int(array.max()))
        return array.astype(np.int64)
    if array.dtype.kind in "UT":
        return array.astype(str)
    raise InputError("labels", f"must be whole numbers or strings, not {array.dtype}", client=client)


def _of_one_kind(array: Array, client: int | str | None) -> Array:
    """Return an array of objects as one of numbers or of strings."""
    values = array.tolist()
    for row, value in enumerate(values):
        if not isinstance(value, str) and (value is None or str(value) in ("<NA>", "NaT", "nan")):
            raise _missing(row, client)
    strings = [isinstance(value, str) for value in values]
    if all(strings):
        return array.astype(str)
    if any(strings):
        row = strings.index(not strings[0])
        raise InputError(
            "labels", f"mix strings and numbers, see row {row}", client=client, value=repr(values[row])
        )
    try:
        return np.array(values)
    except (ValueError, OverflowError):
        raise InputError("labels", "must be whole numbers or strings", client=client) from None


def _missing(row: int, client: int | str | None) -> InputError:
    return InputError("labels", f"the label of row {row} is missing", client=client)


def _kind(array: Array) -> str:
    return "strings" if array.dtype.kind == "U" else "whole numbers"


def check_classes(classes: Sequence[Any]) -> tuple[Class, ...]:
    """Return the agreed classes in the agreed order."""
    if isinstance(classes, (str, bytes)) or not hasattr(classes, "__len__"):
        raise InputError("classes", "must be a sequence of labels", value=repr(classes))
    if len(classes) == 0:
        raise InputError("classes", "must hold at least one class")
    listed: tuple[Class, ...] = tuple(as_labels(classes).tolist())
    if len(set(listed)) != len(listed):
        twice = next(value for value in listed if listed.count(value) > 1)
        raise InputError("classes", "hold a class twice", value=repr(twice))
    return listed


def check_counts(counts: ArrayLike, names: Names | None = None) -> NDArray[np.float64]:
    """Return an (M, K) array of numbers of samples, refusing what no client can have counted."""
    called = called_by(names)
    try:
        array = np.array(counts, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("counts", "must be an (M, K) array of numbers, a row per client") from None
    if array.ndim != 2 or 0 in array.shape:
        raise InputError("counts", f"must be an (M, K) array with a row per client, not shape {array.shape}")
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        i, k = (int(x) for x in np.argwhere(bad)[0])
        raise InputError(
            "counts",
            f"must be a finite number of at least 0, see class {k}",
            client=called(i),
            value=array[i, k],
        )
    with np.errstate(over="ignore"):
        sizes = array.sum(axis=1)
        if not np.isfinite(sizes.sum()):
            raise InputError("counts", "are too large: their sum is not a number", value=array.max())
    if not sizes.all():
        raise InputError(
            "counts",
            "are all 0: a client without samples has no mean embedding",
            client=called(int((sizes == 0).argmax())),
        )
    return array


def class_shares(
    counts: NDArray[np.float64],
    shares: Mapping[Any, float] | ArrayLike | None,
    classes: Sequence[Class] | None = None,
) -> NDArray[np.float64]:
    """Return pi: the share of each class in all data together, or the declared ``shares`` if they are any."""
    called = range(counts.shape[1]) if classes is None else classes
    if shares is None:
        totals = counts.sum(axis=0)
        if not totals.all():
            nobody = called[int((totals == 0).argmax())]
            raise InputError(
                "counts",
                "nobody has a sample of this class; leave it out, or pass shares=",
                value=repr(nobody),
            )
        return np.asarray(totals / totals.sum())
    if isinstance(shares, Mapping):
        for value in called:
            if value not in shares:
                raise InputError("shares", "are missing a class", value=repr(value))
        for value in shares:
            if value not in called:
                raise InputError("shares", "there is no such class", value=repr(value))
        shares = [shares[value] for value in called]
    try:
        array = np.array(shares, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("shares", "must be one number per class") from None
    if array.shape != (len(called),):
        raise InputError("shares", f"must be one number per class ({len(called)}), not shape {array.shape}")
    bad = ~(np.isfinite(array) & (array > 0))
    if bad.any():
        k = int(bad.argmax())
        raise InputError("shares", f"must be positive, see class {called[k]!r}", value=array[k])
    if abs(array.sum() - 1.0) > _SUM_TOLERANCE:
        raise InputError("shares", "must sum to 1", value=array.sum())
    return array


def histogram_features(counts: NDArray[np.float64], pi: NDArray[np.float64]) -> NDArray[np.float64]:
    """``p_iy / sqrt(pi_y)``: the exact features of the kernel ``1[y = y'] / pi_y``."""
    return np.asarray(counts / counts.sum(axis=1, keepdims=True) / np.sqrt(pi))


def histogram_self_similarity(counts: NDArray[np.float64], pi: NDArray[np.float64]) -> NDArray[np.float64]:
    """``sum_y p_iy / pi_y``: the mean of ``k(a, a)`` over each client."""
    return np.asarray((counts / counts.sum(axis=1, keepdims=True) / pi).sum(axis=1))
