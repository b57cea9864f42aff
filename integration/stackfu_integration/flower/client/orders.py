"""Work that a client does for the server: checked before it is done, hidden and signed before it leaves.

What a client owes follows from its own records: the share that it agreed to, the seed of the offer, and the number of samples
that is this share of its data. A round is worked once, and its reply is stored: the same order again gets the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from stackfu.errors import InputError
from stackfu_integration.flower import receipts
from stackfu_integration.flower.client.inbox import Inbox, mark_of
from stackfu_integration.flower.convex import CURVATURE, METHOD, NEWTON, flat, head_of
from stackfu_integration.flower.keys import fingerprint
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.secure_sum import MODEL_BITS, SumName
from stackfu_integration.flower.wire import SUMMED, UNLEARN, PartingOrder, TrainingOrder, setting
from stackfu_integration.flower.wire.records import masked_record, request_in, signed
from stackfu_integration.flower.wire.sums import group_in

__all__ = ["GoOn", "Task", "hand_over", "only_once_more", "take_leave", "train_openly"]

#: The next handler of an order: all other modifiers, and then the work.
GoOn: TypeAlias = Callable[[], Message]

_SHARE_MOVES = 1e-9  # by which rounding may take an agreed share out of the interval that was agreed


@dataclass
class Task:
    """The settings that the client owes, which the work gets past all modifiers, and the digest of the model that it made."""

    owed: dict[str, int | float] = field(default_factory=dict)
    made: str = ""


# ---- rounds of those who stay


def hand_over(inbox: Inbox, order: TrainingOrder, message: Message, go_on: GoOn, task: Task) -> Message:
    """Hide what leaves where only a sum is to be seen, and sign it, after all other modifiers; a second time, repeat the reply."""
    summed = message.metadata.message_type == SUMMED
    inbox.check_sums("updates", summed)
    task.owed = _check_order(inbox, order, mark_of(message.content), summed)
    return inbox.once(
        _slot_of(order),
        f"{message.metadata.message_type} {mark_of(message.content)}",
        message,
        lambda: _worked(inbox, order, summed, go_on, task),
    )


def _slot_of(order: TrainingOrder) -> str:
    return f"work {_request_of(order)}"


def _worked(inbox: Inbox, order: TrainingOrder, summed: bool, go_on: GoOn, task: Task) -> Message:
    reply = go_on()
    if reply.has_error() or "arrays" not in reply.content:
        return reply
    request, samples = _request_of(order), reply.content["metrics"]["num-examples"]
    if summed:
        reply.content["arrays"] = _masked(inbox, order, reply.content["arrays"], samples)
    else:
        inbox.records.keep_work(reply.content["arrays"])
    model = digest(reply.content["arrays"])
    known = inbox.records.about(request)
    known.setdefault("delivered", {})[str(order.number)] = model
    known.setdefault("made", {})[str(order.number)] = task.made
    inbox.records.save()
    receipt = inbox.sign(
        receipts.WORK,
        request=request,
        number=order.number,
        start=digest(order.model),
        model=model,
        samples=samples,
    )
    signed(reply.content, receipt)
    return reply


def only_once_more(inbox: Inbox, order: TrainingOrder, message: Message, go_on: GoOn, task: Task) -> Message:
    """Do a round again that was delivered, compare, and send what was sent: noise of modifiers is not drawn a second time.

    An order that was not delivered is refused, so that no work is done outside the rounds of the offer.
    """
    inbox.check_sums("updates", summed=False)
    known, mark = inbox.records.about(_request_of(order)), mark_of(message.content)
    delivered = str(order.number) in known.get("delivered", {})
    if known.get("orders", {}).get(str(order.number)) != mark or not delivered:
        raise InputError("order", "this client has not delivered this round", value=order.number)
    task.owed = _check_order(inbox, order, mark, summed=False)
    go_on()
    if known.get("made", {}).get(str(order.number), task.made) != task.made:
        raise InputError("order", "this client did the round again and got another model", value=order.number)

    def gone() -> Message:
        raise InputError("order", "this client keeps the reply to its last round only", value=order.number)

    return inbox.once(_slot_of(order), f"{UNLEARN} {mark}", message, gone)


def train_openly(inbox: Inbox, message: Message, go_on: GoOn) -> Message:
    """Let the app train on all data by Flower's own message, where the policy shows single updates.

    A server that shows the head of a ledger gets one update for each of its rounds, and the same one when it asks again.
    """
    inbox.check_sums("updates", summed=False)
    inbox.records.policy.check_samples(inbox.participant.size, summed=False)
    mark = mark_of(message.content)
    content = RecordDict(dict(message.content))
    settings = content.config_records.get("config", ConfigRecord())
    content["config"] = ConfigRecord({name: value for name, value in settings.items() if name != "samples"})
    message.content = content
    if inbox.head is None or "server-round" not in settings:
        inbox.records.state["trained"] = inbox.records.state.get("trained", 0) + 1
        inbox.check_rounds(inbox.records.state["trained"])
        inbox.records.save()
        return go_on()
    number = setting(settings, "server-round", int)
    inbox.check_rounds(number)
    rounds = inbox.records.state.setdefault("training", {})
    if rounds.get(str(number), mark) != mark:
        raise _done_from_another_model(number)
    rounds[str(number)] = mark
    inbox.records.save()
    return inbox.once("training", mark, message, go_on)


def _request_of(order: TrainingOrder) -> str:
    return request_in(order.settings)


def _masked(inbox: Inbox, order: TrainingOrder, arrays: ArrayRecord, samples: int) -> ArrayRecord:
    """Return a model times its samples, behind masks."""
    if "only" in order.settings:  # all others stay as they are, and their sum is not needed
        arrays = head_of(arrays, [*setting(order.settings, "only", str).split(","), CURVATURE])
    name = SumName(_request_of(order), "round", order.number)
    return masked_record(
        inbox.sums.masked(name, samples * flat(arrays), MODEL_BITS, group_in(order.settings))
    )


def _check_order(inbox: Inbox, order: TrainingOrder, mark: str, summed: bool) -> dict[str, int | float]:
    """Check that an order is for work that was agreed, write down that it begins, and return the settings that are owed."""
    request = _request_of(order)
    known = inbox.records.about(request)
    offer = known.get("offer")
    inbox.check_known(offer is not None, "request", "this client agreed to nothing", request)
    inbox.check_unsettled(request)
    seed = setting(order.settings, "seed", int)
    if offer is not None:
        _check_agreed(inbox, order, offer, known.get("share"), seed)
    earlier = known.get("orders", {}).get(str(order.number))
    if earlier is not None and earlier != mark:
        raise _done_from_another_model(order.number)
    if order.settings.get("method") in (METHOD, NEWTON):
        _check_gradient_order(inbox, order, known)
    inbox.check_rounds(order.number, least=1)
    owed = inbox.owed(order.share, seed)
    inbox.records.policy.check_samples(int(owed["samples"]), summed)
    known.setdefault("orders", {})[str(order.number)] = mark
    known.setdefault("starts", {})[str(order.number)] = digest(order.model)
    known["share"] = order.share
    inbox.records.save()
    return owed


def _check_agreed(
    inbox: Inbox, order: TrainingOrder, offer: dict[str, Any], worked: float | None, seed: int
) -> None:
    """Check that share, seed and round are those of the offer that this client answered.

    Where announcements end before answers meet them, the share is between the announced one and the answer; it is one for all
    rounds of a request.
    """
    ends = sorted((float(offer["share"]), float(offer.get("announced", offer["share"]))))
    agreed = ends[0] - _SHARE_MOVES <= order.share <= ends[1] + _SHARE_MOVES
    if not agreed or (worked is not None and worked != order.share):
        raise InputError("share", f"this client agreed to {offer['share']:g}", value=order.share)
    if seed != offer.get("seed", seed):
        raise InputError("seed", f"this client agreed to draw from {offer['seed']}", value=seed)
    if order.number > offer.get("rounds", order.number):
        raise InputError(
            "server-round", f"this client agreed to {offer['rounds']} rounds", value=order.number
        )
    if inbox.participant.client in offer.get("removed", ()):
        raise InputError("removed", "this client leaves, and does no work for the removal of its own data")


def _check_gradient_order(inbox: Inbox, order: TrainingOrder, known: dict[str, Any]) -> None:
    """Gradients are given to those who asked beforehand, and in sums for one model once."""
    method, summed = order.settings.get("method"), "group" in order.settings
    inbox.check_known(
        known.get("gradients") == method, "method", "this client consented to nothing of the kind", method
    )
    if method == NEWTON:
        inbox.check_curvature(summed)
    again = [n for n, start in known.get("starts", {}).items() if start == digest(order.model)]
    if summed and set(again) - {str(order.number)}:
        # two sums at one head that differ in one member would reveal its gradient
        raise InputError("order", "this client has answered for this model", value=order.number)


def _done_from_another_model(number: int) -> InputError:
    return InputError("order", "this client has done this round, from another model", value=number)


# ---- work of those who leave


def take_leave(inbox: Inbox, order: PartingOrder, message: Message, go_on: GoOn) -> Message:
    """Do what was consented to, one piece of work per round, and sign it after all modifiers."""
    stated = mark_of(message.content)
    mark = _check_parting(inbox, order)
    if "aside" in message.content:
        del message.content["aside"]
    return inbox.once(f"parting {order.request}", stated, message, lambda: _parted(inbox, order, mark, go_on))


def _parted(inbox: Inbox, order: PartingOrder, mark: str, go_on: GoOn) -> Message:
    reply = go_on()
    if reply.has_error() or "arrays" not in reply.content:
        return reply
    inbox.records.about(order.request).setdefault("partings", {})[str(order.number)] = mark
    inbox.records.save()
    receipt = inbox.sign(
        receipts.PARTING,
        request=order.request,
        method=order.method,
        number=order.number,
        start=digest(order.model),
        model=digest(reply.content["arrays"]),
        samples=reply.content["metrics"]["num-examples"],
    )
    signed(reply.content, receipt)
    return reply


def _check_parting(inbox: Inbox, order: PartingOrder) -> str:
    """Check a leaving client's consent, and that the round is new; return what distinguishes it from other orders."""
    inbox.records.policy.check_parting(order.method)
    known = inbox.records.about(order.request)
    inbox.check_known(
        known.get("parting") == order.method,
        "method",
        "this client consented to nothing of the kind",
        order.method,
    )
    inbox.check_unsettled(order.request)
    inbox.check_rounds(order.number)
    aside = "" if order.aside is None else digest(order.aside)
    mark = fingerprint([digest(order.model), aside, order.method, order.seed, order.radius])
    if known.get("partings", {}).get(str(order.number), mark) != mark:
        raise _done_from_another_model(order.number)
    return mark
