"""Is it forgotten? Membership inference, a planted backdoor, and agreement with the retrained model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from stackfu_integration.federation.clients import Federation, Samples
from stackfu_integration.measures.performance import logits_on

__all__ = ["agreement", "backdoor_success", "membership_auc", "separation"]


def separation(members: Tensor, strangers: Tensor) -> float:
    """Area under the ROC curve: the probability that a member's score exceeds a stranger's, ties counting
    half.

    >>> separation(torch.tensor([0.9, 0.8]), torch.tensor([0.1, 0.8]))
    0.875
    """
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([members.numpy(), strangers.numpy()]))
    m, n = len(members), len(strangers)
    return float((ranks[:m].sum() - m * (m + 1) / 2) / (m * n))


def _confidence(federation: Federation, weights: Tensor, data: Samples) -> Tensor:
    probabilities = logits_on(federation, weights, data.x).double().softmax(1)
    return probabilities.gather(1, data.y[:, None]).flatten()


def membership_auc(federation: Federation, weights: Tensor, removed: Sequence[int]) -> float:
    """Confidence attack on the removed clients, without shadow models.

    The score of a sample is the model's confidence in its true label; members are the removed clients'
    training samples, strangers their test samples, which come from the same mixture and were never trained
    on. 0.5 is no leak; Retrain shows what chance looks like on the data at hand.
    """
    members = [federation.clients[i].train for i in removed]
    strangers = [federation.clients[i].test for i in removed]
    scores = [
        torch.cat([_confidence(federation, weights, part) for part in side]) for side in (members, strangers)
    ]
    return separation(*scores)


def backdoor_success(federation: Federation, weights: Tensor, triggered: Tensor, target: int) -> float:
    """Share of marked inputs, none of them of class ``target``, that the model takes for ``target``."""
    return float((logits_on(federation, weights, triggered).argmax(1) == target).double().mean())


def agreement(federation: Federation, weights: Tensor, retrained: Tensor) -> float:
    """Share of all test samples on which two models predict the same class."""
    x = torch.cat([client.test.x for client in federation.clients])
    same = logits_on(federation, weights, x).argmax(1) == logits_on(federation, retrained, x).argmax(1)
    return float(same.double().mean())
