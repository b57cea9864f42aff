"""One removal request worked out again from the ledger and the models.

game         costs, price of full participation and budget follow from sizes and terms
solutions    prices and participation are those of the solution on file, and stackfu's judges accept it
commitments  shares are what clients answered, at the prices offered, within the budget
work         every round that passed was committed to and delivered
payments     every amount is price * share * passed / agreed, and the sum is what was settled
files        every model that counts is the file that its hash names, and they are as far apart as stated
evidence     the bound on the distance follows from the gradients
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import stackfu as sf
from stackfu.errors import FileFormatError, StackfuError
from stackfu_integration.flower.board import Board
from stackfu_integration.flower.convex import METHOD, head_of, zeroed
from stackfu_integration.flower.events import (
    ClientCommitted,
    ClientExcluded,
    ClientPaid,
    CommitmentsClosed,
    ConsentGiven,
    DistanceBounded,
    EmbeddingReceived,
    GameFounded,
    GameSolved,
    GradientReported,
    GroupSumReceived,
    MeasuresClosed,
    ModelUnlearned,
    PartingWork,
    PayloadsErased,
    PaymentAcknowledged,
    PriceOffered,
    RemovalRequested,
    RequestAborted,
    RequestSettled,
    RoundFinished,
    RunStarted,
    ShareAnswered,
    StartPrepared,
    TermsAmended,
    WorkDelivered,
    WorkJudged,
    from_row,
)
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.flower.methods import METHODS, is_degradation
from stackfu_integration.flower.misfit import MisfitError, need
from stackfu_integration.flower.model_store import ModelStore, digest
from stackfu_integration.flower.phases.convex_rounds import NOT_ASKED
from stackfu_integration.flower.phases.evidence import bound_on_distance, is_head
from stackfu_integration.flower.phases.measures import distance
from stackfu_integration.flower.phases.session import terms_of
from stackfu_integration.flower.phases.settlement import amount_of
from stackfu_integration.flower.phases.start import recovered_from
from stackfu_integration.flower.receipts import shown
from stackfu_integration.flower.terms import Terms

__all__ = ["Recomputed"]

_TOLERANCE = 1e-9


class Recomputed:
    """Checks of one request, in the order in which they rest on each other; ``questions`` stay open."""

    def __init__(self, ledger: PaymentLedger, models: ModelStore) -> None:
        self.ledger, self.models = ledger, models
        self.questions: list[str] = []

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

    def game(self, request: str) -> None:
        """Costs, budget and the price of full participation."""
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
            need(
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
                need(
                    _same(founded.costs.get(client), cost),
                    f"row {row.seq} (game): the cost of client {client} is {cost!r} by the terms",
                )
            budget = terms.budget_share * founded.full_price if terms.budget is None else terms.budget
            need(
                _same(founded.budget, budget), f"row {row.seq} (game): the budget is {budget!r} by the terms"
            )
            out = [r.client for r in self.ledger.rows(request, ClientExcluded.kind) if r.seq > row.seq]
            if not erased and not out:
                board = Board.from_ledger(self.ledger, request, terms, founded.costs)
                full = float(board.game.full_participation_price)
                need(
                    _same(founded.full_price, full),
                    f"row {row.seq} (game): full participation costs {full!r} by the embeddings",
                )

    def solutions(self, request: str) -> None:
        """Every solution: the prices offered are its own, and its certificate holds."""
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
            need(
                sorted(offers) == clients,
                f"{where}: prices are offered to other clients than are in the game",
            )
            prices = [offers[c].price for c in clients]
            need(
                len(solution.payments) == len(clients) and _near(solution.payments, prices),
                f"{where}: the prices offered are not those of the solution",
            )
            need(
                _near(solution.caps, [offers[c].cap for c in clients]),
                f"{where}: the caps offered are not those of the solution",
            )
            need(
                solution.offers.kind == (terms.offers or "linear"),
                f"{where}: the offers are {solution.offers.kind}, the terms say {terms.offers}",
            )
            need(
                _near(solution.participation, [solved.participation[c] for c in clients]),
                f"{where}: the participation is not that of the solution",
            )
            need(
                _near(game.costs, [founded.costs[c] for c in clients]),
                f"{where}: it is solved with other costs",
            )
            share = np.array([sizes[c] for c in clients], dtype=np.float64)
            need(_near(game.alpha, share / share.sum()), f"{where}: it is solved with other sizes")
            need(
                _same(solution.budget, solved.limit) and solved.limit <= founded.budget * (1 + _TOLERANCE),
                f"{where}: it is solved within another budget",
            )
            for name in ("server_loss", "objective", "spend"):
                need(
                    _same(getattr(solved, name), float(getattr(solution, name))),
                    f"{where}: the ledger states another {name.replace('_', ' ')} than the solution has",
                )
            need(
                (solved.status, solved.proves) == (solution.status.name, solution.proves),
                f"{where}: the ledger states another status than the solution has",
            )
            bound = solved.lower_bound
            need(
                bound is None
                if not math.isfinite(solution.lower_bound)
                else _same(bound, solution.lower_bound),
                f"{where}: the ledger states another lower bound than the solution has",
            )
            found = solution.verify()
            need(found.passed, f"{where}: {found.message}")
            if solved.predicted:
                impacts = game.impacts(solution.participation).clients
                need(
                    sorted(solved.predicted) == clients
                    and _near(impacts, [solved.predicted[c] for c in clients]),
                    f"{where}: the game predicts other changes of the clients' losses than the ledger states",
                )
            for name in ("lambda_v", "lambda_s", "lambda_q", "loss_constant"):
                stated = getattr(terms, name)
                held = getattr(game, name, stated)
                need(_same(held, stated), f"{where}: it is solved with another {name} than the terms state")
            self._last_game = game

    def commitments(self, request: str) -> None:
        """Shares, prices and samples that were agreed, and what they cost."""
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
            need(
                client in offers and offers[client].price == agreed.price,
                f"{where} is at another price than offered",
            )
            need(
                client in answered and abs(answered[client].share - agreed.share) <= slack,
                f"{where} is not to the share that it answered",
            )
            need(
                agreed.share <= offers[client].cap * (1 + _TOLERANCE) + _TOLERANCE,
                f"{where} is to more than the cap that was offered",
            )
            need(
                agreed.samples == round(agreed.share * sizes[client]) and agreed.rounds == terms.rounds,
                f"{where} has other samples or rounds than the share and the terms say",
            )
            signed = (answered[client].receipt or {}).get("statement", {})
            for name, stated in (("rounds", terms.rounds), ("decimals", terms.stated_decimals)):
                need(
                    signed.get(name, stated) == stated,
                    f"{where}: the client signed {name} = {shown(signed.get(name))}, the terms say {stated!r}",
                )
            spend += agreed.price * agreed.share
        need(
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
            need(
                regret <= closed.regret + 1e-6 * max(1.0, abs(closed.server_loss)),
                f"{request}: at the answered shares somebody gains {regret:.2g} by deviating; the ledger says {closed.regret:.2g}",
            )

    def work(self, request: str) -> None:
        """What passed was committed to and delivered, one round after the other."""
        commitments = self.ledger.by_client(request, ClientCommitted)
        delivered = {(w.client, w.number) for w in self.ledger.events(request, WorkDelivered)}
        for judged in self.ledger.events(request, WorkJudged):
            where = f"{request}: round {judged.number} of client {judged.client}"
            agreed = commitments.get(judged.client)
            need(agreed is not None and 1 <= judged.number <= agreed.rounds, f"{where} was not committed to")
            asked = judged.problem != NOT_ASKED
            need(
                not judged.passed or not asked or (judged.client, judged.number) in delivered,
                f"{where} passed without having been delivered",
            )
        self._partings(request)
        numbers = [r.number for r in self.ledger.events(request, RoundFinished)]
        need(
            numbers == list(range(1, len(numbers) + 1)),
            f"{request}: rounds {numbers} are not one after the other",
        )

    def _partings(self, request: str) -> None:
        """Those who leave worked for what they consented to, and all of them did where the method needs them."""
        parted = self.ledger.events(request, PartingWork)
        removed = self.ledger.need(request, RemovalRequested).removed
        consents = {(e.client, e.method) for e in self.ledger.events(request, ConsentGiven)}
        terms = terms_of(self.ledger, request)
        for work in parted:
            where = f"{request}: work of client {work.client}, which leaves, in round {work.number}"
            need(work.client in removed, f"{where}: it does not leave")
            need((work.client, terms.unlearning) in consents, f"{where}: it did not consent to that")
        if parted:
            self.questions.append(
                f"{request}: what those who leave made of the model when they helped to make it forget: it is theirs to do, "
                "and only its length is bounded"
            )
        if METHODS[terms.unlearning].leavers and self.ledger.has(request, ModelUnlearned):
            rounds = {0}
            if terms.unlearning == "mode":
                rounds = {n for n in range(1, terms.rounds + 1) if not is_degradation(n, terms.rounds)}
            wanted = {(client, number) for client in removed for number in rounds}
            need(
                {(work.client, work.number) for work in parted} == wanted,
                f"{request}: not everybody who leaves worked for it in the rounds in which the method asks for it",
            )

    def payments(self, request: str) -> None:
        """Every amount, and their sum."""
        settled = self.ledger.last(request, RequestSettled)
        payments = self.ledger.by_client(request, ClientPaid)
        if settled is None:
            need(not payments, f"{request}: payments without a settlement")
            return
        terms = self._terms_at(request, self.ledger.place_of(request, RequestSettled))
        passed = Counter(w.client for w in self.ledger.events(request, WorkJudged) if w.passed)
        commitments = self.ledger.by_client(request, ClientCommitted)
        for client, agreed in commitments.items():
            owed = amount_of(agreed, passed[client], terms)
            paid = payments[client].amount if client in payments else 0.0
            need(paid == owed, f"{request}: client {client} is owed {owed!r} and paid {paid!r}")
        strangers = sorted(set(payments) - set(commitments))
        need(not strangers, f"{request}: clients {strangers} are paid without a commitment")
        total = sum(event.amount for event in payments.values())
        need(
            _same(settled.paid, total), f"{request}: {total!r} was paid, the settlement says {settled.paid!r}"
        )
        budget = self.ledger.need(request, GameFounded).budget
        need(total <= budget * (1 + 1e-9), f"{request}: {total!r} was paid of a budget of {budget!r}")
        silent = sorted(set(payments) - set(self.ledger.by_client(request, PaymentAcknowledged)))
        if silent:
            self.questions.append(
                f"{request}: whether clients {silent} got what the ledger says: they acknowledged nothing"
            )
        for client, said in self.ledger.by_client(request, PaymentAcknowledged).items():
            if not said.agreed:
                claimed = shown((said.receipt or {}).get("statement", {}).get("owed"))
                self.questions.append(
                    f"{request}: client {client} disputes its payment of {said.amount:g}; by its own books it delivered "
                    f"more than passed, or is owed {claimed}"
                )

    def files(self, request: str) -> None:
        """The models before and after, and the distance between them."""
        opened = self.ledger.need(request, RemovalRequested)
        prepared = self.ledger.last(request, StartPrepared)
        if prepared is not None:
            self._start(request, opened, prepared.model)
        unlearned = self.ledger.last(request, ModelUnlearned)
        if unlearned is None:
            return
        last = self.ledger.need(request, RoundFinished)
        need(last.model == unlearned.model, f"{request}: the unlearned model is not that of the last round")
        after = self.models.get(unlearned.model)
        try:
            before = self.models.get(opened.before)
        except FileFormatError:
            kept = {self.ledger.need(other, RemovalRequested).before for other in self.ledger.requests()[-1:]}
            if opened.before in kept:
                raise
            self.questions.append(f"{request}: the model before it, which was deleted after a later request")
            return
        terms = terms_of(self.ledger, request)
        stays = before
        if terms.unlearning == METHOD:  # layers that never met the removed data, or the bound is of nothing
            stays = self.models.get(self.ledger.need(RUN, RunStarted).initial)
        other = [name for name in stays if terms.head and name not in terms.head]
        changed = [n for n in other if not np.array_equal(stays[n].numpy(), after[n].numpy())]
        need(not changed, f"{request}: {', '.join(changed)} changed, and only the head was to be trained")
        measured = self.ledger.last(request, MeasuresClosed)
        if measured is not None:
            moved = distance(before, after)
            need(
                _same(measured.distance, moved),
                f"{request}: the weights moved by {moved!r}, not {measured.distance!r}",
            )

    def _start(self, request: str, opened: RemovalRequested, name: str) -> None:
        """The model that a method made to start from; FedRecovery's is worked out again from the kept updates."""
        start, terms = self.models.get(name), terms_of(self.ledger, request)
        if terms.unlearning == METHOD:
            first = self.models.get(self.ledger.need(RUN, RunStarted).initial)
            need(
                digest(zeroed(first, terms.head)) == name,
                f"{request}: the rounds do not start from the first weights and a head of zeros",
            )
        if terms.unlearning == "fedrecovery":
            again = recovered_from(self.ledger, self.models, opened, terms)
            need(
                all(np.allclose(a.numpy(), again[n].numpy(), rtol=1e-5, atol=1e-6) for n, a in start.items()),
                f"{request}: the model that the rounds start from is not what FedRecovery makes of the kept updates",
            )

    def evidence(self, request: str) -> None:
        """The bound on the distance to a model that never met the removed data."""
        bound = self.ledger.last(request, DistanceBounded)
        if bound is None:
            return
        reported = self.ledger.by_client(request, GradientReported)
        model = self.models.get(self.ledger.need(request, ModelUnlearned).model)
        terms = self._terms_at(request, self.ledger.place_of(request, DistanceBounded))
        if terms.unlearning == METHOD:
            model = head_of(model, terms.head)
        need(is_head(model), f"{request}: a bound is stated for a model that is not a softmax head")
        need(bound.l2 == terms.certify_l2, f"{request}: the bound has another l2 than the terms")
        need(
            bound.clients == tuple(sorted(reported))
            and bound.samples == sum(event.samples for event in reported.values()),
            f"{request}: the bound is of other clients or samples than reported gradients",
        )
        gradients = {client: event.gradient for client, event in reported.items()}
        norm, far = bound_on_distance(model, gradients, bound.samples, bound.l2)
        need(
            _same(bound.gradient_norm, norm) and _same(bound.distance, far),
            f"{request}: the gradients bound the distance by {far!r}, the ledger says {bound.distance!r}",
        )
        self.questions.append(
            f"{request}: whether the gradients behind the bound are those of the data they claim: clients report them"
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
            raise MisfitError(f"{where}: the solution's file cannot be read ({error})") from error
