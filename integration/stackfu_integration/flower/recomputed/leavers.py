"""Check that no removed client has worked, was asked to or was paid, and that the steps were in order."""

from __future__ import annotations

from collections.abc import Iterable

from stackfu.embedding.names import check_names
from stackfu.errors import InputError
from stackfu_integration.flower.events import (
    ClientCommitted,
    ClientEnrolled,
    ClientEvent,
    ClientMeasured,
    ClientPaid,
    CommitmentsClosed,
    ConsentGiven,
    DistanceBounded,
    EmbeddingReceived,
    Event,
    GameSolved,
    GradientHidden,
    GradientReported,
    ModelUnlearned,
    ParticipationAnnounced,
    PartingWork,
    PaymentAcknowledged,
    PriceOffered,
    RemovalRequested,
    RequestAborted,
    RequestSettled,
    RoundFinished,
    RunStarted,
    ShardsTrained,
    ShareAnswered,
    SlopeSummed,
    SumAgreed,
    SumHeard,
    TermsAmended,
    WorkDelivered,
    WorkJudged,
    WorkRepeated,
)
from stackfu_integration.flower.ledger import RUN
from stackfu_integration.flower.ledger_error import LedgerError, need
from stackfu_integration.flower.methods import METHODS
from stackfu_integration.flower.naming import one_line
from stackfu_integration.flower.phases import shards
from stackfu_integration.flower.phases.convex_rounds import NOT_ASKED
from stackfu_integration.flower.phases.rounds import last_model
from stackfu_integration.flower.recomputed.case import Case

__all__ = ["check"]

#: Events that no leaving client has, and their descriptions.
_OF_THOSE_WHO_STAY: tuple[tuple[type[ClientEvent], str], ...] = (
    (PriceOffered, "was made an offer"),
    (ShareAnswered, "answered an offer"),
    (ClientCommitted, "committed to work"),
    (WorkDelivered, "delivered work"),
    (WorkJudged, "has work that was judged"),
    (WorkRepeated, "repeated work"),
    (GradientReported, "sent a gradient"),
    (GradientHidden, "sent a gradient"),
    (ClientPaid, "was paid"),
)
#: Events allowed for clients that leave now, but not for those that left earlier.
_OF_THOSE_WHO_LEAVE: tuple[tuple[type[ClientEvent], str], ...] = (
    (EmbeddingReceived, "sent an embedding"),
    (ConsentGiven, "consented to work"),
    (PartingWork, "worked as one that leaves"),
    (ClientMeasured, "measured models"),
    (PaymentAcknowledged, "acknowledged a payment"),
)
#: Groups of events of a request of which all of one come before all of the next.
_ORDER: tuple[tuple[str, tuple[type[Event], ...]], ...] = (
    (
        "offers and answers",
        (PriceOffered, GameSolved, ParticipationAnnounced, ShareAnswered),
    ),
    ("commitments", (ClientCommitted, CommitmentsClosed)),
    ("work", (WorkDelivered, WorkJudged, WorkRepeated, RoundFinished)),
    ("payments", (ClientPaid, RequestSettled)),
)


def check(case: Case) -> None:
    """Compare who left with who worked, was asked and was paid, and the order of the rows."""
    opened = case.needed(RemovalRequested)
    _check_opening(case, opened)
    for client in (*opened.removed, *opened.gone):
        kinds = _OF_THOSE_WHO_STAY + (_OF_THOSE_WHO_LEAVE if client in opened.gone else ())
        for kind, did in kinds:
            need(
                client not in case.by_client(kind),
                f"{case.request}: client {case.naming(client)}, which left, {did}",
            )
    _check_enrolled(case)
    left = {*opened.removed, *opened.gone}
    for what, clients in _taking_part(case, opened):
        need(
            not left & set(clients),
            f"{case.request}: {case.naming.all(sorted(left & set(clients)))}, which left, took part in {what}",
        )
    _check_signed_offers(case, opened)
    _check_order(case)
    _check_not_asked(case)
    work = "no work but that which the method asks of those who leave" if case.has(PartingWork) else "no work"
    case.proved.append(
        f"{case.request}: by the ledger {case.naming.all(opened.removed)} got no offer, did {work} and was paid nothing"
    )


def _check_enrolled(case: Case) -> None:
    """Check that all events concern enrolled clients: others are unidentified and sign nothing."""
    run = case.ledger.last(RUN, RunStarted)
    if run is not None and run.names:
        try:
            check_names([one_line(name) for name in run.names], run.clients, "names")
        except InputError as error:
            raise LedgerError(f"the run: clients have names that do not tell them apart ({error})") from error
    enrolled = {event.client: place for place, event in case.ledger.placed(RUN, ClientEnrolled)}
    for kind, did in (*_OF_THOSE_WHO_STAY, *_OF_THOSE_WHO_LEAVE):
        for place, event in case.placed(kind):
            need(
                enrolled.get(event.client, place) < place,
                f"{case.request}: client {case.naming(event.client)}, which had not enrolled, {did}",
            )


def _check_opening(case: Case, opened: RemovalRequested) -> None:
    """Check that the removed clients, and the model before, follow from the requests before."""
    known = case.ledger.requests()
    earlier = [
        name for name in known[: known.index(case.request)] if not case.ledger.has(name, RequestAborted)
    ]
    gone = {c for name in earlier for c in case.ledger.need(name, RemovalRequested).removed}
    need(
        set(opened.gone) == gone,
        f"{case.request}: {case.naming.all(opened.gone)} are said to be gone, "
        f"by earlier requests it is {case.naming.all(sorted(gone))}",
    )
    need(
        bool(opened.removed) and not set(opened.removed) & gone,
        f"{case.request}: {case.naming.all(opened.removed)} cannot leave: nobody is named, or somebody who is gone",
    )
    run = case.ledger.last(RUN, RunStarted)
    need(
        run is None or all(0 <= client < run.clients for client in opened.removed),
        f"{case.request}: {case.naming.all(opened.removed)} are no clients of this run",
    )
    before = last_model(case.ledger, earlier[-1]) if earlier else last_model(case.ledger)
    need(
        before is None or opened.before == before,
        f"{case.request}: the model before it is not the one that training, or the request before, ended with",
    )


def _taking_part(case: Case, opened: RemovalRequested) -> Iterable[tuple[str, Iterable[int]]]:
    """Yield all that names several clients at once, with the clients."""
    for solved in case.events(GameSolved):
        yield "the game", solved.participation
    for slope in case.events(SlopeSummed):
        yield f"the sum of gradients of round {slope.number}", slope.clients
    for bound in case.events(DistanceBounded):
        yield "the bound on the distance", bound.clients
    for agreed in case.events(SumAgreed):
        if agreed.number >= 1:
            yield f"the sum of round {agreed.number}", [int(client) for client in agreed.keys]
    for heard in case.events(SumHeard):
        if heard.number >= 1:
            yield f"the sum of round {heard.number}", heard.clients
    if case.terms.unlearning == shards.METHOD:
        for trained in case.events(ShardsTrained):
            yield "the shards", [client for held in trained.members.values() for client in held]


def _check_signed_offers(case: Case, opened: RemovalRequested) -> None:
    """Check that clients with an answer signed the list of leaving clients, and the method."""
    unsaid = []
    terms = case.terms_at(case.place_of(CommitmentsClosed) or 2**62)
    for answer in case.events(ShareAnswered):
        if answer.receipt is None:
            continue
        said = answer.receipt.get("statement", {})
        if "removed" not in said:
            unsaid.append(answer.client)
            continue
        need(
            said["removed"] == sorted(opened.removed),
            f"{case.request}: client {case.naming(answer.client)} was told that others leave than the ledger says",
        )
    last = case.by_client(ShareAnswered)
    for client in case.by_client(ClientCommitted):
        receipt = last[client].receipt if client in last else None
        said = (receipt or {}).get("statement", {})
        need(
            said.get("unlearning", terms.unlearning) == terms.unlearning,
            f"{case.request}: client {case.naming(client)} agreed to another method than the terms state",
        )
    if unsaid:
        case.questions.append(
            f"{case.request}: if {case.naming.all(sorted(set(unsaid)))} knew who leaves: that is not in what they "
            "signed, and so the server's "
            "word"
        )


def _check_order(case: Case) -> None:
    """Offers come before commitments, these before work, and work before payments."""
    latest, before = 0, ""
    for name, kinds in _ORDER:
        places = [place for kind in kinds for place, _ in case.placed(kind)]
        if not places:
            continue
        need(
            min(places) > latest,
            f"{case.request}: row {min(places)} is one of {name}, after the last of {before} was to come before it",
        )
        latest, before = max(places), name
    committed = case.place_of(CommitmentsClosed)
    for place, _ in case.placed(TermsAmended):
        need(
            not committed or place < committed,
            f"{case.request}: row {place} states other terms than those to which clients are committed",
        )
    unlearned = case.place_of(ModelUnlearned)
    rounds = [place for place, _ in case.placed(RoundFinished)]
    need(
        not unlearned or not rounds or max(rounds) < unlearned,
        f"{case.request}: a round was finished after the model was said to be unlearned",
    )


def _check_not_asked(case: Case) -> None:
    """A client is paid for a round in which it was not asked where the terms say that a strategy chooses, or no round was left."""
    strategy, excused = case.terms.strategy, set()
    amended = case.last(TermsAmended)
    silent = (
        "strategy" not in (amended or case.needed(RemovalRequested)).terms
    )  # terms from before it was stated
    rounds = [event.number for event in case.events(RoundFinished)]
    ready = {w.client for w in case.events(WorkJudged) if rounds and w.number == max(rounds) and w.passed}
    for work in case.events(WorkJudged):
        if work.problem != NOT_ASKED:
            continue
        over = METHODS[case.terms.unlearning].gradients and work.number > max(rounds, default=0)
        need(
            bool(strategy) or silent or (over and work.client in ready),
            f"{case.request}: client {case.naming(work.client)} is said not to have been asked in round {work.number}, and the "
            "terms name no strategy that chooses clients",
        )
        if not over:
            excused.add(work.client)
    if excused:
        case.questions.append(
            f"{case.request}: if a strategy {strategy} left out {case.naming.all(sorted(excused))} in the rounds for "
            "which they are paid "
            "without work: that is the server's word"
        )
