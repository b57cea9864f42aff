"""The server's side: training, and removal requests from embeddings to settlement.

    mechanism = UnlearningMechanism(folder, clients=10)
    mechanism.train(grid, initial_arrays, rounds=20)
    audit = mechanism.remove(grid, (0, 1, 2))

Every phase ends with a row in the ledger and begins by looking for it. The server may be killed at any time:
started again with the same folder, it repeats nothing that is closed, and what is open it continues from the
last row.

A client that does not answer, answers nonsense or leaves is named in the ledger. Before the commitments it is
left out of the game and the offers are made anew among the others, so that the certificate always speaks of
the clients that are there; afterwards it is paid for the rounds that it delivered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from stackfu.errors import InputError, StackfuError
from stackfu_integration.flower.audit import write_audit
from stackfu_integration.flower.events import RequestClosed
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.phases import REMOVAL, enrolment, train
from stackfu_integration.flower.phases import request as opening
from stackfu_integration.flower.phases.rounds import last_model, rounds_done
from stackfu_integration.flower.phases.session import Session
from stackfu_integration.flower.terms import Terms

__all__ = ["UnlearningMechanism"]


@dataclass
class UnlearningMechanism:
    """A federation of ``clients`` clients with its ledger and its models in ``folder``.

    ``timeout`` is how long the server waits for answers, ``wait`` how long for nodes to appear.
    ``after(phase)`` is called when a phase is closed; ``seconds`` is the time that each has taken.
    """

    folder: Path
    clients: int
    terms: Terms = field(default_factory=Terms)
    timeout: float = 300.0
    wait: float = 60.0
    patience: int = 2
    after: Callable[[str], None] = lambda phase: None
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.clients < 2:
            raise InputError("clients", "must be at least 2", value=self.clients)
        self.folder = Path(self.folder)
        self.ledger = PaymentLedger(self.folder / "ledger.sqlite")
        self.models = ModelStore(self.folder / "models")
        self._nodes: dict[int, int] = {}
        self._grid: Grid | None = None

    def train(
        self, grid: Grid, initial: ArrayRecord, rounds: int, settings: Mapping[str, Any] | None = None
    ) -> ArrayRecord:
        """Train with everybody by Flower's own ``train`` message, from the last round in the ledger on."""
        train.open_run(self.ledger, self.models, self.folder, self.clients, rounds, initial)
        if rounds_done(self.ledger) < rounds:
            session = self._session(grid)
            with self._timed(train.PHASE):
                train.run(session, initial, rounds, settings or {})
            self.after(train.PHASE)
        return self.model()

    def remove(self, grid: Grid, removed: tuple[int, ...], request: str = "r1") -> dict[str, Any]:
        """Carry out a removal request from wherever the ledger says it stands; return the audit."""
        leaving = tuple(sorted(int(client) for client in removed))
        if opening.open_request(self.ledger, request, leaving, self.terms, self.clients):
            self.after(opening.PHASE)
        if not self.ledger.has(request, RequestClosed):
            removal = self._session(grid).removal(request)
            for phase in REMOVAL:
                if not self.ledger.has(request, phase.closed_by):
                    with self._timed(phase.name):
                        phase.run(removal)
                    self.after(phase.name)
        return write_audit(self.ledger, request, self.folder)

    def model(self, request: str | None = None) -> ArrayRecord:
        """Return the model after a request, or after training."""
        if request is not None:
            name = last_model(self.ledger, request)
            if name is None:
                raise InputError("request", "has not unlearned anything yet", value=request)
            return self.models.get(name)
        name = last_model(self.ledger)
        if name is None:
            raise StackfuError("nothing has been trained yet")
        return self.models.get(name)

    def _session(self, grid: Grid) -> Session:
        """Call the roll, if need be, and return what the phases work with."""
        if self._grid is not grid or len(self._nodes) < self.clients:
            with self._timed(enrolment.PHASE):
                self._nodes = enrolment.call_the_roll(
                    grid, self.ledger, self.clients, wait=self.wait, timeout=self.timeout
                )
            self._grid = grid
        return Session(
            grid=grid,
            nodes=self._nodes,
            clients=self.clients,
            terms=self.terms,
            ledger=self.ledger,
            models=self.models,
            folder=self.folder,
            timeout=self.timeout,
            patience=self.patience,
        )

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - began
