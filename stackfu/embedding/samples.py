"""Checked samples: one two-dimensional floating-point array per client, never copied when not necessary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackfu.errors import InputError

# Squares of larger values overflow float64 before any distance is formed.
LARGEST_MAGNITUDE = 1e150
_NUMBERS_AT_A_TIME = 1 << 15  # scratch space of 256 KB

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Samples:
    """The clients' arrays as one virtual stack of ``n`` rows, cut into tiles on demand."""

    arrays: tuple[Array, ...]

    @classmethod
    def check(cls, samples: Sequence[Any], argument: str = "samples") -> Samples:
        """Accept one array per client, or say which client, row and value stand in the way."""
        if isinstance(samples, (str, bytes)) or not hasattr(samples, "__len__"):
            raise InputError(argument, "must be a sequence with one (n_i, d) array per client")
        if len(samples) == 0:
            raise InputError(argument, "must hold at least one client")
        arrays = tuple(as_sample_array(one, argument, client=i) for i, one in enumerate(samples))
        dimension = arrays[0].shape[1]
        for i, array in enumerate(arrays):
            if array.shape[1] != dimension:
                raise InputError(
                    argument, f"has {array.shape[1]} columns, but client 0 has {dimension}", client=i
                )
        return cls(arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """First row of each client in the stack, and ``n`` at the end."""
        return np.concatenate([[0], np.cumsum([len(a) for a in self.arrays])]).astype(np.int64)

    @property
    def n(self) -> int:
        """Number of samples of all clients together."""
        return int(self.starts[-1])

    @property
    def dimension(self) -> int:
        """Number of columns."""
        return int(self.arrays[0].shape[1])

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """float32 if every client sent float32, else float64."""
        return np.result_type(*{a.dtype for a in self.arrays})

    @cached_property
    def centre(self) -> NDArray[np.float64]:
        """Mean of all samples; moving it to the origin changes no distance and shrinks cancellation."""
        from stackfu.embedding._kernels import add_column_sums

        total = np.zeros(self.dimension)
        for _, rows in self.pieces(0, self.n):
            add_column_sums(rows, total)
        return total / self.n

    @cached_property
    def mean_squares(self) -> NDArray[np.float64]:
        """Mean squared distance of each client's samples from the centre."""
        from stackfu.embedding._kernels import sum_of_squares

        totals = np.zeros(len(self))
        for start, rows in self.pieces(0, self.n):
            totals[self.clients(start, start + 1)] += sum_of_squares(rows, self.centre)
        return totals / np.diff(self.starts)

    def clients(self, start: int, stop: int) -> slice:
        """Return the clients that own the rows ``start:stop`` of the stack."""
        first, last = np.searchsorted(self.starts, [start, stop - 1], side="right")
        return slice(int(first) - 1, int(last))

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, Array]]:
        """Yield ``(row within start:stop, rows)``: contiguous rows, each time of one client."""
        client, row = self.clients(start, stop).start, start
        while row < stop:
            first = int(self.starts[client])
            end = min(stop, int(self.starts[client + 1]))
            array = self.arrays[client][row - first : end - first]
            # Other memory layouts are copied a little at a time.
            for part in [slice(0, len(array))] if array.flags.c_contiguous else _slices(array):
                yield row - start + part.start, np.ascontiguousarray(array[part])
            row, client = end, client + 1

    def rows(self, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Copy the rows with these numbers out of the stack, as float64."""
        out = np.empty((len(indices), self.dimension))
        clients = np.searchsorted(self.starts, indices, side="right") - 1
        order = np.argsort(clients, kind="stable")
        bounds = np.searchsorted(clients[order], np.arange(len(self) + 1))
        for client in np.unique(clients):
            chosen = order[bounds[client] : bounds[client + 1]]
            out[chosen] = self.arrays[client][indices[chosen] - self.starts[client]]
        return out


def as_sample_array(sample: Any, argument: str, client: int | None = None) -> Array:
    """Return one client's samples as an (n, d) float32 or float64 array, sharing memory if possible."""
    array = _to_numpy(sample, argument, client)
    if array.ndim != 2:
        problem = f"must have two dimensions (samples, coordinates), not shape {array.shape}"
        if array.ndim == 1:
            problem += "; write x[:, None] for samples on a line"
        raise InputError(argument, problem, client=client)
    if array.shape[0] == 0:
        raise InputError(argument, "is empty: a client without samples has no mean embedding", client=client)
    if array.shape[1] == 0:
        raise InputError(argument, "has no columns", client=client)
    _refuse_non_finite(array, argument, client)
    return array


def _to_numpy(sample: Any, argument: str, client: int | None) -> Array:
    if hasattr(sample, "detach") and hasattr(sample, "device"):  # a torch tensor, without importing torch
        if str(sample.device) != "cpu":
            raise InputError(
                argument, "is on another device; pass x.cpu()", client=client, value=sample.device
            )
        if str(sample.dtype) == "torch.bfloat16":
            sample = sample.float()
        sample = sample.detach().numpy()
    if isinstance(sample, np.ma.MaskedArray):
        raise InputError(argument, "is a masked array; fill or drop the masked samples first", client=client)
    try:
        array = np.asarray(sample)
    except ValueError:
        raise InputError(argument, "is not a rectangular array of numbers", client=client) from None
    if array.dtype in (np.float32, np.float64) and array.dtype.isnative:
        return array
    if array.dtype.kind == "f":
        return array.astype(np.float32 if array.dtype.itemsize <= 4 else np.float64)
    if array.dtype.kind in "iub":
        return array.astype(np.float64)
    raise InputError(
        argument, f"has dtype {array.dtype}; convert it to float32 or float64 first", client=client
    )


def _refuse_non_finite(array: Array, argument: str, client: int | None) -> None:
    for rows in _slices(array):
        part = array[rows]
        # A finite maximum of magnitudes clears the whole part at once.
        largest = max(float(part.max()), -float(part.min()))
        if largest <= LARGEST_MAGNITUDE:
            continue
        bad = ~(np.abs(part) <= LARGEST_MAGNITUDE)
        row, column = (int(k) for k in np.argwhere(bad)[0])
        value = part[row, column]
        where = f"in row {rows.start + row}, column {column}"
        if np.isfinite(value):
            problem = f"magnitude above {LARGEST_MAGNITUDE:g} {where}; rescale the data"
        else:
            problem = f"not a finite number {where}; drop or impute such rows first"
        raise InputError(argument, problem, client=client, value=value)


def _slices(array: Array) -> Iterator[slice]:
    n, step = len(array), max(1, _NUMBERS_AT_A_TIME // array.shape[1])
    return (slice(a, min(a + step, n)) for a in range(0, n, step))


def positive_number(value: Any, argument: str) -> float:
    """Return ``value`` as a float, refusing anything that is not a finite number above zero."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(argument, "must be a positive number", value=repr(value)) from None
    if not (np.isfinite(number) and number > 0):
        raise InputError(argument, "must be a positive finite number", value=number)
    return number
