"""Announce, listen, and make offers anew until the clients that are there are committed.

The server announces a profile ``x``; every client answers with the share it would bring. An answer equal to the
best response moves the announcement by ``damping`` of the way; any other answer is taken as
final, and the others react to it. The phase ends when no share moves by more than ``tolerance``: at once, if the
prediction was right.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from stackfu_integration.arrays import FloatArray
from stackfu_integration.flower.board import Board
from stackfu_integration.flower.events import (
    ClientCommitted,
    CommitmentsClosed,
    GameFounded,
    GameSolved,
    ParticipationAnnounced,
    PriceOffered,
    ShareAnswered,
)
from stackfu_integration.flower.offer import Offer
from stackfu_integration.flower.phases.offers import make_offers
from stackfu_integration.flower.phases.session import Removal, StuckError
from stackfu_integration.flower.receipts import SHARE, signable_clients
from stackfu_integration.flower.wire import OfferQuestion, Refusal, ShareAnswer

__all__ = ["PHASE", "run"]

PHASE = "responses"


@dataclass(frozen=True)
class _Standing:
    """State after some announcements: profile, last move, and deviations by client."""

    x: FloatArray
    move: float
    announcements: int
    deviating: dict[int, str] = field(default_factory=dict)


def run(removal: Removal) -> None:
    """Negotiate until the commitments are in the ledger."""
    while not removal.ledger.has(removal.name, CommitmentsClosed):
        solved = removal.ledger.need(removal.name, GameSolved)
        board = removal.board()
        founded = removal.ledger.place_of(removal.name, GameFounded)
        if board.remaining != sorted(solved.participation) or (
            removal.ledger.place_of(removal.name, GameSolved) < founded
        ):
            make_offers(removal)  # somebody was left out since, or the terms were amended
            continue
        limit = _negotiate(removal, board, solved)
        if limit is not None:
            make_offers(removal, limit)


def _negotiate(removal: Removal, board: Board, solved: GameSolved) -> float | None:
    """Let the clients react to each other until none moves; return a budget if offers must be new."""
    limit = solved.limit
    posted = {
        offered.client: offered
        for offered in removal.ledger.events(removal.name, PriceOffered)
        if offered.attempt == solved.attempt
    }
    prices = np.array([posted[c].price for c in board.remaining])
    caps = np.array([posted[c].cap for c in board.remaining])
    predicted = np.array([solved.participation[c] for c in board.remaining])
    standing = _listen(removal, board, prices, caps, predicted, solved.attempt)
    if standing is None:
        return limit  # somebody is gone
    settled = standing.move <= removal.terms.tolerance
    spend = float(prices @ standing.x)
    over = spend > limit * (1.0 + 1e-9)
    for client, problem in standing.deviating.items():
        if over or not settled:
            said = f"{problem}, and the others cannot settle within the budget"
            removal.leave_out(client, PHASE, said)
        else:
            removal.ledger.add_fault(removal.name, client, PHASE, problem)
    if standing.deviating and (over or not settled):
        return limit
    if over:
        return limit * limit / spend * (1.0 - 1e-9)
    _commit(removal, board, prices, caps, standing, predicted)
    return None


def _listen(
    removal: Removal, board: Board, prices: FloatArray, caps: FloatArray, start: FloatArray, attempt: int
) -> _Standing | None:
    """Announce until no client moves or patience ends; return None when a client is offline.

    Patience is a number of announcements, and a time for all of them: a client that is always late, but in time for
    each, does not hold the others up for longer than that.
    """
    terms, ledger = removal.terms, removal.ledger
    last = ledger.last(removal.name, ParticipationAnnounced)
    first = 0 if last is None else last.number + 1
    standing = _Standing(start, np.inf, 0)
    until = time.monotonic() + terms.attempt_seconds
    while standing.announcements < terms.announcements and (
        standing.announcements == 0 or time.monotonic() < until
    ):
        x, number = standing.x, first + standing.announcements
        told = board.offers(prices, x, caps)
        shares = _hear_shares(removal, told, number, attempt, until - time.monotonic())
        with ledger.transaction():
            total = float(board.game.alpha @ x)
            ledger.add(removal.name, ParticipationAnnounced(number, total, attempt))
            for client, answer in shares.items():
                receipt = None if answer.receipt is None else answer.receipt.plain()
                ledger.add(removal.name, ShareAnswered(client, number, answer.share, receipt))
        if len(shares) < len(board.remaining):
            return None
        answered = np.array([shares[c].share for c in board.remaining])
        deviating = _deviations(removal, told, {c: a.share for c, a in shares.items()})
        move = float(np.abs(answered - x).max())
        if move > terms.tolerance:
            stubborn = np.array([c in deviating for c in board.remaining])
            x = np.where(stubborn, answered, x + terms.damping * (answered - x))
        standing = _Standing(x, move, standing.announcements + 1, deviating)
        if move <= terms.tolerance:
            break
    return standing


def _hear_shares(
    removal: Removal, told: dict[int, Offer], number: int, attempt: int, most_seconds: float
) -> dict[int, ShareAnswer]:
    """Return the answers of the clients that answered with a share; leave out the others."""
    terms, request = removal.terms, removal.request
    removed = tuple(sorted(request.removed))
    questions = {
        client: OfferQuestion(
            removal.name,
            offer,
            number,
            attempt,
            terms.least_cost_of(client, removal.naming),
            terms.rounds,
            terms.stated_decimals,
            removed,
            terms.unlearning,
            terms.seed,
            terms.aggregation == "secure",
        )
        for client, offer in told.items()
    }
    hurried = replace(removal, timeout=min(removal.timeout, max(most_seconds, 0.0)))
    answers: dict[int, ShareAnswer] = {}
    for client, answer in hurried.ask(questions, ShareAnswer.decode).items():
        if isinstance(answer, Refusal):
            # a client may decline an offer that its policy does not allow: it is left out, and has done nothing wrong
            removal.leave_out(client, PHASE, answer.problem, blame=not answer.by_policy)
            continue
        share, cap = answer.share, told[client].cap
        if not (np.isfinite(share) and 0.0 <= share <= cap):
            removal.leave_out(client, PHASE, f"takes part with a share of {share}")
            continue
        facts = {
            "request": removal.name,
            "attempt": attempt,
            "number": number,
            "price": told[client].price,
            "cap": cap,
            "share": share,
            "rounds": terms.rounds,
            "decimals": terms.stated_decimals,
            **signable_clients(removed),
            "unlearning": terms.unlearning,
            "seed": terms.seed,
        }
        problem = removal.refused_receipt(client, answer.receipt, SHARE, **facts)
        if problem is not None:
            removal.leave_out(client, PHASE, problem)
        else:
            answers[client] = answer
    return answers


def _deviations(removal: Removal, told: Mapping[int, Offer], shares: Mapping[int, float]) -> dict[int, str]:
    """Say who plays something else than its best response, and what; with a cost interval, than any in it."""
    terms, found = removal.terms, {}
    for client, offer in told.items():
        best = offer.best_response()
        least = terms.least_cost_of(client, removal.naming)
        most = best if least is None else replace(offer, cost=least).best_response()
        if not best - terms.tolerance <= shares[client] <= most + terms.tolerance:
            upto = "" if least is None else f" to {most:.6g}"
            found[client] = f"took {shares[client]:.6g} where {best:.6g}{upto} is its best response"
    return found


def _commit(
    removal: Removal,
    board: Board,
    prices: FloatArray,
    caps: FloatArray,
    standing: _Standing,
    predicted: FloatArray,
) -> None:
    """Write down who brings how much at what price."""
    x, game, ledger = standing.x, board.game, removal.ledger
    samples = {
        client: round(float(share) * board.size_of(client))
        for client, share in zip(board.remaining, x, strict=True)
    }
    if not any(samples.values()):
        raise StuckError(
            "nobody takes part with a whole sample: the budget is too small, or nobody gains by it"
        )
    with ledger.transaction():
        for client, price, share in zip(board.remaining, prices, x, strict=True):
            if samples[client] > 0:
                agreed = (float(share), float(price), samples[client], removal.terms.rounds)
                ledger.add(removal.name, ClientCommitted(client, *agreed))
        closed = CommitmentsClosed(
            spend=float(prices @ x),
            settled=standing.move <= removal.terms.tolerance,
            move=standing.move,
            from_certified=float(np.abs(x - predicted).max()),
            regret=game.regret(prices, x, caps=caps),
            residual=game.residual(prices, x, caps=caps),
            server_loss=game.server_loss(x),
            announcements=standing.announcements,
        )
        ledger.add(removal.name, closed)
