"""Federated averaging in a fixed order.

``w <- sum_i (n_i / n) w_i``, summed in ascending client number and in double precision, so that two runs with
one seed give the same bits on a CPU whatever order the clients finish in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from stackfu.errors import InputError
from stackfu_integration.lab.federation.clients import LabelledTensors
from stackfu_integration.lab.federation.effort import Effort
from stackfu_integration.lab.federation.local import LocalTraining, client_seed, local_train
from stackfu_integration.lab.models.classifier import read_weights, write_weights

__all__ = ["Observer", "aggregate", "fedavg"]


class Observer(Protocol):
    """Watches training and keeps what an unlearning method will need; its state goes into checkpoints."""

    def client_trained(
        self,
        round_number: int,
        client: int,
        data: LabelledTensors,
        model: nn.Module,
        before: Tensor,
        after: Tensor,
    ) -> None:
        """Called once per client and round."""

    def state(self) -> dict[str, Any]:
        """Return everything needed to continue after a restart."""

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state."""


def aggregate(weights: Mapping[int, Tensor], sizes: Mapping[int, float]) -> Tensor:
    """Average the clients' weight vectors by data size.

    >>> aggregate({1: torch.tensor([3.0]), 0: torch.tensor([0.0])}, {0: 1, 1: 2})
    tensor([2.])
    """
    if not weights:
        raise InputError("weights", "no client to average")
    total = float(sum(sizes[client] for client in sorted(weights)))
    mean = torch.zeros_like(next(iter(weights.values())), dtype=torch.float64)
    for client in sorted(weights):
        mean += weights[client].double() * (sizes[client] / total)
    return mean.float()


def fedavg(
    model: nn.Module,
    cohort: Mapping[int, LabelledTensors],
    initial: Tensor,
    rounds: int,
    settings: LocalTraining,
    seed: int,
    *,
    start: int = 0,
    effort: Effort | None = None,
    observers: tuple[Observer, ...] = (),
    device: torch.device | None = None,
    after_round: Callable[[int, Tensor], None] = lambda round_number, weights: None,
) -> Tensor:
    """Run rounds ``start .. rounds - 1`` of FedAvg over ``cohort`` and return the global weights."""
    if not cohort or any(len(data) == 0 for data in cohort.values()):
        raise InputError("cohort", "needs clients, and every client needs data", value=sorted(cohort))
    effort = Effort() if effort is None else effort
    weights = initial
    sizes = {client: len(data) for client, data in cohort.items()}
    for round_number in range(start, rounds):
        local: dict[int, Tensor] = {}
        for client in sorted(cohort):
            write_weights(model, weights)
            with effort.client_work():
                stream = client_seed(seed, client, round_number)
                effort.samples += local_train(model, cohort[client], stream, settings, device=device)
            local[client] = read_weights(model)
            effort.exchange(weights.numel(), weights.numel())
            for observer in observers:
                observer.client_trained(round_number, client, cohort[client], model, weights, local[client])
        weights = aggregate(local, sizes)
        effort.rounds += 1
        after_round(round_number, weights)
    return weights
