"""Computations on a client's own machine: D or K numbers in place of its data.

All have to agree on a few numbers beforehand: bandwidth, number of features, seed, and the list of classes in its
order. The weights of the classes, 1 / pi_y, are the server's business: it knows the counts of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackfu.embedding import rbf
from stackfu.embedding.clients import check_samples
from stackfu.embedding.features import check_features, check_seed, dealt_out, frequencies
from stackfu.embedding.labels import Labels, check_classes
from stackfu.embedding.privacy import noisy_counts
from stackfu.embedding.samples import check_bandwidth
from stackfu.errors import InputError


def client_features(
    samples: Any,
    bandwidth: float,
    features: int,
    seed: int = 0,
    *,
    labels: Any = None,
    classes: Sequence[Any] | None = None,
) -> NDArray[np.float64]:
    """Return the mean random Fourier feature vector of one client: D numbers in place of its data.

    Every machine that uses the same ``bandwidth``, ``features`` (D, even) and ``seed`` draws the same
    frequencies, so the vectors of all clients can be combined with
    :meth:`MeanEmbeddings.from_features <stackfu.MeanEmbeddings.from_features>`.

    With ``labels`` (one per sample) and the ``classes`` that all agreed on, in one order, they are features of the
    joint kernel: D / K of them for each class, without the weights of the classes. Together with the class counts,
    :func:`client_counts`, they are what :meth:`MeanEmbeddings.from_class_features
    <stackfu.MeanEmbeddings.from_class_features>` needs. Either way the vector is a mean of unit vectors.

    The server needs the number of samples too: the game's ``sizes``, by which it estimates without bias how much one
    sample varies (:attr:`StackelbergGame.sampling_noise <stackfu.StackelbergGame.sampling_noise>`).

    Parameters
    ----------
    samples : array_like
        One row per sample of this client.
    bandwidth : float
        Sigma of the RBF kernel, agreed by all clients.
    features : int
        Length D of the vector, even, agreed by all clients.
    seed : int
        Seed of the frequencies, agreed by all clients.
    labels : sequence, optional
        A class per sample, for the joint kernel.
    classes : sequence, optional
        The agreed classes in the agreed order; needed with ``labels``.

    Returns
    -------
    ndarray of shape (D,)
        A mean of unit vectors.

    Examples
    --------
    >>> import numpy as np
    >>> phi = client_features(np.array([[0.0, 1.0]]), bandwidth=2.0, features=64)
    >>> phi.shape, round(float(np.linalg.norm(phi)), 12)
    ((64,), 1.0)
    >>> client_features([[0.0], [1.0]], 2.0, 8, labels=["cat", "cat"], classes=["cat", "dog"])[4:]
    array([0., 0., 0., 0.])
    """
    checked = check_samples([samples])
    sigma = float(check_bandwidth(bandwidth))
    total, seed = check_features(features), check_seed(seed)
    if (labels is None) != (classes is None):
        given, missing = ("labels", "classes") if classes is None else ("classes", "labels")
        raise InputError(missing, f"are needed where there are {given}")
    if labels is None:
        return np.asarray(rbf.mean_features(checked, frequencies(checked.dimension, total, seed), sigma)[0])
    listed = check_classes(classes)  # type: ignore[arg-type]
    dealt_out(total, len(listed))
    marks = Labels.check([labels], checked.lengths, classes=listed)
    return np.asarray(rbf.class_features(checked, marks, sigma, total, seed)[0])


def client_counts(
    labels: Any,
    classes: Sequence[Any],
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rng: np.random.Generator | None = None,
) -> NDArray[np.float64]:
    """Return how many samples of each class one client has: K numbers in place of its data.

    With ``epsilon`` the counts carry Laplace noise and are epsilon-differentially private, with ``delta`` too
    Gaussian noise and are (epsilon, delta)-differentially private; see :mod:`stackfu.embedding.privacy`. The number
    of samples is taken to be public, the noisy counts are non-negative and sum to it.

    Parameters
    ----------
    labels : sequence
        A class per sample of this client.
    classes : sequence
        The agreed classes in the agreed order.
    epsilon : float, optional
        Privacy parameter; without it the counts are exact.
    delta : float, optional
        With it the noise is Gaussian instead of Laplace.
    rng : numpy.random.Generator, optional
        Source of the noise.

    Returns
    -------
    ndarray of shape (K,)
        Counts in the order of ``classes``.

    Examples
    --------
    >>> client_counts(["dog", "cat", "dog"], classes=["cat", "dog", "emu"])
    array([1., 2., 0.])
    """
    listed = check_classes(classes)
    counts = Labels.check([labels], None, classes=listed).counts[0]
    if epsilon is None:
        if delta is not None:
            raise InputError("delta", "needs an epsilon", value=delta)
        return np.asarray(counts)
    return noisy_counts(counts, epsilon, delta, rng)
