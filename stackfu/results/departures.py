"""Departures from a federation in their order, and the clients that stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..embedding.names import Position, listed
from ..html import MOST_ROWS, card, data_frame, table
from ..model import Array, GameModel
from ..model.content import Content
from ..model.impacts import guessed
from .access import Tables
from .cautions import amount
from .facade import facade

__all__ = ["Cascade", "Departure"]


@dataclass(frozen=True, eq=False)
class Departure(Content):
    """One round: who is there, what they do and get, and who leaves."""

    clients: tuple[int, ...]
    participation: Array
    utilities: Array
    total: float
    server_loss: float
    leaving: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Cascade(Content, Tables, Sequence[Departure]):
    """Rounds of departures until no client wants to leave, or too few stay to form a federation."""

    game: GameModel
    outside: Array
    order: str
    rounds: tuple[Departure, ...]

    @property
    def departed(self) -> tuple[int, ...]:
        """Client numbers in the order in which they departed."""
        return tuple(k for r in self.rounds for k in r.leaving)

    @property
    def left(self) -> tuple[int, ...]:
        """The same by its older name, which can be read both ways."""
        return self.departed

    @property
    def stayed(self) -> tuple[int, ...]:
        """Client numbers that stayed; empty if the federation fell apart."""
        gone = set(self.departed)
        stayed = tuple(Position(k) for k in self.game.remaining if int(k) not in gone)
        return stayed if len(stayed) > 1 else ()

    @property
    def used(self) -> tuple[float, ...]:
        """Share of all remaining clients' data that takes part, round by round (``total``: of the data of those who are there)."""
        alpha, place = self.game.alpha, {int(k): i for i, k in enumerate(self.game.remaining)}
        return tuple(
            float(sum(alpha[place[k]] * x for k, x in zip(r.clients, r.participation, strict=True)))
            for r in self.rounds
        )

    @property
    def samples_used(self) -> tuple[float, ...]:
        """Samples that take part, round by round."""
        owned = float(self.game.sizes.sum())
        return tuple(share * owned for share in self.used)

    @property
    def stable(self) -> bool:
        """True if no client departed."""
        return not self.departed

    def summary(self) -> dict[str, Any]:
        """Return the cascade as plain values."""
        called = self.game.called
        return {
            "order": self.order,
            "stayed": [called(k) for k in self.stayed],
            "departed": [called(k) for k in self.departed],
            "rounds": [
                {
                    "clients": [called(k) for k in r.clients],
                    "participation": r.participation,
                    "utilities": r.utilities,
                    "total": r.total,
                    "used": used,
                    "samples_used": samples,
                    "server_loss": r.server_loss,
                    "leaving": [called(k) for k in r.leaving],
                }
                for r, used, samples in zip(self.rounds, self.used, self.samples_used, strict=True)
            ],
        }

    def to_pandas(self) -> Any:
        """One row per client: the round in which it departed (the first is 1; NaN: it stayed) and its utility when it decided."""
        when = {k: i for i, r in enumerate(self.rounds, 1) for k in r.leaving}
        last: dict[int, float] = {}
        for r in self.rounds:
            last.update(zip(r.clients, r.utilities, strict=True))
        index = [int(k) for k in self.game.remaining]
        columns = {
            "departed_in_round": [float(when.get(k, np.nan)) for k in index],
            "utility": [last[k] for k in index],
            "outside": self.outside,
        }
        return data_frame(columns, self.game.names)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the departures round by round; options are those of :func:`stackfu.plot.cascade`."""
        return facade(self.game).plot(self, ax, **options)

    def _repr_html_(self) -> str:
        called = self.game.called
        rows = [
            [
                i + 1,
                len(r.clients),
                f"{used:.1%}",
                amount(samples),
                float(r.server_loss),
                listed([called(k) for k in r.leaving], 8) or "nobody",
            ]
            for i, (r, used, samples) in enumerate(
                zip(self.rounds[:MOST_ROWS], self.used, self.samples_used, strict=False)
            )
        ]
        head = ["round", "clients", "data used", "samples", "server loss", "leaving"]
        return card(
            f"{len(self.stayed)} of {self.game.count} clients stay",
            table(head, rows, len(self.rounds) - len(rows)),
            note=guessed(self.game),
        )

    def __len__(self) -> int:
        return len(self.rounds)

    def __getitem__(self, index: Any) -> Any:
        return self.rounds[index]

    def __repr__(self) -> str:
        who = listed([self.game.called(k) for k in self.departed], 8)
        verb = "departs" if len(self.departed) == 1 else "depart"
        gone = (
            f"{len(self.departed)} of {self.game.count} clients {verb} ({who})" if who else "nobody departs"
        )
        return f"Cascade({self.order}: {gone}, {len(self.stayed)} stay)"
