"""Is it forgotten? Membership inference, a planted backdoor, and agreement with the retrained model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stackfu_integration.lab.federation.clients import LabFederation
from stackfu_integration.lab.measures.performance import Performance, logits_on
from stackfu_integration.ranks import separation

__all__ = ["agreement", "backdoor_success", "membership_auc", "prediction_distance"]


def _confidence(scores: Tensor, labels: Tensor) -> Tensor:
    return scores.double().softmax(1).gather(1, labels[:, None]).flatten()


def membership_auc(
    federation: LabFederation, weights: Tensor, performance: Performance, removed: Sequence[int]
) -> float:
    """Confidence attack on the removed clients, without shadow models.

    The score of a sample is the model's confidence in its true label; members are the removed clients'
    training samples, strangers their test samples, which come from the same mixture and were never trained on
    (their class scores are in ``performance``). 0.5 is no leak; Retrain shows what chance looks like on this
    data.
    """
    clients = [federation.clients[i] for i in removed]
    members = [_confidence(logits_on(federation, weights, c.train.x), c.train.y) for c in clients]
    strangers = [_confidence(performance.scores[i], federation.clients[i].test.y) for i in removed]
    return separation(torch.cat(members), torch.cat(strangers))


def backdoor_success(federation: LabFederation, weights: Tensor, triggered: Tensor, target: int) -> float:
    """Share of marked inputs, none of them of class ``target``, that the model takes for ``target``."""
    return float((logits_on(federation, weights, triggered).argmax(1) == target).double().mean())


def agreement(model: Performance, retrained: Performance) -> float:
    """Share of all test samples on which two models predict the same class."""
    same = [
        (a.argmax(1) == b.argmax(1)).double() for a, b in zip(model.scores, retrained.scores, strict=True)
    ]
    return float(torch.cat(same).mean())


def prediction_distance(model: Performance, retrained: Performance) -> float:
    """Mean total variation between two models' class probabilities over all test samples, from 0 to 1."""
    apart = [
        (a.double().softmax(1) - b.double().softmax(1)).abs().sum(1) / 2
        for a, b in zip(model.scores, retrained.scores, strict=True)
    ]
    return float(torch.cat(apart).mean())
