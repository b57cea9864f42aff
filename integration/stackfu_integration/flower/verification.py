"""Everything in a ledger recomputed by somebody who trusts neither server nor clients: the first thing that does not fit.

What is needed is the file, the models' folder and the public keys. In this order, each on the ground of those before:

    chain        every row follows from the one before, and the server signed the last one
    events       every row is an event
    receipts     what clients signed is what the ledger says, with the keys they enrolled with
    outside      receipts and heads that others kept are on this chain
    game         costs, price of full participation and budget follow from sizes and terms
    solution     prices and participation are those of the solution on file, and stackfu's judges accept it
    commitments  shares are what clients answered, at the prices offered, within the budget
    work         every round that passed was committed to and delivered
    payments     every amount is price * share * passed / agreed, and the sum is what was settled
    models       every model that counts is the file that its hash names
    measures     the distance between the models

What cannot be recomputed from these is said in words (:attr:`Report.open_questions`).
"""

from __future__ import annotations

import math
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import stackfu as sf
from stackfu.errors import FileFormatError, StackfuError
from stackfu_integration.flower.board import Board
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.events import (
    ClientCommitted,
    ClientEnrolled,
    ClientExcluded,
    ClientPaid,
    CommitmentsClosed,
    DistanceBounded,
    EmbeddingReceived,
    GameFounded,
    GameSolved,
    GradientReported,
    GroupSumReceived,
    MeasuresClosed,
    ModelUnlearned,
    PayloadsErased,
    PaymentAcknowledged,
    PriceOffered,
    RemovalRequested,
    RequestAborted,
    RequestSettled,
    RoundFinished,
    RunStarted,
    ShareAnswered,
    TermsAmended,
    WorkDelivered,
    WorkJudged,
    from_row,
)
from stackfu_integration.flower.ledger import RUN, PaymentLedger, broken_link
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.phases.evidence import bound_on_distance, is_head
from stackfu_integration.flower.phases.measures import distance
from stackfu_integration.flower.phases.settlement import amount_of
from stackfu_integration.flower.receipts import (
    EMBEDDING,
    GRADIENT,
    PAYMENT,
    SHARE,
    WORK,
    Receipt,
    fingerprint_of,
)
from stackfu_integration.flower.terms import Terms

__all__ = ["Evidence", "Report", "verify"]

_TOLERANCE = 1e-9


class _MisfitError(Exception):
    """Something does not fit."""


@dataclass(frozen=True)
class Evidence:
    """What somebody brings along who does not trust the folder: keys, and what clients kept.

    ``client_keys`` are public keys by client number.
    """

    server_key: str | None = None
    client_keys: Mapping[int, str] = field(default_factory=dict)
    receipts: tuple[Receipt, ...] = ()
    heads: tuple[Head, ...] = ()


@dataclass(frozen=True)
class Report:
    """What was checked, the first thing that does not fit (``None``: all fits), and what nobody can check here."""

    checked: tuple[str, ...]
    misfit: str | None
    open_questions: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.misfit is None

    def lines(self) -> list[str]:
        """The report as lines of Markdown."""
        out = ["## Recomputed", ""]
        out += [f"- {what}: fits" for what in self.checked]
        if self.misfit is not None:
            out += ["", f"**Does not fit: {self.misfit}**"]
        out += ["", "Not to be seen from here:", "", *(f"- {question}" for question in self.open_questions)]
        return out


def verify(folder: Path, evidence: Evidence = Evidence(), request: str | None = None) -> Report:
    """Recompute a run, or one of its requests; everything that others depend on is part of it."""
    with PaymentLedger(folder / "ledger.sqlite", create=False) as ledger:
        return _Verifier(ledger, ModelStore(folder / "models"), evidence).run(request)


class _Verifier:
    def __init__(self, ledger: PaymentLedger, models: ModelStore, evidence: Evidence) -> None:
        self.ledger, self.models, self.evidence = ledger, models, evidence
        self.questions: list[str] = []

    def run(self, request: str | None) -> Report:
        checked: list[str] = []
        steps: list[tuple[str, Callable[[], None]]] = [
            ("chain of rows and signed head", self._chain),
            ("every row is an event", self._events),
            ("clients' receipts", self._receipts),
            ("receipts and heads from outside", self._outside),
        ]
        steps += [("models of the run", self._run_models)]
        misfit = None
        try:
            for name, step in steps:
                step()
                checked.append(name)
            for name in self.ledger.requests() if request is None else [request]:
                for what, check in (
                    ("costs and budget", self._game),
                    ("solution, prices and certificate", self._solutions),
                    ("commitments", self._commitments),
                    ("work", self._work),
                    ("payments", self._payments),
                    ("models and distance", self._models),
                    ("evidence of forgetting", self._evidence),
                ):
                    partial(check, name)()
                    checked.append(f"{name}: {what}")
        except _MisfitError as error:
            misfit = str(error)
        except (StackfuError, sqlite3.Error, KeyError, TypeError, ValueError) as error:
            misfit = f"{name}: {error}"
        return Report(tuple(checked), misfit, tuple(dict.fromkeys([*self.questions, *_ALWAYS])))

    def need(self, holds: bool, what: str) -> None:
        if not holds:
            raise _MisfitError(what)

    # ---------------------------------------------------------------- the file

    def _chain(self) -> None:
        problem = broken_link(self.ledger, self.evidence.server_key)
        self.need(problem is None, str(problem))
        self._hashes = {row[0]: hash_ for row, hash_, _, _ in self.ledger.links()}
        if self.evidence.server_key is None:
            self.questions.append(
                "whether the key in the file is the server's: give the public key that you got from the server otherwise"
            )

    def _events(self) -> None:
        for row in self.ledger.rows():
            try:
                from_row(row)
            except FileFormatError as error:
                raise _MisfitError(str(error)) from error

    # ---------------------------------------------------------------- what clients signed

    def _receipts(self) -> None:
        enrolled = self.ledger.by_client(RUN, ClientEnrolled)
        self._signers = {client: event.signer for client, event in enrolled.items()}
        for client, key in self.evidence.client_keys.items():
            signer = self._signers.get(client)
            if signer is not None:
                self.need(signer == key, f"client {client} enrolled with another key than its own")
        unsigned = sorted(client for client, signer in self._signers.items() if not signer)
        if unsigned:
            self.questions.append(f"what clients {unsigned} really said: they have no keys and sign nothing")
        for request in self.ledger.requests():
            offers = {(o.client, o.attempt): o for o in self.ledger.events(request, PriceOffered)}
            # of work that was refused nothing follows, whatever was signed
            refused = {(w.client, w.number) for w in self.ledger.events(request, WorkJudged) if not w.passed}
            for row in self.ledger.rows(request):
                event = from_row(row)
                where = f"row {row.seq} ({row.kind} of client {row.client})"
                if isinstance(event, EmbeddingReceived):
                    facts: dict[str, Any] = {"size": event.size, "deviation": event.deviation}
                    if len(event.mean):
                        facts["vector"] = fingerprint_of(event.mean)
                    self._check_receipt(
                        where, event.client, event.receipt, EMBEDDING, request=request, **facts
                    )
                elif isinstance(event, ShareAnswered):
                    receipt = self._check_receipt(
                        where,
                        event.client,
                        event.receipt,
                        SHARE,
                        request=request,
                        number=event.number,
                        share=event.share,
                    )
                    if receipt is not None:
                        offer = offers.get((event.client, int(receipt.statement["attempt"])))
                        price = receipt.statement["price"]
                        self.need(
                            offer is not None and offer.price == price,
                            f"{where}: the client signed a price of {price!r}, and the ledger offers another",
                        )
                        cap = receipt.statement["cap"]
                        self.need(
                            offer is not None and offer.cap == cap,
                            f"{where}: the client signed a cap of {cap!r}, and the ledger offers another",
                        )
                elif isinstance(event, WorkDelivered) and (event.client, event.number) not in refused:
                    facts = {"number": event.number, "samples": event.samples, "model": event.model}
                    self._check_receipt(where, event.client, event.receipt, WORK, request=request, **facts)
                elif isinstance(event, GradientReported):
                    facts = {
                        "samples": event.samples,
                        "gradient": fingerprint_of(event.gradient),
                        "model": self.ledger.need(request, ModelUnlearned).model,
                    }
                    self._check_receipt(
                        where, event.client, event.receipt, GRADIENT, request=request, **facts
                    )
                elif isinstance(event, PaymentAcknowledged):
                    facts = {"amount": event.amount, "agreed": event.agreed}
                    self._check_receipt(where, event.client, event.receipt, PAYMENT, request=request, **facts)
                    paid = self.ledger.by_client(request, ClientPaid).get(event.client)
                    amount = 0.0 if paid is None else paid.amount
                    self.need(
                        amount == event.amount,
                        f"{where}: the client acknowledged {event.amount!r}, and the ledger pays {amount!r}",
                    )

    def _check_receipt(
        self, where: str, client: int, plain: Mapping[str, Any] | None, what: str, **facts: Any
    ) -> Receipt | None:
        signer = self._signers.get(client, "")
        if not signer:
            return None
        self.need(plain is not None, f"{where}: the client has a key, and there is no receipt")
        assert plain is not None
        receipt = Receipt.read(plain)
        self.need(receipt.key == signer and receipt.is_signed, f"{where}: the client did not sign this")
        difference = receipt.differs_from(what, client=client, **facts)
        self.need(difference is None, f"{where}: the receipt {difference}")
        self._on_chain(where, receipt.head)
        return receipt

    def _on_chain(self, who: str, head: Head | None) -> None:
        if head is None:
            return
        key = self.ledger.head.key if self.ledger.head is not None else ""
        self.need(
            head.is_signed and head.key == key, f"{who}: shows a head that this ledger's server did not sign"
        )
        last = max(self._hashes, default=0)
        self.need(
            head.seq <= last,
            f"{who}: the server had signed row {head.seq}, and this ledger ends at row {last}: it is an older copy",
        )
        self.need(
            self._hashes[head.seq] == head.hash,
            f"{who}: the server had signed another row {head.seq} than the one in this ledger",
        )

    def _outside(self) -> None:
        if not self.evidence.receipts and not self.evidence.heads:
            self.questions.append(
                "whether this is the newest copy of the ledger: an older copy is sound in itself, and only a receipt or "
                "a head that somebody else kept shows that it is old"
            )
        for head in self.evidence.heads:
            self._on_chain("a head from outside", head)
        by_key = {key: client for client, key in self._signers.items() if key}
        for receipt in self.evidence.receipts:
            self.need(receipt.is_signed, "a receipt from outside: its signature is wrong")
            client = by_key.get(receipt.key)
            said = receipt.statement
            self.need(
                client is not None, f"a receipt of key {receipt.key[:16]}…: no such client is in this ledger"
            )
            assert client is not None
            where = f"a receipt of client {client} about its {said.get('what')}"
            self._on_chain(where, receipt.head)
            request = str(said.get("request", RUN))
            if said.get("what") == SHARE:
                offered = {
                    o.attempt: o.price
                    for o in self.ledger.events(request, PriceOffered)
                    if o.client == client
                }
                price = offered.get(int(said["attempt"]))
                self.need(
                    price == said["price"],
                    f"{where}: it was offered {said['price']!r}, the ledger says {price!r}",
                )
            if said.get("what") == PAYMENT:
                paid = self.ledger.by_client(request, ClientPaid).get(client)
                amount = 0.0 if paid is None else paid.amount
                self.need(
                    amount == said["amount"],
                    f"{where}: it was paid {said['amount']!r}, the ledger says {amount!r}",
                )

    # ---------------------------------------------------------------- a request

    def _terms_at(self, request: str, seq: int) -> Terms:
        """The terms that held when a row was written."""
        stated = self.ledger.need(request, RemovalRequested).terms
        for row in self.ledger.rows(request, TermsAmended.kind):
            if row.seq < seq:
                stated = row.detail["terms"]
        return Terms.restated(stated)

    def _name(self, client: int) -> str:
        run = self.ledger.last(RUN, RunStarted)
        return run.names[client] if run is not None and run.names else str(client)

    def _game(self, request: str) -> None:
        aborted = self.ledger.last(request, RequestAborted)
        if aborted is not None:
            self.questions.append(
                f"{request} was aborted ({aborted.reason}); what was done until then is checked"
            )
        received = self.ledger.by_client(request, EmbeddingReceived)
        total = sum(event.size for event in received.values())
        group = self.ledger.last(request, GroupSumReceived)
        if group is not None:
            size = sum(received[c].size for c in group.clients)
            self.need(
                size == group.size, f"{request}: the sum of clients {list(group.clients)} is of another size"
            )
        erased = self.ledger.has(request, PayloadsErased)
        if erased and received:
            self.questions.append(
                f"{request}: whether the inner products in the solution's file are those of the embeddings, which are "
                "erased; every client saw its own embedding quoted before it answered, and signed that"
            )
        for row in self.ledger.rows(request, GameFounded.kind):
            founded, terms = from_row(row), self._terms_at(request, row.seq)
            assert isinstance(founded, GameFounded)
            for client, event in received.items():
                cost = terms.cost_of(client, self._name(client), event.size / total)
                self.need(
                    _same(founded.costs.get(client), cost),
                    f"row {row.seq} (game): the cost of client {client} is {cost!r} by the terms",
                )
            budget = terms.budget_share * founded.full_price if terms.budget is None else terms.budget
            self.need(
                _same(founded.budget, budget), f"row {row.seq} (game): the budget is {budget!r} by the terms"
            )
            out = [r.client for r in self.ledger.rows(request, ClientExcluded.kind) if r.seq > row.seq]
            if not erased and not out:
                board = Board.from_ledger(self.ledger, request, terms, founded.costs)
                full = float(board.game.full_participation_price)
                self.need(
                    _same(founded.full_price, full),
                    f"row {row.seq} (game): full participation costs {full!r} by the embeddings",
                )

    def _solutions(self, request: str) -> None:
        sizes = {c: e.size for c, e in self.ledger.by_client(request, EmbeddingReceived).items()}
        self._last_game: sf.StackelbergGame | None = None
        for row in self.ledger.rows(request, GameSolved.kind):
            solved, terms = from_row(row), self._terms_at(request, row.seq)
            assert isinstance(solved, GameSolved)
            where = f"row {row.seq} (solution {solved.attempt})"
            solution = _load(solved.solution, where)
            clients = sorted(solved.participation)
            game = solution.game
            founded = [from_row(r) for r in self.ledger.rows(request, GameFounded.kind) if r.seq < row.seq][
                -1
            ]
            assert isinstance(founded, GameFounded)
            offers = {
                o.client: o for o in self.ledger.events(request, PriceOffered) if o.attempt == solved.attempt
            }
            self.need(
                sorted(offers) == clients,
                f"{where}: prices are offered to other clients than are in the game",
            )
            prices = [offers[c].price for c in clients]
            self.need(
                len(solution.payments) == len(clients) and _near(solution.payments, prices),
                f"{where}: the prices offered are not those of the solution",
            )
            self.need(
                _near(solution.caps, [offers[c].cap for c in clients]),
                f"{where}: the caps offered are not those of the solution",
            )
            self.need(
                solution.offers.kind == (terms.offers or "linear"),
                f"{where}: the offers are {solution.offers.kind}, the terms say {terms.offers}",
            )
            self.need(
                _near(solution.participation, [solved.participation[c] for c in clients]),
                f"{where}: the participation is not that of the solution",
            )
            self.need(
                _near(game.costs, [founded.costs[c] for c in clients]),
                f"{where}: it is solved with other costs",
            )
            share = np.array([sizes[c] for c in clients], dtype=np.float64)
            self.need(_near(game.alpha, share / share.sum()), f"{where}: it is solved with other sizes")
            self.need(
                _same(solution.budget, solved.limit) and solved.limit <= founded.budget * (1 + _TOLERANCE),
                f"{where}: it is solved within another budget",
            )
            for name in ("server_loss", "objective", "spend"):
                self.need(
                    _same(getattr(solved, name), float(getattr(solution, name))),
                    f"{where}: the ledger states another {name.replace('_', ' ')} than the solution has",
                )
            self.need(
                (solved.status, solved.proves) == (solution.status.name, solution.proves),
                f"{where}: the ledger states another status than the solution has",
            )
            bound = solved.lower_bound
            self.need(
                bound is None
                if not math.isfinite(solution.lower_bound)
                else _same(bound, solution.lower_bound),
                f"{where}: the ledger states another lower bound than the solution has",
            )
            found = solution.verify()
            self.need(found.passed, f"{where}: {found.message}")
            if solved.predicted:
                impacts = game.impacts(solution.participation).clients
                self.need(
                    sorted(solved.predicted) == clients
                    and _near(impacts, [solved.predicted[c] for c in clients]),
                    f"{where}: the game predicts other changes of the clients' losses than the ledger states",
                )
            for name in ("lambda_v", "lambda_s", "lambda_q", "loss_constant"):
                stated = getattr(terms, name)
                held = getattr(game, name, stated)
                self.need(
                    _same(held, stated), f"{where}: it is solved with another {name} than the terms state"
                )
            self._last_game = game

    def _commitments(self, request: str) -> None:
        closed = self.ledger.last(request, CommitmentsClosed)
        if closed is None:
            return
        solved = self.ledger.need(request, GameSolved)
        terms = self._terms_at(request, self.ledger.place_of(request, CommitmentsClosed))
        offers = {
            o.client: o for o in self.ledger.events(request, PriceOffered) if o.attempt == solved.attempt
        }
        answered = self.ledger.by_client(request, ShareAnswered)
        sizes = {c: e.size for c, e in self.ledger.by_client(request, EmbeddingReceived).items()}
        commitments = self.ledger.by_client(request, ClientCommitted)
        slack = max(terms.tolerance, closed.move) + _TOLERANCE
        spend = 0.0
        for client, agreed in commitments.items():
            where = f"{request}: the commitment of client {client}"
            self.need(
                client in offers and offers[client].price == agreed.price,
                f"{where} is at another price than offered",
            )
            self.need(
                client in answered and abs(answered[client].share - agreed.share) <= slack,
                f"{where} is not to the share that it answered",
            )
            self.need(
                agreed.share <= offers[client].cap * (1 + _TOLERANCE) + _TOLERANCE,
                f"{where} is to more than the cap that was offered",
            )
            self.need(
                agreed.samples == round(agreed.share * sizes[client]) and agreed.rounds == terms.rounds,
                f"{where} has other samples or rounds than the share and the terms say",
            )
            spend += agreed.price * agreed.share
        self.need(
            spend <= closed.spend * (1 + _TOLERANCE) + 1e-12
            and closed.spend <= solved.limit * (1 + 1e-6) + 1e-12,
            f"{request}: what was committed to costs {spend!r}, the ledger says {closed.spend!r} of {solved.limit!r}",
        )
        if self._last_game is not None and closed.settled:
            clients = sorted(solved.participation)
            x = np.array([answered[c].share for c in clients])
            prices = np.array([offers[c].price for c in clients])
            caps = np.array([offers[c].cap for c in clients])
            regret = self._last_game.regret(prices, x, caps=caps)
            self.need(
                regret <= closed.regret + 1e-6 * max(1.0, abs(closed.server_loss)),
                f"{request}: at the answered shares somebody gains {regret:.2g} by deviating; the ledger says {closed.regret:.2g}",
            )

    def _work(self, request: str) -> None:
        commitments = self.ledger.by_client(request, ClientCommitted)
        delivered = {(w.client, w.number) for w in self.ledger.events(request, WorkDelivered)}
        for judged in self.ledger.events(request, WorkJudged):
            where = f"{request}: round {judged.number} of client {judged.client}"
            agreed = commitments.get(judged.client)
            self.need(
                agreed is not None and 1 <= judged.number <= agreed.rounds, f"{where} was not committed to"
            )
            asked = judged.problem != "was not asked in this round"
            self.need(
                not judged.passed or not asked or (judged.client, judged.number) in delivered,
                f"{where} passed without having been delivered",
            )
        numbers = [r.number for r in self.ledger.events(request, RoundFinished)]
        self.need(
            numbers == list(range(1, len(numbers) + 1)),
            f"{request}: rounds {numbers} are not one after the other",
        )

    def _payments(self, request: str) -> None:
        settled = self.ledger.last(request, RequestSettled)
        payments = self.ledger.by_client(request, ClientPaid)
        if settled is None:
            self.need(not payments, f"{request}: payments without a settlement")
            return
        terms = self._terms_at(request, self.ledger.place_of(request, RequestSettled))
        passed = Counter(w.client for w in self.ledger.events(request, WorkJudged) if w.passed)
        commitments = self.ledger.by_client(request, ClientCommitted)
        for client, agreed in commitments.items():
            owed = amount_of(agreed, passed[client], terms)
            paid = payments[client].amount if client in payments else 0.0
            self.need(paid == owed, f"{request}: client {client} is owed {owed!r} and paid {paid!r}")
        strangers = sorted(set(payments) - set(commitments))
        self.need(not strangers, f"{request}: clients {strangers} are paid without a commitment")
        total = sum(event.amount for event in payments.values())
        self.need(
            _same(settled.paid, total), f"{request}: {total!r} was paid, the settlement says {settled.paid!r}"
        )
        budget = self.ledger.need(request, GameFounded).budget
        self.need(total <= budget * (1 + 1e-9), f"{request}: {total!r} was paid of a budget of {budget!r}")
        silent = sorted(set(payments) - set(self.ledger.by_client(request, PaymentAcknowledged)))
        if silent:
            self.questions.append(
                f"{request}: whether clients {silent} got what the ledger says: they acknowledged nothing"
            )
        for client, said in self.ledger.by_client(request, PaymentAcknowledged).items():
            if not said.agreed:
                owed = (said.receipt or {}).get("statement", {}).get("owed")
                self.questions.append(
                    f"{request}: client {client} disputes its payment of {said.amount:g}; by its own books it delivered "
                    f"more than passed, or is owed {owed}"
                )

    def _run_models(self) -> None:
        run = self.ledger.last(RUN, RunStarted)
        if run is not None:
            self.models.get(run.initial)
            if run.adopted:
                self.questions.append("what the adopted model was trained on: that is the operator's word")

    def _models(self, request: str) -> None:
        opened = self.ledger.need(request, RemovalRequested)
        unlearned = self.ledger.last(request, ModelUnlearned)
        if unlearned is None:
            return
        last = self.ledger.need(request, RoundFinished)
        self.need(
            last.model == unlearned.model, f"{request}: the unlearned model is not that of the last round"
        )
        after = self.models.get(unlearned.model)
        try:
            before = self.models.get(opened.before)
        except FileFormatError:
            kept = {self.ledger.need(other, RemovalRequested).before for other in self.ledger.requests()[-1:]}
            if opened.before in kept:
                raise
            self.questions.append(f"{request}: the model before it, which was deleted after a later request")
            return
        measured = self.ledger.last(request, MeasuresClosed)
        if measured is not None:
            moved = distance(before, after)
            self.need(
                _same(measured.distance, moved),
                f"{request}: the weights moved by {moved!r}, not {measured.distance!r}",
            )

    def _evidence(self, request: str) -> None:
        bound = self.ledger.last(request, DistanceBounded)
        if bound is None:
            return
        reported = self.ledger.by_client(request, GradientReported)
        model = self.models.get(self.ledger.need(request, ModelUnlearned).model)
        terms = self._terms_at(request, self.ledger.place_of(request, DistanceBounded))
        self.need(is_head(model), f"{request}: a bound is stated for a model that is not a softmax head")
        self.need(bound.l2 == terms.certify_l2, f"{request}: the bound has another l2 than the terms")
        self.need(
            bound.clients == tuple(sorted(reported))
            and bound.samples == sum(event.samples for event in reported.values()),
            f"{request}: the bound is of other clients or samples than reported gradients",
        )
        gradients = {client: event.gradient for client, event in reported.items()}
        norm, far = bound_on_distance(model, gradients, bound.samples, bound.l2)
        self.need(
            _same(bound.gradient_norm, norm) and _same(bound.distance, far),
            f"{request}: the gradients bound the distance by {far!r}, the ledger says {bound.distance!r}",
        )
        self.questions.append(
            f"{request}: whether the gradients behind the bound are those of the data they claim: clients report them"
        )


_ALWAYS = (
    "which data the clients trained on. A client that holds a copy of removed data can have used it, and nobody would see it",
    "whether sizes are true: they are the clients' claims, the same ones in training and in the game",
    "what clients measured on their own data: they report it themselves",
    "whether anybody made a copy of the embeddings before they were erased",
)


def _same(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=_TOLERANCE, abs_tol=1e-12)


def _near(a: Iterable[float], b: Iterable[float]) -> bool:
    return bool(np.allclose(np.asarray(a), np.asarray(list(b)), rtol=_TOLERANCE, atol=1e-12))


def _load(content: bytes, where: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "solution.npz"
        path.write_bytes(content)
        try:
            return sf.load(path)
        except StackfuError as error:
            raise _MisfitError(f"{where}: the solution's file cannot be read ({error})") from error
