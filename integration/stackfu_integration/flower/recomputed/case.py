"""One removal request that is looked at again: its rows, its models, and what stays open."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
from flwr.app import ArrayRecord

from stackfu.model.game_model import GameModel
from stackfu_integration.flower.events import (
    ClientEvent,
    EmbeddingReceived,
    Event,
    PriceOffered,
    RemovalRequested,
    RunStarted,
    TermsAmended,
)
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.naming import Naming
from stackfu_integration.flower.phases.session import terms_of
from stackfu_integration.flower.terms import Terms

__all__ = ["TOLERANCE", "Case", "near", "same"]

TOLERANCE = 1e-9

_AnyEvent = TypeVar("_AnyEvent", bound=Event)
_OfClient = TypeVar("_OfClient", bound=ClientEvent)


@dataclass
class Case:
    """One request, checked without trust in server or clients.

    ``questions`` stay open, and evidence could answer them; ``limits`` cannot be checked here; ``proved`` was shown.
    ``works`` are the folders in which clients keep the models that they sent.

    ``last_game`` is the game of its last solution, once solutions are checked.
    """

    ledger: PaymentLedger
    models: ModelStore
    request: str
    questions: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    proved: list[str] = field(default_factory=list)
    works: tuple[ModelStore, ...] = ()
    last_game: GameModel | None = None

    def events(self, kind: type[_AnyEvent]) -> list[_AnyEvent]:
        """Return all events of a kind, in order."""
        return self.ledger.events(self.request, kind)

    def placed(self, kind: type[_AnyEvent]) -> list[tuple[int, _AnyEvent]]:
        """Return all events of a kind, each with the number of its row."""
        return self.ledger.placed(self.request, kind)

    def by_client(self, kind: type[_OfClient]) -> dict[int, _OfClient]:
        """Return the last event of a kind of every client."""
        return self.ledger.by_client(self.request, kind)

    def last(self, kind: type[_AnyEvent]) -> _AnyEvent | None:
        """Return the last event of a kind, if there is one."""
        return self.ledger.last(self.request, kind)

    def needed(self, kind: type[_AnyEvent]) -> _AnyEvent:
        """Return the last event of a kind, which must be there."""
        return self.ledger.need(self.request, kind)

    def has(self, kind: type[Event]) -> bool:
        """Return True if there is an event of a kind."""
        return self.ledger.has(self.request, kind)

    def place_of(self, kind: type[Event]) -> int:
        """Return the row of the last event of a kind."""
        return self.ledger.place_of(self.request, kind)

    @cached_property
    def naming(self) -> Naming:
        """Names of the clients."""
        return self.ledger.naming

    @cached_property
    def terms(self) -> Terms:
        """The terms that hold in the end."""
        return terms_of(self.ledger, self.request)

    def terms_at(self, place: int) -> Terms:
        """Return the terms that held when a row was written."""
        stated = self.needed(RemovalRequested).terms
        for number, amended in self.placed(TermsAmended):
            if number < place:
                stated = amended.terms
        return Terms.restated(stated)

    @cached_property
    def sizes(self) -> dict[int, int]:
        """Return the number of samples of every client that sent an embedding."""
        return {client: event.size for client, event in self.by_client(EmbeddingReceived).items()}

    def offers(self, attempt: int) -> dict[int, PriceOffered]:
        """Return the offers of one attempt, by client."""
        return {o.client: o for o in self.events(PriceOffered) if o.attempt == attempt}

    def first_model(self) -> ArrayRecord:
        """Return the weights that the run started with."""
        return self.models.get(self.ledger.need(RUN, RunStarted).initial)


def same(a: float | None, b: float | None) -> bool:
    """Return True if two numbers differ by rounding only."""
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=1e-12)


def near(a: Iterable[float], b: Iterable[float]) -> bool:
    """Return True if the numbers of two lists differ by rounding only."""
    return bool(np.allclose(np.asarray(a), np.asarray(list(b)), rtol=TOLERANCE, atol=1e-12))
