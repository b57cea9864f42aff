"""All block means of the kernel matrix, a tile at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stackfu.embedding.samples import Samples

Progress = Callable[[int, int], None]
Arithmetic = Literal["auto", "double"]


def mean_complements(
    samples: Samples, sigma: float, arithmetic: Arithmetic = "auto", progress: Progress | None = None
) -> NDArray[np.float64]:
    """Return ``C_ij = mean over a in client i, b in client j of 1 - k(a, b)``, so that ``G = 1 - C``."""
    from scipy.spatial.distance import cdist

    m = len(samples)
    C = np.zeros((m, m))
    for i in range(m):
        a = np.asarray(samples.arrays[i], dtype=np.float64) / sigma
        for j in range(i, m):
            total = 0.0
            for start in range(0, len(samples.arrays[j]), 256):
                b = np.asarray(samples.arrays[j][start : start + 256], dtype=np.float64) / sigma
                total -= float(np.expm1(-cdist(a, b, "sqeuclidean") / 2).sum())
            C[i, j] = C[j, i] = total / (len(samples.arrays[i]) * len(samples.arrays[j]))
        if progress is not None:
            progress(i + 1, m)
    return C
