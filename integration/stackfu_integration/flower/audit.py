"""The audit of a removal request: who left, what was paid, what is proved, what was forgotten.

Everything is read from the ledger, so the report can be written again at any time and says the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stackfu.errors import InputError
from stackfu_integration.flower import events
from stackfu_integration.flower.convex import of_one_objective
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.storage import write_json, write_text

__all__ = ["audit", "render", "write_audit"]


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
    bound = ledger.last(request, events.DistanceBounded)
    faults = [*ledger.events(RUN, events.ClientFault), *ledger.events(request, events.ClientFault)]
    run, aborted = ledger.last(RUN, events.RunStarted), ledger.last(request, events.RequestAborted)
    amendments = ledger.events(request, events.TermsAmended)
    group = ledger.last(request, events.GroupSumReceived)
    names = list(run.names) if run is not None else []
    return {
        "request": request,
        "opened": ledger.time_of(request, events.RemovalRequested),
        "closed": ledger.time_of(request, events.RequestClosed),
        "removed": list(opened.removed),
        "names": names,
        "adopted": run is not None and run.adopted,
        "aborted": None if aborted is None else {"phase": aborted.phase, "reason": aborted.reason},
        "amended": [{"number": a.number, "reason": a.reason} for a in amendments],
        "terms": dict(amendments[-1].terms if amendments else opened.terms),
        "bandwidth_asked": ledger.has(request, events.BandwidthAgreed),
        "only_as_sum": [] if group is None else list(group.clients),
        "erased": ledger.time_of(request, events.PayloadsErased),
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
        "bound": None
        if bound is None
        else {
            "distance": bound.distance,
            "gradient_norm": bound.gradient_norm,
            "l2": bound.l2,
            "samples": bound.samples,
            "clients": list(bound.clients),
        },
        "descent": _descent(ledger, request, amendments[-1].terms if amendments else opened.terms),
        "partings": [
            {"client": w.client, "round": w.number, "samples": w.samples, "moved": w.moved}
            for w in ledger.events(request, events.PartingWork)
        ],
        "updates_kept": ledger.has(RUN, events.UpdatesKept),
        "work": _work(ledger, request),
        "clients": _clients(ledger, request, opened.removed),
        "faults": [{"client": f.client, "phase": f.phase, "problem": f.problem} for f in faults],
    }


def _work(ledger: PaymentLedger, request: str) -> dict[str, int]:
    """How much work was judged, what of it was refused, and what the checks would have seen."""
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
    """How near to its optimum the rounds of a convex head came, by the updates of the last clients; others have another one."""
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
    """How many updates are models that the same client had delivered before."""
    seen: set[tuple[int, str]] = set()
    again = 0
    for work in ledger.events(request, events.WorkDelivered):
        again += (work.client, work.model) in seen
        seen.add((work.client, work.model))
    return again


def _clients(ledger: PaymentLedger, request: str, removed: tuple[int, ...]) -> list[dict[str, Any]]:
    """What each client sent, was offered, agreed to, delivered, was paid and measured."""
    embeddings = ledger.by_client(request, events.EmbeddingReceived)
    excluded = ledger.by_client(request, events.ClientExcluded)
    offers = ledger.by_client(request, events.PriceOffered)
    commitments = ledger.by_client(request, events.ClientCommitted)
    delivered = Counter(work.client for work in ledger.events(request, events.WorkDelivered))
    passed = Counter(work.client for work in ledger.events(request, events.WorkJudged) if work.passed)
    acknowledged = ledger.by_client(request, events.PaymentAcknowledged)
    payments = ledger.by_client(request, events.ClientPaid)
    measures = ledger.by_client(request, events.ClientMeasured)
    facts = []
    for client in sorted({*embeddings, *excluded, *removed}):
        agreed = commitments.get(client)
        facts.append(
            {
                "client": client,
                "role": "removed" if client in removed else "left out" if client in excluded else "remaining",
                "samples": embeddings[client].size if client in embeddings else None,
                "price": offers[client].price if client in offers else None,
                "share": agreed.share if agreed else 0.0,
                "samples_used": agreed.samples if agreed else 0,
                "rounds_agreed": agreed.rounds if agreed else 0,
                "rounds_delivered": delivered[client],
                "rounds_passed": passed[client],
                "acknowledged": acknowledged[client].agreed if client in acknowledged else None,
                "paid": payments[client].amount if client in payments else 0.0,
                "measures": dict(measures[client].measures) if client in measures else {},
            }
        )
    return facts


def write_audit(ledger: PaymentLedger, request: str, folder: Path) -> dict[str, Any]:
    """Write ``audit-REQUEST.json`` and ``audit-REQUEST.md`` and return the facts."""
    facts = audit(ledger, request)
    write_json(folder / f"audit-{request}.json", facts)
    write_text(folder / f"audit-{request}.md", render(facts))
    return facts


def _number(value: Any, digits: int = 4) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(r) + " |" for r in rows),
    ]


def render(facts: dict[str, Any]) -> str:
    """Return the audit as Markdown."""

    def name(client: int) -> str:
        return str(facts["names"][client]) if facts["names"] else str(client)

    coin = f" {facts['terms']['currency']}" if facts["terms"].get("currency") else ""
    lines = [f"# Removal request {facts['request']}", ""]
    lines += [
        f"Opened {facts['opened']}, {'closed ' + facts['closed'] if facts['closed'] else 'not closed yet'}.",
        "",
    ]
    if facts["aborted"]:
        lines += [
            f"**Aborted** in the phase {facts['aborted']['phase']}: {facts['aborted']['reason']}. The removal was not "
            "carried out; what was delivered and passed until then is paid.",
            "",
        ]
    for amendment in facts["amended"]:
        lines += [f"Terms amended: {amendment['reason']}.", ""]
    verb = "asked to leave, and did not" if facts["aborted"] else "left"
    lines += ["## Who left", "", f"Clients {', '.join(name(c) for c in facts['removed'])} {verb}.", ""]

    lines += ["## What was paid", ""]
    if facts["budget"] is None:
        lines += ["No offers have been made.", ""]
    else:
        share = (
            f" ({facts['paid'] / facts['full_price']:.0%} of what full participation costs)"
            if facts["full_price"]
            else ""
        )
        lines += [
            f"{_number(facts['paid'], 6)}{coin} of a budget of {_number(facts['budget'], 6)}{coin}{share}.",
            "",
        ]
        signed = {None: "", True: "yes", False: "disputed"}
        rows = [
            [
                name(c["client"]),
                c["role"],
                _number(c["samples"], 8),
                _number(c["price"], 6),
                f"{100 * c['share']:.2f} %",
                str(c["samples_used"]),
                f"{c['rounds_passed']} of {c['rounds_agreed']}",
                _number(c["paid"], 6),
                signed[c["acknowledged"]],
            ]
            for c in facts["clients"]
        ]
        head = [
            "client",
            "role",
            "samples",
            "price",
            "share",
            "samples used",
            "rounds passed",
            "paid",
            "acknowledged",
        ]
        lines += [*_table(head, rows), ""]
        lines += [
            "Samples are the clients' own claims, the same in training and here. Cost and weight follow from them, so a "
            "client that claims more than it has is offered more; nobody can see that from outside.",
            "",
        ]
    lines += [*_proof_lines(facts), *_prediction_lines(facts, name), *_work_lines(facts)]
    lines += _forgetting_lines(facts, name)
    lines += ["## Faults", ""]
    if facts["faults"]:
        lines += [f"- client {name(f['client'])}, {f['phase']}: {f['problem']}" for f in facts["faults"]]
    else:
        lines += ["None."]
    return "\n".join(lines) + "\n"


def _proof_lines(facts: dict[str, Any]) -> list[str]:
    """What is proved about the prices, and of what."""
    proof, lines = facts["certificate"], ["## Certificate of the equilibrium", ""]
    if proof is None:
        return [*lines, "None.", ""]
    lines += [f"- method {proof['method']}: {proof['status']} ({proof['meaning']})"]
    of = proof["proves"] or "server loss"
    value = proof["server_loss"] if of == "server loss" else proof["objective"]
    if of != "server loss":
        lines += [
            f"- server loss {_number(proof['server_loss'], 8)}; what is minimised is the {of}, "
            "in which the number of samples counts as well"
        ]
    if proof["lower_bound"] is not None:
        lines += [
            f"- {of} {_number(value, 8)}; no payments within the budget have one below "
            f"{_number(proof['lower_bound'], 8)}"
        ]
    else:
        lines += [f"- {of} {_number(value, 8)}, without a lower bound"]
    lines += [
        f"- no client gains more than {proof['regret']:.1e} by deviating; "
        f"equilibrium conditions hold to {proof['residual']:.1e}; uniqueness: "
        f"{proof['uniqueness'].lower()}",
        f"- offers were made {facts['offers_made']} time(s)",
    ]
    answer = facts["responses"]
    if answer is not None:
        word = (
            "nobody moved any more"
            if answer["settled"]
            else f"the clients still moved by {answer['move']:.2g}"
        )
        lines += [
            f"- after {answer['announcements']} announcement(s) {word}; the largest difference from the "
            f"certified participation is {answer['from_certified']:.1e}",
            f"- at the committed participation the largest regret is {answer['regret']:.1e} and the "
            f"server loss {_number(answer['server_loss'], 8)}",
        ]
    return [*lines, *_privacy_lines(facts), ""]


def _prediction_lines(facts: dict[str, Any], name: Any) -> list[str]:
    """What the game expected to happen to everybody's loss, and what clients report."""
    if not facts["predicted"]:
        return []
    measures = {c["client"]: c["measures"] for c in facts["clients"]}
    rows = []
    for text, change in facts["predicted"].items():
        told = measures.get(int(text), {})
        reported = (
            told["after.loss"] - told["before.loss"] if {"before.loss", "after.loss"} <= told.keys() else None
        )
        rows.append([name(int(text)), f"{change:+.4g}", "" if reported is None else f"{reported:+.4g}"])
    constants = (
        "The constants of the game were fitted to pilot trainings."
        if facts["calibrated"]
        else f"The loss constant ({facts['terms']['loss_constant']:g}) is a guess that no pilot training was fitted to: read "
        "the signs and the order, not the amounts."
    )
    head = ["client", "predicted change of its loss", "change that it reports"]
    return ["## Predicted changes", "", constants, "", *_table(head, rows), ""]


def _privacy_lines(facts: dict[str, Any]) -> list[str]:
    """What clients had to reveal for it."""
    terms, lines = facts["terms"], []
    if terms["epsilon"] is not None:
        lines += [
            f"- embeddings are ({terms['epsilon']:g}, {terms['delta']:g})-"
            "differentially private; the bias of the noise in squared distances was taken out, and the "
            f"result is {_number(facts['clipped'], 3)} away from the nearest matrix of inner products, "
            "which is used"
        ]
        if facts["bandwidth_asked"]:
            lines += [
                f"- the bandwidth comes from the clients, each with epsilon = {terms['bandwidth_epsilon']:g}"
            ]
    else:
        lines += ["- embeddings were sent without noise: whoever has them can test who is in the data"]
    there = [c["client"] for c in facts["clients"] if c["role"] == "remaining" and c["samples"] is not None]
    if len(there) == 2 and facts["offers_made"]:
        lines += [
            "- two clients remained: from the sum that is announced to both, each can work out the other's embedding, as noisy "
            "as it was sent"
        ]
    if facts["only_as_sum"]:
        lines += [f"- of the embeddings of clients {facts['only_as_sum']} the server saw the sum only"]
    if facts["erased"]:
        lines += [
            f"- embeddings were erased from the ledger on {facts['erased']}; the inner products that the game was "
            "solved with are still there"
        ]
    return lines


def _work_lines(facts: dict[str, Any]) -> list[str]:
    """What was looked at before work was paid, and what cannot be seen."""
    work, terms = facts["work"], facts["terms"]
    lines = ["## Checks of the work", ""]
    if not work["judged"]:
        return [*lines, "No work was delivered.", ""]
    count = work["judged"]
    if terms.get("aggregation") == "secure":
        return [
            *lines,
            f"- {count} updates arrived behind masks: of every round the server saw the sum of the updates, and no single one",
            "- so nothing was looked at before it was paid. A client that sends the model back as it got it, noise, or flipped "
            "signs is paid like the others, and can put the model anywhere",
            "- whoever did not deliver in a round is missing from its sum, and is not paid for it",
            "",
        ]
    lines += [
        f"- {count} updates were looked at, {work['refused']} were refused and not paid",
        f"- a client that sends the model back as it got it: seen in {work['echo_seen']} of {count} updates, by their norm",
        f"- flipped signs: would have been refused in {work['flip_seen']} of {count} updates, "
        + (
            "because gradients of a convex loss do not fall along a step"
            if terms["unlearning"] == "convex-head"
            else "by their direction; directions are not a ground for refusal here"
            if terms.get("least_cosine", -1.0) <= -1.0
            else f"by their direction (least cosine {terms['least_cosine']:g})"
        ),
        f"- work that was asked for again: {work['repeated']} times; {work['repeated_otherwise']} gave another model. "
        "Noise that is not repeatable shows by this, a lie that is told the same way twice does not; where nothing is asked for "
        "again, noise is paid like work",
        f"- {work['sent_again']} updates are models that the same client had delivered in an earlier round, which is what sending "
        "one again looks like, and training that ends at the same place",
        f"- updates were combined by the rule `{terms.get('aggregation', 'mean')}`"
        + (
            f": no update counts for more than {terms['clip_factor']:g} times the median norm"
            if terms.get("aggregation") == "clipped"
            else ""
        ),
        "- not to be seen in an update: which data it was trained on, and whether all of the agreed samples were used",
        "",
    ]
    return lines


_OF_THEIR_DATA = (
    "What they sent is made of their data, and so is the model: nothing is proved about what is left."
)
_FORGETTING = {
    "retrain": "The model was trained again from its first weights, and the removed clients were not asked. A remaining "
    "client that holds a copy of their data can have used it: nobody can see that from outside.",
    "continue": "The trained model was trained on without the removed clients.",
    "head": "The last layers of the trained model were trained on without the removed clients; all others are as they were, "
    "to the last bit, and whatever they learned of the removed data is still in them.",
    "convex-head": "All layers below the last one are the first weights, to the last bit. The last layer started at zero and was "
    "brought towards the minimum of a penalised softmax loss by sums of the participants' gradients; the removed clients were not "
    "asked. How far it can still be from that minimum is said further down. It holds if the first weights have not met the removed "
    "data. A participant that holds a copy of it can have used it: nobody can see that from outside.",
    "federaser": "Rounds of training were replayed from the first weights without the removed clients (FedEraser): updates "
    "have the directions that they have now and the lengths that they had then, beside the removed clients. So the lengths still "
    "depend on the removed data.",
    "fedrecovery": "The removed clients' part of every round was taken off the trained model, with noise (FedRecovery), and "
    "the outcome trained on without them. Nothing is proved about what is left of their data: the others' updates were made "
    "beside theirs.",
    "gradient-ascent": "The removed clients undid their training near the others' models (projected gradient ascent), and "
    f"the outcome was trained on without them. {_OF_THEIR_DATA}",
    "quickdrop": "The removed clients undid their training on small synthetic sets, which they made during training and kept "
    f"to themselves (QuickDrop); the outcome was trained on without them. {_OF_THEIR_DATA}",
    "mode": "The trained model was moved towards one that started anew from the first weights and met the remaining clients "
    "only, and guided by all clients in turn (MoDe): the removed ones learned the labels that the new model gives to their "
    f"samples. {_OF_THEIR_DATA}",
}


def _forgetting_lines(facts: dict[str, Any], name: Any) -> list[str]:
    """What was done to forget, and what clients measured of it."""
    lines = ["## Measures of forgetting", ""]
    if facts["model_after"] is None:
        return [*lines, "Nothing was unlearned.", ""]
    lines += [_FORGETTING[facts["terms"]["unlearning"]], ""]
    if facts["terms"]["unlearning"] in ("retrain", "convex-head") and facts["adopted"]:
        lines += ["The first weights are those that the operator gave for an adopted model.", ""]
    if facts["partings"]:
        rows = [
            [name(w["client"]), str(w["round"]), str(w["samples"]), _number(w["moved"])]
            for w in facts["partings"]
        ]
        lines += [*_table(["client that leaves", "round", "samples", "moved the model by"], rows), ""]
    if facts["updates_kept"]:
        lines += [
            "The server keeps what every client sent in every round of training, that of removed clients too: some methods "
            "need it, and it is as telling as the updates themselves.",
            "",
        ]
    if facts["model_moved"] is not None:
        lines += [f"Distance between the weights before and after: {_number(facts['model_moved'], 6)}.", ""]
    descent = facts["descent"]
    if descent is not None:
        lines += [
            f"Gradients were summed in {descent['rounds']} of {facts['terms']['rounds']} rounds, last those of clients "
            f"{', '.join(name(c) for c in descent['clients'])}, to a distance of {descent['distance']:.4g} as updates were "
            "combined.",
            "",
        ]
    bound = facts["bound"]
    if bound is not None:
        lines += [
            f"At the unlearned head the gradient of the mean loss of {bound['samples']} samples of clients "
            f"{', '.join(name(c) for c in bound['clients'])} plus {bound['l2']:g}/2 |w|² has the norm "
            f"{bound['gradient_norm']:.3g}. That objective is strongly convex: the head is within "
            f"**{bound['distance']:.4g}** of its minimum, which depends on these samples alone.",
            "",
        ]
        if descent is not None and bound["distance"] > facts["terms"]["certify_distance"]:
            lines += [
                f"**The terms ask for a distance of {facts['terms']['certify_distance']:g}, which was not reached.**",
                "",
            ]
    elif facts["terms"].get("certify_l2") is not None:
        lines += [
            "A bound on the distance was asked for, and there is none: the model is not a softmax head, or nobody "
            "sent a gradient.",
            "",
        ]
    measured = [c for c in facts["clients"] if c["measures"]]
    if measured:
        kinds = sorted({key.split(".", 1)[1] for c in measured for key in c["measures"]})
        rows = []
        for c in measured:
            row = [name(c["client"]), c["role"], f"{100 * c['share']:.0f} %"]
            for kind in kinds:
                before, after = c["measures"].get(f"before.{kind}"), c["measures"].get(f"after.{kind}")
                row.append(f"{_number(before)} → {_number(after)}")
            rows.append(row)
        lines += [*_table(["client", "role", "share", *kinds], rows), ""]
        lines += [
            "Each client measured the model before and after on its own data, and reports it itself. `membership-auc` is "
            "the success of a confidence attack that tells the client's training samples from its unseen ones: "
            "0.5 is chance, and clients with a share of 0 show what chance looks like here.",
            "",
        ]
    return lines
