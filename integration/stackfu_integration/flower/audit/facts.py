"""The facts of a removal request, gathered from the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import stackfu as sf
from stackfu.errors import InputError, StackfuError
from stackfu.io import loads
from stackfu_integration.flower import events
from stackfu_integration.flower.convex import of_one_objective
from stackfu_integration.flower.ledger import RUN, PaymentLedger

__all__ = ["audit"]

#: Up to this many remaining clients the value of each client's data is stated: all coalitions take a moment.
MOST_VALUED = 15


def audit(ledger: PaymentLedger, request: str) -> dict[str, Any]:
    """Gather the facts of a request from the ledger."""
    opened = ledger.last(request, events.RemovalRequested)
    if opened is None:
        known = ", ".join(ledger.requests()) or "none"
        raise InputError("request", f"is not in the ledger (known: {known})", value=request)
    game, solved = ledger.last(request, events.GameFounded), ledger.last(request, events.GameSolved)
    committed = ledger.last(request, events.CommitmentsClosed)
    settled = ledger.last(request, events.RequestSettled)
    unlearned = ledger.last(request, events.ModelUnlearned)
    measured = ledger.last(request, events.MeasuresClosed)
    predicted = solved.predicted if solved else {}
    faults = [*ledger.events(RUN, events.ClientFault), *ledger.events(request, events.ClientFault)]
    run, aborted = ledger.last(RUN, events.RunStarted), ledger.last(request, events.RequestAborted)
    amendments = ledger.events(request, events.TermsAmended)
    group = ledger.last(request, events.GroupSumReceived)
    names = list(run.names) if run is not None else []
    drawn = ledger.last(request, events.NoiseDrawn)
    terms = amendments[-1].terms if amendments else opened.terms
    return {
        "request": request,
        "opened": ledger.time_of(request, events.RemovalRequested),
        "closed": ledger.time_of(request, events.RequestClosed),
        "removed": list(opened.removed),
        "names": names,
        "adopted": run is not None and run.adopted,
        "aborted": None if aborted is None else {"phase": aborted.phase, "reason": aborted.reason},
        "amended": [{"number": a.number, "reason": a.reason} for a in amendments],
        "terms": dict(terms),
        "bandwidth_asked": ledger.has(request, events.BandwidthAgreed),
        "only_as_sum": [] if group is None else list(group.clients),
        "erased": ledger.time_of(request, events.PayloadsErased) if ledger.is_erased(request) else None,
        "deleted_but_logged": ledger.has(request, events.PayloadsErased) and not ledger.is_erased(request),
        "clock_set_back": [e.seconds for e in ledger.events(RUN, events.ClockSetBack)],
        "budget": game.budget if game else None,
        "full_price": game.full_price if game else None,
        "bandwidth": game.bandwidth if game else None,
        "clipped": game.clipped if game else None,
        "certificate": solved.certificate() if solved else None,
        "offers_made": solved.attempt + 1 if solved else 0,
        "predicted": {str(client): change for client, change in predicted.items()},
        "calibrated": solved.calibrated if solved else False,
        "responses": committed.outcome() if committed else None,
        "paid": settled.paid if settled else 0.0,
        "model_before": opened.before,
        "model_after": unlearned.model if unlearned else None,
        "model_moved": measured.distance if measured else None,
        "bound": _bound(ledger, request),
        "descent": _descent(ledger, request, terms),
        "noise": None if drawn is None else {"deviation": drawn.deviation},
        "shards": _shards(ledger, request),
        "partings": [
            {"client": w.client, "round": w.number, "samples": w.samples, "moved": w.moved}
            for w in ledger.events(request, events.PartingWork)
        ],
        "updates_kept": ledger.has(RUN, events.UpdatesKept),
        "work": _work(ledger, request),
        "clients": _clients(ledger, request, opened.removed),
        "faults": [{"client": f.client, "phase": f.phase, "problem": f.problem} for f in faults],
    }


def _bound(ledger: PaymentLedger, request: str) -> dict[str, Any] | None:
    """Return the bound on the distance of the unlearned head from one that never met the removed data."""
    bound = ledger.last(request, events.DistanceBounded)
    if bound is None:
        return None
    return {
        "distance": bound.distance,
        "gradient_norm": bound.gradient_norm,
        "l2": bound.l2,
        "samples": bound.samples,
        "clients": list(bound.clients),
    }


def _shards(ledger: PaymentLedger, request: str) -> dict[str, Any] | None:
    """Return the shards that were trained anew, their heads, and the clients with data in them."""
    trained = ledger.last(request, events.ShardsTrained)
    if trained is None:
        return None
    return {
        "retrained": list(trained.retrained),
        "heads": {str(shard): head for shard, head in trained.heads.items()},
        "members": {str(shard): list(held) for shard, held in trained.members.items()},
    }


def _work(ledger: PaymentLedger, request: str) -> dict[str, int]:
    """Return how much work was checked, how much was refused, and which problems the checks would have detected."""
    judged = [work for work in ledger.events(request, events.WorkJudged) if work.measured]
    repeated = ledger.events(request, events.WorkRepeated)
    return {
        "judged": len(judged),
        "refused": sum(not work.passed for work in judged),
        "echo_seen": sum("of the median norm" in work.measured for work in judged),
        "flip_seen": sum(work.measured.get("flip refused", 0.0) == 1.0 for work in judged),
        "repeated": len(repeated),
        "sent_again": _sent_again(ledger, request),
        "repeated_otherwise": sum(not work.same for work in repeated),
    }


def _descent(ledger: PaymentLedger, request: str, terms: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the final distance of a convex head from its optimum, by the updates of the last clients."""
    slopes = ledger.events(request, events.SlopeSummed)
    if not slopes:
        return None
    least = min(event.norm for event in of_one_objective(slopes, slopes[-1].clients))
    return {
        "rounds": len(slopes),
        "clients": list(slopes[-1].clients),
        "distance": least / terms["certify_l2"],
    }


def _sent_again(ledger: PaymentLedger, request: str) -> int:
    """Return the number of updates that repeat a model delivered by the same client before."""
    seen: set[tuple[int, str]] = set()
    again = 0
    for work in ledger.events(request, events.WorkDelivered):
        again += (work.client, work.model) in seen
        seen.add((work.client, work.model))
    return again


def _clients(ledger: PaymentLedger, request: str, removed: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return each client's embedding, offer, commitment, delivery, payment and measures."""
    embeddings = ledger.by_client(request, events.EmbeddingReceived)
    excluded = ledger.by_client(request, events.ClientExcluded)
    offers = ledger.by_client(request, events.PriceOffered)
    commitments = ledger.by_client(request, events.ClientCommitted)
    delivered = Counter(work.client for work in ledger.events(request, events.WorkDelivered))
    passed = Counter(work.client for work in ledger.events(request, events.WorkJudged) if work.passed)
    acknowledged = ledger.by_client(request, events.PaymentAcknowledged)
    payments = ledger.by_client(request, events.ClientPaid)
    measures = ledger.by_client(request, events.ClientMeasured)
    values = _values(ledger.last(request, events.GameSolved))
    facts = []
    for client in sorted({*embeddings, *excluded, *removed}):
        agreed = commitments.get(client)
        facts.append(
            {
                "client": client,
                "role": _role(client in removed, excluded.get(client)),
                "samples": embeddings[client].size if client in embeddings else None,
                "price": offers[client].price if client in offers else None,
                "share": agreed.share if agreed else 0.0,
                "samples_used": agreed.samples if agreed else 0,
                "rounds_agreed": agreed.rounds if agreed else 0,
                "rounds_delivered": delivered[client],
                "rounds_passed": passed[client],
                "acknowledged": acknowledged[client].agreed if client in acknowledged else None,
                "paid": payments[client].amount if client in payments else 0.0,
                **values.get(client, {"shapley": None, "leave_one_out": None}),
                "measures": dict(measures[client].measures) if client in measures else {},
            }
        )
    return facts


def _values(solved: events.GameSolved | None) -> dict[int, dict[str, float]]:
    """Return what each client's planned participation contributes to the fall of the server's loss, by the solution on file.

    Nothing is stated for more than :data:`MOST_VALUED` clients, or where the file holds no solution for these clients.
    """
    if solved is None or not solved.solution or len(solved.participation) > MOST_VALUED:
        return {}
    try:
        found = loads(bytes(solved.solution), "solution.npz")
        if not isinstance(found, sf.Solution) or found.game.count != len(solved.participation):
            return {}
        values = found.values()
    except StackfuError:
        return {}
    return {
        client: {"shapley": float(shapley), "leave_one_out": float(alone)}
        for client, shapley, alone in zip(
            sorted(solved.participation), values.shapley, values.leave_one_out, strict=True
        )
    }


def _role(removed: bool, excluded: events.ClientExcluded | None) -> str:
    if removed:
        return "removed"
    if excluded is None:
        return "remaining"
    return "in another shard" if excluded.phase == "shards" else "left out"
