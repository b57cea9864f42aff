"""One client's training: a function of the model, the data and a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from stackfu_integration.lab.federation.clients import LabelledTensors
from stackfu_integration.lab.models.classifier import Classifier
from stackfu_integration.lab.runtime import autocast

__all__ = ["LocalTraining", "batches", "client_seed", "local_train"]


@dataclass(frozen=True)
class LocalTraining:
    """Settings of a client's training in one round; ``epochs`` may be a fraction."""

    epochs: float = 2.0
    batch: int = 32
    learning_rate: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    optimizer: Literal["sgd", "adam"] = "sgd"

    @property
    def is_plain(self) -> bool:
        """True if a step is the gradient times the learning rate."""
        return self.optimizer == "sgd" and self.momentum == 0.0 and self.weight_decay == 0.0

    def build(self, parameters: Iterable[nn.Parameter], ascend: bool = False) -> torch.optim.Optimizer:
        """Return the optimizer, reset as FedAvg resets it every round."""
        if self.optimizer == "adam":
            return torch.optim.Adam(
                parameters, self.learning_rate, weight_decay=self.weight_decay, maximize=ascend
            )
        return torch.optim.SGD(
            parameters, self.learning_rate, self.momentum, weight_decay=self.weight_decay, maximize=ascend
        )


def client_seed(seed: int, client: int, round_number: int, purpose: int = 0) -> int:
    """Seed of one client in one round: its own stream, independent of the other participants.

    >>> client_seed(0, 3, 1) == client_seed(0, 3, 1) != client_seed(0, 3, 2)
    True
    """
    return int(np.random.SeedSequence([seed, client, round_number, purpose]).generate_state(1)[0])


def batches(size: int, settings: LocalTraining, seed: int) -> Iterator[Tensor]:
    """Indices of successive batches; every epoch is a new permutation, and the last one may be cut short."""
    generator = torch.Generator().manual_seed(seed)
    left = math.ceil(settings.epochs * size)
    while left > 0:
        order = torch.randperm(size, generator=generator)[:left]
        yield from order.split(settings.batch)
        left -= len(order)


def local_train(
    model: nn.Module,
    data: LabelledTensors,
    seed: int,
    settings: LocalTraining,
    *,
    ascend: bool = False,
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
    device: torch.device | None = None,
) -> int:
    """Minimise a loss of scores and labels on ``data`` in place and return the number of samples processed.

    ``ascend`` maximises it instead. The result depends on the model's weights, the data, the seed and the
    settings and on nothing else.
    """
    device = torch.device("cpu") if device is None else device
    head = _only_layer(model)
    if loss is functional.cross_entropy and head is not None and settings.is_plain and device.type == "cpu":
        return _train_softmax(head, data, seed, settings, ascend)
    optimizer = settings.build([p for p in model.parameters() if p.requires_grad], ascend)
    processed = 0
    for indices in batches(len(data), settings, seed):
        x, y = data.x[indices].to(device), data.y[indices].to(device)
        optimizer.zero_grad(set_to_none=True)
        with autocast(device):
            value = loss(model(x), y)
        value.backward()
        optimizer.step()
        processed += len(indices)
    return processed


def _only_layer(model: nn.Module) -> nn.Linear | None:
    """Return the one linear layer that ``model`` consists of, if it does: a bare head, or a head on features."""
    if isinstance(model, nn.Linear):
        return model
    if isinstance(model, Classifier) and isinstance(model.tail, nn.Identity):
        return model.head
    return None


@torch.no_grad()
def _train_softmax(
    head: nn.Linear, data: LabelledTensors, seed: int, settings: LocalTraining, ascend: bool
) -> int:
    """Train a softmax head by its gradient in closed form, ``(softmax(x W' + b) - onehot(y))' x / n``.

    The same steps as automatic differentiation takes, only faster: a step on a small batch is so cheap that
    bookkeeping would dominate it.
    """
    rate = -settings.learning_rate if ascend else settings.learning_rate
    weight, bias = head.weight, head.bias
    processed = 0
    for indices in batches(len(data), settings, seed):
        x = data.x[indices]
        slope = torch.addmm(bias, x, weight.t()).softmax(1)
        slope[torch.arange(len(indices)), data.y[indices]] -= 1.0
        weight.addmm_(slope.t(), x, alpha=-rate / len(indices))
        bias.sub_(slope.sum(0), alpha=rate / len(indices))
        processed += len(indices)
    return processed
