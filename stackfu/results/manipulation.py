"""Gains of each client from misreporting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..html import card, data_frame, table
from ..model import Array, GameModel
from ..model.content import Content
from .access import Tables

__all__ = ["Manipulation", "Manipulations", "Misreport"]


@dataclass(frozen=True)
class Misreport:
    """The best misreport of one kind that was tried for one client."""

    client: int
    kind: str  # cost, size or embedding
    report: str
    gain: float
    relative: float  # gain divided by the client's true cost


@dataclass(frozen=True, eq=False)
class Manipulation(Content, Tables):
    """The best misreport per client and kind under one mechanism; gains are in units of utility, never negative."""

    game: GameModel
    mechanism: str
    misreports: tuple[Misreport, ...]

    def gains(self, kind: str) -> Array:
        """Return the best gain of every remaining client by misreports of this kind."""
        by_client = {m.client: m.gain for m in self.misreports if m.kind == kind}
        return np.array([by_client.get(int(k), 0.0) for k in self.game.remaining])

    @property
    def worst(self) -> float:
        """The largest gain relative to the client's cost."""
        return max((m.relative for m in self.misreports), default=0.0)

    def summary(self) -> dict[str, Any]:
        """Return the table as plain values."""
        return {
            "mechanism": self.mechanism,
            "misreports": [
                {
                    "client": self.game.called(m.client),
                    "kind": m.kind,
                    "report": m.report,
                    "gain": m.gain,
                    "relative": m.relative,
                }
                for m in self.misreports
            ],
        }

    def to_pandas(self) -> Any:
        """Return one row per client and kind."""
        rows = self.summary()["misreports"]
        columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
        return data_frame(
            {**columns, "mechanism": [self.mechanism] * len(rows)}, range(len(rows)), "misreport"
        )

    def __repr__(self) -> str:
        gaining = sum(m.gain > 0 for m in self.misreports)
        return f"Manipulation({self.mechanism}: {gaining} of {len(self.misreports)} pay, at most {self.worst:.0%} of a cost)"


@dataclass(frozen=True, eq=False)
class Manipulations(Content, Tables):
    """Gains from misreporting under several mechanisms, with the loss and spend of each under truthful reports."""

    items: tuple[Manipulation, ...]
    #: Server loss and spend of every mechanism in the true game.
    losses: Array
    spends: Array

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of misreports that were tried, in their order."""
        return tuple(dict.fromkeys(m.kind for item in self.items for m in item.misreports))

    def summary(self) -> list[dict[str, Any]]:
        """One row per mechanism: loss and spend, and per kind the largest gain in units of the client's cost and how many gain."""
        rows = []
        for item, loss, spend in zip(self.items, self.losses, self.spends, strict=True):
            row: dict[str, Any] = {
                "mechanism": item.mechanism,
                "server loss": float(loss),
                "spend": float(spend),
            }
            for kind in self.kinds:
                of_kind = [m for m in item.misreports if m.kind == kind]
                row[f"{kind}: largest gain"] = max((m.relative for m in of_kind), default=0.0)
                row[f"{kind}: clients who gain"] = sum(m.gain > 0 for m in of_kind)
            rows.append(row)
        return rows

    def to_pandas(self) -> Any:
        """Return one row per mechanism."""
        rows = self.summary()
        columns = {
            name: [row[name] for row in rows] for name in (rows[0] if rows else ()) if name != "mechanism"
        }
        return data_frame(columns, [row["mechanism"] for row in rows], "mechanism")

    def _repr_html_(self) -> str:
        rows = self.summary()
        head = list(rows[0]) if rows else []
        return card(
            "What misreporting pays",
            table(head, [list(row.values()) for row in rows]),
            note="largest gains found, in units of the client's true cost; lower bounds of what manipulation can gain",
        )

    def __str__(self) -> str:
        rows = self.summary()
        cells = [list(rows[0]) if rows else []]
        cells += [[v if isinstance(v, str) else f"{v:.3g}" for v in row.values()] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join(
            "  ".join(
                [line[0].ljust(widths[0]), *(v.rjust(w) for v, w in zip(line[1:], widths[1:], strict=True))]
            )
            for line in cells
        )
