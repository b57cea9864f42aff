"""The RBF kernel, alone or within classes, on arrays or on tensors.

    k(a, b) = exp(-|a - b|^2 / (2 sigma^2))                     alone,
    k((a, y), (b, y')) = k(a, b) 1[y = y'] / pi_y               within classes ("joint"),

pi_y the share of class y in all data. The weight is that of the kernel of labels, :mod:`stackfu.embedding.labels`, of
which the joint kernel is the product with ``k``: for a large bandwidth it *is* that kernel, for a small one samples
of a class are told apart as well. Samples of different classes are orthogonal, so with p_iy the share of class y at
client i

    <mu_i, mu_j> = sum_y p_iy p_jy / pi_y (1 - C^y_ij),     C^y_ij the mean of 1 - k over the samples of class y:

only pairs within a class are looked at, the fraction ``sum_y pi_y^2`` of all. Random features follow the same line:
the D features are dealt out to the K classes, each class has frequencies of its own, and a client's vector holds for
each class the sum of ``phi`` over its samples of that class, divided by the number of all its samples (and by
``sqrt(pi_y)``, which the server does). An inner product then has a standard deviation of at most ``sqrt(sum_y (p_iy
p_jy / pi_y)^2 / D_y)``, D_y about D / K.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackfu.embedding import features, gram
from stackfu.embedding.gram import Arithmetic, Progress
from stackfu.embedding.labels import Labels, histogram_features
from stackfu.embedding.samples import Samples
from stackfu.errors import InputError

FloatArray = NDArray[np.float64]


def mean_complements(
    samples: Any, sigma: float, arithmetic: Arithmetic = "auto", progress: Progress | None = None
) -> FloatArray:
    """Return the (M, M) matrix of mean ``1 - k``, computed where the samples live."""
    if isinstance(samples, Samples):
        return gram.mean_complements(samples, sigma, arithmetic, progress)
    from stackfu.embedding import on_device

    return on_device.mean_complements(samples, sigma, arithmetic, progress)


def mean_features(samples: Any, frequencies: FloatArray, sigma: float) -> FloatArray:
    """Return the (M, D) mean random Fourier features, computed where the samples live."""
    with np.errstate(over="ignore"):
        scaled = frequencies / sigma
    if isinstance(samples, Samples):
        means = features.mean_features(samples.arrays, scaled)
    else:
        from stackfu.embedding import on_device

        means = on_device.mean_features(samples, scaled)
    if not np.isfinite(means).all():
        client = int(np.flatnonzero(~np.isfinite(means).all(axis=1))[0])
        raise InputError(
            "bandwidth",
            "is so small beside the samples that their ratio overflows; rescale the data",
            client=samples.name(client),
        )
    return means


def joint_gram(
    samples: Any,
    labels: Labels,
    pi: FloatArray,
    sigma: float,
    arithmetic: Arithmetic = "auto",
    progress: Progress | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return the inner products G of the joint kernel, and ``-G + r_i + r_j`` without the digits that G cannot keep.

    Histograms are centred in the second, which adds r_i + r_j and leaves distances as they are: where clients hardly
    differ in labels (and the bandwidth is large) it is as small as the distances are.
    """
    counts = labels.counts
    shares = counts / counts.sum(axis=1, keepdims=True)
    lost = np.zeros((len(counts), len(counts)))
    present = int(np.count_nonzero(counts.any(axis=0)))
    for done, (k, clients, complement) in enumerate(_by_class(samples, labels, sigma, arithmetic), start=1):
        weight = shares[clients, k] / np.sqrt(pi[k])
        lost[np.ix_(clients, clients)] += np.multiply.outer(weight, weight) * complement
        if progress is not None:
            progress(done, present)
    histograms = histogram_features(counts, pi)
    centred = (shares - pi) / np.sqrt(pi)
    return histograms @ histograms.T - lost, lost - centred @ centred.T


def _by_class(
    samples: Any, labels: Labels, sigma: float, arithmetic: Arithmetic
) -> Iterator[tuple[int, list[int], FloatArray]]:
    """Yield each class, the clients that have it, and their means of ``1 - k`` within it."""
    if not isinstance(samples, Samples):
        from stackfu.embedding import on_device

        for k, clients, rows in labels.rows():
            yield k, clients, on_device.mean_complements(samples.take(clients, rows), sigma, arithmetic)
        return
    owners: list[tuple[int, list[int]]] = []

    def blocks() -> Iterator[Samples]:
        for k, clients, rows in labels.rows():
            owners.append((k, clients))
            yield samples.take(clients, rows)

    complements = gram.mean_complements_of_blocks(blocks(), sigma, arithmetic)
    for done, complement in enumerate(complements):
        yield *owners[done], complement


def class_features(samples: Any, labels: Labels, sigma: float, total: int, seed: int) -> FloatArray:
    """Return (M, D) features of ``k(a, b) 1[y = y']``, without the weights of the classes."""
    directions = features.frequencies(samples.dimension, total, seed)
    parts = features.dealt_out(total, len(labels.classes))
    counts = labels.counts
    out = np.zeros((len(counts), total))
    for k, clients, rows in labels.rows():
        within = mean_features(
            samples.take(clients, rows), directions[:, parts[k].start // 2 : parts[k].stop // 2], sigma
        )
        out[clients, parts[k]] = within * (counts[clients, k] / counts[clients].sum(axis=1))[:, None]
    return out


def weigh_classes(class_features: FloatArray, pi: FloatArray) -> FloatArray:
    """Divide the features of each class by ``sqrt(pi_y)``."""
    out = np.array(class_features, dtype=np.float64)
    for part, share in zip(features.dealt_out(out.shape[1], len(pi)), pi, strict=True):
        out[:, part] /= np.sqrt(share)
    return out
