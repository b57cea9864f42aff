"""The mechanism's handlers in a ``ClientApp``: which message goes where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from stackfu_integration.flower.client.answers import ANSWERS
from stackfu_integration.flower.client.desk import Desk, question_in
from stackfu_integration.flower.client.orders import GoOn, hand_over, only_once_more, take_leave
from stackfu_integration.flower.client.participant import Participant, round_of
from stackfu_integration.flower.wire import (
    MEASURE,
    PART,
    REPEAT,
    SUMMED,
    UNLEARN,
    PartingOrder,
    TrainingAnswer,
    TrainingOrder,
)

__all__ = ["add_mechanism", "training_app"]


def training_app(load: Callable[[Context], Participant]) -> ClientApp:
    """Return a client app with ordinary training on all data, and nothing else."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model, used = load(context).train(message.content["arrays"], 1.0, message.content["config"])
        return Message(TrainingAnswer(model, used).encode(), reply_to=message)

    return app


def add_mechanism(
    app: ClientApp, load: Callable[[Context], Participant], mods: Sequence[Any] = ()
) -> ClientApp:
    """Register the mechanism's handlers with a client app and return it.

    ``mods`` are Flower's modifiers for rounds of unlearning, such as clipping and local differential privacy; what is
    signed is what they let through.
    """
    for kind, decode, answer in ANSWERS:
        register = app.evaluate if kind == MEASURE else app.query
        register(_action(kind))(_answering(load, decode, answer))

    def work(message: Message, context: Context) -> Message:
        order = question_in(message, TrainingOrder.decode)
        model, used = round_of(load(context), order.model, order.share, order.settings)
        return Message(TrainingAnswer(model, used, order.number).encode(), reply_to=message)

    for kind, check in ((UNLEARN, hand_over), (SUMMED, hand_over), (REPEAT, only_once_more)):
        app.train(_action(kind), mods=[_around(load, TrainingOrder.decode, check), *mods])(work)

    parting: list[PartingOrder] = []  # the one that is being carried out: modifiers are shown one model only

    def leave(desk: Desk, order: PartingOrder, message: Message, go_on: GoOn) -> Message:
        parting[:] = [order]
        return take_leave(desk, order, message, go_on)

    def part(message: Message, context: Context) -> Message:
        (order,) = parting
        model, used = load(context).part(order)
        return Message(TrainingAnswer(model, used, order.number).encode(), reply_to=message)

    app.train(_action(PART), mods=[_around(load, PartingOrder.decode, leave), *mods])(part)
    return app


def _action(message_type: str) -> str:
    return message_type.split(".")[1]


def _answering(
    load: Callable[[Context], Participant],
    decode: Callable[[RecordDict], Any],
    answer: Callable[[Desk, Any], Any],
) -> Callable[[Message, Context], Message]:
    """A handler that answers a question."""

    def handle(message: Message, context: Context) -> Message:
        desk = Desk(message, context, load)
        return Message(answer(desk, question_in(message, decode)).encode(), reply_to=message)

    return handle


def _around(
    load: Callable[[Context], Participant],
    decode: Callable[[RecordDict], Any],
    check: Callable[[Desk, Any, Message, GoOn], Message],
) -> Callable[[Message, Context, Any], Message]:
    """A modifier that sees an order before all others, and what is answered after them."""

    def modify(message: Message, context: Context, call_next: Any) -> Message:
        desk = Desk(message, context, load)
        return check(desk, question_in(message, decode), message, lambda: call_next(message, context))

    return modify
