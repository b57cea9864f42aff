"""The client's side: handlers that an operator adds to the ``ClientApp`` that is there already.

    app = ClientApp()                     # with its own @app.train(), as before
    add_mechanism(app, MyParticipant)     # MyParticipant(context) knows the client's data and model

Raw data stays where it is: what leaves is the mean of random features, a share between 0 and 1, trained
weights and measures.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

import stackfu as sf
from stackfu.errors import InputError
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.offer import Offer
from stackfu_integration.flower.privacy import add_noise, gaussian_deviation
from stackfu_integration.flower.wire.messages import (
    EMBED,
    MEASURE,
    RESPOND,
    ROLL,
    SPREAD,
    UNLEARN,
    EmbeddingAnswer,
    EmbeddingQuestion,
    MeasureAnswer,
    MeasureQuestion,
    OfferQuestion,
    RollAnswer,
    ShareAnswer,
    SpreadAnswer,
    SpreadQuestion,
    TrainingAnswer,
    TrainingOrder,
)
from stackfu_integration.flower.wire.records import read_vector, settings_in, vectors

__all__ = ["Participant", "add_mechanism"]

_SPREAD_SAMPLES = 1000

_Question = TypeVar("_Question")


class Participant(ABC):
    """What the mechanism needs to know of one client; built from the node's context for every message.

    ``noise_key`` is a secret of the client: with it, whoever asks twice for one release gets the same noise.
    """

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

        ``config`` holds ``server-round`` (from 1), ``seed`` and ``request``. The share must be the same
        samples in every round of a request.
        """

    def measure(self, arrays: ArrayRecord) -> dict[str, float]:
        """Return measures of a model on the client's own data, e.g. loss, accuracy, membership attack."""
        return {}

    def decide(self, offer: Offer) -> float:
        """Return the share of its data that the client takes part with: its own choice."""
        return offer.best_response()

    def paid(self, amount: float, config: ConfigRecord) -> None:
        """Take note of a payment; the same request may be told twice, and is paid once."""
        _ = amount, config


def add_mechanism(app: ClientApp, load: Callable[[Context], Participant]) -> ClientApp:
    """Register the mechanism's handlers with a client app and return it."""

    def action(message_type: str) -> str:
        return message_type.split(".")[1]

    @app.query(action(ROLL))
    def roll(message: Message, context: Context) -> Message:
        return Message(RollAnswer(load(context).client).encode(), reply_to=message)

    @app.query(action(SPREAD))
    def spread(message: Message, context: Context) -> Message:
        participant, asked = load(context), _question(message, SpreadQuestion.decode)
        points = participant.samples(asked.model)
        if len(points) > _SPREAD_SAMPLES:
            points = points[np.random.default_rng(0).choice(len(points), _SPREAD_SAMPLES, replace=False)]
        value = float(sf.median_bandwidth([points])) if len(points) > 1 else 0.0
        return Message(SpreadAnswer(value**2, participant.size).encode(), reply_to=message)

    @app.query(action(EMBED))
    def embed(message: Message, context: Context) -> Message:
        participant, asked = load(context), _question(message, EmbeddingQuestion.decode)
        points = participant.samples(asked.model)
        mean = sf.client_features(points, asked.bandwidth, asked.features, asked.seed)
        deviation = 0.0
        if asked.epsilon is not None and asked.delta is not None:
            deviation = gaussian_deviation(asked.epsilon, asked.delta, participant.size)
            release = (
                asked.request,
                asked.bandwidth,
                asked.features,
                asked.seed,
                asked.epsilon,
                asked.delta,
                digest(asked.model),
            )
            mean = add_noise(mean, deviation, participant.noise_key, *release)
        context.state[_memory(asked.request)] = vectors(mean=mean)
        return Message(EmbeddingAnswer(mean, participant.size, deviation).encode(), reply_to=message)

    @app.query(action(RESPOND))
    def respond(message: Message, context: Context) -> Message:
        asked = _question(message, OfferQuestion.decode)
        sent = context.state.get(_memory(asked.request))
        if isinstance(sent, ArrayRecord) and not np.array_equal(read_vector(sent, "mean"), asked.offer.own):
            raise InputError("own", "the server did not repeat the embedding that this client sent")
        return Message(ShareAnswer(float(load(context).decide(asked.offer))).encode(), reply_to=message)

    @app.train(action(UNLEARN))
    def unlearn(message: Message, context: Context) -> Message:
        order = _question(message, TrainingOrder.decode)
        model, used = load(context).train(order.model, order.share, order.settings)
        return Message(TrainingAnswer(model, used, order.number).encode(), reply_to=message)

    @app.evaluate(action(MEASURE))
    def measure(message: Message, context: Context) -> Message:
        participant, asked = load(context), _question(message, MeasureQuestion.decode)
        if asked.amount is not None:
            participant.paid(asked.amount, settings_in(message.content))
        models = {"before": asked.before, "after": asked.after}
        found = {
            f"{which}.{name}": value
            for which, model in models.items()
            for name, value in participant.measure(model).items()
        }
        return Message(MeasureAnswer(found).encode(), reply_to=message)

    return app


def _memory(request: str) -> str:
    """Where a node's state keeps what its client sent for a request."""
    return f"stackfu-{request}"


def _question(message: Message, decode: Callable[[RecordDict], _Question]) -> _Question:
    try:
        return decode(message.content)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(message.metadata.message_type, f"the message is incomplete ({error})") from error
