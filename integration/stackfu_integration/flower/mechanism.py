"""The server's side: training, and removal requests from embeddings to settlement.

    mechanism = UnlearningMechanism(folder, clients=10)
    mechanism.train(grid, initial_arrays, rounds=20)
    audit = mechanism.remove(grid, (0, 1, 2))

Every phase ends with a row in the ledger and begins by looking for it. The server may be killed at any time:
started again with the same folder, it repeats nothing that is closed, and what is open it continues from the
last row.

A request that cannot go on (one client left, a budget that buys nothing, nobody who agrees, a deadline that has
passed) is aborted with the reason in the ledger; an operator may abort one, or amend its terms, with a reason too.

A client that does not answer, answers nonsense or leaves is named in the ledger. Before the commitments it is
left out of the game and the offers are made anew among the others, so that the certificate always speaks of
the clients that are there; afterwards it is paid for the rounds that it delivered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from stackfu.embedding.names import ClientNames, check_names, listed
from stackfu.errors import InputError, StackfuError
from stackfu_integration.flower.audit import write_audit
from stackfu_integration.flower.client import Participant
from stackfu_integration.flower.collected import keys_in_folder
from stackfu_integration.flower.events import (
    ClientExcluded,
    CommitmentsClosed,
    GameFounded,
    RequestAborted,
    RequestClosed,
    RequestSettled,
)
from stackfu_integration.flower.keys import SigningKey
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.methods import METHODS
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.naming import one_line
from stackfu_integration.flower.phases import (
    REMOVAL,
    convex_rounds,
    embeddings,
    enrolment,
    leaving,
    report,
    settlement,
    shards,
    start,
    train,
    unlearning,
)
from stackfu_integration.flower.phases import request as opening
from stackfu_integration.flower.phases.rounds import last_model, rounds_done
from stackfu_integration.flower.phases.session import Session, StuckError, terms_of
from stackfu_integration.flower.terms import Terms

__all__ = ["UnlearningMechanism"]

_MOST_NAMED = 8  # clients in the reason for which a request is aborted


@dataclass
class UnlearningMechanism:
    """A federation with its ledger and its models in ``folder``.

    ``clients`` is how many there are, or their names. ``timeout`` is how long the server waits for answers, ``wait`` how
    long for nodes to appear. ``client_keys`` are the public keys with which clients sign, by name, or number, or the folder
    that holds them (``Leeds.pub``, or ``3.pub``): with them nobody else is let in. ``probe`` is a participant with data of the
    server's own, to compare updates with. ``key`` is
    the file of the server's key, by default ``keys/server.key`` in the folder; its holder can write ledgers.
    ``keep_updates`` keeps what every client sends in training, for methods that need all of it (:mod:`.methods`); terms that
    name one of these keep it by themselves. ``after(phase)`` is called when a phase is closed; ``seconds`` is the time that
    each has taken.
    """

    folder: Path
    clients: int | Sequence[str]
    terms: Terms = field(default_factory=Terms)
    timeout: float = 300.0
    wait: float = 60.0
    patience: int = 2
    client_keys: Mapping[int | str, str] | Path | None = None
    probe: Participant | None = None
    key: Path | None = None
    keep_updates: bool = False
    after: Callable[[str], None] = lambda phase: None
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names: tuple[str, ...] = ()
        if not isinstance(self.clients, int):
            self.names = check_names(self.clients, None, "clients")
            strange = [name for name in self.names if one_line(name) != name or not name.strip()]
            if strange:
                raise InputError(
                    "clients",
                    "a name is one line without control characters, | < > ` * # ~ ! and links",
                    value=strange[0],
                )
        self.count = self.clients if isinstance(self.clients, int) else len(self.names)
        if self.count < 2:
            raise InputError("clients", "must be at least 2", value=self.count)
        self.folder = Path(self.folder)
        key = None if self.key is None else SigningKey.load_or_create(self.key)
        self.ledger = PaymentLedger(self.folder / "ledger.sqlite", key=key)
        self.models = ModelStore(self.folder / "models")
        self._nodes: dict[int, int] = {}
        self._grid: Grid | None = None

    @property
    def client_names(self) -> ClientNames:
        """The clients as arguments name them: by name, or by number where they have no names."""
        return ClientNames.of(self.names or None, self.count)

    def number_of(self, client: int | str) -> int:
        """Return a client's number from its name, or from its number where clients have no names."""
        return int(self.client_names.position(client, "client"))

    def leaving(self, removed: Sequence[int | str]) -> tuple[int, ...]:
        """Return the numbers of the clients that are named, ascending; call it before training to refuse a wrong name at once.

        Raises
        ------
        InputError
            If a name is unknown, could mean two clients or comes twice, or if no client or every client is named.
        """
        going = tuple(sorted(map(int, self.client_names.positions(removed, "removed", removing=True))))
        if not 0 < len(going) < self.count:
            everybody = listed([self.client_names.name(k) for k in range(self.count)])
            raise InputError("removed", f"must name some, not all, of clients {everybody}", value=removed)
        return going

    def _named(self, terms: Terms) -> Terms:
        """Return the terms with costs and sizes by the clients' exact names; those of no client are refused."""
        who = self.client_names

        def named(stated: Mapping[str, Any], argument: str) -> dict[str, Any]:
            places = who.positions(list(stated), argument)
            return {who.name(place): value for place, value in zip(places, stated.values(), strict=True)}

        return replace(
            terms,
            costs=named(terms.costs, "costs"),
            cost_intervals=named(terms.cost_intervals, "cost_intervals"),
            sizes=named(terms.sizes, "sizes"),
        )

    def train(
        self,
        grid: Grid,
        initial: ArrayRecord,
        rounds: int,
        settings: Mapping[str, Any] | None = None,
        strategy: Strategy | None = None,
    ) -> ArrayRecord:
        """Train with all clients by Flower's own ``train`` message, from the last round in the ledger on.

        ``strategy`` is any of Flower's: it chooses whom to ask in a round, what becomes of the replies, and what is
        evaluated. Its state other than the model, such as moments, does not survive a crash.
        """
        train.open_run(self.ledger, self.models, self.folder, self.count, rounds, initial, self.names)
        if rounds_done(self.ledger) < rounds:
            session = self._session(grid)
            with self._timed(train.PHASE):
                train.run(session, initial, rounds, settings or {}, strategy)
            self.after(train.PHASE)
        return self.model()

    def adopt(self, trained: ArrayRecord, initial: ArrayRecord | None = None) -> ArrayRecord:
        """Take over a model that was trained elsewhere; ``initial`` is where it started, for retraining.

        Without it, only unlearning that continues from the trained model is possible. What an adopted model has seen,
        and on whose data, is the operator's word, which the audit states.
        """
        first = trained if initial is None else initial
        train.open_run(
            self.ledger, self.models, self.folder, self.count, 1, first, self.names, adopted=trained
        )
        return self.model()

    def remove(
        self,
        grid: Grid,
        removed: Sequence[int | str],
        request: str = "r1",
        strategy: Strategy | None = None,
    ) -> dict[str, Any]:
        """Carry out a removal request from wherever the ledger says it stands; return the audit.

        A request that cannot be carried out is aborted, and the audit says why; what was delivered until then is paid.
        ``strategy`` is one of Flower's for the rounds of unlearning.
        """
        start.check(self.ledger, self.models, self.terms, strategy)
        if strategy is not None:  # it chooses which clients are asked, and the terms say so
            self.terms = replace(self.terms, strategy=type(strategy).__name__)
        self.terms = self._named(self.terms)
        going = self.leaving(removed)
        if opening.open_request(self.ledger, request, going, self.terms, self.count):
            self.after(opening.PHASE)
        if not self.ledger.has(request, RequestClosed):
            if self.ledger.has(request, RequestAborted):
                return self._wind_up(request)
            name = opening.PHASE
            try:
                removal = self._session(grid, request).removal(request)
                if not self.ledger.has(request, CommitmentsClosed):
                    name = shards.PHASE
                    shards.leave_out_untouched(removal)
                    name = leaving.PHASE
                    leaving.ask_consent(removal)
                    name = convex_rounds.PHASE
                    convex_rounds.ask_for_gradients(removal)
                for phase in REMOVAL:
                    name = phase.name
                    if not self.ledger.has(request, phase.closed_by):
                        with self._timed(phase.name):
                            if phase.name == unlearning.PHASE:
                                unlearning.run(removal, strategy)
                            else:
                                phase.run(removal)
                        self.after(phase.name)
            except StuckError as error:
                return self.abort(request, f"{error}{self._left_out(request)}", phase=name)
        return write_audit(self.ledger, request, self.folder)

    def _left_out(self, request: str) -> str:
        """Return the clients that were left out of a request, each with the reason, as the end of a sentence."""
        out = [
            f"client {self.ledger.naming(client)} ({event.problem})"
            for client, event in self.ledger.by_client(request, ClientExcluded).items()
            if event.phase != shards.PHASE
        ]
        more = "" if len(out) <= _MOST_NAMED else f" and {len(out) - _MOST_NAMED} more"
        return f"; left out: {', '.join(out[:_MOST_NAMED])}{more}" if out else ""

    def abort(self, request: str, reason: str, phase: str = "operator") -> dict[str, Any]:
        """Carry a request no further; pay what was delivered and passed, close it, and return the audit."""
        opening.abort_request(self.ledger, request, phase, reason)
        return self._wind_up(request)

    def _wind_up(self, request: str) -> dict[str, Any]:
        terms = terms_of(self.ledger, request)
        if self.ledger.has(request, CommitmentsClosed) and not self.ledger.has(request, RequestSettled):
            settlement.settle(self.ledger, request, terms)
        report.close(self.ledger, self.models, request, terms)
        return write_audit(self.ledger, request, self.folder)

    def amend(self, request: str, terms: Terms, reason: str) -> None:
        """Replace the terms of an open request before any client is committed, with a reason; offers are made anew."""
        terms = self._named(terms)
        with self.ledger.transaction():
            opening.amend_request(self.ledger, request, terms, reason)
            founded = self.ledger.last(request, GameFounded)
            if founded is not None:
                removal = self._papers(None, {}).removal(request)
                embeddings.found_game(removal, founded.bandwidth)
        self.terms = terms

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

    def _session(self, grid: Grid, request: str | None = None) -> Session:
        """Call the roll, if need be, and return what the phases work with."""
        if self._grid is not grid or len(self._nodes) < self.count:
            keys = None
            if isinstance(self.client_keys, Path):
                keys = keys_in_folder(self.client_keys, self.names, self.count)
            elif self.client_keys is not None:
                places = self.client_names.positions(list(self.client_keys), "client_keys")
                keys = dict(zip(map(int, places), self.client_keys.values(), strict=True))
            try:
                with self._timed(enrolment.PHASE):
                    self._nodes = enrolment.call_the_roll(
                        grid,
                        self.ledger,
                        self.count,
                        wait=self.wait,
                        timeout=self.timeout,
                        client_keys=keys,
                    )
            except enrolment.NotEnoughNodesError as error:
                # nodes may come back, but a request does not wait for them for ever
                if request is not None and self._papers(grid, {}).removal(request).time_left <= 0:
                    raise StuckError(f"the deadline has passed: {error}") from error
                raise
            self._grid = grid
        return self._papers(grid, self._nodes)

    def _papers(self, grid: Grid | None, nodes: Mapping[int, int]) -> Session:
        return Session(
            grid=grid,
            nodes=nodes,
            clients=self.count,
            terms=self.terms,
            ledger=self.ledger,
            models=self.models,
            folder=self.folder,
            timeout=self.timeout,
            patience=self.patience,
            names=self.names,
            probe=self.probe,
            keep_updates=self.keep_updates or METHODS[self.terms.unlearning].updates,
        )

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - began
