"""Numbers, counts and yes-or-no as they are given: read, or refused by the name of the argument.

Text is none of them, even if it looks like one; neither are dates, complex numbers and lists in lists of different lengths.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..errors import InputError

__all__ = ["count", "flag", "not_negative", "number", "numbers"]

Array = npt.NDArray[np.float64]

#: Python's own kinds of number (truth values too), and objects, which are looked at one by one.
_NUMBERS, _OBJECTS = "uif", "O"


def number(value: object, name: str, problem: str = "must be a number") -> float:
    """Return one number, which may be NaN or infinite.

    >>> number("0.5", "budget")
    Traceback (most recent call last):
    stackfu.errors.InputError: budget = '0.5': must be a number
    """
    kind = np.asarray(value).dtype.kind if isinstance(value, (np.generic, np.ndarray)) else ""
    sole = not isinstance(value, np.ndarray) or value.ndim == 0
    if isinstance(value, (bool, str, bytes)) or kind not in ("", "u", "i", "f") or not sole:
        raise InputError(name, problem, value=reprlib.repr(value))
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InputError(name, problem, value=reprlib.repr(value)) from None


def flag(value: object, name: str) -> bool:
    """Yes or no.

    >>> flag("no", "robust")
    Traceback (most recent call last):
    stackfu.errors.InputError: robust = 'no': must be True or False
    """
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(name, "must be True or False", value=reprlib.repr(value))
    return bool(value)


def count(value: object, name: str, least: int = 0) -> int:
    """Return a whole number that is not smaller than ``least``.

    >>> count(2.7, "max_nodes")
    Traceback (most recent call last):
    stackfu.errors.InputError: max_nodes = 2.7: must be a whole number of at least 0
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < least:
        raise InputError(name, f"must be a whole number of at least {least}", value=reprlib.repr(value))
    return int(value)


def not_negative(value: object, name: str) -> float:
    """Return a number that is not below 0, perhaps infinite."""
    found = number(value, name)
    if not found >= 0:
        raise InputError(name, "must not be negative or NaN", value=found)
    return found


def numbers(
    values: npt.ArrayLike,
    name: str,
    problem: str = "must be a sequence of numbers",
    who: Callable[[int], int | str] | None = None,
) -> Array:
    """Return an array of numbers, which may be NaN or infinite; ``who`` names the client of an invalid entry."""
    try:
        read = np.asarray(values)
        if isinstance(values, (list, tuple)) and any(isinstance(v, (bool, np.bool_)) for v in values):
            pass  # True among numbers would be read as 1
        elif read.dtype.kind in _NUMBERS:
            with np.errstate(over="ignore"):  # of more digits than float64 has
                return np.asarray(read, dtype=np.float64)
        elif read.dtype.kind == _OBJECTS and not any(
            isinstance(v, (str, bytes, bool, np.bool_)) for v in read.flat
        ):
            return read.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    if who is not None and isinstance(values, (list, tuple)):
        for k, value in enumerate(values):
            try:
                if value is not None:
                    number(value, name)
            except InputError as error:
                try:
                    client = who(k)
                except IndexError:
                    break
                raise InputError(name, error.problem, client=client, value=error.value) from None
    raise InputError(name, problem, value=reprlib.repr(values))
