"""MoDe: momentum degradation with memory guidance.

A fresh model ``M_de`` learns from the remaining clients. For ``degradation_rounds`` rounds the trained model
moves towards it, ``M <- lambda M + (1 - lambda) M_de``. In every round memory guidance follows: all clients
start from ``M``, remaining ones train on their labels, removed ones on the labels that ``M_de`` predicts for
their data; the average over all is the new ``M``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from stackfu_integration.lab.federation.averaging import aggregate, fedavg
from stackfu_integration.lab.federation.clients import LabelledTensors
from stackfu_integration.lab.federation.effort import Effort
from stackfu_integration.lab.federation.local import LocalTraining, client_seed, local_train
from stackfu_integration.lab.federation.trained import Trained
from stackfu_integration.lab.models.classifier import read_weights, write_weights
from stackfu_integration.lab.unlearning.base import UnlearningMethod

__all__ = ["MoDe"]

_FRESH_MODEL, _GUIDANCE = 11, 12  # keep the seed streams of the two trainings apart


@dataclass(frozen=True)
class MoDe(UnlearningMethod):
    """Momentum degradation; the defaults are the published ones.

    ``guidance_rate`` is the learning rate of the remaining clients' guidance, ``rate`` that of ``M_de`` and
    of the removed clients' guidance.
    """

    name: ClassVar[str] = "mode"
    cooperation: ClassVar[str] = "removed clients train in every round, on labels given by the degraded model"

    momentum: float = 0.95
    degradation_rounds: int = 6
    rounds: int = 10
    epochs: float = 1.0
    rate: float = 0.1
    guidance_rate: float = 5e-4
    batch: int = 32

    def _run(self, trained: Trained, removed: tuple[int, ...], seed: int, effort: Effort) -> Tensor:
        federation = trained.federation
        device = federation.device
        remaining = federation.cohort(federation.remaining(removed))
        leaving = federation.cohort(removed)
        sizes = {client: len(data) for client, data in (*remaining.items(), *leaving.items())}
        model = federation.model(client_seed(seed, 0, 0, _FRESH_MODEL))
        degraded, weights = read_weights(model), trained.final
        # plain steps at the published rates; the federation's own optimizer belongs to its own rate
        fast = LocalTraining(epochs=self.epochs, batch=self.batch, learning_rate=self.rate)
        slow = replace(fast, learning_rate=self.guidance_rate)
        for number in range(self.rounds):
            if number < self.degradation_rounds:
                stream = client_seed(seed, 0, number, _FRESH_MODEL)
                degraded = fedavg(model, remaining, degraded, 1, fast, stream, effort=effort, device=device)
                weights = self.momentum * weights + (1.0 - self.momentum) * degraded
            local: dict[int, Tensor] = {}
            for client in sorted(sizes):
                effort.exchange((1 + (client in leaving)) * weights.numel(), weights.numel())
                with effort.client_work():
                    if client in leaving:
                        data, settings = self._relabelled(model, degraded, leaving[client], device), fast
                    else:
                        data, settings = remaining[client], slow
                    write_weights(model, weights)
                    stream = client_seed(seed, client, number, _GUIDANCE)
                    effort.samples += local_train(model, data, stream, settings, device=device)
                local[client] = read_weights(model)
            weights = aggregate(local, sizes)
            effort.rounds += 1
        return weights

    @staticmethod
    def _relabelled(
        model: torch.nn.Module, degraded: Tensor, data: LabelledTensors, device: torch.device
    ) -> LabelledTensors:
        write_weights(model, degraded)
        with torch.no_grad():
            labels = [model(x.to(device)).argmax(1).cpu() for x in data.x.split(256)]
        return LabelledTensors(data.x, torch.cat(labels))
