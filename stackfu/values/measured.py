"""Values for any measure of coalitions, such as the accuracy of models trained on their data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..model import Array, frozen
from ..model.arguments import count, number
from .result import ClientValues
from .sampling import enclosed
from .server_loss import check_confidence
from .shapley import leave_one_out, shapley_values

__all__ = ["values_of_measure"]

#: Up to this many clients all coalitions are measured if nothing else is asked for.
MOST_EXACT = 15

Members = npt.NDArray[np.bool_]


def values_of_measure(
    measure: Callable[[tuple[str, ...]], float],
    clients: Sequence[str],
    *,
    name: str = "measure",
    bounds: tuple[float, float] | None = None,
    orders: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> ClientValues:
    """Return what each client contributes to a measure of coalitions.

    Parameters
    ----------
    measure
        Value of a coalition, given the names of its clients in the order of ``clients``; also of the empty one. No coalition is
        measured twice.
    clients
        Names of the clients.
    name
        What is measured, for tables.
    bounds
        The least and the largest value that the measure can have, (0, 1) for an accuracy. Needed where coalitions are sampled.
    orders
        Random orders, each of which measures at most one coalition per client. By default all coalitions of up to 15 clients are
        measured.
    confidence
        Probability with which all intervals hold at once, where coalitions are sampled.
    seed
        Seed of the random orders.

    Examples
    --------
    >>> found = values_of_measure(lambda clients: len(clients) ** 2, ["York", "Hull"], name="accuracy")
    >>> found.shapley, found.exact
    (array([2., 2.]), True)
    """
    if not callable(measure):
        raise InputError("measure", "must be a function of a coalition", value=repr(measure))
    if isinstance(clients, str):
        raise InputError("clients", "must be a list of names", value=repr(clients))
    names = tuple(map(str, clients))
    if not names or len(set(names)) != len(names):
        raise InputError("clients", "must be names, each of one client", value=repr(clients))
    level = check_confidence(confidence)
    asked = _orders(orders)
    start = count(seed, "seed")
    limits = None if bounds is None else _limits(bounds)
    n = len(names)
    known: dict[bytes, float] = {}

    def value(members: Members) -> float:
        key = np.packbits(members).tobytes()
        if key not in known:
            coalition = tuple(name for name, there in zip(names, members, strict=True) if there)
            found = number(measure(coalition), "measure", "must return a number")
            if not np.isfinite(found):
                raise InputError("measure", f"is no finite number for the coalition {coalition}", value=found)
            if limits is not None and not limits[0] <= found <= limits[1]:
                raise InputError("bounds", f"do not hold for the coalition {coalition}", value=found)
            known[key] = found
        return known[key]

    none, everybody = np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
    alone = np.array([value(np.arange(n) == k) for k in range(n)]) - value(none)
    whole = value(everybody) - value(none)
    if orders is None and n <= MOST_EXACT:
        codes = np.arange(2**n)
        table = np.array([value((code >> np.arange(n) & 1).astype(bool)) for code in codes])
        exact = shapley_values(table)
        return _result(
            names, name, exact, exact, exact, leave_one_out(table), alone, whole, value(none), 1.0, 0
        )
    if limits is None:
        raise InputError(
            "bounds", f"are needed to enclose values of {n} clients by sampling; (0, 1) for an accuracy"
        )
    low, high = limits
    rng = np.random.default_rng(start)
    samples = np.empty((asked, n))
    for i in range(asked):
        members, before = none.copy(), value(none)
        for k in rng.permutation(n):
            members[k] = True
            after = value(members)
            samples[i, k], before = after - before, after
    widest = np.full(n, high - low)
    mean, below, above = enclosed(samples, -widest, widest, whole, level)
    last = np.array([value(everybody) - value(np.arange(n) != k) for k in range(n)])
    return _result(names, name, mean, below, above, last, alone, whole, value(none), level, asked)


def _orders(orders: int | None) -> int:
    asked = 100 if orders is None else count(orders, "orders")
    if asked == 0:
        raise InputError("orders", "must be at least 1", value=0)
    return asked


def _limits(bounds: object) -> tuple[float, float]:
    """Return the ends of what a measure can be, or an error."""
    if not isinstance(bounds, (tuple, list, np.ndarray)) or len(bounds) != 2:
        raise InputError("bounds", "must be a smaller and a larger number", value=repr(bounds))
    low, high = (number(end, "bounds") for end in bounds)
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InputError("bounds", "must be a smaller and a larger number, both finite", value=bounds)
    return low, high


def _result(
    names: tuple[str, ...],
    measure: str,
    shapley: Array,
    low: Array,
    high: Array,
    last: Array,
    alone: Array,
    whole: float,
    empty: float,
    confidence: float,
    orders: int,
) -> ClientValues:
    return ClientValues(
        names,
        measure,
        frozen(shapley),
        frozen(low),
        frozen(high),
        frozen(last),
        frozen(alone),
        whole,
        empty,
        confidence,
        orders,
    )
