"""Time to relearn forgotten data: remaining knowledge comes back fast.

The removed clients train alone from the unlearned model, as in rounds of the federation, until what they had planted works
as it did before unlearning. A retrained model says how long that takes from nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from stackfu.errors import InputError
from stackfu_integration.lab.federation.averaging import fedavg
from stackfu_integration.lab.federation.trained import Trained

__all__ = ["rounds_to_relearn"]


def rounds_to_relearn(
    trained: Trained,
    weights: Tensor,
    removed: Sequence[int],
    seed: int,
    limit: int,
    success: Callable[[Tensor], float],
    share: float = 0.9,
) -> int | None:
    """Rounds until ``success`` reaches a share of its value before unlearning; ``None`` is more than ``limit``.

    The model before unlearning needs none.
    """
    if limit < 0:
        raise InputError("limit", "must not be negative", value=limit)
    federation = trained.federation
    wanted = share * success(trained.final)
    model, cohort = federation.model(trained.seed), federation.cohort(removed)
    for number in range(limit + 1):
        if success(weights) >= wanted:
            return number
        if number < limit:
            weights = fedavg(
                model,
                cohort,
                weights,
                number + 1,
                trained.settings,
                seed,
                start=number,
                device=federation.device,
            )
    return None
