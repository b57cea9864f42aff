"""Rounds that passed, and work of those who leave: committed or consented to, and delivered."""

from __future__ import annotations

from stackfu_integration.flower.events import (
    ClientCommitted,
    ConsentGiven,
    ModelUnlearned,
    PartingWork,
    RemovalRequested,
    RoundFinished,
    WorkDelivered,
    WorkJudged,
)
from stackfu_integration.flower.ledger_error import need
from stackfu_integration.flower.methods import METHODS, is_degradation
from stackfu_integration.flower.phases.convex_rounds import NOT_ASKED
from stackfu_integration.flower.recomputed.case import Case

__all__ = ["check"]


def check(case: Case) -> None:
    """Check that accepted work was committed to and delivered, one round after the other."""
    commitments = case.by_client(ClientCommitted)
    delivered = {(work.client, work.number) for work in case.events(WorkDelivered)}
    for judged in case.events(WorkJudged):
        where = f"{case.request}: round {judged.number} of client {case.naming(judged.client)}"
        agreed = commitments.get(judged.client)
        need(agreed is not None and 1 <= judged.number <= agreed.rounds, f"{where} was not committed to")
        asked = judged.problem != NOT_ASKED
        need(
            not judged.passed or not asked or (judged.client, judged.number) in delivered,
            f"{where} passed without having been delivered",
        )
    _check_partings(case)
    numbers = [finished.number for finished in case.events(RoundFinished)]
    need(
        numbers == list(range(1, len(numbers) + 1)),
        f"{case.request}: rounds {numbers} are not one after the other",
    )


def _check_partings(case: Case) -> None:
    """Check that leaving clients did the work they consented to, and that all did if the method needs it."""
    parted, removed = case.events(PartingWork), case.needed(RemovalRequested).removed
    consents = {(event.client, event.method) for event in case.events(ConsentGiven)}
    method, rounds = case.terms.unlearning, case.terms.rounds
    need(
        not parted or METHODS[method].leavers,
        f"{case.request}: {case.naming.all(sorted({work.client for work in parted}))}, which left, worked, and "
        f"{METHODS[method].name} asks for no work of those who leave",
    )
    for work in parted:
        where = (
            f"{case.request}: work of client {case.naming(work.client)}, which leaves, in round {work.number}"
        )
        need(work.client in removed, f"{where}: it does not leave")
        need((work.client, method) in consents, f"{where}: it did not consent to that")
    if parted:
        case.limits.append(
            f"{case.request}: what those who leave made of the model when they helped to make it forget: it is theirs to do, "
            "and only its length is bounded"
        )
    if METHODS[method].leavers and case.has(ModelUnlearned):
        asked = {0}
        if method == "mode":
            asked = {number for number in range(1, rounds + 1) if not is_degradation(number, rounds)}
        need(
            {(work.client, work.number) for work in parted}
            == {(client, number) for client in removed for number in asked},
            f"{case.request}: not everybody who leaves worked for it in the rounds in which the method asks for it",
        )
