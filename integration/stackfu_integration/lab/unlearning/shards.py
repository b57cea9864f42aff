"""Shards of clients (after SISA): every shard trains a model of its own, and unlearning trains the affected ones again.

Clients are dealt to ``count`` shards by number. Each shard runs FedAvg from the first weights; the federation's scores are
the mean of the shards' scores, weighted by data size. For a softmax head on fixed features the mean of scores is the score
of the mean head, so that the ensemble is one head. Shards without removed clients stay as they are, which costs nothing;
the others are trained again without them. The outcome is exact, and pays with heads that each saw fewer clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from stackfu.errors import InputError
from stackfu_integration.lab.federation.averaging import aggregate, fedavg
from stackfu_integration.lab.federation.effort import Effort
from stackfu_integration.lab.federation.local import client_seed
from stackfu_integration.lab.federation.trained import Trained
from stackfu_integration.lab.unlearning.base import Guarantee, UnlearningMethod

__all__ = ["Shards"]

_SHARD = 71  # seed stream


@dataclass(frozen=True)
class Shards(UnlearningMethod):
    """The mean of ``count`` shards' heads, those with removed clients trained again without them."""

    name: ClassVar[str] = "shards"
    cooperation: ClassVar[str] = "none; the federation must have been trained in shards"

    count: int = 3

    @property
    def guarantee(self) -> Guarantee:
        """No shard's head has seen a removed client."""
        return "exact"

    def _run(self, trained: Trained, removed: tuple[int, ...], seed: int, effort: Effort) -> Tensor:
        federation = trained.federation
        model = federation.model(trained.seed)
        if not isinstance(model.tail, nn.Identity):
            raise InputError("trained", "shards average scores, which is one model for bare heads only")
        if not 1 <= self.count <= len(federation.clients):
            raise InputError("count", "must be between 1 and the number of clients", value=self.count)
        heads: dict[int, Tensor] = {}
        sizes: dict[int, int] = {}
        for shard in range(self.count):
            dealt = range(shard, len(federation.clients), self.count)
            cohort = federation.cohort([client for client in dealt if client not in removed])
            if not cohort:
                continue
            # an unaffected shard was trained before the removal: it is part of training, not of unlearning
            spent = effort if set(dealt) & set(removed) else Effort()
            heads[shard] = fedavg(
                model,
                cohort,
                trained.initial,
                trained.rounds,
                trained.settings,
                client_seed(seed, shard, 0, _SHARD),
                effort=spent,
                device=federation.device,
            )
            sizes[shard] = sum(len(data) for data in cohort.values())
        effort.stored_bytes = sum(4 * head.numel() for head in heads.values())
        return aggregate(heads, sizes)
