"""Clients' names: values that came with them, brought into the order of the clients; and names in a sentence.

Values have names in a dictionary and in a pandas series. What has none (a list, an array, a series that is merely counted) stays in
the order it came in. pandas is never imported; a series is recognised by what it can do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stackfu.errors import InputError

__all__ = ["PerClient", "by_name", "listed", "natural_order"]

#: One number per client: in their order, or by name.
PerClient: TypeAlias = ArrayLike | Mapping[Any, float]


def by_name(
    values: Any, argument: str, clients: Callable[[], Sequence[str]], others: float | None = None
) -> Any:
    """Return one value per client in the clients' order; ``others`` stands for who is not named, where that is allowed.

    >>> def clients():
    ...     return ["Hull", "York"]
    >>> by_name({"York": 2.0, "Hull": 1.0}, "sizes", clients)
    [1.0, 2.0]
    >>> by_name({"York": 2.0}, "payments", clients, others=0.0)
    [0.0, 2.0]
    >>> by_name([3.0, 4.0], "sizes", clients)
    [3.0, 4.0]
    """
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, Mapping):
        keys, entries = list(values), list(values.values())
    elif hasattr(values, "index") and hasattr(values, "to_numpy"):
        keys, entries = list(values.index), list(values.to_numpy())
    else:
        return values
    names = clients()
    known, given = set(names), dict[str, Any]()
    if not isinstance(values, Mapping) and set(map(str, keys)) != known and not _words(keys):
        return values  # an index that counts, and says nothing about clients
    for key, entry in zip(map(str, keys), entries, strict=True):
        if key not in known:
            raise InputError(
                argument, f"there is no such client; the clients are {listed(names)}", value=repr(key)
            )
        if key in given:
            raise InputError(argument, "is given twice", client=key)
        given[key] = entry
    if others is None and len(given) < len(names):
        raise InputError(argument, "is missing", client=next(name for name in names if name not in given))
    return [given.get(name, others) for name in names]


def _words(keys: list[Any]) -> bool:
    return any(isinstance(key, str) for key in keys)


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return the first names as they are typed on the command line: one that holds a comma stands in quotation marks.

    >>> listed(["York", "Kingston upon Hull, City of"])
    'York, "Kingston upon Hull, City of"'
    """
    shown = ", ".join(
        '"' + name.replace('"', '""') + '"' if "," in name or name.startswith('"') else name
        for name in names[:most]
    )
    return shown + (", ..." if len(names) > most else "")


def natural_order(values: Sequence[Any]) -> NDArray[np.intp]:
    """Return the places of the values in ascending order; numbers within names count as numbers.

    >>> [["ward 10", "ward 2", "Hull"][i] for i in natural_order(["ward 10", "ward 2", "Hull"])]
    ['Hull', 'ward 2', 'ward 10']
    """
    if all(isinstance(value, (int, float, np.number)) for value in values):
        return np.argsort(np.asarray(values), kind="stable")
    return np.array(sorted(range(len(values)), key=lambda i: _natural(str(values[i]))), dtype=np.intp)


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part
    ]
