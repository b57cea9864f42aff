"""FedEraser: replay the stored rounds without the removed clients, with freshly calibrated directions.

Per kept round ``t`` and remaining client ``i``, a short training from the current unlearned model gives a new
update ``v``; its direction is kept and its length is that of the stored update ``u``: ``||u|| v / ||v||``.
The average by data size is added to the model. The first kept round applies the stored updates as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from stackfu.errors import InputError
from stackfu_integration.lab.federation.averaging import aggregate
from stackfu_integration.lab.federation.effort import Effort
from stackfu_integration.lab.federation.local import client_seed, local_train
from stackfu_integration.lab.federation.trained import Trained, UpdateHistory
from stackfu_integration.lab.models.classifier import layer_slices, read_weights, write_weights
from stackfu_integration.lab.unlearning.base import UnlearningMethod

__all__ = ["FedEraser", "rescale"]


def rescale(new: Tensor, stored: Tensor, parts: tuple[slice, ...]) -> Tensor:
    """Give every part of ``new`` the norm that the part has in ``stored``; a zero part stays zero.

    >>> rescale(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 1.0]), (slice(0, 2),))
    tensor([0.6000, 0.8000])
    """
    scaled = torch.zeros_like(new)
    for part in parts:
        length = new[part].norm()
        if length > 0:
            scaled[part] = new[part] * (stored[part].norm() / length)
    return scaled


@dataclass(frozen=True)
class FedEraser(UnlearningMethod):
    """Calibrated replay of stored updates.

    Published defaults: ``calibration = 0.5`` of the local epochs, every stored round (``interval = 1`` as in
    the public code; the paper uses 2). ``norm`` is per ``"layer"`` (public code) or ``"global"``; ``"none"``
    keeps the new length as it is. ``average_first`` averages over clients before rescaling, as the public
    code does and the paper does not. ``trust_first = False`` calibrates the first kept round too. With
    ``interval = 1, calibration = 1, norm = "none", trust_first = False`` the method is Retrain.
    """

    name: ClassVar[str] = "federaser"
    cooperation: ClassVar[str] = "none; the server has stored every client's updates"

    calibration: float = 0.5
    interval: int = 1
    norm: Literal["layer", "global", "none"] = "layer"
    average_first: bool = False
    trust_first: bool = True

    def _run(self, trained: Trained, removed: tuple[int, ...], seed: int, effort: Effort) -> Tensor:
        history = trained.observers.get("history")
        if not isinstance(history, UpdateHistory):
            raise InputError("trained", "FedEraser needs a federation trained with an UpdateHistory")
        if self.interval % history.interval:
            raise InputError(
                "interval", f"must be a multiple of the stored {history.interval}", value=self.interval
            )
        federation = trained.federation
        cohort = federation.cohort(federation.remaining(removed))
        sizes = {client: len(data) for client, data in cohort.items()}
        model = federation.model(trained.seed)
        parts = layer_slices(model) if self.norm == "layer" else (slice(None),)
        settings = replace(trained.settings, epochs=self.calibration * trained.settings.epochs)
        kept = [number for number in sorted(history.updates) if number % self.interval == 0]
        effort.stored_bytes = sum(4 * u.numel() for t in kept for u in history.updates[t].values())

        weights = trained.initial
        for number in kept:
            stored = {client: history.updates[number][client] for client in cohort}
            if number == kept[0] and self.trust_first:
                weights = weights + aggregate(stored, sizes)
                continue
            fresh: dict[int, Tensor] = {}
            for client, data in cohort.items():
                write_weights(model, weights)
                with effort.client_work():
                    stream = client_seed(seed, client, number)
                    effort.samples += local_train(model, data, stream, settings, device=federation.device)
                fresh[client] = read_weights(model) - weights
                effort.exchange(weights.numel(), weights.numel())
            weights = weights + self._calibrated(fresh, stored, sizes, parts)
            effort.rounds += 1
        return weights

    def _calibrated(
        self,
        fresh: dict[int, Tensor],
        stored: dict[int, Tensor],
        sizes: dict[int, int],
        parts: tuple[slice, ...],
    ) -> Tensor:
        if self.norm == "none":
            return aggregate(fresh, sizes)
        if self.average_first:
            return rescale(aggregate(fresh, sizes), aggregate(stored, sizes), parts)
        return aggregate({c: rescale(fresh[c], stored[c], parts) for c in fresh}, sizes)
