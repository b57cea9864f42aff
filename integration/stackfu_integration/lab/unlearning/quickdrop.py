"""Unlearning on small synthetic sets that imitate the clients' gradients, inspired by QuickDrop.

While the federation trains, every client keeps ``ceil(s n_c)`` synthetic samples of each class ``c`` and
moves them so that the gradient they cause matches the gradient of real batches: the distance is the sum over
layers and output units of ``1 - cos``, with one-dimensional parameters left out. Unlearning is gradient
ascent on the removed clients' synthetic sets followed by a few rounds of recovery on the others'.

The sets live in the space of the trainable part's inputs: pixels without a backbone, features or hidden
states with one (for text there are no pixels to move).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from stackfu.errors import InputError
from stackfu_integration.lab.federation.averaging import aggregate, fedavg
from stackfu_integration.lab.federation.clients import LabelledTensors
from stackfu_integration.lab.federation.effort import Effort
from stackfu_integration.lab.federation.local import client_seed, local_train
from stackfu_integration.lab.federation.trained import Trained
from stackfu_integration.lab.models.classifier import read_weights, write_weights
from stackfu_integration.lab.unlearning.base import UnlearningMethod

__all__ = ["DistilledSets", "QuickDrop", "gradient_distance"]

_INITIAL, _MATCHING, _ASCENT, _RECOVERY = 21, 22, 23, 24  # seed streams


def gradient_distance(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    """Sum over layers and output units of one minus the cosine between two gradients.

    >>> g = [torch.eye(2)]
    >>> gradient_distance(g, g).item(), gradient_distance(g, [-g[0]]).item()
    (0.0, 4.0)
    """
    distance = torch.zeros(())
    for a, b in zip(left, right, strict=True):
        cosines = functional.cosine_similarity(a.flatten(1), b.flatten(1), dim=1)
        distance = distance + (1.0 - cosines).sum().cpu()
    return distance


class DistilledSets:
    """The clients' synthetic sets, grown while the federation trains.

    Published: a match at every local step. Here: ``steps`` matches per class in every ``interval``-th round,
    at the global model that the round starts from; a match at every step would cost more than the training it
    accompanies.
    """

    def __init__(
        self,
        seed: int,
        scale: float = 0.01,
        rate: float = 0.1,
        momentum: float = 0.5,
        batch: int = 256,
        steps: int = 1,
        interval: int = 1,
    ) -> None:
        self.seed, self.scale, self.rate, self.momentum = seed, scale, rate, momentum
        self.batch, self.steps, self.interval = batch, steps, interval
        self.sets: dict[int, dict[str, Tensor]] = {}

    def samples(self, client: int) -> LabelledTensors:
        """Synthetic samples of a client."""
        return LabelledTensors(self.sets[client]["x"], self.sets[client]["y"])

    def closeness(self, client: int, data: LabelledTensors) -> dict[str, float]:
        """Return the distance of the synthetic samples from the real ones that they started from.

        ``moved``: median distance to the sample of origin, over the median distance of a real sample to the nearest
        other one. ``recognised``: share of synthetic samples with their origin as nearest real sample. Far below 1
        and close to 1, the set is a copy of personal data in all but name.
        """
        real = data.x.flatten(1)
        synthetic, origin = self.sets[client]["x"].flatten(1), self._origins(client, data)
        apart = torch.cdist(synthetic, real)
        between = torch.cdist(real, real).fill_diagonal_(math.inf).min(1).values
        usual = float(between.median())
        moved = float(apart.gather(1, origin[:, None]).median())
        return {
            "moved": moved / usual if usual > 0 else math.inf,
            "recognised": float((apart.argmin(1) == origin).double().mean()),
        }

    def client_trained(
        self,
        round_number: int,
        client: int,
        data: LabelledTensors,
        model: nn.Module,
        before: Tensor,
        after: Tensor,
    ) -> None:
        """Match gradients at the weights that the round started from."""
        if client not in self.sets:
            self._begin(client, data)
        if round_number % self.interval == 0:
            write_weights(model, before)
            generator = torch.Generator().manual_seed(client_seed(self.seed, client, round_number, _MATCHING))
            for _ in range(self.steps):
                self._match(self.sets[client], data, model, generator)

    def _origins(self, client: int, data: LabelledTensors) -> Tensor:
        """Return the real samples that a client's synthetic ones start from."""
        generator = torch.Generator().manual_seed(client_seed(self.seed, client, 0, _INITIAL))
        chosen = []
        for label in data.y.unique():
            held = (data.y == label).nonzero().flatten()
            keep = math.ceil(self.scale * len(held))
            chosen.append(held[torch.randperm(len(held), generator=generator)[:keep]])
        return torch.cat(chosen)

    def _begin(self, client: int, data: LabelledTensors) -> None:
        real = data.take(self._origins(client, data))
        self.sets[client] = {"x": real.x.clone(), "y": real.y.clone(), "velocity": torch.zeros_like(real.x)}

    def _match(
        self,
        synthetic: dict[str, Tensor],
        data: LabelledTensors,
        model: nn.Module,
        generator: torch.Generator,
    ) -> None:
        if not synthetic["x"].is_floating_point():
            raise InputError("train", "token numbers cannot be distilled; keep the embedding layer frozen")
        device = next(model.parameters()).device
        matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
        with sdpa_kernel(SDPBackend.MATH):  # the fused attention kernels have no second derivative
            for label in synthetic["y"].unique():
                held = (data.y == label).nonzero().flatten()
                batch = held[torch.randperm(len(held), generator=generator)[: self.batch]]
                mine = (synthetic["y"] == label).nonzero().flatten()
                x = synthetic["x"][mine].to(device).requires_grad_()
                real = self._gradient(model, matrices, data.x[batch].to(device), label, False)
                fake = self._gradient(model, matrices, x, label, True)
                (slope,) = torch.autograd.grad(gradient_distance(fake, real), x)
                velocity = self.momentum * synthetic["velocity"][mine] + slope.cpu()
                synthetic["velocity"][mine] = velocity
                synthetic["x"][mine] -= self.rate * velocity

    @staticmethod
    def _gradient(
        model: nn.Module, parameters: list[nn.Parameter], x: Tensor, label: Tensor, differentiable: bool
    ) -> tuple[Tensor, ...]:
        loss = functional.cross_entropy(model(x), label.to(x.device).expand(len(x)))
        return torch.autograd.grad(loss, parameters, create_graph=differentiable)

    def state(self) -> dict[str, Any]:
        """Plain tensors."""
        return {"sets": self.sets}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over synthetic sets."""
        self.sets = state["sets"]

    @property
    def nbytes(self) -> int:
        """Size of all synthetic samples."""
        return sum(self.samples(client).nbytes for client in self.sets)


@dataclass(frozen=True)
class QuickDrop(UnlearningMethod):
    """Ascent on the removed clients' synthetic sets, then recovery on the others'.

    Published: one epoch of ascent at the training's own learning rate, then 2 rounds of recovery at once or
    twice that rate. ``ascent_rate`` and ``recovery_rate`` are multiples of the federation's learning rate.
    """

    name: ClassVar[str] = "quickdrop"
    cooperation: ClassVar[str] = (
        "none at removal time; every client distilled a synthetic set during training"
    )

    ascent_epochs: float = 1.0
    ascent_rate: float = 1.0
    recovery_rounds: int = 2
    recovery_rate: float = 2.0

    def _run(self, trained: Trained, removed: tuple[int, ...], seed: int, effort: Effort) -> Tensor:
        distilled = trained.observers.get("distilled")
        if not isinstance(distilled, DistilledSets):
            raise InputError("trained", "QuickDrop needs a federation trained with DistilledSets")
        federation = trained.federation
        effort.stored_bytes = distilled.nbytes
        model = federation.model(trained.seed)
        rate = trained.settings.learning_rate
        ascent = replace(trained.settings, epochs=self.ascent_epochs, learning_rate=self.ascent_rate * rate)
        weights = trained.final
        climbed: dict[int, Tensor] = {}
        for client in removed:
            write_weights(model, weights)
            data = distilled.samples(client)
            with effort.client_work():
                stream = client_seed(seed, client, 0, _ASCENT)
                effort.samples += local_train(
                    model, data, stream, ascent, ascend=True, device=federation.device
                )
            climbed[client] = read_weights(model)
            effort.exchange(weights.numel(), weights.numel())
        weights = aggregate(climbed, {client: len(distilled.samples(client)) for client in removed})
        effort.rounds += 1
        recovery = replace(trained.settings, learning_rate=self.recovery_rate * rate)
        cohort = {client: distilled.samples(client) for client in federation.remaining(removed)}
        stream = client_seed(seed, 0, 0, _RECOVERY)
        return fedavg(
            model,
            cohort,
            weights,
            self.recovery_rounds,
            recovery,
            stream,
            effort=effort,
            device=federation.device,
        )
