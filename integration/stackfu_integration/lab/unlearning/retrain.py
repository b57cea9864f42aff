"""Retrain from the first weights without the removed clients: exact, and the reference for the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from stackfu_integration.lab.federation.averaging import fedavg
from stackfu_integration.lab.federation.effort import Effort
from stackfu_integration.lab.federation.trained import Trained
from stackfu_integration.lab.unlearning.base import Guarantee, UnlearningMethod

__all__ = ["Retrain"]


@dataclass(frozen=True)
class Retrain(UnlearningMethod):
    """FedAvg over the remaining clients, as many rounds as the original training, same initial weights."""

    name: ClassVar[str] = "retrain"
    cooperation: ClassVar[str] = "none"

    @property
    def guarantee(self) -> Guarantee:
        """Starts from the first weights and never sees the removed clients."""
        return "exact"

    def _run(self, trained: Trained, removed: tuple[int, ...], seed: int, effort: Effort) -> Tensor:
        federation = trained.federation
        cohort = federation.cohort(federation.remaining(removed))
        return fedavg(
            federation.model(trained.seed),
            cohort,
            trained.initial,
            trained.rounds,
            trained.settings,
            seed,
            effort=effort,
            device=federation.device,
        )
