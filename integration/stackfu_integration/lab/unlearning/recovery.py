"""FedRecovery: take the removed clients' part of every stored round off the trained model, and add noise.

In round ``t`` the average moved by ``U_t``, and without the removed clients it would have moved by ``V_t``, had it been
where it was. The residual ``R_t = U_t - V_t`` is weighted by how much of the whole way the round made,

    w = w_T - sum_t p_t R_t + N(0, sigma^2),    p_t = ||U_t||^2 / sum_{s < t} ||U_s||^2,

after Zhang et al. (2023). Nobody trains: the server computes this from what it has stored. The proof of the authors asks for
one gradient step per round and known Lipschitz constants, from which their sigma follows; rounds of local epochs have neither,
so nothing is certified here, and ``noise`` is a number to choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stackfu.errors import InputError
from stackfu_integration.lab.federation.averaging import aggregate
from stackfu_integration.lab.federation.effort import Effort
from stackfu_integration.lab.federation.local import client_seed
from stackfu_integration.lab.federation.trained import Trained, stored_updates
from stackfu_integration.lab.unlearning.base import UnlearningMethod

__all__ = ["FedRecovery"]

_NOISE = 81  # seed stream


@dataclass(frozen=True)
class FedRecovery(UnlearningMethod):
    """Weighted residuals of the stored rounds; ``weighted = False`` takes all of them off as they are."""

    name: ClassVar[str] = "fedrecovery"
    cooperation: ClassVar[str] = "none; the server has stored every client's updates"

    noise: float = 0.02  # as in public code
    weighted: bool = True

    def __post_init__(self) -> None:
        if not self.noise >= 0:
            raise InputError("noise", "must not be negative", value=self.noise)

    def _run(self, trained: Trained, removed: tuple[int, ...], seed: int, effort: Effort) -> Tensor:
        updates = stored_updates(trained, self.name)
        sizes = {i: len(client.train) for i, client in enumerate(trained.federation.clients)}
        effort.stored_bytes = sum(4 * u.numel() for kept in updates.values() for u in kept.values())
        weights, before = trained.final.double(), 0.0
        for number in sorted(updates):
            moved = aggregate(updates[number], sizes)
            without = aggregate({i: u for i, u in updates[number].items() if i not in removed}, sizes)
            length = float(moved.double().square().sum())
            share = (length / before if before else 0.0) if self.weighted else 1.0
            weights -= share * (moved - without).double()
            before += length
        generator = torch.Generator().manual_seed(client_seed(seed, 0, 0, _NOISE))
        return weights.float() + self.noise * torch.randn(weights.shape, generator=generator)
