"""A plan in whole samples: what each client brings, and what that costs and is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..html import MOST_ROWS, NOTHING, card, data_frame, money, number, table
from ..model import Array, GameModel
from .access import Tables
from .cautions import amount

__all__ = ["WholePlan", "whole_counts"]

#: Samples that differ from a whole number by less than this part of it are that number.
SAME_COUNT = 1e-9
#: The part by which a budget may be exceeded: the last digits of a sum.
SAME_SPEND = 1e-13


@dataclass(frozen=True, eq=False)
class WholePlan(Tables):
    """A solution rounded to whole samples, with its exact spend and loss.

    The claim is: *if every client brings exactly* ``counts`` *samples and is paid the posted price for each of them (and its
    retainer), the server pays* ``spend`` *and its loss is* ``server_loss``. Both are enclosed by the checker's arithmetic, see
    :mod:`stackfu.judging.whole_samples`. It is not claimed that the clients choose these numbers by themselves (their equilibrium
    is the plan that was rounded, less than one sample away for each), nor that no other whole numbers do better.
    """

    game: GameModel
    #: Samples of each remaining client.
    counts: npt.NDArray[np.int64]
    #: The sum that each client receives for them, retainers included.
    payouts: Array
    #: The sum that the server pays.
    spend: float
    #: The loss of a model trained on these samples; not a number where there are none.
    server_loss: float
    #: The objective at these samples; not a number where there are none.
    objective: float
    #: The largest error of the three numbers above, relative to them.
    error: float
    #: Constraints that these samples break, in sentences; empty where they keep all.
    broken: tuple[str, ...]

    @property
    def participation(self) -> Array:
        """The share of its samples that each client brings."""
        return np.asarray(self.counts / self.game.sizes)

    @property
    def total(self) -> int:
        """The number of samples of all clients."""
        return int(self.counts.sum())

    def __bool__(self) -> bool:
        """Return True if the samples keep everything that was asked for."""
        return not self.broken

    def summary(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {
            "counts": self.counts,
            "total": self.total,
            "payouts": self.payouts,
            "spend": self.spend,
            "server_loss": self.server_loss if self.total else None,
            "objective": self.objective if self.total else None,
            "error": self.error,
            "broken": list(self.broken),
        }

    def to_pandas(self) -> Any:
        """Return a DataFrame with one row per remaining client, indexed by name (needs pandas)."""
        columns = {"samples": self.counts, "share": self.participation, "receives": self.payouts}
        return data_frame(columns, self.game.names)

    def _repr_html_(self) -> str:
        game, shown = self.game, min(self.game.count, MOST_ROWS)
        nothing = NOTHING * game.costs
        rows = [
            [
                game.label(k),
                amount(float(game.sizes[k])),
                int(self.counts[k]),
                number(self.payouts[k], nothing[k]),
            ]
            for k in range(shown)
        ]
        note = f"spend {money(self.spend, game.currency)}; server loss {number(self.server_loss)}. {'; '.join(self.broken)}".strip()
        clients = table(["client", "samples", "brings", "receives"], rows, game.count - shown)
        return card(f"{self.total} whole samples", clients, note=note)

    def __repr__(self) -> str:
        kept = "keeps what was asked for" if self else "; ".join(self.broken)
        return (
            f"WholePlan({self.total} samples of {int(np.count_nonzero(self.counts))} clients, spend={self.spend:.6g}, "
            f"server_loss={self.server_loss:.6g}: {kept})"
        )


def whole_counts(solution: Any) -> npt.NDArray[np.int64]:
    """Return whole samples that are less than one sample away from a plan for every client, within its budget.

    Every client first brings its whole samples. Single samples then fill up the rounded total of the plan, or the floor if that
    is larger: first from the clients with the largest remaining fractions, and only while their price fits the budget. So no
    client is a whole sample away from the plan, and the shares of the clients, on which the loss depends, are as near to it as
    whole samples of that total can be (the largest remainders minimise the sum of the distances). Sizes that are not whole
    numbers are rounded down.
    """
    game, offers, budget = solution.game, solution.offers, solution.goal.budget
    wanted = game.sizes * solution.participation
    nearest = np.rint(wanted)
    wanted = np.where(np.abs(wanted - nearest) <= SAME_COUNT * np.maximum(nearest, 1.0), nearest, wanted)
    counts = np.floor(wanted)
    most = np.floor(game.sizes * (1.0 + SAME_COUNT))
    prices = offers.prices / game.sizes
    spend = float(prices @ counts + offers.retainers.sum())
    least = np.ceil(solution.goal.min_total * float(game.sizes.sum()) * (1.0 - SAME_COUNT))
    missing = max(float(np.rint(wanted.sum())), least) - float(counts.sum())
    parts = wanted - counts
    for k in np.argsort(-parts, kind="stable"):
        if missing < 1.0 or parts[k] <= 0.0:
            break
        if counts[k] + 1.0 <= most[k] and spend + prices[k] <= budget * (1.0 + SAME_SPEND):
            counts[k] += 1.0
            spend += prices[k]
            missing -= 1.0
    return np.asarray(counts, dtype=np.int64)
