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
from stackfu.embedding.gram import Arithmetic
from stackfu.embedding.labels import Labels, class_blocks, histogram_features
from stackfu.embedding.samples import Block, Samples
from stackfu.embedding.tiles import Progress
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
    scaled = _scaled(frequencies, sigma)
    if isinstance(samples, Samples):
        means = np.array(list(features.mean_features(samples.arrays, [scaled] * len(samples))))
    else:
        from stackfu.embedding import on_device

        means = on_device.mean_features(samples, scaled)
    return _finite(means, samples)


def _scaled(frequencies: FloatArray, sigma: float) -> FloatArray:
    with np.errstate(over="ignore"):
        return np.asarray(frequencies / sigma)


def _finite(means: FloatArray, samples: Any) -> FloatArray:
    if not np.isfinite(means).all():
        client = int(np.flatnonzero(~np.isfinite(means).all(axis=1))[0])
        raise InputError(
            "bandwidth",
            "is so small relative to the samples that their ratio overflows; rescale the data",
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

    def blocks() -> Iterator[Block]:
        for k, clients, block in class_blocks(samples, labels):
            owners.append((k, clients))
            yield block

    complements = gram.mean_complements_of_blocks(blocks(), sigma, arithmetic)
    for done, complement in enumerate(complements):
        yield *owners[done], complement


def class_features(samples: Any, labels: Labels, sigma: float, total: int, seed: int) -> FloatArray:
    """Return (M, D) features of ``k(a, b) 1[y = y']``, without the weights of the classes."""
    scaled = _scaled(features.frequencies(samples.dimension, total, seed), sigma)
    parts = features.dealt_out(total, len(labels.classes))
    own = [np.ascontiguousarray(scaled[:, part.start // 2 : part.stop // 2]) for part in parts]
    shares = labels.counts / labels.counts.sum(axis=1, keepdims=True)
    out = np.zeros((len(labels.counts), total))
    places = [(k, i) for k, clients, _ in labels.rows() for i in clients]
    for (k, i), mean in zip(places, _means_within_classes(samples, labels, own), strict=True):
        out[i, parts[k]] = mean * shares[i, k]
    return _finite(out, samples)


def _means_within_classes(samples: Any, labels: Labels, own: list[FloatArray]) -> Iterator[FloatArray]:
    """Yield the mean features of each class and each client that has it."""
    taken = ((k, samples.take(clients, rows)) for k, clients, rows in labels.rows())
    if not isinstance(samples, Samples):
        from stackfu.embedding import on_device

        for k, block in taken:
            yield from on_device.mean_features(block, own[k])
        return
    frequencies = (own[k] for k, clients, _ in labels.rows() for _ in clients)
    yield from features.mean_features((array for _, block in taken for array in block.arrays), frequencies)


def weigh_classes(class_features: FloatArray, pi: FloatArray) -> FloatArray:
    """Divide the features of each class by ``sqrt(pi_y)``."""
    out = np.array(class_features, dtype=np.float64)
    for part, share in zip(features.dealt_out(out.shape[1], len(pi)), pi, strict=True):
        out[:, part] /= np.sqrt(share)
    return out
