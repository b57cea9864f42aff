"""Maximum mean discrepancy of two samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from stackfu.embedding.bandwidth import median_of
from stackfu.embedding.clients import check_samples
from stackfu.embedding.rbf import mean_complements
from stackfu.embedding.samples import check_bandwidth
from stackfu.errors import InputError


def mmd(a: Any, b: Any, bandwidth: float | str = "median", *, unbiased: bool = False) -> float:
    """Return the maximum mean discrepancy of two samples: the distance of their mean embeddings.

        MMD^2 = mean k(a, a') + mean k(b, b') - 2 mean k(a, b)

    With ``unbiased=True`` the pairs of a sample with itself are left out of the first two means. That
    estimate of MMD^2 may be negative; the square root is then returned with its sign, ``sign(u) sqrt(|u|)``.

    Parameters
    ----------
    a, b : array_like
        One row per sample.
    bandwidth : float or "median"
        Sigma of the RBF kernel; "median" takes it from both samples together.
    unbiased : bool
        Leave out the pairs of a sample with itself.

    Returns
    -------
    float
        The discrepancy; negative only for unbiased estimates below zero.

    Examples
    --------
    >>> import numpy as np
    >>> round(mmd(np.zeros((2, 1)), np.ones((2, 1)), bandwidth=1.0), 4)
    0.8871
    """
    checked = check_samples([a, b], "a, b")
    if isinstance(bandwidth, str):
        if bandwidth != "median":
            raise InputError("bandwidth", 'must be "median" or a positive number', value=repr(bandwidth))
        sigma = float(median_of(checked))
    else:
        sigma = float(check_bandwidth(bandwidth))
    sizes = np.array(checked.lengths)
    if unbiased and sizes.min() < 2:
        raise InputError(
            "a, b", "the unbiased estimate needs two samples on each side", client=int(sizes.argmin())
        )
    complement = mean_complements(checked, sigma)
    own = np.diagonal(complement)
    if unbiased:
        own = own * sizes / (sizes - 1)  # 1 - k vanishes on the pairs left out
    squared = float((complement[0, 1] - own[0]) + (complement[0, 1] - own[1]))
    if unbiased:
        return float(np.sign(squared) * np.sqrt(abs(squared)))
    return float(np.sqrt(max(squared, 0.0)))
