"""The mechanism's handlers in a ``ClientApp``: which message goes where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from stackfu_integration.flower.client.answers import ANSWERS
from stackfu_integration.flower.client.inbox import Inbox, mark_of, question_in
from stackfu_integration.flower.client.orders import (
    GoOn,
    Task,
    hand_over,
    only_once_more,
    take_leave,
    train_openly,
)
from stackfu_integration.flower.client.participant import Participant, round_of
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.wire import (
    EMBED,
    GRADIENT,
    MEASURE,
    PART,
    REPEAT,
    RESPOND,
    SPREAD,
    SUMMED,
    TRAIN,
    UNLEARN,
    PartingOrder,
    TrainingAnswer,
    TrainingOrder,
)

__all__ = ["add_mechanism", "training_app"]

#: Questions about the data, and offers: each is answered once, and the same question gets the stored reply.
_ONCE = (SPREAD, EMBED, RESPOND, GRADIENT, MEASURE)
#: Prefix of the names of the mechanism's own actions.
_OWN_ACTIONS = "stackfu_"


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
    signed is what they let through. The app's own training and evaluation, registered before or after, are shown to a server as
    far as the client's policy shows anything that is not a sum.
    """
    _guard_own_handlers(app, load)
    for kind, decode, answer in ANSWERS:
        register = app.evaluate if kind == MEASURE else app.query
        register(_action(kind))(_answering(load, decode, answer, once=kind in _ONCE))

    task = Task()  # of the order that is being carried out: modifiers see the server's settings, the work those that are owed

    def work(message: Message, context: Context) -> Message:
        order = question_in(message, TrainingOrder.decode)
        settings = ConfigRecord({**order.settings, **task.owed})
        model, used = round_of(load(context), order.model, order.share, settings)
        task.made = digest(model)
        return Message(TrainingAnswer(model, used, order.number).encode(), reply_to=message)

    for kind, check, others in (
        (UNLEARN, hand_over, mods),
        (SUMMED, hand_over, mods),
        (REPEAT, only_once_more, ()),
    ):
        around = _around(load, TrainingOrder.decode, partial(check, task=task))
        app.train(_action(kind), mods=[around, *others])(work)

    parting: list[PartingOrder] = []  # the one that is being carried out: modifiers are shown one model only

    def leave(inbox: Inbox, order: PartingOrder, message: Message, go_on: GoOn) -> Message:
        parting[:] = [order]
        return take_leave(inbox, order, message, go_on)

    def part(message: Message, context: Context) -> Message:
        (order,) = parting
        model, used = load(context).part(order)
        return Message(TrainingAnswer(model, used, order.number).encode(), reply_to=message)

    app.train(_action(PART), mods=[_around(load, PartingOrder.decode, leave), *mods])(part)
    return app


def _guard_own_handlers(app: ClientApp, load: Callable[[Context], Participant]) -> None:
    """Put the client's policy before the app's own training and evaluation, those that are registered later included."""

    def guarded(
        kind: str, handler: Callable[[Message, Context], Message]
    ) -> Callable[[Message, Context], Message]:
        def handle(message: Message, context: Context) -> Message:
            inbox = Inbox(message, context, load)
            if message.metadata.message_type in (TRAIN, f"{TRAIN}.default"):
                return train_openly(inbox, message, lambda: handler(message, context))
            inbox.check_sums("updates" if kind == "train" else "measures", summed=False)
            if kind == "train":
                inbox.records.policy.check_samples(inbox.participant.size, summed=False)
            return handler(message, context)

        return handle

    own: dict[str, Any] = app._registered_funcs
    for name in [name for name in own if name.partition(".")[0] in ("train", "evaluate")]:
        own[name] = guarded(name.partition(".")[0], own[name])
    for kind in ("train", "evaluate"):
        register = getattr(app, kind)

        def registering(
            action: str = "default",
            *,
            mods: list[Any] | None = None,
            kind: str = kind,
            register: Any = register,
        ) -> Callable[[Any], Any]:
            def decorate(handler: Any) -> Any:
                register(action, mods=mods)(handler)
                if not action.startswith(_OWN_ACTIONS):
                    own[f"{kind}.{action}"] = guarded(kind, own[f"{kind}.{action}"])
                return handler

            return decorate

        setattr(app, kind, registering)


def _action(message_type: str) -> str:
    return message_type.split(".")[1]


def _answering(
    load: Callable[[Context], Participant],
    decode: Callable[[RecordDict], Any],
    answer: Callable[[Inbox, Any], Any],
    once: bool,
) -> Callable[[Message, Context], Message]:
    """Return a handler that answers a question; ``once`` stores the reply and repeats it when the same question comes again."""

    def handle(message: Message, context: Context) -> Message:
        inbox = Inbox(message, context, load)
        question = question_in(message, decode)

        def answered() -> Message:
            return Message(answer(inbox, question).encode(), reply_to=message)

        if not once:
            return answered()
        slot = f"{message.metadata.message_type} {question.request}"
        return inbox.once(slot, mark_of(message.content), message, answered)

    return handle


def _around(
    load: Callable[[Context], Participant],
    decode: Callable[[RecordDict], Any],
    check: Callable[[Inbox, Any, Message, GoOn], Message],
) -> Callable[[Message, Context, Any], Message]:
    """Return a modifier that sees an order before all others, and what is answered after them."""

    def modify(message: Message, context: Context, call_next: Any) -> Message:
        inbox = Inbox(message, context, load)
        return check(inbox, question_in(message, decode), message, lambda: call_next(message, context))

    return modify
