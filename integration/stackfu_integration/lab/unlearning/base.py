"""The one interface of all unlearning methods."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stackfu.errors import ConvergenceError, InputError
from stackfu_integration.lab.federation.effort import Effort
from stackfu_integration.lab.federation.trained import Trained

__all__ = ["Outcome", "UnlearningMethod"]


@dataclass(frozen=True)
class Outcome:
    """Weights after unlearning, what it cost, and the wall-clock seconds it took."""

    weights: Tensor
    effort: Effort
    seconds: float


class UnlearningMethod(ABC):
    """Turns a trained federation and the numbers of removed clients into new weights.

    ``cooperation`` says what the method asks of the removed clients, who may well be gone.
    """

    name: ClassVar[str]
    cooperation: ClassVar[str]

    def unlearn(self, trained: Trained, removed: Sequence[int], seed: int) -> Outcome:
        """Check the request, run the method and account for it; weights that are no numbers are an error."""
        clients = len(trained.federation.clients)
        if not removed or not set(removed) < set(range(clients)):
            raise InputError(
                "removed", f"must name some, not all, of clients 0..{clients - 1}", value=tuple(removed)
            )
        effort = Effort()
        start = time.perf_counter()
        weights = self._run(trained, tuple(sorted(removed)), seed, effort)
        seconds = time.perf_counter() - start
        lost = int((~torch.isfinite(weights)).sum())
        if lost:
            raise ConvergenceError(
                f"{self.name} diverged: {lost} of {weights.numel()} weights are no numbers; "
                "its learning rates are too large for this model"
            )
        return Outcome(weights, effort, seconds)

    @abstractmethod
    def _run(self, trained: Trained, removed: tuple[int, ...], seed: int, effort: Effort) -> Tensor:
        """Return the unlearned weights and count in ``effort`` what it took."""
