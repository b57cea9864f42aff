"""Shares, prices and samples that were agreed, and what they cost."""

from __future__ import annotations

import numpy as np

from stackfu_integration.flower.events import (
    ClientCommitted,
    CommitmentsClosed,
    GameSolved,
    PriceOffered,
    ShareAnswered,
)
from stackfu_integration.flower.ledger_error import need
from stackfu_integration.flower.receipts import shown
from stackfu_integration.flower.recomputed.case import TOLERANCE, Case
from stackfu_integration.flower.terms import Terms

__all__ = ["check"]


def check(case: Case) -> None:
    """Check every commitment, their cost, and that no client gains by another answer."""
    closed = case.last(CommitmentsClosed)
    if closed is None:
        return
    solved, answered = case.needed(GameSolved), case.by_client(ShareAnswered)
    terms, offers = case.terms_at(case.place_of(CommitmentsClosed)), case.offers(solved.attempt)
    commitments = case.by_client(ClientCommitted)
    for client, agreed in commitments.items():
        where = f"{case.request}: the commitment of client {case.naming(client)}"
        slack = max(terms.tolerance, closed.move) + TOLERANCE
        _check_commitment(where, agreed, offers.get(client), answered.get(client), slack)
        _check_rules(where, agreed, answered[client], case.sizes[client], terms)
    spend = sum(agreed.price * agreed.share for agreed in commitments.values())
    need(
        spend <= closed.spend * (1 + TOLERANCE) + 1e-12 and closed.spend <= solved.limit * (1 + 1e-6) + 1e-12,
        f"{case.request}: what was committed to costs {spend!r}, the ledger says {closed.spend!r} of {solved.limit!r}",
    )
    if case.last_game is not None and closed.settled:
        clients = sorted(solved.participation)
        shares = np.array([answered[c].share for c in clients])
        prices, caps = (np.array([getattr(offers[c], what) for c in clients]) for what in ("price", "cap"))
        regret = case.last_game.regret(prices, shares, caps=caps)
        need(
            regret <= closed.regret + 1e-6 * max(1.0, abs(closed.server_loss)),
            f"{case.request}: at the answered shares somebody gains {regret:.2g} by deviating; the ledger says "
            f"{closed.regret:.2g}",
        )


def _check_commitment(
    where: str,
    agreed: ClientCommitted,
    offer: PriceOffered | None,
    answer: ShareAnswered | None,
    slack: float,
) -> None:
    """It is at the price and within the cap that were offered, and to the share that the client answered."""
    need(offer is not None and offer.price == agreed.price, f"{where} is at another price than offered")
    need(
        answer is not None and abs(answer.share - agreed.share) <= slack,
        f"{where} is not to the share that it answered",
    )
    need(
        offer is not None and agreed.share <= offer.cap * (1 + TOLERANCE) + TOLERANCE,
        f"{where} is to more than the cap that was offered",
    )


def _check_rules(where: str, agreed: ClientCommitted, answer: ShareAnswered, size: int, terms: Terms) -> None:
    """Samples and rounds follow from the share and the terms, and the client signed them."""
    need(
        agreed.samples == round(agreed.share * size) and agreed.rounds == terms.rounds,
        f"{where} has other samples or rounds than the share and the terms say",
    )
    signed = (answer.receipt or {}).get("statement", {})
    for name, stated in (("rounds", terms.rounds), ("decimals", terms.stated_decimals)):
        need(
            signed.get(name, stated) == stated,
            f"{where}: the client signed {name} = {shown(signed.get(name))}, the terms say {stated!r}",
        )
