"""Work that a client does for the server: checked before it is done, hidden and signed before it leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from flwr.app import ArrayRecord, Message

from stackfu.errors import InputError
from stackfu_integration.flower import receipts
from stackfu_integration.flower.client.desk import Desk
from stackfu_integration.flower.convex import CURVATURE, METHOD, NEWTON, flat, head_of
from stackfu_integration.flower.keys import fingerprint
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.secure_sum import MODEL_BITS, SumName
from stackfu_integration.flower.wire import SUMMED, PartingOrder, TrainingOrder, setting
from stackfu_integration.flower.wire.records import masked_record, signed
from stackfu_integration.flower.wire.sums import group_in

__all__ = ["GoOn", "hand_over", "only_once_more", "take_leave"]

#: What an order is passed on to: all other modifiers, and then the work.
GoOn: TypeAlias = Callable[[], Message]

_SHARE_MOVES = 0.02  # how far the agreed share may be from what the client last answered


# ---- rounds of those who stay


def hand_over(desk: Desk, order: TrainingOrder, message: Message, go_on: GoOn) -> Message:
    """Hide what leaves where only a sum is to be seen, and sign it, after all other modifiers."""
    summed = message.metadata.message_type == SUMMED
    desk.check_sums("updates", summed)
    _check_order(desk, order)
    reply = go_on()
    if reply.has_error() or "arrays" not in reply.content:
        return reply
    request, samples = _request_of(order), reply.content["metrics"]["num-examples"]
    if summed:
        reply.content["arrays"] = _masked(desk, order, reply.content["arrays"], samples)
    model = digest(reply.content["arrays"])
    known = desk.books.about(request)
    known.setdefault("delivered", {})[str(order.number)] = model
    known.setdefault("orders", {})[str(order.number)] = _order_mark(order)
    desk.books.save()
    receipt = desk.sign(
        receipts.WORK,
        request=request,
        number=order.number,
        start=digest(order.model),
        model=model,
        samples=samples,
    )
    signed(reply.content, receipt)
    return reply


def only_once_more(desk: Desk, order: TrainingOrder, _message: Message, go_on: GoOn) -> Message:
    """Repeat what was delivered, and nothing else: work that nobody agreed to is not done under this name."""
    known = desk.books.about(_request_of(order)).get("orders", {})
    if known.get(str(order.number)) != _order_mark(order):
        raise InputError("order", "this client has not delivered this round", value=order.number)
    desk.check_sums("updates", summed=False)
    return go_on()


def _request_of(order: TrainingOrder) -> str:
    return setting(order.settings, "request", str)


def _order_mark(order: TrainingOrder) -> str:
    """What makes two orders the same: the model that they start from, the share, the seed."""
    return fingerprint([digest(order.model), order.share, setting(order.settings, "seed", int)])


def _masked(desk: Desk, order: TrainingOrder, arrays: ArrayRecord, samples: int) -> ArrayRecord:
    """A model times its samples, behind masks."""
    if "only" in order.settings:  # all others stay as they are, and nobody needs their sum
        arrays = head_of(arrays, [*setting(order.settings, "only", str).split(","), CURVATURE])
    name = SumName(_request_of(order), "round", order.number)
    return masked_record(desk.sums.masked(name, samples * flat(arrays), MODEL_BITS, group_in(order.settings)))


def _check_order(desk: Desk, order: TrainingOrder) -> None:
    """Work is done for what was agreed: the share that this client answered with, as many rounds as its policy allows."""
    request = _request_of(order)
    known = desk.books.about(request)
    offer = known.get("offer")
    if offer is None and desk.books.lasting:
        raise InputError("request", "this client agreed to nothing", value=request)
    desk.check_unsettled(request)
    if offer is not None and abs(order.share - offer["share"]) > _SHARE_MOVES:
        raise InputError("share", f"this client agreed to {offer['share']:g}", value=order.share)
    earlier = known.get("orders", {}).get(str(order.number))
    if earlier is not None and earlier != _order_mark(order):
        raise _done_from_another_model(order.number)
    if order.settings.get("method") in (METHOD, NEWTON):
        _check_gradient_order(desk, order, known)
    if offer is not None and order.number > offer.get("rounds", order.number):
        raise InputError(
            "server-round", f"this client agreed to {offer['rounds']} rounds", value=order.number
        )
    desk.check_rounds(order.number)
    if known.get("share") != order.share:
        known["share"] = order.share
        desk.books.save()


def _check_gradient_order(desk: Desk, order: TrainingOrder, known: dict[str, Any]) -> None:
    """Gradients are given to those who asked beforehand, and in sums for one model once."""
    method, summed = order.settings.get("method"), "group" in order.settings
    if known.get("gradients") != method and desk.books.lasting:
        raise InputError("method", "this client consented to nothing of the kind", value=method)
    if method == NEWTON:
        desk.check_curvature(summed)
    again = [n for n, mark in known.get("orders", {}).items() if mark == _order_mark(order)]
    if summed and set(again) - {str(order.number)}:
        # two sums at one head, one of them without somebody, would tell its gradient
        raise InputError("order", "this client has answered for this model", value=order.number)


def _done_from_another_model(number: int) -> InputError:
    return InputError("order", "this client has done this round, from another model", value=number)


# ---- work of those who leave


def take_leave(desk: Desk, order: PartingOrder, message: Message, go_on: GoOn) -> Message:
    """Do what was consented to, one piece of work per round, and sign it after all modifiers."""
    mark = _check_parting(desk, order)
    if "aside" in message.content:
        del message.content["aside"]
    reply = go_on()
    if reply.has_error() or "arrays" not in reply.content:
        return reply
    desk.books.about(order.request).setdefault("partings", {})[str(order.number)] = mark
    desk.books.save()
    receipt = desk.sign(
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


def _check_parting(desk: Desk, order: PartingOrder) -> str:
    """Those who leave work for what they consented to, and for a round once; return what tells it from other orders."""
    desk.books.policy.check_parting(order.method)
    known = desk.books.about(order.request)
    if known.get("parting") != order.method and desk.books.lasting:
        raise InputError("method", "this client consented to nothing of the kind", value=order.method)
    desk.check_unsettled(order.request)
    desk.check_rounds(order.number)
    aside = "" if order.aside is None else digest(order.aside)
    mark = fingerprint([digest(order.model), aside, order.method, order.seed, order.radius])
    if known.get("partings", {}).get(str(order.number), mark) != mark:
        raise _done_from_another_model(order.number)
    return mark
