"""What each client would gain by misreporting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model import Array, GameModel

__all__ = ["Manipulation", "Misreport"]


@dataclass(frozen=True)
class Misreport:
    """The best misreport of one kind that was tried for one client."""

    client: int
    kind: str  # cost, size or embedding
    report: str
    gain: float
    relative: float  # gain divided by the client's true cost


@dataclass(frozen=True, eq=False)
class Manipulation:
    """The best misreport per client and kind under one mechanism; gains are in units of utility, never negative."""

    game: GameModel
    mechanism: str
    misreports: tuple[Misreport, ...]

    def gains(self, kind: str) -> Array:
        """The best gain of every remaining client by misreports of this kind."""
        by_client = {m.client: m.gain for m in self.misreports if m.kind == kind}
        return np.array([by_client.get(int(k), 0.0) for k in self.game.remaining])

    @property
    def worst(self) -> float:
        """The largest gain relative to the client's cost."""
        return max((m.relative for m in self.misreports), default=0.0)

    def summary(self) -> dict[str, Any]:
        """The table as plain values."""
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
        """One row per client and kind."""
        import pandas

        return pandas.DataFrame(self.summary()["misreports"]).assign(mechanism=self.mechanism)

    def __repr__(self) -> str:
        gaining = sum(m.gain > 0 for m in self.misreports)
        return f"Manipulation({self.mechanism}: {gaining} of {len(self.misreports)} pay, at most {self.worst:.0%} of a cost)"
