"""Samples of each client in, kernel mean embeddings out.

With a kernel k the data of client i is represented by its mean embedding ``mu_i = mean_a k(a, .)``, and everything a game needs is
the matrix of inner products ``G_ij = <mu_i, mu_j> = mean_{a, b} k(a, b)``. The kernel is the RBF kernel
``exp(-|a - b|^2 / (2 sigma^2))`` of features, one of labels, ``1[y = y'] / pi_y``, the product of both, or the user's own.

- :class:`MeanEmbeddings`: all inner products, exactly or through random Fourier features
- :func:`prepare_samples`: gaps filled or left out, columns on one scale
- :func:`median_bandwidth`: sigma from the median squared distance over all pairs of samples
- :func:`client_features`, :func:`client_counts`: the part of the work that a client does on its own machine
- :mod:`~stackfu.embedding.privacy`: noise that makes counts differentially private
- :func:`mmd`: the distance between two samples
"""

from stackfu.embedding.bandwidth import Bandwidth, median_bandwidth
from stackfu.embedding.client_side import client_counts, client_features
from stackfu.embedding.mean_embeddings import MeanEmbeddings
from stackfu.embedding.preparation import PreparedSamples, prepare_samples
from stackfu.embedding.two_samples import mmd

__all__ = [
    "Bandwidth",
    "MeanEmbeddings",
    "PreparedSamples",
    "client_counts",
    "client_features",
    "median_bandwidth",
    "mmd",
    "prepare_samples",
]
