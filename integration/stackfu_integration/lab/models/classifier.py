"""A tail with a softmax head, and its weights as one flat vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stackfu_integration.lab.models.backbones import Backbone

__all__ = ["Classifier", "head_matrix", "layer_slices", "read_weights", "write_weights"]


class Classifier(nn.Module):
    """``head(tail(x))``; ``x`` are tensors from the backbone's frozen prefix."""

    def __init__(self, backbone: Backbone, classes: int, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.tail = backbone.tail()
            self.head = nn.Linear(backbone.feature_dim, classes)
        self.train(False)

    def train(self, mode: bool = True) -> Classifier:
        """Stay in evaluation mode, so that a step is a function of its batch: no dropout, no batch statistics.

        Batch normalisation keeps its pretrained statistics. They are no parameters: averaging them over
        clients with different label mixtures is not what FedAvg does, and without them the parameter vector
        is the whole state.
        """
        super().train(False)
        return self

    def features(self, x: Tensor) -> Tensor:
        """Penultimate features, the samples of the game's mean embeddings."""
        features: Tensor = self.tail(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Class scores (logits)."""
        scores: Tensor = self.head(self.tail(x))
        return scores


def head_matrix(weights: Tensor, model: Classifier) -> Tensor:
    """Return the head at the end of a flat weight vector as a matrix with the biases in its last column."""
    classes, features = model.head.weight.shape
    size = classes * features
    head = weights[-size - classes :]
    return torch.cat([head[:size].view(classes, features), head[size:, None]], 1)


def read_weights(model: nn.Module) -> Tensor:
    """Copy all parameters into one flat vector on the CPU."""
    return torch.cat([parameter.detach().reshape(-1).cpu() for parameter in model.parameters()])


def write_weights(model: nn.Module, weights: Tensor) -> None:
    """Set all parameters from a flat vector."""
    with torch.no_grad():
        for parameter, part in zip(model.parameters(), layer_slices(model), strict=True):
            parameter.copy_(weights[part].view_as(parameter))


def layer_slices(model: nn.Module) -> tuple[slice, ...]:
    """Return the slice of each parameter tensor in the flat vector."""
    slices, start = [], 0
    for parameter in model.parameters():
        slices.append(slice(start, start + parameter.numel()))
        start += parameter.numel()
    return tuple(slices)
