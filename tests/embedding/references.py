"""References for the fast paths: the formulas, spelled out in long double or in many digits."""

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


def tight_clusters(dtype, distance):
    """Two clients with samples a few steps apart and far from each other's, and a bandwidth of two steps."""
    step = max(1.0, distance * 2.0**-20)
    steps = np.random.default_rng(2).integers(0, 4, size=(2, 50, 3)) * step
    return [steps[0].astype(dtype), (steps[1] + distance).astype(dtype)], 2.0 * step


def reference_joint_gram(samples, labels, sigma=None, shares=None):
    """Block means of k_x(a, b) 1[y = y'] / pi_y, pair by pair, in long double; k_x is 1 without a bandwidth."""
    everybody = [y for client in labels for y in client]
    share = shares or {y: np.longdouble(everybody.count(y)) / len(everybody) for y in set(everybody)}
    gram = np.zeros((len(labels), len(labels)), dtype=np.longdouble)
    for i, mine in enumerate(labels):
        for j, theirs in enumerate(labels):
            for row, y in enumerate(mine):
                for column, other in enumerate(theirs):
                    if y == other:
                        value = 1 / np.longdouble(share[y])
                        if sigma is not None:
                            difference = np.asarray(samples[i][row], np.longdouble) - samples[j][column]
                            value *= np.exp(-(difference**2).sum() / (2 * np.longdouble(sigma) ** 2))
                        gram[i, j] += value
            gram[i, j] /= len(mine) * len(theirs)
    return gram


def squared_distances_of(gram):
    own = np.diagonal(gram)
    return own[:, None] + own[None, :] - 2 * gram
