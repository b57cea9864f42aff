"""The client's side: handlers that an operator adds to the ``ClientApp`` that is there already.

    app = ClientApp()                     # with its own @app.train(), as before
    add_mechanism(app, MyParticipant)     # MyParticipant(context) knows the client's data and model

Raw data stays where it is: what leaves is the mean of random features, with noise, a share between 0 and 1, trained
weights and measures, as far as the client's policy allows it. The client keeps books of its own
(:mod:`~stackfu_integration.flower.books`), checks what the server says against them, and signs what it says itself.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import ROUND_DOWN, Decimal
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

import stackfu as sf
from stackfu.errors import InputError
from stackfu_integration.flower.books import ClientBooks
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.convex import METHOD, descended
from stackfu_integration.flower.keys import fingerprint
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.offer import Offer
from stackfu_integration.flower.policy import Policy, PolicyError, Release
from stackfu_integration.flower.privacy import add_noise, gaussian_deviation, noise_generator, private_median
from stackfu_integration.flower.receipts import CONSENT as CONSENT_RECEIPT
from stackfu_integration.flower.receipts import (
    EMBEDDING,
    ENROLMENT,
    PARTING,
    PAYMENT,
    SHARE,
    WORK,
    fingerprint_of,
)
from stackfu_integration.flower.receipts import GRADIENT as GRADIENT_RECEIPT
from stackfu_integration.flower.secure_sum import EMBEDDING_BITS, MODEL_BITS, SumName
from stackfu_integration.flower.sum_member import SumMember
from stackfu_integration.flower.wire.messages import (
    CONSENT,
    EMBED,
    GRADIENT,
    MEASURE,
    PART,
    REPEAT,
    RESPOND,
    ROLL,
    SPREAD,
    SUMMED,
    UNLEARN,
    ConsentAnswer,
    ConsentQuestion,
    EmbeddingAnswer,
    EmbeddingQuestion,
    GradientAnswer,
    GradientQuestion,
    MeasureAnswer,
    MeasureQuestion,
    OfferQuestion,
    PartingOrder,
    RollAnswer,
    RollQuestion,
    ShareAnswer,
    SpreadAnswer,
    SpreadQuestion,
    TrainingAnswer,
    TrainingOrder,
)
from stackfu_integration.flower.wire.records import head_in, masked_record, setting, settings_in, signed
from stackfu_integration.flower.wire.sums import (
    KEYS,
    OPEN,
    SHARES,
    KeysQuestion,
    OpenQuestion,
    SharesQuestion,
    group_in,
)

__all__ = ["Participant", "add_mechanism", "round_of"]

_SPREAD_SAMPLES = 1000
_SHARE_MOVES = 0.02  # how far the agreed share may be from what the client last answered

_Question = TypeVar("_Question")


class Participant(ABC):
    """What the mechanism needs to know of one client; built from the node's context for every message.

    ``folder`` is where the client keeps its books: policy, key, state and receipts. Without one nothing is signed and
    nothing outlives the run. ``policy`` replaces the policy of the folder. ``cost`` is what full participation costs the
    client by its own reckoning; an offer that quotes another cost is refused. ``noise_key`` is a secret from which noise
    is drawn, by default one made of the client's key: with it, whoever asks twice gets the same noise.
    """

    folder: Path | None = None
    policy: Policy | None = None
    cost: float | None = None
    noise_key: bytes | None = None

    @property
    @abstractmethod
    def client(self) -> int:
        """The client's number, from 0."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of training samples."""

    @abstractmethod
    def samples(self, arrays: ArrayRecord) -> NDArray[np.float64]:
        """Return the (n, d) points that represent the data, e.g. the model's penultimate features."""

    @abstractmethod
    def train(self, arrays: ArrayRecord, share: float, config: ConfigRecord) -> tuple[ArrayRecord, int]:
        """Train one round on a share of the data; return the model and the number of samples used.

        ``config`` holds ``server-round`` (from 1), ``seed``, and in unlearning ``request`` and ``samples``: how many
        samples were agreed; one more or less is no difference. They must be the same in every round of a request, and
        everything random must come from the seed, so that the round can be repeated. Where only some arrays may change, ``only``
        names them, with commas; MoDe states a ``learning-rate``.
        """

    def part(self, order: PartingOrder) -> tuple[ArrayRecord, int]:
        """Work for the method that makes the model forget this client, before it goes; return a model and the samples used.

        Asked only if the client's policy says that it does. :mod:`.parting` does it for models of PyTorch.
        """
        raise InputError("method", "this client's app knows no work for those who leave", value=order.method)

    def measure(self, arrays: ArrayRecord) -> dict[str, float]:
        """Return measures of a model on the client's own data, e.g. loss, accuracy, membership attack."""
        return {}

    def gradient(
        self, arrays: ArrayRecord, share: float, config: ConfigRecord
    ) -> tuple[NDArray[np.float64], int]:
        """Return the gradient of the sum of losses over the samples that :meth:`train` would use, and their number.

        Only softmax heads need it, for the bound that ``certify_l2`` asks for and for rounds of convex heads; entries follow the
        model's arrays, of which ``only`` in ``config`` names those that are wanted where not all are. All layers behave as in use.
        """
        raise InputError("gradient", "this client computes none")

    def decide(self, offer: Offer) -> float:
        """Return the share of its data that the client takes part with: its own choice."""
        return offer.best_response()

    def paid(self, amount: float, config: ConfigRecord) -> None:
        """Take note of a payment; the same request may be told twice, and is paid once."""
        _ = amount, config


def round_of(
    participant: Participant, arrays: ArrayRecord, share: float, config: ConfigRecord
) -> tuple[ArrayRecord, int]:
    """One round of unlearning: a client trains, or for convex heads makes a step along its gradient."""
    if config.get("method") != METHOD:
        return participant.train(arrays, share, config)
    vector, used = participant.gradient(arrays, share, config)
    return descended(arrays, setting(config, "only", str).split(","), vector, used), used


class _Desk:
    """One message at one client: the participant, its books, and the head that the server shows."""

    def __init__(self, message: Message, context: Context, load: Callable[[Context], Participant]) -> None:
        self.participant = load(context)
        self.books = ClientBooks(self.participant.folder, context.state, self.participant.policy)
        self.head: Head | None = head_in(message.content)
        self.books.see(self.head)
        self.secret = self.participant.noise_key or self.books.noise_key()
        self.sums = SumMember(self.participant.client, self.secret, self.books)


def add_mechanism(
    app: ClientApp, load: Callable[[Context], Participant], mods: Sequence[Any] = ()
) -> ClientApp:
    """Register the mechanism's handlers with a client app and return it.

    ``mods`` are Flower's modifiers for rounds of unlearning, such as clipping and local differential privacy; what is
    signed is what they let through.
    """

    def action(message_type: str) -> str:
        return message_type.split(".")[1]

    @app.query(action(ROLL))
    def roll(message: Message, context: Context) -> Message:
        desk, asked = _Desk(message, context, load), _question(message, RollQuestion.decode)
        number = desk.participant.client
        receipt = desk.books.sign(ENROLMENT, desk.head, client=number, nonce=asked.nonce)
        return Message(RollAnswer(number, receipt).encode(), reply_to=message)

    @app.query(action(SPREAD))
    def spread(message: Message, context: Context) -> Message:
        desk, asked = _Desk(message, context, load), _question(message, SpreadQuestion.decode)
        points = desk.participant.samples(asked.model)
        if asked.epsilon is None:
            if not desk.books.policy.noiseless:
                raise PolicyError("this client says nothing of its distances without noise")
            if len(points) > _SPREAD_SAMPLES:
                points = points[np.random.default_rng(0).choice(len(points), _SPREAD_SAMPLES, replace=False)]
            value = float(sf.median_bandwidth([points])) if len(points) > 1 else 0.0
        else:
            name = f"bandwidth {asked.request} {asked.epsilon!r} {digest(asked.model)}"
            if asked.epsilon > desk.books.policy.epsilon:
                raise PolicyError(f"this client spends epsilon up to {desk.books.policy.epsilon:g} at once")
            desk.books.account(name, Release(epsilon=asked.epsilon))
            random = noise_generator(desk.secret, name)
            value = private_median(points, asked.epsilon, random) if len(points) > 1 else 0.0
        return Message(SpreadAnswer(value**2, desk.participant.size).encode(), reply_to=message)

    @app.query(action(KEYS))
    def keys(message: Message, context: Context) -> Message:
        desk, asked = _Desk(message, context, load), _question(message, KeysQuestion.decode)
        return Message(desk.sums.keys(asked.name, desk.head).encode(), reply_to=message)

    @app.query(action(SHARES))
    def shares(message: Message, context: Context) -> Message:
        desk, asked = _Desk(message, context, load), _question(message, SharesQuestion.decode)
        return Message(desk.sums.shares(asked).encode(), reply_to=message)

    @app.query(action(OPEN))
    def opened(message: Message, context: Context) -> Message:
        desk, asked = _Desk(message, context, load), _question(message, OpenQuestion.decode)
        return Message(desk.sums.opened(asked).encode(), reply_to=message)

    @app.query(action(EMBED))
    def embed(message: Message, context: Context) -> Message:
        desk = _Desk(message, context, load)
        answer = _embedding(desk, _question(message, EmbeddingQuestion.decode))
        return Message(answer.encode(), reply_to=message)

    @app.query(action(RESPOND))
    def respond(message: Message, context: Context) -> Message:
        desk = _Desk(message, context, load)
        answer = _response(desk, _question(message, OfferQuestion.decode))
        return Message(answer.encode(), reply_to=message)

    def hand_over(message: Message, context: Context, call_next: Any) -> Message:
        """Hide what leaves where only a sum is to be seen, and sign it, after all other modifiers."""
        desk, order = _Desk(message, context, load), _question(message, TrainingOrder.decode)
        summed = message.metadata.message_type == SUMMED
        if desk.books.policy.only_sums and not summed:
            raise PolicyError("this client shows its updates in sums only")
        _check_order(desk, order)
        reply: Message = call_next(message, context)
        if reply.has_error() or "arrays" not in reply.content:
            return reply
        request = setting(order.settings, "request", str)
        samples = reply.content["metrics"]["num-examples"]
        if summed:
            name, members = SumName(request, "round", order.number), group_in(order.settings)
            vector = samples * as_vector(reply.content["arrays"])
            hidden = desk.sums.masked(name, vector, MODEL_BITS, members)
            reply.content["arrays"] = masked_record(hidden)
        model = digest(reply.content["arrays"])
        known = desk.books.about(request)
        known.setdefault("delivered", {})[str(order.number)] = model
        known.setdefault("orders", {})[str(order.number)] = _order_mark(order)
        desk.books.save()
        receipt = desk.books.sign(
            WORK,
            desk.head,
            client=desk.participant.client,
            request=request,
            number=order.number,
            start=digest(order.model),
            model=model,
            samples=samples,
        )
        signed(reply.content, receipt)
        return reply

    def work(message: Message, context: Context) -> Message:
        order = _question(message, TrainingOrder.decode)
        model, used = round_of(load(context), order.model, order.share, order.settings)
        return Message(TrainingAnswer(model, used, order.number).encode(), reply_to=message)

    def only_once_more(message: Message, context: Context, call_next: Any) -> Message:
        """Repeat what was delivered, and nothing else: work that nobody agreed to is not done under this name."""
        desk, order = _Desk(message, context, load), _question(message, TrainingOrder.decode)
        request = setting(order.settings, "request", str)
        known = desk.books.about(request).get("orders", {})
        if known.get(str(order.number)) != _order_mark(order):
            raise InputError("order", "this client has not delivered this round", value=order.number)
        if desk.books.policy.only_sums:
            raise PolicyError("this client shows its updates in sums only")
        reply: Message = call_next(message, context)
        return reply

    app.train(action(UNLEARN), mods=[hand_over, *mods])(work)
    app.train(action(SUMMED), mods=[hand_over, *mods])(work)
    app.train(action(REPEAT), mods=[only_once_more, *mods])(work)

    @app.query(action(CONSENT))
    def consent(message: Message, context: Context) -> Message:
        desk, asked = _Desk(message, context, load), _question(message, ConsentQuestion.decode)
        if asked.method == METHOD:
            _check_gradients(desk)
        else:
            desk.books.policy.check_parting(asked.method)
            known = desk.books.about(asked.request)
            if "offer" in known:
                raise InputError(
                    "request", "this client was made an offer as one that stays", value=asked.request
                )
            known["parting"] = asked.method
            desk.books.save()
        facts = {"client": desk.participant.client, "request": asked.request, "method": asked.method}
        receipt = desk.books.sign(CONSENT_RECEIPT, desk.head, **facts)
        return Message(ConsentAnswer(receipt).encode(), reply_to=message)

    parting: list[PartingOrder] = []  # the one that is being carried out: modifiers are shown one model only

    def take_leave(message: Message, context: Context, call_next: Any) -> Message:
        """Do what was consented to, one piece of work per round, and sign it after all modifiers."""
        desk, order = _Desk(message, context, load), _question(message, PartingOrder.decode)
        mark = _check_parting(desk, order)
        if "aside" in message.content:
            del message.content["aside"]
        parting[:] = [order]
        reply: Message = call_next(message, context)
        if reply.has_error() or "arrays" not in reply.content:
            return reply
        desk.books.about(order.request).setdefault("partings", {})[str(order.number)] = mark
        desk.books.save()
        receipt = desk.books.sign(
            PARTING,
            desk.head,
            client=desk.participant.client,
            request=order.request,
            method=order.method,
            number=order.number,
            start=digest(order.model),
            model=digest(reply.content["arrays"]),
            samples=reply.content["metrics"]["num-examples"],
        )
        signed(reply.content, receipt)
        return reply

    def part(message: Message, context: Context) -> Message:
        (order,) = parting
        model, used = load(context).part(order)
        return Message(TrainingAnswer(model, used, order.number).encode(), reply_to=message)

    app.train(action(PART), mods=[take_leave, *mods])(part)

    @app.query(action(GRADIENT))
    def gradient(message: Message, context: Context) -> Message:
        desk, asked = _Desk(message, context, load), _question(message, GradientQuestion.decode)
        known = desk.books.about(asked.request)
        if known.get("share") != asked.share and desk.books.lasting:
            raise InputError("share", "this client worked with another one", value=asked.share)
        if known.setdefault("gradient of", digest(asked.model)) != digest(asked.model):
            raise InputError("model", "this client has told its gradient at another one", value=asked.request)
        desk.books.save()
        vector, used = desk.participant.gradient(asked.model, asked.share, settings_in(message.content))
        receipt = desk.books.sign(
            GRADIENT_RECEIPT,
            desk.head,
            client=desk.participant.client,
            request=asked.request,
            model=digest(asked.model),
            gradient=fingerprint_of(vector),
            samples=used,
        )
        return Message(GradientAnswer(vector, used, receipt).encode(), reply_to=message)

    @app.evaluate(action(MEASURE))
    def measure(message: Message, context: Context) -> Message:
        desk, asked = _Desk(message, context, load), _question(message, MeasureQuestion.decode)
        receipt = _acknowledgement(desk, asked)
        if asked.amount > 0.0:
            desk.participant.paid(asked.amount, settings_in(message.content))
        models = {"before": asked.before, "after": asked.after}
        found = {
            f"{which}.{name}": value
            for which, model in models.items()
            for name, value in desk.participant.measure(model).items()
        }
        return Message(MeasureAnswer(found, receipt).encode(), reply_to=message)

    return app


def _embedding(desk: _Desk, asked: EmbeddingQuestion) -> EmbeddingAnswer:
    """Release an embedding, as far as the policy allows it and the total is not spent."""
    participant, books = desk.participant, desk.books
    books.policy.check_embedding(
        epsilon=asked.epsilon,
        delta=asked.delta,
        features=asked.features,
        bandwidth=asked.bandwidth,
        kernel=asked.kernel,
        erase=asked.erase,
    )
    size, deviation = participant.size, 0.0
    # everything but the group: asked for again in another group, it is the same release
    what = (
        asked.request,
        asked.bandwidth,
        asked.features,
        asked.seed,
        asked.epsilon,
        asked.delta,
        asked.kernel,
        digest(asked.model),
    )
    points = participant.samples(asked.model)
    mean = sf.client_features(points, asked.bandwidth, asked.features, asked.seed)
    if asked.epsilon is not None and asked.delta is not None:
        deviation = gaussian_deviation(asked.epsilon, asked.delta, size)
        books.account(f"embedding {what!r}", Release(mu=2.0 / size / deviation))
        mean = add_noise(mean, deviation, desk.secret, *what)
    else:
        books.account(f"embedding {what!r}", Release(mu=math.inf))
    hidden = None
    if asked.group:
        hidden = desk.sums.masked(
            SumName(asked.request, "embeddings"), size * mean, EMBEDDING_BITS, asked.group
        )
    sent = fingerprint_of(mean if hidden is None else hidden)
    books.about(asked.request).update(embedding=sent, size=size)
    books.save()
    receipt = books.sign(
        EMBEDDING,
        desk.head,
        client=participant.client,
        request=asked.request,
        vector=sent,
        size=size,
        deviation=deviation,
        epsilon=asked.epsilon,
        delta=asked.delta,
    )
    return EmbeddingAnswer(mean, size, deviation, receipt, hidden)


def _response(desk: _Desk, asked: OfferQuestion) -> ShareAnswer:
    """Check what the server says of this client, decide, and sign."""
    participant, books, offer = desk.participant, desk.books, asked.offer
    known = books.about(asked.request)
    if "embedding" not in known and books.lasting:
        raise InputError("own", "this client sent no embedding for the request", value=asked.request)
    if "embedding" in known and known["embedding"] != fingerprint_of(offer.own):
        raise InputError("own", "the server did not repeat the embedding that this client sent")
    if participant.cost is not None:
        least = offer.cost if asked.least_cost is None else asked.least_cost
        if not least * (1 - 1e-9) - 1e-12 <= participant.cost <= offer.cost * (1 + 1e-9) + 1e-12:
            raise InputError("cost", f"this client's cost is {participant.cost:g}", value=offer.cost)
    terms = known.get("offer")
    if terms is not None and terms["cost"] != offer.cost and terms.get("attempt") == asked.attempt:
        raise InputError("cost", f"the server said {terms['cost']:g} before", value=offer.cost)
    if terms is not None and terms["attempt"] == asked.attempt and terms["price"] != offer.price:
        raise InputError("price", f"the server offered {terms['price']:g} before", value=offer.price)
    if terms is not None and terms["attempt"] == asked.attempt and terms.get("cap", offer.cap) != offer.cap:
        raise InputError("cap", f"the server said {terms['cap']:g} before", value=offer.cap)
    rules = {"rounds": asked.rounds, "decimals": asked.decimals}
    for name, stated in rules.items():
        if terms is not None and terms["attempt"] == asked.attempt and terms.get(name, stated) != stated:
            raise InputError(name, f"the server said {terms[name]} before", value=stated)
    if not 1 <= asked.rounds <= books.policy.train_rounds:
        raise PolicyError(f"this client works {books.policy.train_rounds} rounds and no more")
    if "parting" in known:
        raise InputError("request", "this client was asked to work as one that leaves", value=asked.request)
    if not (offer.price >= 0 and 0 < offer.alpha <= 1 and 0 <= offer.cap <= 1 and 0 <= offer.share <= 1):
        raise InputError("offer", "is none that can be meant", value=offer.price)
    own_view = offer if participant.cost is None else replace(offer, cost=participant.cost)
    share = float(participant.decide(own_view))
    known["offer"] = {
        "attempt": asked.attempt,
        "number": asked.number,
        "price": offer.price,
        "cost": offer.cost,
        "cap": offer.cap,
        "share": share,
        **rules,
    }
    books.save()
    receipt = None
    if math.isfinite(share):
        receipt = books.sign(
            SHARE,
            desk.head,
            client=participant.client,
            request=asked.request,
            attempt=asked.attempt,
            number=asked.number,
            price=offer.price,
            cap=offer.cap,
            cost=offer.cost,
            share=share,
            **rules,
        )
    return ShareAnswer(share, receipt)


def _check_order(desk: _Desk, order: TrainingOrder) -> None:
    """Work is done for what was agreed: the share that this client answered with, as many rounds as its policy allows."""
    request = setting(order.settings, "request", str)
    known = desk.books.about(request)
    offer = known.get("offer")
    if offer is None and desk.books.lasting:
        raise InputError("request", "this client agreed to nothing", value=request)
    if "paid" in known:
        raise InputError("request", "is settled, and this client does no more work for it", value=request)
    if offer is not None and abs(order.share - offer["share"]) > _SHARE_MOVES:
        raise InputError("share", f"this client agreed to {offer['share']:g}", value=order.share)
    earlier = known.get("orders", {}).get(str(order.number))
    if earlier is not None and earlier != _order_mark(order):
        raise InputError("order", "this client has done this round, from another model", value=order.number)
    if offer is not None and order.number > offer.get("rounds", order.number):
        raise InputError(
            "server-round", f"this client agreed to {offer['rounds']} rounds", value=order.number
        )
    if order.number > desk.books.policy.train_rounds:
        raise PolicyError(f"this client works {desk.books.policy.train_rounds} rounds and no more")
    if known.get("share") != order.share:
        known["share"] = order.share
        desk.books.save()


def _check_gradients(desk: _Desk) -> None:
    """Those who stay say beforehand whether they can work for a method of gradients."""
    if type(desk.participant).gradient is Participant.gradient:
        raise InputError("gradient", "this client's app gives none")
    if desk.books.policy.only_sums:
        raise PolicyError("this client shows its updates in sums only")


def _check_parting(desk: _Desk, order: PartingOrder) -> str:
    """Those who leave work for what they consented to, and for a round once; return what tells it from other orders."""
    desk.books.policy.check_parting(order.method)
    known = desk.books.about(order.request)
    if known.get("parting") != order.method and desk.books.lasting:
        raise InputError("method", "this client consented to nothing of the kind", value=order.method)
    if "paid" in known:
        raise InputError(
            "request", "is settled, and this client does no more work for it", value=order.request
        )
    if not 0 <= order.number <= desk.books.policy.train_rounds:
        raise PolicyError(f"this client works {desk.books.policy.train_rounds} rounds and no more")
    aside = "" if order.aside is None else digest(order.aside)
    mark = fingerprint([digest(order.model), aside, order.method, order.seed, order.radius])
    if known.get("partings", {}).get(str(order.number), mark) != mark:
        raise InputError("order", "this client has done this round, from another model", value=order.number)
    return mark


def _order_mark(order: TrainingOrder) -> str:
    """What makes two orders the same: the model that they start from, the share, the seed."""
    return fingerprint([digest(order.model), order.share, setting(order.settings, "seed", int)])


def as_vector(model: ArrayRecord) -> NDArray[np.float64]:
    """All numbers of a model, one array after the other, in double precision."""
    return np.concatenate([np.asarray(a.numpy(), dtype=np.float64).ravel() for a in model.values()])


def _acknowledgement(desk: _Desk, told: MeasureQuestion) -> Any:
    """Compare a payment with what the client's own books say it is owed, and sign the outcome."""
    known = desk.books.about(told.request)
    offer, delivered = known.get("offer"), len(known.get("delivered", {}))
    owed = 0.0
    if offer is not None:
        # by the rules that the offer stated, whatever is stated now
        rounds, decimals = offer.get("rounds", told.agreed), offer.get("decimals", told.decimals)
        owed = offer["price"] * known.get("share", 0.0) / max(rounds, 1) * told.passed
        if decimals >= 0:
            coin = Decimal(1).scaleb(-decimals)
            owed = float(Decimal(repr(owed)).quantize(coin, rounding=ROUND_DOWN))
    # whoever stood ready and was not asked in a round is paid for it all the same
    agreed = told.passed >= delivered and math.isclose(told.amount, owed, rel_tol=1e-9, abs_tol=1e-12)
    known["paid"] = {"amount": told.amount, "owed": owed, "passed": told.passed, "delivered": delivered}
    desk.books.save()
    return desk.books.sign(
        PAYMENT,
        desk.head,
        client=desk.participant.client,
        request=told.request,
        amount=told.amount,
        owed=owed,
        passed=told.passed,
        delivered=delivered,
        agreed=agreed,
    )


def _question(message: Message, decode: Callable[[RecordDict], _Question]) -> _Question:
    try:
        return decode(message.content)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(message.metadata.message_type, f"the message is incomplete ({error})") from error
