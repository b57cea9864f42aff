"""Shapley and leave-one-out values from the values of all coalitions.

phi_k = sum over coalitions T without k of  |T|! (n - 1 - |T|)! / n!  (v(T + k) - v(T)) .
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..model import Array

__all__ = ["coalition_sizes", "leave_one_out", "shapley_values"]


def coalition_sizes(count: int) -> npt.NDArray[np.int64]:
    """Return the number of clients in each of the ``2^count`` coalitions: how many bits of its index are set."""
    sizes = np.zeros(1, dtype=np.int64)
    for _ in range(count):
        sizes = np.concatenate([sizes, sizes + 1])
    return sizes


def shapley_values(values: Array) -> Array:
    """Return the Shapley value of every client; client k is in coalition i if bit k of i is set.

    >>> shapley_values(np.array([0.0, 1.0, 1.0, 4.0]))  # each alone is worth 1, both 4
    array([2., 2.])
    """
    count = len(values).bit_length() - 1
    sizes = coalition_sizes(count - 1)
    weights = np.array([1.0 / (count * math.comb(count - 1, s)) for s in range(count)])[sizes]
    found = np.empty(count)
    for k in range(count):
        pairs = values.reshape(-1, 2, 2**k)
        found[k] = weights @ (pairs[:, 1] - pairs[:, 0]).reshape(-1)
    return found


def leave_one_out(values: Array) -> Array:
    """Return what the coalition of all clients loses with each of them: ``v(N) - v(N - k)``.

    >>> leave_one_out(np.array([0.0, 1.0, 1.0, 4.0]))
    array([3., 3.])
    """
    everybody = len(values) - 1
    count = len(values).bit_length() - 1
    return np.array([values[everybody] - values[everybody ^ (1 << k)] for k in range(count)])
