"""Solutions along a list of budgets.

The optimal objective v(B) does not increase with the budget. So the solution for one budget is feasible for every larger one,
and a lower bound at one budget holds at every smaller one (that makes the lower envelope). Two budgets stand out: the one where
more money stops helping, and the price of full participation, which has a closed form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import ConvergenceError, InfeasibleError, InputError, without_warnings
from ..html import card, data_frame, table
from ..model import Array, GameModel
from ..model.content import Content
from ..model.impacts import guessed
from .access import Tables
from .cautions import amount
from .facade import facade
from .solution import Solution

__all__ = ["Frontier"]

#: Money stops helping where the objective is within this part of its range of the best one; the budget is found as exactly.
SATURATED = 1e-4
#: Errors of a search with too small a budget: infeasibility is proved, or (contracts) no contracts within it were found.
TOO_LITTLE = (InfeasibleError, ConvergenceError)


@dataclass(frozen=True, eq=False)
class Frontier(Content, Tables, Sequence[Solution]):
    """Solutions by ascending budget, with the certified lower envelope of the objective.

    ``options`` are those of ``solve`` that every solution shares.
    """

    game: GameModel
    solutions: tuple[Solution, ...]
    method: str
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
    def objectives(self) -> Array:
        """Minimised value of each solution; the lower bounds are bounds of these."""
        return np.array([s.objective for s in self.solutions])

    @property
    def spends(self) -> Array:
        """Actual payment of each solution."""
        return np.array([s.spend for s in self.solutions])

    @property
    def totals(self) -> Array:
        """Total participation S of each solution."""
        return np.array([s.equilibrium.total for s in self.solutions])

    @property
    def payments(self) -> Array:
        """Payments, one row per budget."""
        return np.array([s.payments for s in self.solutions])

    @property
    def participation(self) -> Array:
        """Participation, one row per budget."""
        return np.array([s.participation for s in self.solutions])

    @cached_property
    def lower_bounds(self) -> Array:
        """At each budget the best bound of the objective proved there or at any larger budget: no payments do better.

        Between two budgets the bound of the larger one holds: what is proved is a step function, not the line between them.
        """
        bounds = np.array([s.lower_bound for s in self.solutions])
        return np.maximum.accumulate(bounds[::-1])[::-1]

    @cached_property
    def saturation_budget(self) -> float:
        """Least budget at which the objective is, but for a ten-thousandth of its range, as low as any budget can make it."""
        if self.method != "certified":
            raise InputError(
                "method", "only certified solutions know where money stops helping", value=self.method
            )
        with without_warnings():
            return self._saturation()

    def _saturation(self) -> float:
        game = facade(self.game)
        best: Solution = game.solve(None, start=self.participation, **self.options)
        try:
            nothing = game.solve(0.0, **self.options).objective
        except TOO_LITTLE:
            nothing = max(s.objective for s in self.solutions)
        target = best.objective + SATURATED * max(nothing - best.objective, SATURATED * abs(best.objective))
        low, high, start = 0.0, best.spend, best.participation
        for _ in range(30):
            if high - low <= SATURATED * high:
                break
            budget = 0.5 * (low + high)
            try:
                found = game.solve(budget, start=start, **self.options)
            except TOO_LITTLE:
                low = budget
                continue
            if found.objective <= target:
                high, start = min(budget, found.spend), found.participation
            else:
                low = budget
        return high

    @property
    def full_participation_price(self) -> float:
        """Cheapest total payment for full participation of all clients."""
        return self.game.full_participation_price

    def summary(self) -> dict[str, Any]:
        """Return the solutions along the budgets as plain values."""
        return {
            "remaining": self.game.remaining,
            "names": list(self.game.names),
            "currency": self.game.currency,
            "full_participation_price": self.full_participation_price,
            "proves": self.solutions[0].proves,
            "points": [
                {
                    "budget": solution.budget,
                    "spend": solution.spend,
                    "server_loss": solution.server_loss,
                    "objective": solution.objective,
                    "lower_bound": bound,
                    "total": solution.equilibrium.total,
                    "samples_used": solution.samples_used,
                    "status": solution.status.name,
                    "payments": solution.payments,
                    "participation": solution.participation,
                }
                for solution, bound in zip(self, self.lower_bounds, strict=True)
            ],
        }

    def to_pandas(self) -> Any:
        """Return a DataFrame with one row per budget (needs pandas)."""
        points = self.summary()["points"]
        scalars = ("spend", "server_loss", "objective", "lower_bound", "total", "samples_used", "status")
        columns = {name: [point[name] for point in points] for name in scalars}
        return data_frame(columns, [point["budget"] for point in points], "budget", self.game.currency)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the objective against the budget; options are those of :func:`stackfu.plot.frontier`."""
        return facade(self.game).plot(self, ax, **options)

    def _repr_html_(self) -> str:
        rows = [
            [
                s.budget,
                s.spend,
                f"{s.equilibrium.total:.1%}",
                amount(s.samples_used),
                f"{s.server_loss:.6g}",
                f"{bound:.6g}",
                s.status.name.lower(),
            ]
            for s, bound in zip(self, self.lower_bounds, strict=True)
        ]
        proved = f"lower bound of the {self.solutions[0].proves}"
        return card(
            "What a budget buys",
            table(
                ["budget", "spend", "data used", "samples", "server loss", proved, "status"],
                rows,
                currency=self.game.currency,
            ),
            note=guessed(self.solutions[0].game),
        )

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
