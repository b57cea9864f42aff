"""Mean embeddings by gradients of the last layer: they see when clients call the same thing by different names.

At the trained head ``W`` a sample with features ``z`` (a constant 1 among them), predicted shares ``p`` and label ``y`` has
the gradient ``g = (p - e_y) z'``. After retraining on a mixture with mean gradient ``g_m`` the head has moved by about
``-H^-1 g_m``, and what that costs client k, against a head of its own, is to second order

    1/2 (g_m - g_k)' H^-1 (g_m - g_k),

a squared distance of means under the kernel ``k(a, b) = g_a' H^-1 g_b``. ``H`` is the Kronecker-factored curvature of the
regularised objective, ``S x A + l2 I`` with the pooled ``S = mean (diag(p) - p p')`` and ``A = mean z z'`` (K-FAC for a single
layer), so that ``H^-1/2 g`` are exact features, one number per weight of the head. ``S``, ``A`` and a client's mean gradient
are sums over samples: a client sends those, and no sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from stackfu.embedding import MeanEmbeddings
from stackfu.errors import InputError
from stackfu_integration.lab.federation.clients import LabelledTensors
from stackfu_integration.lab.federation.convex import second_moment, softmax_sums

__all__ = ["gradient_embeddings"]

_CHUNK = 4096  # samples at a time


def gradient_embeddings(clients: Sequence[LabelledTensors], head: Tensor, l2: float) -> MeanEmbeddings:
    """Embed every client by its mean gradient at ``head``, a (classes, features + 1) matrix with the biases last.

    ``clients`` hold penultimate features and labels. ``l2`` is the weight of the penalty that heads are trained with;
    it keeps directions without variation in the data from counting for much.

    >>> x = torch.tensor([[0.0], [1.0]])
    >>> alike, renamed = LabelledTensors(x, torch.tensor([0, 1])), LabelledTensors(x, torch.tensor([1, 0]))
    >>> found = gradient_embeddings([alike, alike, renamed], torch.zeros(2, 2), 0.1)
    >>> found.distance(0, 1), round(found.distance(0, 2), 3)
    (0.0, 1.426)
    """
    if not (math.isfinite(l2) and l2 > 0):
        raise InputError("l2", "must be positive: directions without data have no curvature", value=l2)
    _check(clients, head)
    at = head.double()
    sums = [softmax_sums(data, at) for data in clients]
    count = sum(item.count for item in sums)
    spread = torch.stack([item.covariance for item in sums]).sum(0) / count
    moment = torch.stack([second_moment(data, at.dtype) for data in clients]).sum(0) / count
    (by_class, left), (by_feature, right) = torch.linalg.eigh(spread), torch.linalg.eigh(moment)
    # both are sums of squares: what is below zero is rounding
    curvature = by_class.clamp_min(0.0)[:, None] * by_feature.clamp_min(0.0)[None, :] + l2
    rows = [((left.t() @ item.gradient @ right) / curvature.sqrt()).reshape(-1) / item.count for item in sums]
    own = [_self_similarity(data, at, left, right, curvature) for data in clients]
    return MeanEmbeddings.from_features(torch.stack(rows).numpy(), self_similarity=own)


def _check(clients: Sequence[LabelledTensors], head: Tensor) -> None:
    classes, width = head.shape
    for number, data in enumerate(clients):
        if len(data) == 0:
            raise InputError("clients", "have no samples: no mean gradient", client=number)
        if data.x.dim() != 2 or data.x.shape[1] + 1 != width:
            raise InputError(
                "clients",
                f"need {width - 1} features per sample, as the head has",
                client=number,
                value=tuple(data.x.shape),
            )
        if int(data.y.min()) < 0 or int(data.y.max()) >= classes:
            raise InputError("clients", f"labels must be in 0..{classes - 1}", client=number)


def _self_similarity(
    data: LabelledTensors, head: Tensor, left: Tensor, right: Tensor, curvature: Tensor
) -> float:
    """Mean of ``k(a, a)``: a gradient is a product, so that its squared coordinates are one too."""
    total = 0.0
    for x, y in zip(data.x.split(_CHUNK), data.y.split(_CHUNK), strict=True):
        features = torch.cat([x.to(head.dtype), torch.ones(len(x), 1, dtype=head.dtype)], 1)
        residuals = (features @ head.t()).softmax(1)
        residuals[torch.arange(len(y)), y] -= 1.0
        total += float((((residuals @ left) ** 2 @ curvature.reciprocal()) * (features @ right) ** 2).sum())
    return total / len(data)
