"""Clients as tensors: what a partition and a backbone make of a data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stackfu.embedding.names import ClientNames
from stackfu.errors import InputError
from stackfu_integration.arrays import IntArray
from stackfu_integration.lab.data.partition import Partition
from stackfu_integration.lab.models.backbones import Backbone
from stackfu_integration.lab.models.classifier import Classifier

__all__ = ["Client", "LabFederation", "LabelledTensors", "build_federation"]


@dataclass(frozen=True)
class LabelledTensors:
    """Inputs of the trainable part and labels, of equal length."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def take(self, indices: Tensor) -> LabelledTensors:
        """Return the samples at ``indices``."""
        return LabelledTensors(self.x[indices], self.y[indices])

    def share(self, share: float, seed: int) -> LabelledTensors:
        """Return a uniformly drawn share of the samples, rounded to whole samples.

        >>> len(LabelledTensors(torch.zeros(10, 2), torch.zeros(10)).share(0.34, seed=0))
        3
        """
        if not 0.0 <= share <= 1.0:
            raise InputError("share", "must be in [0, 1]", value=share)
        if share == 1.0:
            return self
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(self), generator=generator)[: round(share * len(self))]
        return self.take(chosen.sort().values)

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return self.x.numel() * self.x.element_size() + self.y.numel() * self.y.element_size()


@dataclass(frozen=True)
class Client:
    """Training and test samples of one client."""

    train: LabelledTensors
    test: LabelledTensors


@dataclass(frozen=True)
class LabFederation:
    """All clients, and the model that they share: ``model(seed)`` builds a fresh one."""

    clients: tuple[Client, ...]
    model: Callable[[int], Classifier]
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def sizes(self) -> IntArray:
        """Training samples of each client."""
        return np.array([len(client.train) for client in self.clients])

    def cohort(self, numbers: Sequence[int]) -> dict[int, LabelledTensors]:
        """Training data of these clients, all of it."""
        return {number: self.clients[number].train for number in numbers}

    def remaining(self, removed: Sequence[int]) -> tuple[int, ...]:
        """Return the numbers of the clients that are not removed, in order."""
        gone = set(ClientNames(len(self.clients)).positions(removed, "removed"))
        return tuple(number for number in range(len(self.clients)) if number not in gone)


def build_federation(
    partition: Partition,
    train: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    test: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    backbone: Backbone,
    classes: int,
    *,
    device: torch.device | None = None,
    poisoned: Mapping[int, LabelledTensors] | None = None,
) -> LabFederation:
    """Hand every client its samples of the extracted ``train`` and ``test`` pools (inputs, labels).

    ``poisoned`` replaces the training data of some clients (a planted backdoor).
    """

    def samples(pool: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]], indices: Any) -> LabelledTensors:
        return LabelledTensors(torch.from_numpy(pool[0][indices]), torch.from_numpy(pool[1][indices]))

    clients = [
        Client((poisoned or {}).get(i) or samples(train, held.train), samples(test, held.test))
        for i, held in enumerate(partition.clients)
    ]
    device = torch.device("cpu") if device is None else device
    return LabFederation(tuple(clients), lambda seed: Classifier(backbone, classes, seed).to(device), device)
