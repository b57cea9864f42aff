"""FedOSD: unlearn along the steepest direction that changes no remaining client's loss, then repair without going back.

After Pan et al., "Federated Unlearning with Gradient Descent and Conflict Mitigation" (AAAI 2025) and the authors' code. The
removed clients minimise the unlearning cross-entropy

    -mean log(1 - p_y / 2),    p_y the predicted share of the true class,

which is bounded, unlike a negated cross-entropy. With ``g_u`` the mean of their gradients and the remaining clients' gradients
as the rows of ``G``, the server steps along the vector nearest to ``g_u`` that is orthogonal to all of them,

    d = g_u - G' (G G')^+ G g_u,    scaled to the length of g_u.

Post-training projects every remaining client's gradient onto the plane orthogonal to ``a = w - w_trained``, the way that
unlearning has gone, and keeps its length. A gradient is a client's change of weights in one local epoch over the learning rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from stackfu.errors import InputError
from stackfu_integration.lab.federation.clients import LabelledTensors
from stackfu_integration.lab.federation.effort import Effort
from stackfu_integration.lab.federation.local import LocalTraining, client_seed, local_train
from stackfu_integration.lab.federation.trained import Trained
from stackfu_integration.lab.models.classifier import Classifier, read_weights, write_weights
from stackfu_integration.lab.unlearning.base import UnlearningMethod

__all__ = ["FedOSD", "orthogonal_direction", "projected_gradient", "unlearning_cross_entropy"]

_UNLEARNING, _POST_TRAINING = 111, 112  # seed streams


def unlearning_cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Return ``-mean log(1 - p_y / 2)``: zero where the true class is never predicted, at most log 2.

    >>> round(unlearning_cross_entropy(torch.tensor([[9.0, -9.0]]), torch.tensor([0])).item(), 4)
    0.6931
    """
    shares = scores.softmax(1).gather(1, labels[:, None])
    loss: Tensor = -torch.log1p(-0.5 * shares).mean()
    return loss


def orthogonal_direction(target: Tensor, others: Tensor) -> Tensor:
    """Return the vector nearest to ``target`` that is orthogonal to every row of ``others``, as long as ``target``.

    It is zero if ``target`` is a combination of the rows, to rounding.

    >>> orthogonal_direction(torch.tensor([3.0, 4.0]), torch.tensor([[1.0, 0.0]]))
    tensor([0., 5.])
    """
    wanted, rows = target.double(), others.double()
    inverse = torch.linalg.pinv(rows @ rows.t(), hermitian=True)
    direction = wanted - rows.t() @ (inverse @ (rows @ wanted))
    length, left = float(wanted.norm()), float(direction.norm())
    if left <= 10.0 * torch.finfo(target.dtype).eps * length:  # rounding of the gradients
        return torch.zeros_like(target)
    step: Tensor = (direction * (length / left)).to(target.dtype)
    return step


def projected_gradient(gradient: Tensor, away: Tensor) -> Tensor:
    """Return ``gradient`` without its part along ``away``, at its former length; unchanged where ``away`` is zero.

    >>> projected_gradient(torch.tensor([3.0, 4.0]), torch.tensor([2.0, 0.0]))
    tensor([0., 5.])
    """
    return orthogonal_direction(gradient, away[None]) if bool(away.any()) else gradient


@dataclass(frozen=True)
class FedOSD(UnlearningMethod):
    """Orthogonal steepest descent, then post-training; both stages last a quarter of the rounds of training for ``rounds`` of 0.

    ``rate`` and ``recovery_rate`` are multiples of the federation's learning rate. The authors use 0.008 and 0.00002 in 100
    rounds each after 2,000 rounds of training. The defaults came closest to Retrain's predictions on six federations of digits
    that no table shows.
    """

    name: ClassVar[str] = "fedosd"
    cooperation: ClassVar[str] = "removed clients train in every round of the unlearning stage"

    rounds: int = 0
    epochs: float = 1.0
    rate: float = 0.3
    recovery_rate: float = 0.3

    def __post_init__(self) -> None:
        if not (self.rate > 0 and self.recovery_rate > 0):
            raise InputError(
                "rate", "and recovery_rate must be positive", value=(self.rate, self.recovery_rate)
            )

    def _run(self, trained: Trained, removed: tuple[int, ...], seed: int, effort: Effort) -> Tensor:
        federation = trained.federation
        remaining = federation.cohort(federation.remaining(removed))
        leaving = federation.cohort(removed)
        rounds = self.rounds or max(1, trained.rounds // 4)
        batch, usual = trained.settings.batch, trained.settings.learning_rate
        # plain steps: the direction is made of gradients, which adaptive steps would distort
        unlearning = LocalTraining(self.epochs, batch, self.rate * usual)
        recovery = LocalTraining(self.epochs, batch, self.recovery_rate * usual)
        work = _Clients(federation.model(trained.seed), federation.device, effort)
        weights = trained.final
        for number in range(rounds):
            seeds = {c: client_seed(seed, c, number, _UNLEARNING) for c in (*remaining, *leaving)}
            kept = [work.gradient(weights, data, seeds[c], unlearning) for c, data in remaining.items()]
            lost = [work.gradient(weights, data, seeds[c], unlearning, True) for c, data in leaving.items()]
            step = orthogonal_direction(torch.stack(lost).mean(0), torch.stack(kept))
            weights = weights - unlearning.learning_rate * step
            effort.rounds += 1
        for number in range(rounds):
            away = weights - trained.final
            found = [
                work.gradient(weights, data, client_seed(seed, client, number, _POST_TRAINING), recovery)
                for client, data in remaining.items()
            ]
            mean = torch.stack([projected_gradient(gradient, away) for gradient in found]).mean(0)
            weights = weights - recovery.learning_rate * mean
            effort.rounds += 1
        return weights


@dataclass(frozen=True)
class _Clients:
    """Work of a client in a round of either stage."""

    model: Classifier
    device: torch.device
    effort: Effort

    def gradient(
        self,
        weights: Tensor,
        data: LabelledTensors,
        seed: int,
        settings: LocalTraining,
        unlearn: bool = False,
    ) -> Tensor:
        """Return the change of weights in one local training over the learning rate, against the loss."""
        write_weights(self.model, weights)
        loss = unlearning_cross_entropy if unlearn else functional.cross_entropy
        with self.effort.client_work():
            self.effort.samples += local_train(
                self.model, data, seed, settings, loss=loss, device=self.device
            )
        self.effort.exchange(weights.numel(), weights.numel())
        return (weights - read_weights(self.model)) / settings.learning_rate
