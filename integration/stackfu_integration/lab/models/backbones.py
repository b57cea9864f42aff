"""Backbones: a frozen prefix from raw inputs to tensors, then a trainable tail up to features.

The cut is placed by ``train``: ``"head"`` trains the softmax head alone (the tail is empty and the prefix
yields the penultimate features), an integer ``k`` trains the last ``k`` blocks as well, ``"all"`` trains
everything. Since the prefix never changes it is computed once for the whole data set and cached
(:mod:`.extraction`), which makes federated training of the last layers of a pretrained model affordable on a
CPU.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from stackfu.errors import InputError
from stackfu_integration.lab.data.datasets import Dataset, Inputs, content_hash

__all__ = [
    "Backbone",
    "HiddenLayer",
    "Identity",
    "ModuleBackbone",
    "Trainable",
    "digest_of",
    "trainable_blocks",
]

Trainable = int | Literal["head", "all"]


def trainable_blocks(train: Trainable, blocks: int) -> int:
    """Number of trained blocks: 0 for ``"head"``, ``blocks + 1`` (the stem too) for ``"all"``.

    >>> trainable_blocks("head", 6), trainable_blocks(2, 6), trainable_blocks("all", 6)
    (0, 2, 7)
    """
    if train == "head":
        return 0
    if train == "all":
        return blocks + 1
    if not 0 <= train <= blocks:
        raise InputError("train", f"must be 'head', 'all' or a number of blocks up to {blocks}", value=train)
    return train


class Backbone(ABC):
    """A pretrained (or absent) network cut into a frozen prefix and a trainable tail."""

    name: str
    feature_dim: int

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Text that changes whenever the prefix would map the same inputs to other tensors."""

    @abstractmethod
    def prefix(self, inputs: Inputs, device: torch.device) -> np.ndarray[Any, Any]:
        """Map a batch of raw inputs through the frozen part."""

    @abstractmethod
    def tail(self) -> nn.Module:
        """Return a fresh copy of the trainable part, from the prefix's tensors to penultimate features."""


class Identity(Backbone):
    """No backbone: inputs are flattened to vectors, bytes are scaled to [0, 1].

    >>> Identity(4).prefix(np.full((1, 2, 2), 255, dtype=np.uint8), torch.device("cpu"))
    array([[1., 1., 1., 1.]], dtype=float32)
    """

    def __init__(self, feature_dim: int) -> None:
        self.name, self.feature_dim = "identity", feature_dim

    @property
    def fingerprint(self) -> str:
        """The same for all: nothing is computed."""
        return "identity/1"

    def prefix(self, inputs: Inputs, device: torch.device) -> np.ndarray[Any, Any]:
        """Flatten and scale."""
        scale = np.float32(255.0 if inputs.dtype == np.uint8 else 1.0)
        flat: np.ndarray[Any, Any] = inputs.reshape(len(inputs), -1).astype(np.float32) / scale
        return flat

    def tail(self) -> nn.Module:
        """Nothing to train below the head."""
        return nn.Identity()


class HiddenLayer(Backbone):
    """One layer of rectified units on the features of a frozen backbone; the clients train the layer.

    Its public weights are one fixed random draw without any data. A small model that overfits.

    >>> HiddenLayer(Identity(4), 16).tail()[0].weight.shape
    torch.Size([16, 4])
    """

    def __init__(self, below: Backbone, units: int) -> None:
        if not isinstance(below.tail(), nn.Identity):
            raise InputError("below", "must be frozen as a whole", value=below.name)
        self._below = below
        self.name, self.feature_dim = f"{below.name}-hidden-{units}", units

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the frozen part: the layer changes nothing below it."""
        return self._below.fingerprint

    def prefix(self, inputs: Inputs, device: torch.device) -> np.ndarray[Any, Any]:
        """Features of the frozen part."""
        return self._below.prefix(inputs, device)

    def tail(self) -> nn.Module:
        """Return the layer, from its public weights."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(self._below.feature_dim, self.feature_dim), nn.ReLU())


class ModuleBackbone(Backbone):
    """A network of your own, trained as a whole, from inputs as numbers to penultimate features.

    Bytes are scaled to [0, 1]; images keep their layout with the channels first. The weights that the module has when it is
    given are the public ones that training starts from.

    >>> from stackfu_integration.lab.data.datasets import Split
    >>> x = np.zeros((2, 3), dtype=np.float32)
    >>> data = Dataset("made", "vector", Split(x, np.array([0, 1])), Split(x, np.array([0, 1])), 2, "made here")
    >>> ModuleBackbone(nn.Linear(3, 5), data).feature_dim
    5
    """

    def __init__(self, module: nn.Module, dataset: Dataset, name: str = "module") -> None:
        if dataset.modality == "text":
            raise InputError("--model", "a module takes numbers; return a Backbone for texts", value=name)
        self._module, self.name = module, name.replace(":", ".")
        with torch.no_grad():
            features = module(torch.from_numpy(self.prefix(dataset.train.x[:2], torch.device("cpu"))))
        if features.ndim != 2:
            raise InputError(
                "--model", "must map a batch to one row of features per input", value=tuple(features.shape)
            )
        self.feature_dim = int(features.shape[1])

    @property
    def fingerprint(self) -> str:
        """Return a text that changes with the public weights, and with them what training starts from."""
        return f"module/1/{self.name}/{digest_of(self._module)}"

    def prefix(self, inputs: Inputs, device: torch.device) -> np.ndarray[Any, Any]:
        """Return the inputs as numbers: nothing is frozen."""
        scale = np.float32(255.0 if inputs.dtype == np.uint8 else 1.0)
        numbers = inputs.astype(np.float32) / scale
        if inputs.ndim == 4 and inputs.shape[-1] in (1, 3):
            numbers = numbers.transpose(0, 3, 1, 2)
        made: np.ndarray[Any, Any] = np.ascontiguousarray(numbers)
        return made

    def tail(self) -> nn.Module:
        """Return a fresh copy of the network with its public weights."""
        return copy.deepcopy(self._module)


def digest_of(module: nn.Module) -> str:
    """Short hash of all weights and buffers of a module."""
    tensors: list[Tensor] = list(module.state_dict().values())
    return content_hash(*(tensor.detach().cpu().numpy() for tensor in tensors))[:16]
