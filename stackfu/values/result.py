"""The result: what every client contributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from ..html import MOST_ROWS, card, data_frame, number, table
from ..model import Array, frozen
from ..model.content import Content
from ..results.access import Tables

__all__ = ["ClientValues"]


@dataclass(frozen=True, eq=False)
class ClientValues(Content, Tables):
    """Values of clients, one entry per client.

    Attributes
    ----------
    clients
        Names of the clients.
    measure
        What is valued: the fall of the server's loss, or a measure of coalitions.
    shapley
        Shapley values; estimates if ``orders`` is not 0.
    low, high
        Ends of intervals that hold the Shapley values, all of them at once with probability ``confidence``.
    leave_one_out
        What all clients together lose without each of them.
    alone
        Value of each client alone.
    whole
        Value of all clients together: the sum of the Shapley values.
    empty
        Measure of the empty coalition, which has the value 0. Of the server's loss by default the largest loss of any coalition.
    confidence
        1 if all coalitions were evaluated.
    orders
        Number of random orders, 0 if all coalitions were evaluated.
    """

    clients: tuple[str, ...]
    measure: str
    shapley: Array
    low: Array
    high: Array
    leave_one_out: Array
    alone: Array
    whole: float
    empty: float
    confidence: float = 1.0
    orders: int = 0

    @property
    def exact(self) -> bool:
        """Return True if all coalitions were evaluated."""
        return self.orders == 0

    @property
    def shares(self) -> Array:
        """Return each client's part of the sum of all Shapley values; zero where the sum is zero."""
        total = float(self.shapley.sum())
        return frozen(self.shapley / total if total != 0.0 else np.zeros(len(self.shapley)))

    def split(self, amount: float) -> Array:
        """Return an amount of money divided by the positive Shapley values; zero where no value is positive.

        >>> one = frozen([1.0, 3.0])
        >>> ClientValues(("York", "Hull"), "accuracy", one, one, one, one, one, 4.0, 0.0).split(100.0)
        array([25., 75.])
        """
        positive = np.maximum(self.shapley, 0.0)
        total = float(positive.sum())
        return frozen(amount * positive / total if total > 0.0 else np.zeros(len(positive)))

    def __getitem__(self, client: str) -> float:
        """Return the Shapley value of a client, by name."""
        if str(client) not in self.clients:
            raise InputError("client", f"must be one of {', '.join(self.clients[:10])}", value=repr(client))
        return float(self.shapley[self.clients.index(str(client))])

    #: A result is no sequence of clients.
    __iter__ = None

    def summary(self) -> dict[str, Any]:
        """Return the values as plain values."""
        return {
            "clients": list(self.clients),
            "measure": self.measure,
            "shapley": self.shapley,
            "low": self.low,
            "high": self.high,
            "leave_one_out": self.leave_one_out,
            "alone": self.alone,
            "whole": self.whole,
            "empty": self.empty,
            "confidence": self.confidence,
            "orders": self.orders,
        }

    def to_pandas(self) -> Any:
        """Return a DataFrame with one row per client (needs pandas)."""
        columns = {
            "shapley": self.shapley,
            "low": self.low,
            "high": self.high,
            "share": self.shares,
            "leave_one_out": self.leave_one_out,
            "alone": self.alone,
        }
        return data_frame(columns, self.clients)

    @property
    def words(self) -> str:
        """Return how sure the values are, in a sentence."""
        if self.exact:
            return "All coalitions were evaluated."
        return f"Estimated from {self.orders} random orders; all intervals hold with a probability of {self.confidence:.0%}."

    def _repr_html_(self) -> str:
        shown = min(len(self.clients), MOST_ROWS)
        between = [] if self.exact else ["at least", "at most"]
        rows = [
            [
                self.clients[k],
                float(self.shapley[k]),
                *([] if self.exact else [float(self.low[k]), float(self.high[k])]),
                f"{self.shares[k]:.1%}",
                float(self.leave_one_out[k]),
                float(self.alone[k]),
            ]
            for k in range(shown)
        ]
        head = ["client", "Shapley value", *between, "share", "lost without it", "alone"]
        note = f"All together: {number(self.whole)}; the empty coalition has a {self.measure} of {number(self.empty)}. {self.words}"
        return card(
            f"Values of the clients: {self.measure}", table(head, rows, len(self.clients) - shown), note=note
        )

    def __repr__(self) -> str:
        how = "exact" if self.exact else f"{self.orders} orders, confidence {self.confidence:.0%}"
        return f"ClientValues({self.measure}, {len(self.clients)} clients, whole={self.whole:.6g}, {how})"
