"""Checked samples: one two-dimensional floating-point array per client, never copied when not necessary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stackfu.errors import InputError

# Squares of larger values overflow float64 before any distance is formed.
LARGEST_MAGNITUDE = 1e150
# Every whole number up to here is a float64.
LARGEST_EXACT_INTEGER = 2**53
# The reciprocal of a smaller (subnormal) bandwidth overflows.
SMALLEST_BANDWIDTH = float(np.finfo(np.float64).tiny)
_NUMBERS_AT_A_TIME = 1 << 15  # scratch space of 256 KB

Array = NDArray[Any]
Names = tuple[str, ...]
Backend = Literal["auto", "numpy", "torch"]


class Stack(ABC):
    """The clients' samples as one virtual stack of ``n`` rows, wherever they are kept."""

    names: Names | None

    @property
    @abstractmethod
    def lengths(self) -> list[int]:
        """Number of samples of each client."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of columns."""

    @abstractmethod
    def squared_distances(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return squared distances of the rows ``first`` from the rows ``second`` of the stack."""

    @abstractmethod
    def largest_deviation(self) -> float:
        """Largest magnitude of any coordinate after the centre was moved to the origin."""

    def __len__(self) -> int:
        return len(self.lengths)

    def name(self, client: int) -> int | str:
        """Return the client's name for messages."""
        return client if self.names is None else self.names[client]

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """First row of each client in the stack, and ``n`` at the end."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    @property
    def n(self) -> int:
        """Number of samples of all clients together."""
        return int(self.starts[-1])

    def clients(self, start: int, stop: int) -> slice:
        """Return the clients that own the rows ``start:stop`` of the stack."""
        first, last = np.searchsorted(self.starts, [start, stop - 1], side="right")
        return slice(int(first) - 1, int(last))


@dataclass(frozen=True, eq=False)
class Samples(Stack):
    """NumPy arrays, cut into tiles on demand."""

    arrays: tuple[Array, ...]
    names: Names | None = None

    @classmethod
    def check(cls, samples: Sequence[Any], argument: str = "samples", names: Names | None = None) -> Samples:
        """Accept one array per client, or say which client, row and value stand in the way."""
        called = called_by(names)
        refuse_no_clients(samples, argument)
        arrays = tuple(as_sample_array(one, argument, called(i)) for i, one in enumerate(samples))
        refuse_unequal_columns([array.shape[1] for array in arrays], argument, names)
        return cls(arrays, names)

    @property
    def lengths(self) -> list[int]:
        """Number of samples of each client."""
        return [len(array) for array in self.arrays]

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

    def mean_squares(self, unit: float) -> NDArray[np.float64]:
        """Mean of ``|a - centre|^2 / unit^2`` over each client's samples; infinite where that overflows."""
        from stackfu.embedding._kernels import sum_of_squares

        totals = np.zeros(len(self))
        for start, rows in self.pieces(0, self.n):
            totals[self.clients(start, start + 1)] += sum_of_squares(rows, self.centre, 1.0 / unit)
        return totals / np.diff(self.starts)

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

    def tile(self, start: int, stop: int) -> Array:
        """Return the rows ``start:stop`` of the stack as one array; a view where they belong to one client."""
        parts = [
            self.arrays[k][max(0, start - self.starts[k]) : stop - self.starts[k]]
            for k in range(*self.clients(start, stop).indices(len(self)))
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def take(self, clients: Sequence[int], rows: Sequence[NDArray[np.int64]]) -> Samples:
        """Return the given ascending rows of the given clients; a view where they follow one another."""
        arrays = tuple(rows_of(self.arrays[k], r) for k, r in zip(clients, rows, strict=True))
        return Samples(arrays, tuple(str(self.name(k)) for k in clients))

    def squared_distances(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return squared distances of the rows ``first`` from the rows ``second`` of the stack."""
        difference = self._rows(first) - self._rows(second)
        return np.asarray(np.einsum("nd,nd->n", difference, difference))

    def _rows(self, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        out = np.empty((len(indices), self.dimension))
        clients = np.searchsorted(self.starts, indices, side="right") - 1
        order = np.argsort(clients, kind="stable")
        bounds = np.searchsorted(clients[order], np.arange(len(self) + 1))
        for client in np.unique(clients):
            chosen = order[bounds[client] : bounds[client + 1]]
            out[chosen] = self.arrays[client][indices[chosen] - self.starts[client]]
        return out

    def largest_deviation(self) -> float:
        """Largest magnitude of any coordinate after the centre was moved to the origin."""
        return max(float(np.max(np.abs(array - self.centre))) for array in self.arrays)


@dataclass(frozen=True, eq=False)
class Block(Samples):
    """Rows of several clients side by side in one contiguous array, which takes no loop over the clients."""

    segments: tuple[int, ...] = ()

    @property
    def lengths(self) -> list[int]:
        """Number of samples of each client."""
        return list(self.segments)

    @cached_property
    def centre(self) -> NDArray[np.float64]:
        """Mean of all samples."""
        return np.asarray(self.arrays[0].mean(axis=0, dtype=np.float64))

    def mean_squares(self, unit: float) -> NDArray[np.float64]:
        """Mean of ``|a - centre|^2 / unit^2`` over each client's samples; infinite where that overflows."""
        with np.errstate(over="ignore"):
            scaled = (self.arrays[0] - self.centre) / unit
            squares = np.einsum("nd,nd->n", scaled, scaled)
            return np.asarray(np.add.reduceat(squares, self.starts[:-1]) / self.segments)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, Array]]:
        """Yield all rows at once."""
        yield 0, self.arrays[0][start:stop]


def rows_of(array: Any, rows: NDArray[np.int64]) -> Any:
    """Return the given ascending rows; a view where they follow one another."""
    first, last = int(rows[0]), int(rows[-1])
    return array[first : last + 1] if last - first + 1 == len(rows) else array[rows]


def is_tensor(sample: Any) -> bool:
    """Return True for a torch tensor, without importing torch."""
    return hasattr(sample, "detach") and hasattr(sample, "device")


def called_by(names: Names | None) -> Any:
    """Return the function that says what a client is called in messages: its name, or its number."""
    return (lambda i: i) if names is None else names.__getitem__


def refuse_no_clients(samples: Any, argument: str) -> None:
    """Refuse what is not a sequence with an entry for at least one client."""
    if isinstance(samples, (str, bytes)) or not hasattr(samples, "__len__"):
        raise InputError(argument, "must be a sequence with one (n_i, d) array per client")
    if len(samples) == 0:
        raise InputError(argument, "must hold at least one client")


def refuse_unequal_columns(columns: Sequence[int], argument: str, names: Names | None) -> None:
    """Refuse clients with another number of columns than the first."""
    called = called_by(names)
    for i, count in enumerate(columns):
        if count != columns[0]:
            raise InputError(
                argument, f"has {count} columns, but client {called(0)} has {columns[0]}", client=called(i)
            )


def refuse_shape(shape: tuple[int, ...], argument: str, client: int | str | None) -> None:
    """Refuse what is not a matrix with at least one row and one column."""
    if len(shape) != 2:
        problem = f"must have two dimensions (samples, coordinates), not shape {shape}"
        if len(shape) == 1:
            problem += "; write x[:, None] for samples on a line"
        raise InputError(argument, problem, client=client)
    if shape[0] == 0:
        raise InputError(argument, "is empty: a client without samples has no mean embedding", client=client)
    if shape[1] == 0:
        raise InputError(argument, "has no columns", client=client)


def as_sample_array(sample: Any, argument: str, client: int | str | None = None) -> Array:
    """Return one client's samples as an (n, d) float32 or float64 array, sharing memory if possible."""
    array = _to_numpy(sample, argument, client)
    refuse_shape(array.shape, argument, client)
    _refuse_non_finite(array, argument, client)
    return array


def _to_numpy(sample: Any, argument: str, client: int | str | None) -> Array:
    if is_tensor(sample):
        if sample.device.type != "cpu":
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
        if array.dtype.itemsize == 8 and array.ndim == 2:
            _refuse_rounded(array, argument, client)
        return array.astype(np.float64)
    raise InputError(
        argument, f"has dtype {array.dtype}; convert it to float32 or float64 first", client=client
    )


def _refuse_rounded(array: Array, argument: str, client: int | str | None) -> None:
    """Refuse whole numbers that float64 would round: distances between them would be wrong in silence."""
    for rows in _slices(array):
        part = array[rows]
        large = (part > LARGEST_EXACT_INTEGER) | (part < -LARGEST_EXACT_INTEGER)
        if not large.any():
            continue
        # A float64 has 53 bits: what is left without the trailing zeros must fit into them.
        magnitude = np.where(part < 0, ~part.astype(np.uint64) + np.uint64(1), part.astype(np.uint64))
        odd = magnitude // np.maximum(magnitude & (~magnitude + np.uint64(1)), np.uint64(1))
        bad = np.argwhere(odd > LARGEST_EXACT_INTEGER)
        if len(bad):
            row, column = (int(k) for k in bad[0])
            raise rounded(argument, rows.start + row, column, client, int(part[row, column]))


def rounded(argument: str, row: int, column: int, client: int | str | None, value: int) -> InputError:
    """Return the error about a whole number that no float64 equals."""
    problem = f"no float64 equals the whole number in row {row}, column {column}; subtract an offset first"
    return InputError(argument, problem, client=client, value=value)


def _refuse_non_finite(array: Array, argument: str, client: int | str | None) -> None:
    for rows in _slices(array):
        part = array[rows]
        # A finite maximum of magnitudes clears the whole part at once.
        largest = max(float(part.max()), -float(part.min()))
        if largest <= LARGEST_MAGNITUDE:
            continue
        bad = ~(np.abs(part.astype(np.float64)) <= LARGEST_MAGNITUDE)
        row, column = (int(k) for k in np.argwhere(bad)[0])
        raise not_usable(argument, rows.start + row, column, client, part[row, column])


def not_usable(argument: str, row: int, column: int, client: int | str | None, value: Any) -> InputError:
    """Return the error about a value that is not finite, or too large to be squared."""
    where = f"in row {row}, column {column}"
    if np.isfinite(value):
        problem = f"magnitude above {LARGEST_MAGNITUDE:g} {where}; rescale the data"
    else:
        problem = f"not a finite number {where}; leave such rows out"
        if np.isnan(value):
            problem += " (missing='drop'), or fill gaps (missing='median')"
    return InputError(argument, problem, client=client, value=value)


def _slices(array: Array) -> Iterator[slice]:
    n, step = len(array), max(1, _NUMBERS_AT_A_TIME // max(1, array.shape[1]))
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


def check_bandwidth(value: Any) -> float:
    """Return a bandwidth unchanged; refuse values that are not positive or have no finite reciprocal."""
    sigma = positive_number(value, "bandwidth")
    if sigma < SMALLEST_BANDWIDTH:
        raise InputError(
            "bandwidth",
            f"is below {SMALLEST_BANDWIDTH:.3g}, too small to divide by; rescale the data",
            value=sigma,
        )
    return value if isinstance(value, float) else sigma  # a Bandwidth keeps what it knows
