"""The audit as text: who left, what was paid, what is proved, what was forgotten."""

from __future__ import annotations

from typing import Any

from stackfu_integration.flower.audit.forgetting import forgetting_lines
from stackfu_integration.flower.audit.markdown import capital, number, table
from stackfu_integration.flower.naming import Naming, in_one_line, one_line

__all__ = ["render"]


def render(facts: dict[str, Any]) -> str:
    """Return the audit as Markdown; text from other parties is shown without markup."""
    facts = in_one_line(facts)
    name = Naming(facts["names"])
    lines = [f"# Removal request {facts['request']}", ""]
    lines += [
        f"Opened {facts['opened']}, {'closed ' + facts['closed'] if facts['closed'] else 'not closed yet'}.",
        "",
    ]
    if facts["aborted"]:
        lines += [
            f"**Aborted** in the phase {facts['aborted']['phase']}: {one_line(facts['aborted']['reason'])}. The removal was not "
            "carried out; what was delivered and passed until then is paid.",
            "",
        ]
    for amendment in facts["amended"]:
        lines += [f"Terms amended: {one_line(amendment['reason'])}.", ""]
    verb = "asked to leave, and did not" if facts["aborted"] else "left"
    lines += ["## Who left", "", f"{capital(name.all(facts['removed']))} {verb}.", ""]

    lines += _payment_lines(facts, name)
    lines += [*_proof_lines(facts, name), *_prediction_lines(facts, name), *_work_lines(facts)]
    lines += forgetting_lines(facts, name)
    if facts["clock_set_back"]:
        lines += [
            "## Times",
            "",
            f"The server's clock was set back {len(facts['clock_set_back'])} time(s), by up to "
            f"{max(facts['clock_set_back']):.0f} s. Times go on "
            "from the row before, and are the server's word.",
            "",
        ]
    lines += ["## Faults", ""]
    if facts["faults"]:
        lines += [
            f"- client {name(f['client'])}, {f['phase']}: {one_line(f['problem'])}" for f in facts["faults"]
        ]
    else:
        lines += ["None."]
    return "\n".join(lines) + "\n"


def _payment_lines(facts: dict[str, Any], name: Naming) -> list[str]:
    """Return the offers, deliveries and payments, one row per client."""
    lines = ["## What was paid", ""]
    if facts["budget"] is None:
        return [*lines, "No offers have been made.", ""]
    coin = f" {one_line(facts['terms']['currency'])}" if facts["terms"].get("currency") else ""
    share = (
        f" ({facts['paid'] / facts['full_price']:.0%} of what full participation costs)"
        if facts["full_price"]
        else ""
    )
    lines += [
        f"{number(facts['paid'], 6)}{coin} of a budget of {number(facts['budget'], 6)}{coin}{share}.",
        "",
    ]
    used = [c["samples_used"] for c in facts["clients"] if c["share"] > 0]
    if used:
        few = (
            " Caution: less than one for each, which is no data to train on." if sum(used) < len(used) else ""
        )
        lines += [f"{sum(used)} samples of {len(used)} client(s) are used in all.{few}", ""]
    signed = {None: "", True: "yes", False: "disputed"}
    rows = [
        [
            name(c["client"]),
            c["role"],
            number(c["samples"], 8),
            number(c["price"], 6),
            f"{100 * c['share']:.2f} %",
            str(c["samples_used"]),
            f"{c['rounds_passed']} of {c['rounds_agreed']}",
            number(c["paid"], 6),
            signed[c["acknowledged"]],
            number(c["shapley"]),
            number(c["leave_one_out"]),
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
        "Shapley value",
        "rise without it",
    ]
    lines += [*table(head, rows), ""]
    if any(c["shapley"] is not None for c in facts["clients"]):
        lines += [
            "The last two columns are computed from the solution on file, for the planned shares: by how much the server's loss "
            "falls through the client (Shapley value), and by how much it would rise if this client alone brought nothing. "
            "They see the embeddings that were sent, noise included, and say nothing of measured accuracy.",
            "",
        ]
    lines += [
        "Samples are the clients' own claims, the same in training and here. Cost and weight follow from them, so a "
        "client that claims more than it has is offered more; this cannot be seen from outside.",
        "",
    ]
    return lines


def _proof_lines(facts: dict[str, Any], name: Naming) -> list[str]:
    """Return the lines on the proofs about the prices."""
    proof, lines = facts["certificate"], ["## Certificate of the equilibrium", ""]
    if proof is None:
        return [*lines, "None.", ""]
    lines += [f"- method {proof['method']}: {proof['status']} ({proof['meaning']})"]
    of = proof["proves"] or "server loss"
    value = proof["server_loss"] if of == "server loss" else proof["objective"]
    if of != "server loss":
        lines += [
            f"- server loss {number(proof['server_loss'], 8)}; what is minimised is the {of}, "
            "in which the number of samples counts as well"
        ]
    if proof["lower_bound"] is not None:
        lines += [
            f"- {of} {number(value, 8)}; no payments within the budget have one below "
            f"{number(proof['lower_bound'], 8)}"
        ]
    else:
        lines += [f"- {of} {number(value, 8)}, without a lower bound"]
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
            f"server loss {number(answer['server_loss'], 8)}",
        ]
    return [*lines, *_privacy_lines(facts, name), ""]


def _prediction_lines(facts: dict[str, Any], name: Naming) -> list[str]:
    """Return the predicted changes of the clients' losses, and those that clients report."""
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
    return ["## Predicted changes", "", constants, "", *table(head, rows), ""]


def _privacy_lines(facts: dict[str, Any], name: Naming) -> list[str]:
    """Return the lines on the data that clients had to reveal."""
    terms, lines = facts["terms"], []
    if terms["epsilon"] is not None:
        lines += [
            f"- embeddings are ({terms['epsilon']:g}, {terms['delta']:g})-"
            "differentially private; the bias of the noise in squared distances was taken out, and the "
            f"result is {number(facts['clipped'], 3)} away from the nearest matrix of inner products, "
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
        lines += [f"- of the embeddings of {name.all(facts['only_as_sum'])} the server saw the sum only"]
    if facts["erased"]:
        lines += [
            f"- embeddings were erased from the ledger on {facts['erased']}; the inner products that the game was "
            "solved with are still there"
        ]
    if facts["deleted_but_logged"]:
        lines += [
            "- **embeddings were deleted from the ledger, and may still be in its write-ahead log**: somebody was "
            "reading the file when "
            "the request closed"
        ]
    return lines


def _work_lines(facts: dict[str, Any]) -> list[str]:
    """Return the lines on the checks of work before payment, and on their limits."""
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
            if terms["unlearning"] in ("convex-head", "newton")
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
