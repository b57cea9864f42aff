"""Tensors are computed where they live: the same sums as in :mod:`stackfu.embedding.gram`, as torch operations.

Nothing but sums, one number per pair of clients, leaves the device. The arithmetic is chosen as for arrays: float32
while the spread of the samples beside the bandwidth leaves it accurate (and torch is not set to round the factors of
float32 products to fewer bits), else float64; differences where inner products would cancel. The caller has imported torch
to make the tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stackfu.embedding.gram import Arithmetic, choose_arithmetic
from stackfu.embedding.samples import (
    LARGEST_EXACT_INTEGER,
    LARGEST_MAGNITUDE,
    Names,
    Stack,
    called_by,
    is_tensor,
    not_usable,
    refuse_no_clients,
    refuse_shape,
    refuse_unequal_columns,
    rounded,
    rows_of,
)
from stackfu.embedding.tiles import Progress, Range, first_rows, sum_over_pairs
from stackfu.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

# A float64 tile of so many rows squared takes 32 MB.
_TILE_ROWS = 2048
_TILE_NUMBERS = 1 << 22
_DTYPES = {
    f"torch.{name}"
    for name in (
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "bool",
    )
}


@dataclass(frozen=True, eq=False)
class TensorSamples(Stack):
    """torch tensors, all on one device; rows are converted a tile at a time."""

    tensors: tuple[Tensor, ...]
    names: Names | None = None

    @classmethod
    def check(
        cls, samples: Sequence[Any], argument: str = "samples", names: Names | None = None
    ) -> TensorSamples:
        """Accept one tensor per client, or say which client, row and value stand in the way."""
        called = called_by(names)
        refuse_no_clients(samples, argument)
        tensors = []
        for i, sample in enumerate(samples):
            if not is_tensor(sample):
                raise InputError(
                    argument, f"is {type(sample).__name__}, not a torch tensor; all must be", client=called(i)
                )
            if sample.device != samples[0].device:
                problem = f"is on another device than client {called(0)} ({samples[0].device})"
                raise InputError(argument, problem, client=called(i), value=sample.device)
            tensors.append(_check_tensor(sample, argument, called(i)))
        refuse_unequal_columns([int(t.shape[1]) for t in tensors], argument, names)
        return cls(tuple(tensors), names)

    @property
    def lengths(self) -> list[int]:
        """Number of samples of each client."""
        return [len(tensor) for tensor in self.tensors]

    @property
    def dimension(self) -> int:
        """Number of columns."""
        return int(self.tensors[0].shape[1])

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """float32 if every client sent at most float32, else float64."""
        torch = _torch()
        small = (torch.float32, torch.float16, torch.bfloat16)
        return np.dtype(np.float32 if all(t.dtype in small for t in self.tensors) else np.float64)

    @property
    def device(self) -> Any:
        """Device of all tensors."""
        return self.tensors[0].device

    def tile(self, start: int, stop: int) -> Tensor:
        """Return the rows ``start:stop`` of the stack as one tensor; a view where they belong to one client."""
        parts = [
            self.tensors[k][max(0, int(start - self.starts[k])) : int(stop - self.starts[k])]
            for k in range(*self.clients(start, stop).indices(len(self)))
        ]
        if len({part.dtype for part in parts}) > 1:
            parts = [part.double() for part in parts]
        return parts[0] if len(parts) == 1 else _torch().cat(parts)

    def take(self, clients: Sequence[int], rows: Sequence[NDArray[np.int64]]) -> TensorSamples:
        """Return the given ascending rows of the given clients; a view where they follow one another."""
        torch = _torch()
        chosen = [
            rows_of(self.tensors[k], r)
            if int(r[-1]) - int(r[0]) + 1 == len(r)
            else self.tensors[k][torch.from_numpy(r).to(self.device)]
            for k, r in zip(clients, rows, strict=True)
        ]
        return TensorSamples(tuple(chosen), tuple(str(self.name(k)) for k in clients))

    @cached_property
    def centre(self) -> Tensor:
        """Mean of all samples."""
        total: Tensor = sum(self.tile(*rows).double().sum(dim=0) for rows in self._ranges())
        return total / self.n

    def mean_squares(self, unit: float) -> NDArray[np.float64]:
        """Mean of ``|a - centre|^2 / unit^2`` over each client's samples; infinite where that overflows."""
        totals = np.zeros(len(self))
        for start, stop in self._ranges():
            squares = ((self.tile(start, stop).double() - self.centre) / unit).square().sum(dim=1)
            owners = self.clients(start, stop)
            totals[owners] += (_indicator(self, (start, stop)) @ squares).cpu().numpy()
        totals[np.isnan(totals)] = np.inf  # 0 times infinity: another client's rows in the same tile
        return totals / np.diff(self.starts)

    def squared_distances(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return squared distances of the rows ``first`` from the rows ``second`` of the stack."""
        difference = self._rows(first) - self._rows(second)
        squared: NDArray[np.float64] = difference.square().sum(dim=1).cpu().numpy()
        return squared

    def _rows(self, indices: NDArray[np.int64]) -> Tensor:
        torch = _torch()
        out = torch.empty((len(indices), self.dimension), dtype=torch.float64, device=self.device)
        clients = np.searchsorted(self.starts, indices, side="right") - 1
        for client in np.unique(clients):
            chosen = np.flatnonzero(clients == client)
            rows = torch.from_numpy(indices[chosen] - self.starts[client]).to(self.device)
            out[torch.from_numpy(chosen).to(self.device)] = self.tensors[client][rows].double()
        return out

    def largest_deviation(self) -> float:
        """Largest magnitude of any coordinate after the centre was moved to the origin."""
        return max(
            float((self.tile(*rows).double() - self.centre).abs().max().item()) for rows in self._ranges()
        )

    def _ranges(self) -> list[Range]:
        step = max(1, _TILE_NUMBERS // self.dimension)
        return [(start, min(start + step, self.n)) for start in range(0, self.n, step)]


def _torch() -> Any:
    """Return the torch module that made the tensors; it is imported already."""
    return sys.modules["torch"]


def _check_tensor(sample: Any, argument: str, client: int | str | None) -> Tensor:
    torch = _torch()
    if sample.device.type in ("meta", "mps"):
        lacks = "no data" if sample.device.type == "meta" else "no float64, which sums need; pass x.cpu()"
        raise InputError(argument, f"this device has {lacks}", client=client, value=sample.device)
    refuse_shape(tuple(sample.shape), argument, client)
    if str(sample.dtype) not in _DTYPES:
        raise InputError(
            argument, f"has dtype {sample.dtype}; convert it to float32 or float64 first", client=client
        )
    tensor: Tensor = sample.detach()
    if tensor.dtype == torch.bool:
        return tensor.to(torch.uint8)
    low, high = (value.item() for value in torch.aminmax(tensor))
    if tensor.is_floating_point():
        if not max(-low, high) <= LARGEST_MAGNITUDE:
            row, column = (~(tensor.double().abs() <= LARGEST_MAGNITUDE)).nonzero()[0].tolist()
            raise not_usable(argument, row, column, client, tensor[row, column].item())
    elif max(-low, high) > LARGEST_EXACT_INTEGER:
        # A float64 has 53 bits: what is left without the trailing zeros must fit into them.
        lowest = torch.where(tensor == 0, 1, tensor & -tensor)
        odd = torch.div(tensor, lowest, rounding_mode="trunc")
        bad = ((odd > LARGEST_EXACT_INTEGER) | (odd < -LARGEST_EXACT_INTEGER)).nonzero()
        if len(bad):
            row, column = bad[0].tolist()
            raise rounded(argument, row, column, client, tensor[row, column].item())
    return tensor


def _indicator(stack: TensorSamples, rows: Range) -> Tensor:
    """Return (clients, rows) zeros and ones that mark the owner of each row. Its products are sums that do not depend on timing."""
    torch = _torch()
    lengths = np.diff(first_rows(stack, rows), append=rows[1] - rows[0])
    owner = torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)).to(stack.device)
    return (torch.arange(len(lengths), device=stack.device)[:, None] == owner).double()


def _single_precision_is_kept(device: Any) -> bool:
    """Return True if float32 products are computed with all their bits; torch may be set to round their factors."""
    torch = _torch()
    backend = torch.backends.cuda if device.type == "cuda" else getattr(torch.backends, "mkldnn", None)
    try:
        settings = {
            torch.get_float32_matmul_precision(),
            getattr(getattr(backend, "matmul", None), "fp32_precision", "none"),
        }
    except RuntimeError:  # torch cannot tell any more what it was told
        return False
    return settings <= {"highest", "ieee", "none"}


def mean_complements(
    samples: TensorSamples, sigma: float, arithmetic: Arithmetic = "auto", progress: Progress | None = None
) -> NDArray[np.float64]:
    """Return the (M, M) matrix of mean ``1 - k`` of the RBF kernel."""
    torch = _torch()
    single = _single_precision_is_kept(samples.device)
    kind, direct = choose_arithmetic(samples, sigma, arithmetic, single)
    real = torch.float32 if kind == np.float32 else torch.float64

    def side(rows: Range) -> Tensor:
        tile = samples.tile(*rows).double()
        return tile if direct else ((tile - samples.centre) / sigma).to(real)

    def sums(left: Range, right: Range) -> NDArray[np.float64]:
        a = side(left)
        b = a if left == right else side(right)
        if direct:
            distances = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
            exponent = (distances / sigma).square_().mul_(-0.5)
        else:
            halves = [0.5 * x.square().sum(dim=1) for x in (a, b)]
            exponent = (a @ b.T).sub_(halves[0][:, None]).sub_(halves[1][None, :])
        complement = exponent.clamp_(max=0.0).expm1_().neg_().double()
        blocks = _indicator(samples, left) @ complement @ _indicator(samples, right).T
        result: NDArray[np.float64] = blocks.cpu().numpy()
        return result

    sizes = np.diff(samples.starts).astype(np.float64)
    totals = sum_over_pairs(samples, _TILE_ROWS, sums, progress)
    return np.asarray(np.clip(totals / np.multiply.outer(sizes, sizes), 0.0, 1.0))


def mean_features(samples: TensorSamples, scaled_frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean random Fourier features of each client, see :mod:`stackfu.embedding.features`."""
    torch = _torch()
    half = scaled_frequencies.shape[1]
    frequencies = torch.from_numpy(np.array(scaled_frequencies)).to(samples.device)
    totals = np.zeros((len(samples), 2 * half))
    step = max(1, _TILE_NUMBERS // max(half, samples.dimension))
    for start in range(0, samples.n, step):
        rows = (start, min(start + step, samples.n))
        angles = samples.tile(*rows).double() @ frequencies
        waves = torch.cat([angles.cos(), angles.sin()], dim=1)
        totals[samples.clients(*rows)] += (_indicator(samples, rows) @ waves).cpu().numpy()
    return np.asarray(totals / (np.diff(samples.starts)[:, None] * np.sqrt(half)))


def count_distances(
    samples: Any, low: float, width: float, bins: int, most: int
) -> tuple[int, NDArray[np.int64], NDArray[np.float64]]:
    """Count squared distances of all pairs below ``low`` and in bins from there on; list those in the bins.

    The list is shorter than the bins say if a tile has more than ``most``.
    """
    torch = _torch()
    counts, listed = np.zeros(bins + 2, dtype=np.int64), []
    starts = range(0, samples.n, _TILE_ROWS)
    for start in starts:
        left = samples.tile(start, min(start + _TILE_ROWS, samples.n)).double()
        for begin in starts[start // _TILE_ROWS :]:
            right = samples.tile(begin, min(begin + _TILE_ROWS, samples.n)).double()
            distances = torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist").square_()
            if start == begin:
                above = torch.ones_like(distances, dtype=torch.bool).triu_(1)
                values = distances[above]
            else:
                values = distances.flatten()
            place = ((values - low) / width).clamp_(max=float(bins)).floor_().long() + 1
            place[values < low] = 0
            counts += torch.bincount(place, minlength=bins + 2).cpu().numpy()
            inside = values[(place > 0) & (place <= bins)]
            if len(inside) <= most:
                listed.append(inside.cpu().numpy())
    found = np.concatenate([np.zeros(0), *listed])
    return int(counts[0]), counts[1:-1], found
