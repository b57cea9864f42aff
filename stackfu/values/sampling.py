"""Shapley values of many clients, enclosed with a stated confidence.

Samples are averages over random orders, independent of each other and within known bounds. Two bounds on the distance between their
mean and its expectation are used, each with half of the allowed error, for all clients at once: Hoeffding's, and the empirical
Bernstein bound of Maurer and Pontil (*Empirical Bernstein bounds and sample variance penalization*, 2009, theorem 4),

    |mean - expectation| <= sqrt(2 V log(2 / d) / r) + 7 width log(2 / d) / (3 (r - 1))    with probability 1 - 2 d,

for r samples with the sample variance V in an interval of the given width.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..model import Array
from .coalitions import CoalitionLoss

__all__ = ["distances_to_mean", "enclosed", "sampled_losses"]

Places = npt.NDArray[np.intp]

#: From this many clients on, coalitions of 1 and of all but 2 clients are averaged exactly; with fewer these sizes coincide.
FIVE = 5


def distances_to_mean(samples: Array, widths: Array, confidence: float) -> Array:
    """Return, per column, a distance that the mean keeps from its expectation, for all columns with the given confidence."""
    count, columns = samples.shape
    error = (1.0 - confidence) / (2 * columns)  # of one bound for one column
    hoeffding = widths * np.sqrt(np.log(2.0 / error) / (2 * count))
    if count < 2:
        return np.asarray(hoeffding)
    logarithm = np.log(4.0 / error)  # two sides, each with half of the error
    variance = samples.var(axis=0, ddof=1)
    bernstein = np.sqrt(2.0 * variance * logarithm / count) + 7.0 * widths * logarithm / (3 * (count - 1))
    return np.asarray(np.minimum(hoeffding, bernstein))


def enclosed(
    samples: Array, low: Array, high: Array, whole: float, confidence: float
) -> tuple[Array, Array, Array]:
    """Return estimates, and ends of intervals that hold all expectations with the given confidence.

    ``low`` and ``high`` bound every sample, ``whole`` is the sum of the expectations: it narrows the intervals, and what the means
    miss of it is divided among them.
    """
    mean = samples.mean(axis=0)
    away = distances_to_mean(samples, high - low, confidence)
    below, above = np.maximum(mean - away, low), np.minimum(mean + away, high)
    least, most = float(below.sum()), float(above.sum())
    balanced = np.clip(mean + (whole - float(mean.sum())) / len(mean), below, above)
    return balanced, np.maximum(below, whole - (most - above)), np.minimum(above, whole - (least - below))


def sampled_losses(
    loss: CoalitionLoss, empty: float, orders: int, confidence: float, seed: int
) -> tuple[Array, Array, Array]:
    """Return estimated Shapley values of the falls of the loss, and the ends of their intervals.

    Coalitions of 0, 1, n - 2 and n - 1 clients, which matter most or least, are averaged exactly. One random order serves
    every client and every other size: a client is added to the first s of the others. The reverse order is averaged in.
    """
    n = loss.count
    rng = np.random.default_rng(seed)
    exact, sampled = _exact_part(loss, empty)
    low, high = _bounds(loss, sampled)
    samples = np.empty((orders, n))
    for i in range(orders):
        order = rng.permutation(n)
        both = loss.marginals(order)[sampled].sum(axis=0) + loss.marginals(order[::-1])[sampled].sum(axis=0)
        samples[i] = 0.5 * both / n
    everybody = loss.of_members(np.ones(n, dtype=bool))
    rest = (empty - everybody) - float(exact.sum())
    mean, below, above = enclosed(samples, low, high, rest, confidence)
    return exact + mean, exact + below, exact + above


def _exact_part(loss: CoalitionLoss, empty: float) -> tuple[Array, Places]:
    """Return the part of every value that comes from the smallest and largest coalitions, and the other sizes."""
    n = loss.count
    alone = loss.alone
    one, two = loss.without
    everybody = loss.of_members(np.ones(n, dtype=bool))
    part = (empty - alone) + (one - everybody)
    if n < FIVE:
        return part / n, np.arange(1, n - 1)
    # a single other client j: alone_j - pair_jk; all but j and k: two_jk - one_j
    pairs = loss.pairs
    part = part + ((alone.sum() - alone) - (pairs.sum(axis=0) - alone)) / (n - 1)
    part = part + ((two.sum(axis=0) - one) - (one.sum() - one)) / (n - 1)
    return part / n, np.arange(2, n - 2)


def _bounds(loss: CoalitionLoss, sizes: Places) -> tuple[Array, Array]:
    """Return bounds of what the coalitions of these sizes can add to a value.

    With ``zeta = y_k / (S_T + y_k)`` the distance part D of the loss falls by
    ``zeta (D(m) - D(mu_k)) + W zeta (1 - zeta) ||mu_k - m||^2``, where ``0 <= D(m) <= max D(mu_j)``; the total of s clients is at
    least that of the s smallest others.
    """
    n, y = loss.count, loss.amounts
    diagonal = np.diag(loss.inner)
    single = loss.weight * np.maximum(diagonal - 2.0 * loss.pull + loss.square, 0.0)
    squares = np.maximum(diagonal[:, None] + diagonal[None, :] - 2.0 * loss.inner, 0.0)
    reach = squares.max(axis=0)
    order = np.argsort(y)
    cumulated = np.concatenate([[0.0], np.cumsum(y[order])])
    low, high = np.zeros(n), np.zeros(n)
    farthest = float(loss.noise.max(initial=0.0))
    ranked = np.argsort(single)
    others = np.full(n, single[ranked[-1]])  # the largest of the other clients
    others[ranked[-1]] = single[ranked[-2]]
    place = np.empty(n, dtype=np.intp)
    place[order] = np.arange(n)
    for s in sizes:
        total = np.where(place < s, cumulated[min(s + 1, n)] - y, cumulated[s])
        zeta = y / (total + y)
        low -= zeta * single
        high += zeta * np.maximum(others - single, 0.0)
        high += loss.weight * np.where(zeta < 0.5, zeta * (1.0 - zeta), 0.25) * reach
        high += loss.weight * loss.thin * zeta / total
        if farthest > 0:
            high += loss.weight * farthest / total
            low -= loss.weight * farthest / (total + y)
    return low / n, high / n
