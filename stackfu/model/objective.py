"""The server's objective and the limits of a search: two frozen values that solutions carry and files keep.

minimise  loss_weight * loss + payment_weight * spend
subject to  spend <= budget,  loss <= max_loss,  S >= min_total
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from .arguments import count, flag, not_negative

__all__ = ["Limits", "Objective"]

#: Boxes are counted in 64 bits.
MOST_NODES = 2**62


@dataclass(frozen=True)
class Objective:
    """The minimised quantity and its constraints.

    >>> Objective(budget=0.05, min_total=0.2)
    Objective(budget=0.05, payment_weight=0.0, loss_weight=1.0, max_loss=inf, min_total=0.2, finite_sample=False)
    """

    #: Largest total payment ``p . x``; infinite for no limit.
    budget: float = float("inf")
    #: Weight of the spend in what is minimised.
    payment_weight: float = 0.0
    #: Weight of the server's loss in what is minimised.
    loss_weight: float = 1.0
    #: Largest server loss allowed.
    max_loss: float = float("inf")
    #: Least total participation S.
    min_total: float = 0.0
    #: True if the loss counts the variance of the used samples' embedding.
    finite_sample: bool = False

    def __post_init__(self) -> None:
        for name in ("budget", "payment_weight", "loss_weight", "max_loss", "min_total"):
            object.__setattr__(self, name, not_negative(getattr(self, name), name))
        for name in ("payment_weight", "loss_weight"):
            if np.isinf(getattr(self, name)):
                raise InputError(name, "must be finite", value=getattr(self, name))
        object.__setattr__(self, "finite_sample", flag(self.finite_sample, "finite_sample"))

    @property
    def is_loss(self) -> bool:
        """True if the server's loss itself is minimised, so that a bound of one is a bound of the other."""
        return self.loss_weight == 1.0 and self.payment_weight == 0.0 and not self.finite_sample

    @property
    def is_spend(self) -> bool:
        """True if the spend is minimised."""
        return self.loss_weight == 0.0 and self.payment_weight == 1.0

    def value(self, loss: float, spend: float) -> float:
        """``loss_weight * loss + payment_weight * spend``."""
        return self.loss_weight * loss + self.payment_weight * spend

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Limits:
    """Limits of a search: the gap to close, relative to the loss without payments, seconds, and boxes."""

    gap: float = 1e-6
    time_limit: float = 60.0
    max_nodes: int = 100_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "gap", not_negative(self.gap, "gap"))
        if self.gap >= 1.0:
            raise InputError(
                "gap", "must be less than 1: a gap of 1 is closed by a bound of 0", value=self.gap
            )
        object.__setattr__(self, "time_limit", not_negative(self.time_limit, "time_limit"))
        object.__setattr__(self, "max_nodes", min(count(self.max_nodes, "max_nodes"), MOST_NODES))

    @staticmethod
    def default_gap(count: int) -> float:
        """Return the gap that is closed in a moment at this many clients."""
        return 1e-6 if count <= 12 else 1e-5 if count <= 60 else 1e-3

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)
