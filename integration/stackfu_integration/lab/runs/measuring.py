"""Measurements of an unlearned model: side effects, attacks, backdoors, canaries."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stackfu_integration.lab.federation.convex import Certificate
from stackfu_integration.lab.measures import (
    agreement,
    backdoor_success,
    detection,
    evaluate,
    membership_auc,
    pooled_losses,
    prediction_distance,
    side_effects,
)
from stackfu_integration.lab.measures.membership import log_odds
from stackfu_integration.lab.measures.performance import logits_on
from stackfu_integration.lab.models import write_weights
from stackfu_integration.lab.runs.materials import Materials
from stackfu_integration.lab.unlearning import DistilledSets

__all__ = ["Measuring"]


class Measuring:
    """Measurements of the unlearned models of a run."""

    def __init__(self, materials: Materials) -> None:
        self.materials = materials

    def measure(self, weights: Tensor, cost: dict[str, Any]) -> dict[str, Any]:
        """Return everything that is measured about an unlearned model."""
        federation = self.materials.trained.federation
        start = time.perf_counter()
        performance = evaluate(federation, weights)
        effects = side_effects(
            performance, self.materials.original, self.materials.reference, self.materials.removed
        )
        return {
            "losses": performance.losses.tolist(),
            "accuracies": performance.accuracies.tolist(),
            "pooled_losses": pooled_losses(federation, performance).tolist(),
            **effects.as_dict(),
            "membership_auc": membership_auc(federation, weights, performance, self.materials.removed),
            "agreement": agreement(performance, self.materials.reference),
            "distance": prediction_distance(performance, self.materials.reference),
            "attack": self._attacked(weights),
            "cost": cost,
            "measuring_seconds": time.perf_counter() - start,
        }

    def _attacked(self, weights: Tensor) -> dict[str, Any] | None:
        if self.materials.attack is None:
            return None
        whole, clients = self.materials.attack.run(self.materials.trained.federation, weights)
        return {**whole.as_dict(), "clients": [clients[i].as_dict() for i in self.materials.removed]}

    def closeness(self) -> dict[str, float]:
        """Return the distance of the removed clients' synthetic sets from the real samples that they started from."""
        distilled = self.materials.trained.observers["distilled"]
        assert isinstance(distilled, DistilledSets)  # as _train made it
        data = self.materials.trained.federation.clients
        return {
            key: float(np.mean([distilled.closeness(i, data[i].train)[key] for i in self.materials.removed]))
            for key in ("moved", "recognised")
        }

    def sure(self, weights: Tensor, certificate: Certificate) -> float:
        """Return the share of test samples with a class provably equal to that of the model without the removed data."""
        federation = self.materials.trained.federation
        model = federation.model(0)
        write_weights(model, weights)
        x = torch.cat([client.test.x for client in federation.clients])
        with torch.no_grad():
            features = torch.cat([model.features(part.to(federation.device)).cpu() for part in x.split(512)])
        return float(certificate.sure(logits_on(federation, weights, x), features).double().mean())

    def planted(self, weights: Tensor) -> list[float]:
        """Success of every removed client's backdoor."""
        return [
            backdoor_success(
                self.materials.infected.federation, weights, torch.from_numpy(marked.test), marked.target
            )
            for marked in self.materials.source.marked
        ]

    def remembered(self, weights: Tensor) -> dict[str, Any]:
        """Compare canaries with test samples of the same clients that have wrong labels and were in no training."""
        federation = self.materials.infected.federation
        pairs = []
        for client in self.materials.removed:
            rows, wrong = self.materials.canaries(client)
            test = federation.clients[client].test
            rng = np.random.default_rng([self.materials.seed, client, 62])
            others = torch.from_numpy(self.materials.wrong_labels(test.y.numpy(), rng))
            x = federation.clients[client].train.x[torch.from_numpy(rows)]
            pairs.append(
                (
                    log_odds(logits_on(federation, weights, x), torch.from_numpy(wrong)),
                    log_odds(logits_on(federation, weights, test.x), others),
                )
            )
        whole = detection(torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs]))
        return {**whole.as_dict(), "clients": [detection(*pair).as_dict() for pair in pairs]}
