"""The audit of a removal request: who left, what was paid, what is proved, what was forgotten.

Everything is read from the ledger, so the report can be written again at any time and says the same.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from stackfu.errors import InputError
from stackfu_integration.flower.events import (
    ClientCommitted,
    ClientExcluded,
    ClientFault,
    ClientMeasured,
    ClientPaid,
    CommitmentsClosed,
    EmbeddingReceived,
    GameFounded,
    GameSolved,
    MeasuresClosed,
    ModelUnlearned,
    PriceOffered,
    RemovalRequested,
    RequestClosed,
    RequestSettled,
    WorkDelivered,
)
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.storage import write_json, write_text

__all__ = ["audit", "render", "write_audit"]


def audit(ledger: PaymentLedger, request: str) -> dict[str, Any]:
    """Gather the facts of a request from the ledger."""
    opened = ledger.last(request, RemovalRequested)
    if opened is None:
        known = ", ".join(ledger.requests()) or "none"
        raise InputError("request", f"is not in the ledger (known: {known})", value=request)
    game, solved = ledger.last(request, GameFounded), ledger.last(request, GameSolved)
    committed, settled = ledger.last(request, CommitmentsClosed), ledger.last(request, RequestSettled)
    unlearned, measured = ledger.last(request, ModelUnlearned), ledger.last(request, MeasuresClosed)
    faults = [*ledger.events(RUN, ClientFault), *ledger.events(request, ClientFault)]
    return {
        "request": request,
        "opened": ledger.time_of(request, RemovalRequested),
        "closed": ledger.time_of(request, RequestClosed),
        "removed": list(opened.removed),
        "terms": dict(opened.terms),
        "budget": game.budget if game else None,
        "full_price": game.full_price if game else None,
        "bandwidth": game.bandwidth if game else None,
        "clipped": game.clipped if game else None,
        "certificate": solved.certificate() if solved else None,
        "offers_made": solved.attempt + 1 if solved else 0,
        "responses": committed.outcome() if committed else None,
        "paid": settled.paid if settled else 0.0,
        "model_before": opened.before,
        "model_after": unlearned.model if unlearned else None,
        "model_moved": measured.distance if measured else None,
        "clients": _clients(ledger, request, opened.removed),
        "faults": [{"client": f.client, "phase": f.phase, "problem": f.problem} for f in faults],
    }


def _clients(ledger: PaymentLedger, request: str, removed: tuple[int, ...]) -> list[dict[str, Any]]:
    """What each client sent, was offered, agreed to, delivered, was paid and measured."""
    embeddings = ledger.by_client(request, EmbeddingReceived)
    excluded = ledger.by_client(request, ClientExcluded)
    offers = ledger.by_client(request, PriceOffered)
    commitments = ledger.by_client(request, ClientCommitted)
    delivered = Counter(work.client for work in ledger.events(request, WorkDelivered))
    payments = ledger.by_client(request, ClientPaid)
    measures = ledger.by_client(request, ClientMeasured)
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
    names = ", ".join(str(c) for c in facts["removed"])
    lines = [f"# Removal request {facts['request']}", ""]
    lines += [
        f"Opened {facts['opened']}, {'closed ' + facts['closed'] if facts['closed'] else 'not closed yet'}.",
        "",
    ]
    lines += ["## Who left", "", f"Clients {names}.", ""]

    lines += ["## What was paid", ""]
    if facts["budget"] is None:
        lines += ["No offers have been made yet.", ""]
    else:
        share = (
            f" ({facts['paid'] / facts['full_price']:.0%} of what full participation costs)"
            if facts["full_price"]
            else ""
        )
        lines += [f"{_number(facts['paid'], 6)} of a budget of {_number(facts['budget'], 6)}{share}.", ""]
        rows = [
            [
                str(c["client"]),
                c["role"],
                _number(c["samples"], 8),
                _number(c["price"], 6),
                f"{100 * c['share']:.2f} %",
                str(c["samples_used"]),
                f"{c['rounds_delivered']} of {c['rounds_agreed']}",
                _number(c["paid"], 6),
            ]
            for c in facts["clients"]
        ]
        head = ["client", "role", "samples", "price", "share", "samples used", "rounds", "paid"]
        lines += [*_table(head, rows), ""]

    proof = facts["certificate"]
    lines += ["## Certificate of the equilibrium", ""]
    if proof is None:
        lines += ["None yet.", ""]
    else:
        lines += [f"- method {proof['method']}: {proof['status']} ({proof['meaning']})"]
        if proof["lower_bound"] is not None:
            bound = f"no payments within the budget do better than {_number(proof['lower_bound'], 8)}"
            lines += [f"- server loss {_number(proof['server_loss'], 8)}; {bound}"]
        else:
            lines += [f"- server loss {_number(proof['server_loss'], 8)}, without a lower bound"]
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
        if facts["terms"]["epsilon"] is not None:
            lines += [
                f"- embeddings are ({facts['terms']['epsilon']:g}, {facts['terms']['delta']:g})-"
                "differentially private; the bias of the noise in squared distances was taken out, and the "
                f"result is {_number(facts['clipped'], 3)} away from the nearest matrix of inner products, "
                "which is used"
            ]
        lines += [""]

    lines += ["## Measures of forgetting", ""]
    if facts["terms"]["unlearning"] == "retrain":
        lines += [
            "The model was trained again from its first weights; the removed clients' data was not used.",
            "",
        ]
    else:
        lines += ["The trained model was trained on without the removed clients.", ""]
    if facts["model_moved"] is not None:
        lines += [f"Distance between the weights before and after: {_number(facts['model_moved'], 6)}.", ""]
    measured = [c for c in facts["clients"] if c["measures"]]
    if measured:
        kinds = sorted({key.split(".", 1)[1] for c in measured for key in c["measures"]})
        rows = []
        for c in measured:
            row = [str(c["client"]), c["role"], f"{100 * c['share']:.0f} %"]
            for name in kinds:
                before, after = c["measures"].get(f"before.{name}"), c["measures"].get(f"after.{name}")
                row.append(f"{_number(before)} → {_number(after)}")
            rows.append(row)
        lines += [*_table(["client", "role", "share", *kinds], rows), ""]
        lines += [
            "Each client measured the model before and after on its own data. `membership-auc` is the "
            "success of a confidence attack that tells the client's training samples from its unseen ones: "
            "0.5 is chance, and clients with a share of 0 show what chance looks like here.",
            "",
        ]
    lines += ["## Faults", ""]
    if facts["faults"]:
        lines += [f"- client {f['client']}, {f['phase']}: {f['problem']}" for f in facts["faults"]]
    else:
        lines += ["None."]
    return "\n".join(lines) + "\n"
