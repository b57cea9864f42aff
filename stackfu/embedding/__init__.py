"""Samples of each client in, kernel mean embeddings out.

With the RBF kernel ``k(a, b) = exp(-|a - b|^2 / (2 sigma^2))`` the data of client i is represented by its
mean embedding ``mu_i = mean_a k(a, .)``, and everything a game needs is the matrix of inner products
``G_ij = <mu_i, mu_j> = mean_{a, b} k(a, b)``.

- :class:`MeanEmbeddings`: all inner products, exactly or through random Fourier features
- :func:`median_bandwidth`: sigma from the median squared distance over all pairs of samples
- :func:`client_features`: the part of the work that a client does on its own machine
- :func:`mmd`: the distance between two samples
"""

from stackfu.embedding.bandwidth import Bandwidth, median_bandwidth
from stackfu.embedding.features import client_features
from stackfu.embedding.mean_embeddings import MeanEmbeddings
from stackfu.embedding.two_samples import mmd

__all__ = ["Bandwidth", "MeanEmbeddings", "client_features", "median_bandwidth", "mmd"]
