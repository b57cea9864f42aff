"""Numbers that enclose what they stand for: the checker's arithmetic, in two forms.

Formulas of the checker are written once, over vectors that support ``+ - * /``, and a handful of named operations.

- :class:`Intervals`: float64 lower and upper ends in NumPy arrays, every result moved outward by one unit in the last place.
- balls of python-flint in NumPy object arrays, at any precision.

An arithmetic is an object with these operations; ``x`` is whatever vectors or scalars it works on.

=====================  ===========================================================
``of(values)``         exact floats
``positive(x)``        ``max(x, 0)``
``maximum(x, y)``      larger of both, entry by entry
``where(mask, x, y)``  entries chosen by a mask
``total(x)``           sum, of each row of a matrix as a column
``stack(parts)``       vectors as rows of a matrix, numbers as a column
``low(x), high(x)``    float64 bounds
``root(x)``            square root of what is not negative
=====================  ===========================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import flint
import numpy as np
import numpy.typing as npt

from .check_tolerances import UNDERFLOW

__all__ = ["BallArithmetic", "IntervalArithmetic", "Intervals", "exact_sum"]

Floats = npt.NDArray[np.float64]
Vector = Any

_UP, _DOWN = np.inf, -np.inf
#: Unit roundoff of the widest float that sums are taken in, doubled.
_SUM_EPS = float(np.finfo(np.longdouble).eps)
#: Floats that become Python numbers together.
_LISTED = 1 << 13


def exact_sum(values: Floats) -> float:
    """Return the float nearest to the sum of some floats, which never become one long list.

    >>> exact_sum(np.array([1e100, 1.0, -1e100]))
    1.0
    """
    parts = (values[i : i + _LISTED].tolist() for i in range(0, len(values), _LISTED))
    return math.fsum(chain.from_iterable(parts))


class Intervals:
    """Entries known to lie between ``low`` and ``high``."""

    __array_ufunc__ = None  # NumPy arrays on the left defer to the operators here
    __slots__ = ("high", "low")

    def __init__(self, low: Any, high: Any) -> None:
        self.low, self.high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)

    def __add__(self, other: Any) -> Intervals:
        o = _intervals(other)
        return _outward(self.low + o.low, self.high + o.high)

    __radd__ = __add__

    def __neg__(self) -> Intervals:
        return Intervals(-self.high, -self.low)

    def __sub__(self, other: Any) -> Intervals:
        o = _intervals(other)
        return _outward(self.low - o.high, self.high - o.low)

    def __rsub__(self, other: Any) -> Intervals:
        return _intervals(other) - self

    def __mul__(self, other: Any) -> Intervals:
        o = _intervals(other)
        products = (self.low * o.low, self.low * o.high, self.high * o.low, self.high * o.high)
        return _outward(
            np.minimum(np.minimum(*products[:2]), np.minimum(*products[2:])),
            np.maximum(np.maximum(*products[:2]), np.maximum(*products[2:])),
        )

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Intervals:
        o = _intervals(other)
        bad = (o.low <= 0.0) & (o.high >= 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            quotients = (self.low / o.low, self.low / o.high, self.high / o.low, self.high / o.high)
        low = np.minimum(np.minimum(*quotients[:2]), np.minimum(*quotients[2:]))
        high = np.maximum(np.maximum(*quotients[:2]), np.maximum(*quotients[2:]))
        return _outward(np.where(bad, -np.inf, low), np.where(bad, np.inf, high))

    def __rtruediv__(self, other: Any) -> Intervals:
        quotient: Intervals = _intervals(other) / self
        return quotient

    def __getitem__(self, index: Any) -> Intervals:
        return Intervals(self.low[index], self.high[index])

    def __len__(self) -> int:
        return len(self.low)

    def __repr__(self) -> str:
        return f"Intervals({self.low}, {self.high})"


def _intervals(value: Any) -> Intervals:
    return value if isinstance(value, Intervals) else Intervals(value, value)


def _outward(low: Any, high: Any) -> Intervals:
    return Intervals(np.nextafter(low, _DOWN), np.nextafter(high, _UP))


class IntervalArithmetic:
    """Outward-rounded float64."""

    name = "intervals"

    @contextmanager
    def context(self) -> Iterator[None]:
        """Overflow shows as infinite ends, which prove nothing."""
        with np.errstate(all="ignore"):
            yield

    def of(self, values: Any) -> Intervals:
        """Exact floats."""
        return _intervals(values)

    def between(self, middle: Any, radius: Any) -> Intervals:
        """Entries within ``radius`` of ``middle``."""
        room = np.asarray(radius) + UNDERFLOW
        return _outward(np.asarray(middle) - room, np.asarray(middle) + room)

    def positive(self, x: Intervals) -> Intervals:
        """``max(x, 0)``."""
        return Intervals(np.maximum(x.low, 0.0), np.maximum(x.high, 0.0))

    def maximum(self, x: Any, y: Any) -> Intervals:
        """Larger of both, entry by entry."""
        x, y = _intervals(x), _intervals(y)
        return Intervals(np.maximum(x.low, y.low), np.maximum(x.high, y.high))

    def where(self, mask: Any, x: Any, y: Any) -> Intervals:
        """Entries chosen by a mask."""
        x, y = _intervals(x), _intervals(y)
        return Intervals(np.where(mask, x.low, y.low), np.where(mask, x.high, y.high))

    def total(self, x: Intervals) -> Intervals:
        """Sum; of each row of a matrix, as a column."""
        ends = []
        rows = x.low.ndim > 1
        for values, away in ((x.low, _DOWN), (x.high, _UP)):
            size = np.abs(values).sum(axis=-1, keepdims=rows)
            error = (values.shape[-1] + 2) * _SUM_EPS * size * 1.0000001
            middle = values.sum(axis=-1, keepdims=rows, dtype=np.longdouble).astype(np.float64)
            ends.append(np.nextafter(np.nextafter(middle, away) + np.copysign(error, away), away))
        return Intervals(ends[0], ends[1])

    def stack(self, parts: list[Any]) -> Intervals:
        """Vectors as rows of a matrix, numbers as a column."""
        ends = [
            np.stack([getattr(x, name) for x in parts]) if len(parts) > 1 else getattr(parts[0], name)[None]
            for name in ("low", "high")
        ]
        if ends[0].ndim == 1:
            ends = [e[:, None] for e in ends]
        return Intervals(ends[0], ends[1])

    def low(self, x: Any) -> Any:
        """Float64 lower bounds."""
        return _intervals(x).low

    def high(self, x: Any) -> Any:
        """Float64 upper bounds."""
        return _intervals(x).high

    def root(self, x: Intervals) -> Intervals:
        """Square root of what is not negative."""
        clipped = self.positive(x)
        return _outward(np.sqrt(clipped.low), np.sqrt(clipped.high))


class BallArithmetic:
    """Balls of python-flint in object arrays; ``precision`` is the number of bits of their midpoints."""

    name = "balls"

    def __init__(self, precision: int = 128) -> None:
        self.precision = precision

    @contextmanager
    def context(self) -> Iterator[None]:
        """Set the precision while working."""
        before = flint.ctx.prec
        flint.ctx.prec = self.precision
        try:
            yield
        finally:
            flint.ctx.prec = before

    def of(self, values: Any) -> Any:
        """Exact floats."""
        array = np.asarray(values)
        if array.dtype == object:
            return values
        if array.ndim == 0:
            return flint.arb(float(array))
        out = np.empty(array.shape, dtype=object)
        out.ravel()[:] = [flint.arb(float(v)) for v in array.ravel()]
        return out

    def between(self, middle: Any, radius: Any) -> Any:
        """Entries within ``radius`` of ``middle``."""
        return _each(lambda m, r: flint.arb(float(m), float(r)), middle, radius)

    def positive(self, x: Any) -> Any:
        """``max(x, 0)``."""
        zero = flint.arb(0)
        return _each(lambda v: v.max(zero), x)

    def maximum(self, x: Any, y: Any) -> Any:
        """Larger of both, entry by entry."""
        return _each(lambda a, b: flint.arb(a).max(flint.arb(b)), x, y)

    def where(self, mask: Any, x: Any, y: Any) -> Any:
        """Entries chosen by a mask."""
        return _each(lambda m, a, b: a if m else b, mask, x, y)

    def total(self, x: Any) -> Any:
        """Sum; of each row of a matrix, as a column."""
        if x.ndim > 1:
            return self.stack([self.total(row) for row in x])
        return sum(x.tolist(), flint.arb(0))

    def stack(self, parts: list[Any]) -> Any:
        """Vectors as rows of a matrix, numbers as a column."""
        if isinstance(parts[0], np.ndarray):
            return np.stack(parts)
        out = np.empty((len(parts), 1), dtype=object)
        out[:, 0] = parts
        return out

    def low(self, x: Any) -> Any:
        """Float64 lower bounds."""
        return _floats(_below, x)

    def high(self, x: Any) -> Any:
        """Float64 upper bounds."""
        return _floats(lambda v: -_below(-v), x)

    def root(self, x: Any) -> Any:
        """Square root of what is not negative."""
        return _each(lambda v: v.nonnegative_part().sqrt() if not v.contains(0) else _root_at_zero(v), x)


def _below(ball: Any) -> float:
    """Return the largest float that is easily seen to lie below a ball."""
    ball = flint.arb(ball)
    if not ball.is_finite():
        return _DOWN
    end = ball.lower()
    value = float(end)
    return value if flint.arb(value) <= end else float(np.nextafter(value, _DOWN))


def _root_at_zero(ball: Any) -> Any:
    """Return a ball around the square roots of the non-negative part of a ball that contains 0."""
    top = ball.upper()
    if not top > 0:
        return flint.arb(0)
    half = top.sqrt().upper() / 2
    return flint.arb(half, half.upper())


def _each(function: Any, *arguments: Any) -> Any:
    arrays = np.broadcast_arrays(*(np.asarray(a) for a in arguments))
    if arrays[0].ndim == 0:
        return function(*(a.item() for a in arrays))
    out = np.empty(arrays[0].shape, dtype=object)
    out.ravel()[:] = [function(*entry) for entry in zip(*(a.ravel().tolist() for a in arrays), strict=True)]
    return out


def _floats(function: Any, x: Any) -> Any:
    array = np.asarray(x)
    if array.ndim == 0:
        return float(function(array.item()))
    return np.array([function(v) for v in array.ravel().tolist()], dtype=np.float64).reshape(array.shape)
