"""What every phase works with: who is there, what was agreed, and where it is written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from flwr.app import RecordDict
from flwr.serverapp import Grid

from stackfu_integration.flower.board import Board
from stackfu_integration.flower.events import ClientExcluded, RemovalRequested
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.terms import Terms
from stackfu_integration.flower.wire import Refusal, ask
from stackfu_integration.flower.wire.exchange import NO_ANSWER, Question

__all__ = ["NO_NODE", "Removal", "Session"]

NO_NODE = "has no node"

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Session:
    """A federation of ``clients`` clients as one run of the server sees it.

    ``nodes`` are Flower's node ids by client number. ``timeout`` is how long the server waits for answers;
    a client that fails ``patience`` rounds in a row is not asked again.
    """

    grid: Grid
    nodes: Mapping[int, int]
    clients: int
    terms: Terms
    ledger: PaymentLedger
    models: ModelStore
    folder: Path
    timeout: float
    patience: int

    def ask(
        self, questions: Mapping[int, Question], decode: Callable[[RecordDict], _Answer]
    ) -> dict[int, _Answer | Refusal]:
        """Ask clients and return their answers, read by ``decode``."""
        return ask(self.grid, self.nodes, questions, decode, self.timeout)

    def removal(self, name: str) -> Removal:
        """Return this session at work on a removal request."""
        return Removal(**vars(self), name=name)


@dataclass(frozen=True)
class Removal(Session):
    """One removal request in a session."""

    name: str

    @property
    def request(self) -> RemovalRequested:
        """The request as it was opened."""
        return self.ledger.need(self.name, RemovalRequested)

    @property
    def excluded(self) -> set[int]:
        """Clients that were left out of the game."""
        return set(self.ledger.by_client(self.name, ClientExcluded))

    def board(self, costs: Mapping[int, float] | None = None) -> Board:
        """Rebuild the game among the clients that are not left out."""
        return Board.from_ledger(self.ledger, self.name, self.terms, costs)

    def leave_out(self, client: int, phase: str, problem: str) -> None:
        """Name a client and leave it out of the game, once; a removed client owes nobody an answer."""
        if client in self.excluded:
            return
        has_left = client in self.request.removed and problem in (NO_ANSWER, NO_NODE)
        with self.ledger.transaction():
            if not has_left:
                self.ledger.add_fault(self.name, client, phase, problem)
            self.ledger.add(self.name, ClientExcluded(client, phase, problem))
