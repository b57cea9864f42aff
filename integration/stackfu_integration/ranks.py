"""Scores of how well two kinds of samples are separated: lab and deployment measure membership attacks with them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["separation"]


def separation(members: ArrayLike, strangers: ArrayLike) -> float:
    """Area under the ROC curve: how often a member's score exceeds a stranger's, ties counting half.

    >>> separation([0.9, 0.8], [0.1, 0.8])
    0.875
    """
    from scipy.stats import rankdata

    inside, outside = np.asarray(members), np.asarray(strangers)
    ranks, m, n = rankdata(np.concatenate([inside, outside])), len(inside), len(outside)
    return float((ranks[:m].sum() - m * (m + 1) / 2) / (m * n))
