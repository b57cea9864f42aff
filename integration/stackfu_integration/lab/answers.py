"""Clients that answer as the measured losses say: best responses on a grid, one training per profile looked at.

Neither the paper's model nor a calibrated one decides what a client does here. Its utility is ``p_k x_k - c_k x_k - f_k``
with ``f_k`` measured on the model that is trained with the profile, so every look at another participation is a training;
small federations with a convex head can afford that. Clients move in turn, and whether they settled is part of the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stackfu.errors import InputError
from stackfu_integration.arrays import FloatArray

__all__ = ["Answer", "measured_answer"]


@dataclass(frozen=True)
class Answer:
    """Final participation of the clients, whether it is stable, and the number of trainings used."""

    participation: FloatArray
    settled: bool
    trainings: int


def measured_answer(
    losses: Callable[[FloatArray], FloatArray],
    payments: FloatArray,
    caps: FloatArray,
    costs: FloatArray,
    start: FloatArray,
    *,
    steps: int = 3,
    rounds: int = 3,
) -> Answer:
    """Let clients move in turn to the best of ``steps + 1`` participations between 0 and their cap.

    ``losses(x)`` are the remaining clients' measured losses at a profile. A profile in which nobody brings data has no
    model: the last client that brings any stays.

    >>> far = lambda x: (1.0 - x) ** 2
    >>> measured_answer(far, np.array([0.5]), np.ones(1), np.array([0.5]), np.array([0.5])).participation
    array([1.])
    """
    if steps < 1 or rounds < 1:
        raise InputError("steps", "and rounds must be at least 1", value=(steps, rounds))
    if not (len(payments) == len(caps) == len(costs) == len(start)):
        raise InputError(
            "payments", "needs one number per client, as caps, costs and start do", value=len(payments)
        )
    known: dict[tuple[float, ...], FloatArray] = {}

    def looked_up(x: FloatArray) -> FloatArray:
        key = tuple(x.tolist())
        if key not in known:
            known[key] = losses(x)
        return known[key]

    x = np.minimum(start, caps)
    moved = True
    for _ in range(rounds):
        moved = False
        for k in range(len(x)):
            tried = np.union1d(np.linspace(0.0, caps[k], steps + 1), x[k])
            best, value = x[k], -np.inf
            for candidate in tried:
                profile = x.copy()
                profile[k] = candidate
                if not profile.any():
                    continue
                utility = (payments[k] - costs[k]) * candidate - looked_up(profile)[k]
                if utility > value or (utility == value and candidate == x[k]):
                    best, value = candidate, utility
            moved |= bool(best != x[k])
            x[k] = best
        if not moved:
            break
    return Answer(x, not moved, len(known))
