"""Interface of all unlearning methods."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from stackfu.embedding.names import ClientNames
from stackfu.errors import ConvergenceError, InputError
from stackfu_integration.lab.federation.convex import Certificate
from stackfu_integration.lab.federation.effort import Effort
from stackfu_integration.lab.federation.trained import Trained

__all__ = ["CertifiedWeights", "Guarantee", "Outcome", "UnlearningMethod"]

#: ``exact``: a function of the remaining clients' data alone; ``certified``: within a proven distance of such a
#: function; ``none``: whatever was measured.
Guarantee = Literal["exact", "certified", "none"]


@dataclass(frozen=True)
class CertifiedWeights:
    """Weights, and how far they can be from weights that are a function of the remaining data alone."""

    weights: Tensor
    certificate: Certificate | None


@dataclass(frozen=True)
class Outcome:
    """Weights after unlearning, what it cost in wall-clock and processor seconds, and a certificate if it has one."""

    weights: Tensor
    effort: Effort
    seconds: float
    cpu_seconds: float = 0.0
    certificate: Certificate | None = None

    @property
    def cost(self) -> dict[str, float]:
        """Plain numbers for a report."""
        return {**self.effort.as_dict(), "seconds": self.seconds, "cpu_seconds": self.cpu_seconds}


class UnlearningMethod(ABC):
    """Turns a trained federation and the numbers of removed clients into new weights.

    ``cooperation`` says what the method asks of the removed clients, who may well be gone.
    """

    name: ClassVar[str]
    cooperation: ClassVar[str]

    @property
    def guarantee(self) -> Guarantee:
        """Knowledge about the outcome before any measurement."""
        return "none"

    def unlearn(self, trained: Trained, removed: Sequence[int], seed: int) -> Outcome:
        """Check the request, run the method and account for it; weights that are no numbers are an error."""
        clients = len(trained.federation.clients)
        gone = tuple(sorted(map(int, ClientNames(clients).positions(removed, "removed"))))
        if not 0 < len(gone) < clients:
            raise InputError("removed", f"must name some, not all, of clients 0..{clients - 1}", value=gone)
        effort = Effort()
        start, used = time.perf_counter(), time.process_time()
        made = self._run(trained, gone, seed, effort)
        seconds, used = time.perf_counter() - start, time.process_time() - used
        weights, certificate = (
            (made.weights, made.certificate) if isinstance(made, CertifiedWeights) else (made, None)
        )
        lost = int((~torch.isfinite(weights)).sum())
        if lost:
            raise ConvergenceError(
                f"{self.name} diverged: {lost} of {weights.numel()} weights are no numbers; "
                "its learning rates are too large for this model"
            )
        return Outcome(weights, effort, seconds, used, certificate)

    @abstractmethod
    def _run(
        self, trained: Trained, removed: tuple[int, ...], seed: int, effort: Effort
    ) -> Tensor | CertifiedWeights:
        """Return the unlearned weights and count in ``effort`` what it took."""
