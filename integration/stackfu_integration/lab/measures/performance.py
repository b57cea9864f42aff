"""V, S and Q in loss and in accuracy, per client and worst case.

With ``f_i`` the loss on client i's own unseen data and its averages by data size over all clients and over
the remaining ones, ``F = sum_O n_i/n_O f_i`` and ``F_N = sum_N n_i/n_N f_i``:

    V = F_N(w) - F_N(w_retrain)      S = F(w) - F(w_original)      Q_i = f_i(w) - f_i(w_original)

and with the same averages ``A_O``, ``A_N`` of accuracies ``a_i``:

    V~ = A_N(w)      S~ = A_O(w)      Q~ = min_i (a_i(w) - a_i(w_original))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stackfu_integration.arrays import FloatArray
from stackfu_integration.lab.federation.clients import LabFederation
from stackfu_integration.lab.models.classifier import write_weights

__all__ = ["Performance", "SideEffects", "evaluate", "logits_on", "pooled_losses", "side_effects"]


@dataclass(frozen=True)
class Performance:
    """Loss and accuracy of one model on every client's test data."""

    losses: FloatArray
    accuracies: FloatArray
    sizes: FloatArray  # training samples, the weights n_i
    scores: tuple[Tensor, ...]  # class scores of every client's test samples

    def mean(self, values: FloatArray, clients: Sequence[int]) -> float:
        """Average of per-client ``values`` over ``clients``, weighted by data size."""
        chosen = list(clients)
        return float(np.average(values[chosen], weights=self.sizes[chosen]))


@dataclass(frozen=True)
class SideEffects:
    """The paper's three measures, in loss (smaller is better) and in accuracy (larger is better)."""

    v_loss: float
    s_loss: float
    q_loss: FloatArray  # one number per remaining client
    v_accuracy: float
    s_accuracy: float
    q_accuracy: FloatArray

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers; ``q_*_worst`` is the worst-affected remaining client."""
        return {
            "v_loss": self.v_loss,
            "s_loss": self.s_loss,
            "q_loss": self.q_loss.tolist(),
            "q_loss_worst": float(self.q_loss.max()),
            "v_accuracy": self.v_accuracy,
            "s_accuracy": self.s_accuracy,
            "q_accuracy": self.q_accuracy.tolist(),
            "q_accuracy_worst": float(self.q_accuracy.min()),
        }


def logits_on(federation: LabFederation, weights: Tensor, x: Tensor, batch: int = 512) -> Tensor:
    """Class scores of the model with ``weights`` for inputs ``x``."""
    model = federation.model(0)
    write_weights(model, weights)
    with torch.no_grad():
        return torch.cat([model(part.to(federation.device)).float().cpu() for part in x.split(batch)])


def evaluate(federation: LabFederation, weights: Tensor) -> Performance:
    """Evaluate on every client's own test data, removed clients included."""
    tests = [client.test for client in federation.clients]
    joint = logits_on(federation, weights, torch.cat([test.x for test in tests]))
    scores = joint.split([len(test) for test in tests])
    losses, accuracies = [], []
    for test, part in zip(tests, scores, strict=True):
        losses.append(float(functional.cross_entropy(part.double(), test.y)))
        accuracies.append(float((part.argmax(1) == test.y).double().mean()))
    return Performance(np.array(losses), np.array(accuracies), federation.sizes.astype(float), scores)


def pooled_losses(federation: LabFederation, performance: Performance) -> FloatArray:
    """Losses of the clients' label mixtures on the test samples of all clients.

        f_i = sum_y p_iy  mean loss of all test samples of class y

    Where clients differ in labels alone this estimates the same expectation as the client's own few test samples do,
    with far less noise; where features differ within a class it is another quantity.
    """
    labels = torch.cat([client.test.y for client in federation.clients])
    each = functional.cross_entropy(torch.cat(performance.scores).double(), labels, reduction="none")
    classes = performance.scores[0].shape[1]
    held = torch.bincount(labels, minlength=classes).clamp_min(1)
    by_class = torch.zeros(classes, dtype=torch.float64).index_add_(0, labels, each) / held
    mixtures = [torch.bincount(client.test.y, minlength=classes).double() for client in federation.clients]
    return np.array([float(mixture @ by_class / mixture.sum()) for mixture in mixtures])


def side_effects(
    unlearned: Performance, original: Performance, retrained: Performance, removed: Sequence[int]
) -> SideEffects:
    """Return V, S and Q of a model relative to the original and to the retrained one."""
    everyone = range(len(unlearned.losses))
    remaining = [i for i in everyone if i not in set(removed)]
    return SideEffects(
        v_loss=unlearned.mean(unlearned.losses, remaining) - retrained.mean(retrained.losses, remaining),
        s_loss=unlearned.mean(unlearned.losses, everyone) - original.mean(original.losses, everyone),
        q_loss=(unlearned.losses - original.losses)[remaining],
        v_accuracy=unlearned.mean(unlearned.accuracies, remaining),
        s_accuracy=unlearned.mean(unlearned.accuracies, everyone),
        q_accuracy=(unlearned.accuracies - original.accuracies)[remaining],
    )
