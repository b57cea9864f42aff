"""What the fast paths are compared with: the formulas, spelled out in long double or in many digits."""

import numpy as np


def reference_gram(samples, sigma):
    """Block means of the kernel matrix from coordinate differences, in long double."""
    x = [np.asarray(s, dtype=np.longdouble) for s in samples]
    gram = np.empty((len(x), len(x)), dtype=np.longdouble)
    for i, a in enumerate(x):
        for j, b in enumerate(x):
            squared = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)
            gram[i, j] = np.exp(-squared / (2 * np.longdouble(sigma) ** 2)).mean()
    return gram


def reference_squared_distances(samples, sigma):
    gram = reference_gram(samples, sigma)
    own = np.diagonal(gram)
    return own[:, None] + own[None, :] - 2 * gram


def clouds(seed, sizes, d, dtype=np.float64, spread=0.5, offset=0.0):
    """Normal clouds around different centres, one per client."""
    rng = np.random.default_rng(seed)
    return [(offset + spread * rng.normal(size=d) + rng.normal(size=(n, d))).astype(dtype) for n in sizes]
