"""Sections of the audit on the unlearning method, its proofs, and the clients' measures."""

from __future__ import annotations

from typing import Any

from stackfu_integration.flower.audit.markdown import number, table
from stackfu_integration.flower.naming import Naming

__all__ = ["forgetting_lines"]

_OF_THEIR_DATA = (
    "What they sent is made of their data, and so is the model: nothing is proved about what is left."
)
_FORGETTING = {
    "retrain": "The model was trained again from its first weights, and the removed clients were not asked. A remaining "
    "client that holds a copy of their data can have used it: this cannot be seen from outside.",
    "continue": "The trained model was trained on without the removed clients.",
    "head": "The last layers of the trained model were trained on without the removed clients; all others are as they were, "
    "to the last bit, and whatever they learned of the removed data is still in them.",
    "convex-head": "All layers below the last one are the first weights, to the last bit. The last layer started at zero and was "
    "brought towards the minimum of a penalised softmax loss by sums of the participants' gradients; the removed clients were not "
    "asked. How far it can still be from that minimum is said further down. It holds if the first weights have not met the removed "
    "data. A participant that holds a copy of it can have used it: this cannot be seen from outside.",
    "newton": "All layers below the last one are the first weights, to the last bit. The last layer was brought from where it was "
    "towards the minimum of a penalised softmax loss by Newton steps, from sums of the participants' first and second derivatives; "
    "the removed clients were not asked. Where it ended it is near that minimum, as is said further down, and noise was added to "
    "hide the rest. It holds if the first weights have not met the removed data. A participant that holds a copy of it can have "
    "used it: this cannot be seen from outside.",
    "shards": "Clients are dealt to shards, and each shard trains a head of its own on the first weights; the model is the mean of "
    "the heads. Those that had met a removed client were trained again from the first weights without it, and the others are as "
    "they were, to the last bit. That no head met another shard's data in training is the server's word. A remaining client that "
    "holds a copy of removed data can have used it: this cannot be seen from outside.",
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


def forgetting_lines(facts: dict[str, Any], name: Naming) -> list[str]:
    """Return the lines on the unlearning method, and the clients' measures of it."""
    lines = ["## Measures of forgetting", ""]
    if facts["model_after"] is None:
        return [*lines, "Nothing was unlearned.", ""]
    return [
        *lines,
        "This is what the server's records say of the method; how much of it the evidence proves is in the verdict of "
        "`stackfu-lab audit`.",
        "",
        *_method_lines(facts, name),
        *_shard_lines(facts["shards"], name),
        *_distance_lines(facts, name),
        *_bound_lines(facts, name),
        *_measured_lines(facts, name),
    ]


def _method_lines(facts: dict[str, Any], name: Naming) -> list[str]:
    """Return the method in words, the work of those who left, and what the server keeps."""
    lines = [_FORGETTING[facts["terms"]["unlearning"]], ""]
    if facts["terms"]["unlearning"] in ("retrain", "convex-head", "newton") and facts["adopted"]:
        lines += ["The first weights are those that the operator gave for an adopted model.", ""]
    if facts["partings"]:
        rows = [
            [name(w["client"]), str(w["round"]), str(w["samples"]), number(w["moved"])]
            for w in facts["partings"]
        ]
        lines += [*table(["client that leaves", "round", "samples", "moved the model by"], rows), ""]
    if facts["updates_kept"]:
        lines += [
            "The server keeps what every client sent in every round of training, that of removed clients too: some methods "
            "need it, and it is as telling as the updates themselves.",
            "",
        ]
    return lines


def _shard_lines(shards: dict[str, Any] | None, name: Naming) -> list[str]:
    """Return every shard, whether it was trained anew, and whom it met."""
    if shards is None:
        return []
    held, anew, rows = shards["members"], shards["retrained"], []
    for shard, head in shards["heads"].items():
        met = ", ".join(name(client) for client in held[shard])
        rows.append([shard, "trained anew" if int(shard) in anew else "as it was", met, f"`{head[:16]}`"])
    lines = [*table(["shard", "its head", "met data of clients", "digest"], rows), ""]
    gone = [str(shard) for shard in anew if str(shard) not in held]
    if gone:
        lines += [f"Nobody is left in, or took part in, shards {', '.join(gone)}: they have no head.", ""]
    return lines


def _distance_lines(facts: dict[str, Any], name: Naming) -> list[str]:
    """Return the lines on the distance that the model moved, and the norm of its gradients."""
    lines = []
    if facts["model_moved"] is not None:
        lines += [f"Distance between the weights before and after: {number(facts['model_moved'], 6)}.", ""]
    descent = facts["descent"]
    if descent is not None:
        lines += [
            f"Gradients were summed in {descent['rounds']} of {facts['terms']['rounds']} rounds, last those of "
            f"{name.all(descent['clients'])}, to a distance of {descent['distance']:.4g} as updates were "
            "combined.",
            "",
        ]
    return lines


def _bound_lines(facts: dict[str, Any], name: Naming) -> list[str]:
    """Return the lines on the proofs about the unlearned head, and on its noise."""
    bound, terms = facts["bound"], facts["terms"]
    if bound is None and terms.get("certify_l2") is None:
        return []
    if bound is None:
        return [
            "A bound on the distance was asked for, and there is none: the model is not a softmax head, or nobody "
            "sent a gradient.",
            "",
        ]
    lines = [
        f"At the unlearned head{'' if facts['noise'] is None else ', before the noise,'} the gradient of the mean loss of "
        f"{bound['samples']} samples of "
        f"{name.all(bound['clients'])} plus {bound['l2']:g}/2 |w|² has the norm "
        f"{bound['gradient_norm']:.3g}. That objective is strongly convex: the head is within "
        f"**{bound['distance']:.4g}** of its minimum, which depends on these samples alone.",
        "",
    ]
    if facts["noise"] is not None:
        lines += [
            f"Every number of the released head has noise of deviation {facts['noise']['deviation']:.4g}. Whoever sees the "
            "released head cannot tell it from that minimum with the same noise by more than epsilon = "
            f"{terms['removal_epsilon']:g}, but for a probability of {terms['removal_delta']:g}. That is not said of the "
            "server and the participants, who saw the head without it, nor of whoever reads this ledger and knows the "
            "participants' data: it holds hashes of what was worked out. The server drew the noise.",
            "",
        ]
    if facts["descent"] is not None and bound["distance"] > terms["certify_distance"]:
        lines += [
            f"**The terms ask for a distance of {terms['certify_distance']:g}, which was not reached.**",
            "",
        ]
    return lines


def _measured_lines(facts: dict[str, Any], name: Naming) -> list[str]:
    """Return the clients' measures before and after, one row per client."""
    measured = [c for c in facts["clients"] if c["measures"]]
    if not measured:
        return []
    kinds = sorted({key.split(".", 1)[1] for c in measured for key in c["measures"]})
    rows = []
    for c in measured:
        row = [name(c["client"]), c["role"], f"{100 * c['share']:.0f} %"]
        for kind in kinds:
            before, after = c["measures"].get(f"before.{kind}"), c["measures"].get(f"after.{kind}")
            row.append(f"{number(before)} → {number(after)}")
        rows.append(row)
    return [
        *table(["client", "role", "share", *kinds], rows),
        "",
        "Each client measured the model before and after on its own data, and reports it itself. `membership-auc` is "
        "the success of a confidence attack that tells the client's training samples from its unseen ones: "
        "0.5 is chance, and clients with a share of 0 show what chance looks like here.",
        "",
    ]
