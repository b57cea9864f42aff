"""Shared context of the phases: clients, agreements, and the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from flwr.app import RecordDict
from flwr.serverapp import Grid

from stackfu.errors import StackfuError
from stackfu_integration.flower.board import Board
from stackfu_integration.flower.client import Participant
from stackfu_integration.flower.events import ClientEnrolled, ClientExcluded, RemovalRequested, TermsAmended
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.naming import Naming
from stackfu_integration.flower.receipts import Receipt
from stackfu_integration.flower.terms import Terms
from stackfu_integration.flower.wire import Refusal, ask
from stackfu_integration.flower.wire.exchange import NO_ANSWER, Question

__all__ = ["NO_NODE", "NO_SUM", "Removal", "Session", "StuckError", "terms_of"]

NO_NODE = "has no node"
NO_SUM = "too few of those who leave delivered their part of the sum"  # which is nobody's fault who did

_Answer = TypeVar("_Answer")


class StuckError(StackfuError):
    """A request cannot be carried out, now or later: it is aborted, with this as the reason."""


def terms_of(ledger: PaymentLedger, request: str) -> Terms:
    """Return the terms that hold for a request: those it was opened with, or the last amendment's."""
    amended = ledger.last(request, TermsAmended)
    return Terms.restated((amended or ledger.need(request, RemovalRequested)).terms)


@dataclass(frozen=True)
class Session:
    """A federation of ``clients`` clients as one run of the server sees it.

    ``probe`` is a participant with data of the server's own; clients' updates are compared with its updates.
    ``nodes`` are Flower's node ids by client number. ``timeout`` is how long the server waits for answers;
    a client that fails ``patience`` rounds in a row is not asked again. ``keep_updates`` keeps what every client sends in training.
    """

    grid: Grid | None
    nodes: Mapping[int, int]
    clients: int
    terms: Terms
    ledger: PaymentLedger
    models: ModelStore
    folder: Path
    timeout: float
    patience: int
    names: tuple[str, ...]
    probe: Participant | None
    keep_updates: bool

    def ask(
        self, questions: Mapping[int, Question], decode: Callable[[RecordDict], _Answer]
    ) -> dict[int, _Answer | Refusal]:
        """Ask clients and return their answers, read by ``decode``."""
        return ask(self.grid, self.nodes, questions, decode, self.time_for_answers(), self.ledger.head)

    def time_for_answers(self) -> float:
        """Seconds to wait for answers."""
        return self.timeout

    @property
    def naming(self) -> Naming:
        """Names of the clients, or their numbers where they have none."""
        return Naming(self.names)

    def name_of(self, client: int) -> str:
        """Return a client's name; without one, its number."""
        return self.naming(client)

    def refused_receipt(self, client: int, receipt: Receipt | None, what: str, **facts: object) -> str | None:
        """Say what is wrong with a client's receipt; a client that enrolled without a key has none to give."""
        known = self.ledger.of_client(RUN, ClientEnrolled, client)
        signer = "" if known is None else known.signer
        if not signer:
            return None
        if receipt is None:
            return "signed nothing"
        if receipt.key != signer or not receipt.is_signed:
            return "signed with another key than it enrolled with"
        difference = receipt.differs_from(what, client=client, **facts)
        if difference is not None:
            return f"signed something else than it sent: {difference}"
        head = receipt.head
        if head is None or not head.is_signed or self.ledger.hash_at(head.seq) != head.hash:
            return "signed it beside a head that this server never showed"
        return None

    def removal(self, name: str) -> Removal:
        """Return this session at work on a removal request."""
        terms = terms_of(self.ledger, name)
        return Removal(**vars(replace(self, terms=terms)), name=name)


@dataclass(frozen=True)
class Removal(Session):
    """One removal request in a session."""

    name: str

    @property
    def time_left(self) -> float:
        """Seconds until the request must be over."""
        opened = self.ledger.time_of(self.name, RemovalRequested)
        assert opened is not None
        now = max(
            time.time(), self.ledger.now().timestamp()
        )  # a clock that is set back does not stop a deadline
        return datetime.fromisoformat(opened).timestamp() + self.terms.deadline - now

    def time_for_answers(self) -> float:
        """Seconds to wait for answers; an error after the deadline."""
        left = self.time_left
        if left <= 0:
            raise StuckError(f"the deadline of {self.terms.deadline:g} s has passed")
        return min(self.timeout, left)

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
        try:
            return Board.from_ledger(self.ledger, self.name, self.terms, costs)
        except StackfuError as error:
            raise StuckError(str(error)) from error

    def leave_out(self, client: int, phase: str, problem: str, *, blame: bool = True) -> None:
        """Name a client and leave it out of the game, once; a removed client need not answer."""
        if self.ledger.of_client(self.name, ClientExcluded, client) is not None:
            return
        has_left = client in self.request.removed and problem in (NO_ANSWER, NO_NODE, NO_SUM)
        with self.ledger.transaction():
            if blame and not has_left:
                self.ledger.add_fault(self.name, client, phase, problem)
            self.ledger.add(self.name, ClientExcluded(client, phase, problem))
