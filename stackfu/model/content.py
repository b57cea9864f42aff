"""Equality of results by content: what a file or a pickle brings back is equal to what was stored.

Two results are equal if their type and all their fields are, arrays number by number. How long a search took and what happened on
the way are no part of an answer, and are not compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

__all__ = ["Content", "alike"]


class Content:
    """Base of frozen dataclasses that compare and hash by content.

    Subclasses are dataclasses with ``eq=False``; the fields in ``_not_compared`` are left out.
    """

    __slots__ = ()
    #: Fields that are no part of an answer.
    _not_compared: ClassVar[frozenset[str]] = frozenset({"history", "seconds", "mechanism", "pieces"})

    def _compared(self) -> list[str]:
        return [field.name for field in fields(self) if field.name not in self._not_compared]  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not type(self):
            return NotImplemented
        return all(alike(getattr(self, name), getattr(other, name)) for name in self._compared())

    def __hash__(self) -> int:
        return hash((type(self).__name__, *(_digest(getattr(self, name)) for name in self._compared())))


def alike(one: Any, two: Any) -> bool:
    """Return True if two values have the same content; NaN equals NaN, and a list a tuple.

    Examples
    --------
    >>> alike({"a": np.array([1.0, np.nan])}, {"a": np.array([1.0, np.nan])}), alike([1, 2], (1, 2)), alike(1.0, 2.0)
    (True, True, False)
    """
    if one is two:
        return True
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        first, second = np.asarray(one), np.asarray(two)
        numeric = first.dtype.kind in "fc" and second.dtype.kind in "fc"
        return np.array_equal(first, second, equal_nan=numeric)
    if isinstance(one, float) and isinstance(two, float):
        return one == two or (math.isnan(one) and math.isnan(two))
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return one.keys() == two.keys() and all(alike(one[key], two[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)):
        return len(one) == len(two) and all(map(alike, one, two))
    if type(one) is type(two) and hasattr(one, "to_record"):
        return alike(one.to_record(), two.to_record())
    return bool(one == two)


def _digest(value: Any) -> Any:
    """Return a hash that equal values share; arrays by their numbers, where 0.0 and -0.0 are one."""
    if isinstance(value, np.ndarray):
        numbers = np.asarray(value, dtype=np.float64) if value.dtype.kind in "biuf" else None
        return (value.shape, None if numbers is None else (numbers + 0.0).tobytes())
    if isinstance(value, (list, tuple)):
        return tuple(map(_digest, value))
    if isinstance(value, float):
        return 0.0 if math.isnan(value) else value
    if isinstance(value, (str, int, bool, Content)) or value is None:
        return value
    return 0  # of any other type equality alone decides
