"""Projected gradient ascent: removed clients undo their own training, close to what the others had; then a few rounds.

After Halimi et al. (2022). The reference is the average of the remaining clients' models at the end of training. From the
trained model every removed client maximises its own loss, and after every step is put back into a ball around the
reference with a radius of a third of the mean distance to fresh random models; it stops early when it is right about few
of its own samples. The remaining clients then repair the outcome by rounds of FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from stackfu.errors import InputError
from stackfu_integration.lab.federation.averaging import aggregate, fedavg
from stackfu_integration.lab.federation.clients import LabelledTensors
from stackfu_integration.lab.federation.effort import Effort
from stackfu_integration.lab.federation.local import LocalTraining, batches, client_seed
from stackfu_integration.lab.federation.trained import Trained, stored_updates
from stackfu_integration.lab.models.classifier import Classifier, read_weights, write_weights
from stackfu_integration.lab.unlearning.base import UnlearningMethod

__all__ = ["GradientAscent"]

_ASCENT, _REPAIR, _RANDOM = 91, 92, 93  # seed streams
_FRESH_MODELS = 10  # whose distance sets the radius


@dataclass(frozen=True)
class GradientAscent(UnlearningMethod):
    """Published: five epochs of ascent at 0.01 with momentum 0.9, gradients clipped to 5, stop below 12% accuracy.

    ``rounds`` of 0 repair for a quarter of the rounds of training.
    """

    name: ClassVar[str] = "gradient-ascent"
    cooperation: ClassVar[str] = "removed clients undo their own training"

    epochs: float = 5.0
    rate: float = 0.01
    momentum: float = 0.9
    clip: float = 5.0
    stop_below: float = 0.12
    rounds: int = 0

    def _run(self, trained: Trained, removed: tuple[int, ...], seed: int, effort: Effort) -> Tensor:
        federation = trained.federation
        updates = stored_updates(trained, self.name)
        last = max(updates)
        if last != trained.rounds - 1:
            raise InputError("trained", "the last round's updates must have been stored", value=last)
        remaining = federation.cohort(federation.remaining(removed))
        sizes = {client: len(data) for client, data in remaining.items()}
        # final = before + all updates; so the others' average is final - all updates + theirs
        everybody = {i: len(client.train) for i, client in enumerate(federation.clients)}
        theirs = {client: updates[last][client] for client in remaining}
        reference = trained.final - aggregate(updates[last], everybody) + aggregate(theirs, sizes)
        effort.stored_bytes = sum(4 * update.numel() for update in updates[last].values())
        fresh = [
            read_weights(federation.model(client_seed(seed, 0, k, _RANDOM))) for k in range(_FRESH_MODELS)
        ]
        radius = float(torch.stack([(w - reference).norm() for w in fresh]).mean()) / 3.0
        model, weights = federation.model(trained.seed), trained.final
        for client in removed:
            data = federation.clients[client].train
            write_weights(model, weights)
            stream = client_seed(seed, client, 0, _ASCENT)
            with effort.client_work():
                effort.samples += self._ascend(model, data, reference, radius, stream, trained.settings.batch)
            weights = read_weights(model)
            effort.exchange(2 * weights.numel(), weights.numel())
        rounds = self.rounds or max(1, trained.rounds // 4)
        stream = client_seed(seed, 0, 0, _REPAIR)
        return fedavg(
            model,
            remaining,
            weights,
            rounds,
            trained.settings,
            stream,
            effort=effort,
            device=federation.device,
        )

    def _ascend(
        self,
        model: Classifier,
        data: LabelledTensors,
        reference: Tensor,
        radius: float,
        seed: int,
        batch: int,
    ) -> int:
        """Maximise the loss of one client inside the ball; return the gradients of single samples that it took."""
        settings = LocalTraining(self.epochs, batch, self.rate, self.momentum)
        parameters = [p for p in model.parameters() if p.requires_grad]
        device, optimizer, processed = parameters[0].device, settings.build(parameters, ascend=True), 0
        for indices in batches(len(data), settings, seed):
            x, y = data.x[indices].to(device), data.y[indices].to(device)
            optimizer.zero_grad(set_to_none=True)
            scores = model(x)
            functional.cross_entropy(scores, y).backward()
            torch.nn.utils.clip_grad_norm_(parameters, self.clip)
            optimizer.step()
            processed += len(indices)
            moved = read_weights(model) - reference
            length = float(moved.norm())
            if length > radius:
                write_weights(model, reference + moved * (radius / length))
            if float((scores.argmax(1) == y).double().mean()) <= self.stop_below:
                with torch.no_grad():
                    right = (model(data.x.to(device)).argmax(1).cpu() == data.y).double().mean()
                if float(right) <= self.stop_below:
                    break
        return processed
