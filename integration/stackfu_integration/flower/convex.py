"""Convex heads: the last linear layer as the optimum of a penalised softmax loss, found from sums of gradients.

All layers below go back to the first weights, which have met no data, and stay; the head begins at zero and minimises

    F(w) = 1/n sum_k f_k(w) + l2/2 |w|^2

over the participants' samples, ``f_k`` being the sum of client k's losses. In a round every participant is sent a head and
answers with the step of gradient descent from it, ``w - grad f_k(w) / n_k``: an update like any other, so that whatever is looked
at, signed, asked for again, averaged and paid in rounds of training is so here. The average is ``w - 1/n sum_k grad f_k(w)``.

Steps are those of limited-memory BFGS, and need no losses. Along a step d from w, ``<grad F(w + d), d> <= 0`` says that F has
fallen, because F is convex; a smaller gradient is progress too. Any other point lies beyond the minimum along d, and the next one
is where a straight line between the two slopes says that it is. Points of whichever kind are remembered as curvature. What is
remembered is in the ledger (:class:`~.events.SlopeSummed`), so a server that was killed takes the steps that it would have taken.

Newton's method (``newton``) starts from the trained head instead, and asks for second derivatives too: every answer has one more
array, the upper triangle of ``hess f_k(w) / n_k``, so that the average holds the Hessian of F but for ``l2`` on its diagonal. Its
step is ``-(hess F)^-1 grad F``, shortened like any other.

The bound ``|w - w*| <= |grad F(w)| / l2`` rests on none of this.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from flwr.app import Array, ArrayRecord

from stackfu.errors import InputError
from stackfu_integration.arrays import FloatArray
from stackfu_integration.flower.events import SlopeSummed
from stackfu_integration.flower.robust import of_type

__all__ = [
    "CURVATURE",
    "METHOD",
    "MOST_NUMBERS",
    "NEWTON",
    "Seen",
    "curved",
    "descended",
    "flat",
    "head_of",
    "in_double",
    "next_point",
    "of_one_objective",
    "packed",
    "unpacked",
    "with_curvature",
    "with_head",
    "zeroed",
]


METHOD, NEWTON = "convex-head", "newton"
CURVATURE = "stackfu.curvature"  # the array of second derivatives in answers to Newton's method
MOST_NUMBERS = 2000  # of a head whose second derivatives are sent: 2 million of them, 16 megabytes
MEMORY = 12  # steps, as in the lab


# ---- the head of a model


def head_of(model: ArrayRecord, names: Collection[str]) -> ArrayRecord:
    """Return the named arrays, in the order of the model."""
    return ArrayRecord(OrderedDict((name, array) for name, array in model.items() if name in names))


def in_double(model: ArrayRecord) -> ArrayRecord:
    """Return the same arrays in double precision."""
    return ArrayRecord(
        OrderedDict((name, Array(array.numpy().astype(np.float64))) for name, array in model.items())
    )


def flat(model: ArrayRecord) -> FloatArray:
    """Return all numbers of a head, one array after the other."""
    return np.concatenate([array.numpy().astype(np.float64).ravel() for array in model.values()])


def with_head(model: ArrayRecord, names: Collection[str], values: FloatArray) -> ArrayRecord:
    """Return the model with these numbers in the named arrays, in the precision that they have there."""
    out, place = OrderedDict(), 0
    for name, array in model.items():
        old = array.numpy()
        if name in names:
            part = values[place : place + old.size].reshape(old.shape)
            with np.errstate(over="ignore"):  # whoever looks at it sees that it is not finite
                out[name], place = Array(of_type(part, old.dtype)), place + old.size
        else:
            out[name] = array
    return ArrayRecord(out)


def zeroed(model: ArrayRecord, names: Collection[str]) -> ArrayRecord:
    """Return the model with a zero head."""
    return with_head(model, names, np.zeros(len(flat(head_of(model, names)))))


def descended(model: ArrayRecord, names: Collection[str], gradient: FloatArray, samples: int) -> ArrayRecord:
    """The model after one step of gradient descent on the mean loss of so many samples, ``gradient`` being that of their sum."""
    head = flat(head_of(model, names))
    if np.shape(gradient) != head.shape or samples < 1:
        raise InputError(
            "gradient",
            f"must be the sum over some samples of {len(head)} numbers, those of {', '.join(names)}",
            value=np.shape(gradient),
        )
    return with_head(model, names, head - np.asarray(gradient, dtype=np.float64) / samples)


# ---- second derivatives


def packed(matrix: FloatArray) -> FloatArray:
    """Return the upper triangle of a symmetric matrix, row by row.

    >>> packed(np.array([[1.0, 2.0], [2.0, 3.0]]))
    array([1., 2., 3.])
    """
    return np.asarray(matrix[np.triu_indices(len(matrix))], dtype=np.float64)


def unpacked(triangle: FloatArray, size: int) -> FloatArray:
    """Return the symmetric matrix of an upper triangle."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = triangle
    return np.asarray(matrix + np.triu(matrix, 1).T)


def with_curvature(model: ArrayRecord, names: Collection[str]) -> ArrayRecord:
    """Return the message for clients with requested second derivatives: the model, and space for them."""
    size = len(flat(head_of(model, names)))
    return ArrayRecord(OrderedDict([*model.items(), (CURVATURE, Array(np.zeros(size * (size + 1) // 2)))]))


def curved(model: ArrayRecord, names: Collection[str], hessian: FloatArray, samples: int) -> ArrayRecord:
    """Return the model with the second derivatives of the mean loss, ``hessian`` being those of the sum over so many samples."""
    size = len(flat(head_of(model, names)))
    if np.shape(hessian) != (size, size) or samples < 1:
        raise InputError(
            "curvature", f"must be a square of {size} rows, over some samples", value=np.shape(hessian)
        )
    filled = {CURVATURE: Array(packed(np.asarray(hessian, dtype=np.float64)) / samples)}
    return ArrayRecord(OrderedDict((name, filled.get(name, array)) for name, array in model.items()))


# ---- steps


@dataclass(frozen=True, eq=False)
class Seen:
    """A head that was looked at in a round, the slope of F there, and the round of the point that steps began from afterwards."""

    number: int
    point: FloatArray
    slope: FloatArray
    base: int

    @property
    def norm(self) -> float:
        """``|grad F|``."""
        return float(np.linalg.norm(self.slope))


def of_one_objective(events: Sequence[SlopeSummed], clients: Collection[int]) -> list[SlopeSummed]:
    """Return the events that a round of these clients can still use: the last ones, their steps' starting points, and the best.

    A client that joins or leaves changes F, and earlier events do not apply to the new one.
    """
    same: list[SlopeSummed] = []
    for event in reversed(events):
        if set(event.clients) != set(clients):
            break
        same.insert(0, event)
    if not same:
        return []
    window = same[-MEMORY - 1 :]
    best = min(same, key=lambda event: event.norm)
    numbers = {best.number, *(e.number for e in window), *(e.base for e in window)}
    return [event for event in same if event.number in numbers]


def next_point(
    history: Sequence[Seen], now: Seen, hessian: FloatArray | None = None
) -> tuple[int, FloatArray]:
    """Return the round of the point that the next step begins from, and where it leads.

    ``history`` are the points before, of the same objective, and ``now.base`` is not looked at. ``hessian`` is that of F at
    ``now``, where it is known.

    >>> first = Seen(1, np.array([0.0]), np.array([-2.0]), 1)
    >>> next_point([], first)
    (1, array([1.]))
    >>> next_point([first], Seen(2, np.array([1.0]), np.array([2.0]), 0))  # too far, and no smaller gradient
    (1, array([0.5]))
    >>> next_point([first], Seen(2, np.array([1.0]), np.array([-1.0]), 0))
    (2, array([2.]))
    """
    if not history and hessian is None:
        return now.number, now.point - now.slope / max(1.0, now.norm)
    known = {seen.number: seen for seen in history}
    base = known[history[-1].base] if history else now
    step = now.point - base.point
    falls, rises = float(base.slope @ step), float(now.slope @ step)
    if rises > 0.0 and now.norm >= base.norm:
        share = falls / (falls - rises) if falls < 0.0 else 0.0
        return base.number, base.point + min(0.9, max(0.1, share)) * step
    if hessian is not None:
        return now.number, now.point - _newton(hessian, now.slope)
    return now.number, now.point - _inverse_times(now.slope, _pairs([*history, now], known))


def _newton(hessian: FloatArray, slope: FloatArray) -> FloatArray:
    """Return Newton's step, or the slope itself if a spoilt matrix has no inverse."""
    try:
        return np.asarray(np.linalg.solve(hessian, slope))
    except np.linalg.LinAlgError:
        return slope / max(1.0, float(np.linalg.norm(slope)))


def _pairs(seen: Sequence[Seen], known: Mapping[int, Seen]) -> list[tuple[FloatArray, FloatArray]]:
    """Differences of points and of slopes along the steps that were made; the oldest points have lost theirs."""
    pairs = []
    for before, after in pairwise(seen):
        base = known.get(before.base)
        if base is not None:
            moved, change = after.point - base.point, after.slope - base.slope
            if float(moved @ change) > 0.0:  # always, of a convex objective, but for rounding
                pairs.append((moved, change))
    return pairs[-MEMORY:]


def _inverse_times(slope: FloatArray, pairs: Sequence[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """Return two-loop recursion of limited-memory BFGS."""
    wanted, kept = slope.copy(), []
    for moved, change in reversed(pairs):
        weight = float(moved @ wanted) / float(moved @ change)
        wanted = wanted - weight * change
        kept.append(weight)
    if pairs:
        moved, change = pairs[-1]
        wanted = wanted * (float(moved @ change) / float(change @ change))
    for (moved, change), weight in zip(pairs, reversed(kept), strict=True):
        wanted = wanted + moved * (weight - float(change @ wanted) / float(moved @ change))
    return wanted
