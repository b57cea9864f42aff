"""NoT: negate the weights of the first layer, then fine-tune on the remaining clients.

After Khalil et al., "NoT: Federated Unlearning via Weight Negation" (CVPR 2025). Multiplying a layer by -1 breaks what its
successors have learnt to expect of it, so that the remaining clients' rounds of FedAvg lead elsewhere than back. The server
stores nothing, and the removed clients do nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from stackfu.errors import InputError
from stackfu_integration.lab.federation.averaging import fedavg
from stackfu_integration.lab.federation.effort import Effort
from stackfu_integration.lab.federation.local import client_seed
from stackfu_integration.lab.federation.trained import Trained
from stackfu_integration.lab.models.classifier import read_weights, write_weights
from stackfu_integration.lab.unlearning.base import UnlearningMethod

__all__ = ["NoT", "negate_first"]

_FINE_TUNING = 101  # seed stream


def negate_first(model: nn.Module, count: int) -> None:
    """Multiply weights and biases of the first ``count`` layers by -1, in place.

    A layer is a module that owns a weight of two or more dimensions, so that normalisation is none.

    >>> layer = nn.Linear(1, 1)
    >>> before = layer.weight.item()
    >>> negate_first(layer, 1)
    >>> layer.weight.item() == -before
    True
    """
    layers = [
        module for module in model.modules() if any(p.dim() > 1 for p in module.parameters(recurse=False))
    ]
    if not 1 <= count <= len(layers):
        raise InputError("layers", f"must be between 1 and the model's {len(layers)} layers", value=count)
    with torch.no_grad():
        for layer in layers[:count]:
            for parameter in layer.parameters(recurse=False):
                parameter.neg_()


@dataclass(frozen=True)
class NoT(UnlearningMethod):
    """Negation of the first trained layer, as published, and fine-tuning with the federation's own settings.

    ``rounds`` of 0 fine-tune for a quarter of the rounds of training; the authors continue until the accuracy is back.
    Where only a head is trained, the head is the first layer: there are no later layers to confuse.
    """

    name: ClassVar[str] = "not"
    cooperation: ClassVar[str] = "none"

    layers: int = 1
    rounds: int = 0

    def _run(self, trained: Trained, removed: tuple[int, ...], seed: int, effort: Effort) -> Tensor:
        federation = trained.federation
        model = federation.model(trained.seed)
        write_weights(model, trained.final)
        negate_first(model, self.layers)
        return fedavg(
            model,
            federation.cohort(federation.remaining(removed)),
            read_weights(model),
            self.rounds or max(1, trained.rounds // 4),
            trained.settings,
            client_seed(seed, 0, 0, _FINE_TUNING),
            effort=effort,
            device=federation.device,
        )
