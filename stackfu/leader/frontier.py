"""What a budget buys: certified solutions along a list of budgets.

The optimal loss v(B) does not increase with the budget. So the solution for one budget is feasible for every larger one (that
is the warm start), and a lower bound at one budget holds at every smaller one (that makes the lower envelope). Two budgets
stand out: the one where more money stops helping, and the price of full participation, which has a closed form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InfeasibleError, InputError
from ..game import StackelbergGame
from ..geometry import Array
from ..result import Solution

__all__ = ["Frontier", "trace_frontier"]


@dataclass(frozen=True, eq=False)
class Frontier(Sequence[Solution]):
    """Solutions by ascending budget, with the certified lower envelope of the loss."""

    game: StackelbergGame
    solutions: tuple[Solution, ...]
    options: dict[str, Any]

    @property
    def budgets(self) -> Array:
        """The budgets, ascending."""
        return np.array([s.budget for s in self.solutions])

    @property
    def losses(self) -> Array:
        """``u_server`` of each solution."""
        return np.array([s.server_loss for s in self.solutions])

    @property
    def spends(self) -> Array:
        """What each solution really pays."""
        return np.array([s.spend for s in self.solutions])

    @property
    def totals(self) -> Array:
        """Total participation S of each solution."""
        return np.array([s.equilibrium.total for s in self.solutions])

    @property
    def payments(self) -> Array:
        """Payments, a row a budget."""
        return np.array([s.payments for s in self.solutions])

    @property
    def participation(self) -> Array:
        """Participation, a row a budget."""
        return np.array([s.participation for s in self.solutions])

    @cached_property
    def lower_bounds(self) -> Array:
        """At each budget the best bound proved there or at any larger budget: no payments do better."""
        bounds = np.array([s.lower_bound for s in self.solutions])
        return np.maximum.accumulate(bounds[::-1])[::-1]

    @cached_property
    def saturation_budget(self) -> float:
        """Least budget at which the loss is, but for a ten-thousandth of its range, as low as any budget can make it."""
        game, options = self.game, {k: v for k, v in self.options.items() if k in _SHARED}
        best = game.solve(None, start=self.participation, **options)
        nothing = game.solve(0.0, **options).objective if not options.get("min_total") else np.inf
        worst = max(s.objective for s in self.solutions)
        span = (nothing if np.isfinite(nothing) else worst) - best.objective
        target = best.objective + 1e-4 * max(span, 1e-4 * abs(best.objective))
        low, high, start = 0.0, best.spend, best.participation
        for _ in range(30):
            if high - low <= 1e-4 * high:
                break
            budget = 0.5 * (low + high)
            try:
                found = game.solve(budget, start=start, **options)
            except InfeasibleError:
                low = budget
                continue
            if found.objective <= target:
                high, start = min(budget, found.spend), found.participation
            else:
                low = budget
        return high

    @property
    def full_participation_price(self) -> float:
        """What it costs to have everybody take part fully."""
        return self.game.full_participation_price

    def __len__(self) -> int:
        return len(self.solutions)

    def __getitem__(self, index: Any) -> Any:
        return self.solutions[index]

    def __iter__(self) -> Iterator[Solution]:
        return iter(self.solutions)

    def __repr__(self) -> str:
        return (
            f"Frontier({len(self)} budgets from {self.budgets[0]:.4g} to {self.budgets[-1]:.4g}, "
            f"loss from {self.losses[0]:.6g} to {self.losses[-1]:.6g})"
        )


_SHARED = ("min_total", "min_samples", "finite_sample", "time_limit")


def trace_frontier(game: StackelbergGame, budgets: npt.ArrayLike, **options: Any) -> Frontier:
    """Solve along the budgets, smallest first, each search starting from the solution before."""
    try:
        values = np.asarray(budgets, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("budgets", "must be a non-empty list of numbers", value=repr(budgets)) from None
    if values.ndim != 1 or len(values) == 0:
        raise InputError("budgets", "must be a non-empty list of numbers", value=budgets)
    if np.isnan(values).any() or (values < 0).any():
        bad = values[np.isnan(values) | (values < 0)][0]
        raise InputError("budgets", "must not be negative or NaN", value=bad)
    solutions: list[Solution] = []
    for budget in np.sort(values):
        warm = {"start": solutions[-1].participation} if solutions else {}
        solutions.append(game.solve(float(budget), **{**options, **warm}))
    return Frontier(game, tuple(solutions), dict(options))
