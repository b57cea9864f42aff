"""What the server states before anybody answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from stackfu.errors import InputError
from stackfu_integration.lab.mechanisms import CERTIFIED, known_options

__all__ = ["Terms"]

Unlearning = Literal["retrain", "continue"]


@dataclass(frozen=True)
class Terms:
    """What the server states before anybody answers.

    ``budget`` is the most that a removal may cost; without it, ``budget_share`` of the price of full
    participation. ``bandwidth`` of ``None`` asks every client for the median squared distance in its own data
    and takes the median of the answers, weighted by size. ``epsilon`` turns on noise (:mod:`.privacy`), and
    then the bandwidth must be given. ``unlearning`` is ``"retrain"`` from the first model, which never meets
    the removed data, or ``"continue"`` from the trained one. ``finite_sample`` lets the loss know how many
    samples take part, so that money left over buys data, and ``min_total`` is a floor on the share of the
    remaining data that takes part. ``tolerance`` is the largest difference in shares that counts as not
    moving. ``method`` is a mechanism registered with stackfu.
    """

    budget: float | None = None
    budget_share: float = 0.5
    cost_scale: float = 10.0
    lambda_v: float = 1.0
    lambda_s: float = 1.0
    lambda_q: float = 1.0
    loss_constant: float = 10.0
    features: int = 256
    bandwidth: float | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    seed: int = 0
    unlearning: Unlearning = "retrain"
    rounds: int = 10
    method: str = CERTIFIED
    finite_sample: bool = False
    min_total: float = 0.0
    time_limit: float = 60.0
    announcements: int = 60
    damping: float = 0.5
    tolerance: float = 1e-6
    most_samples: int = 10_000_000

    def __post_init__(self) -> None:
        if self.budget is not None and not self.budget >= 0:
            raise InputError("budget", "must not be negative", value=self.budget)
        if not 0 < self.budget_share <= 1:
            raise InputError("budget_share", "must be in (0, 1]", value=self.budget_share)
        if self.epsilon is not None and self.bandwidth is None:
            raise InputError(
                "bandwidth", "must be given with epsilon: asking the clients for it is not private"
            )
        if self.rounds < 1:
            raise InputError("rounds", "must be at least 1", value=self.rounds)
        if not 0 <= self.min_total <= 1:
            raise InputError("min_total", "must be in [0, 1]", value=self.min_total)
        if self.unlearning not in get_args(Unlearning):
            raise InputError(
                "unlearning", f"must be one of {', '.join(get_args(Unlearning))}", value=self.unlearning
            )
        known_options(self.method)  # refuses what nobody registered
        if self.announcements < 1:
            raise InputError("announcements", "must be at least 1", value=self.announcements)
        if not 0 < self.damping <= 1:
            raise InputError("damping", "must be in (0, 1]", value=self.damping)

    @classmethod
    def from_config(cls, run_config: Mapping[str, Any]) -> Terms:
        """Take the terms out of a Flower run config, where they are written with dashes.

        A run config cannot hold "nothing": 0 stands for an absent budget, bandwidth or epsilon.

        >>> Terms.from_config({"budget-share": 0.25, "epsilon": 0.0, "learning-rate": 0.1}).budget_share
        0.25
        """
        known = {field.name: field.name.replace("_", "-") for field in fields(cls)}
        given = {name: run_config[key] for name, key in known.items() if key in run_config}
        for name in ("budget", "bandwidth", "epsilon"):
            if given.get(name) == 0:
                del given[name]
        return cls(**given)
