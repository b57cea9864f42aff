"""The client's side: handlers that an operator adds to the ``ClientApp`` that is there already.

    app = ClientApp()                     # with its own @app.train(), as before
    add_mechanism(app, MyParticipant)     # MyParticipant(context) knows the client's data and model

Raw data stays where it is: what leaves is the mean of random features, a share between 0 and 1, trained
weights and measures.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

import stackfu as sf
from stackfu.errors import InputError
from stackfu_integration.flower.models import digest
from stackfu_integration.flower.privacy import add_noise, gaussian_deviation
from stackfu_integration.flower.protocol import (
    EMBED,
    MEASURE,
    RESPOND,
    ROLL,
    SPREAD,
    UNLEARN,
    numbers,
    read_numbers,
    setting,
)
from stackfu_integration.flower.response import Offer

__all__ = ["Participant", "add_mechanism"]

_SPREAD_SAMPLES = 1000


class Participant(ABC):
    """What the mechanism needs to know of one client; built from the node's context for every message.

    ``noise_key`` is a secret of the client. With it, being asked twice for one release gives the same noise
    twice.
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
        return _reply(message, MetricRecord({"client": load(context).client}))

    @app.query(action(SPREAD))
    def spread(message: Message, context: Context) -> Message:
        points = load(context).samples(_arrays(message))
        if len(points) > _SPREAD_SAMPLES:
            points = points[np.random.default_rng(0).choice(len(points), _SPREAD_SAMPLES, replace=False)]
        value = float(sf.median_bandwidth([points])) if len(points) > 1 else 0.0
        return _reply(message, MetricRecord({"squared": value**2, "size": load(context).size}))

    @app.query(action(EMBED))
    def embed(message: Message, context: Context) -> Message:
        participant, settings = load(context), _config(message)
        request, features = setting(settings, "request", str), setting(settings, "features", int)
        bandwidth, seed = setting(settings, "bandwidth", float), setting(settings, "seed", int)
        mean = sf.client_features(participant.samples(_arrays(message)), bandwidth, features, seed)
        deviation = 0.0
        if "epsilon" in settings:
            epsilon, delta = setting(settings, "epsilon", float), setting(settings, "delta", float)
            deviation = gaussian_deviation(epsilon, delta, participant.size)
            asked = (request, bandwidth, features, seed, epsilon, delta, digest(_arrays(message)))
            mean = add_noise(mean, deviation, participant.noise_key, *asked)
        context.state[f"stackfu-{request}"] = numbers(mean=mean)
        metrics = MetricRecord({"size": participant.size, "deviation": deviation})
        return _reply(message, metrics, arrays=numbers(mean=mean))

    @app.query(action(RESPOND))
    def respond(message: Message, context: Context) -> Message:
        settings, vectors = _config(message), message.content["arrays"]
        if not isinstance(vectors, ArrayRecord):
            raise InputError("arrays", "must hold the public sum and the client's embedding")
        own = read_numbers(vectors, "own")
        sent = context.state.get(f"stackfu-{setting(settings, 'request', str)}")
        if isinstance(sent, ArrayRecord) and not np.array_equal(read_numbers(sent, "mean"), own):
            raise InputError("own", "the server did not repeat the embedding that this client sent")
        terms = ("price", "cost", "alpha", "lam", "share", "total", "noise", "own-noise")
        values = {name.replace("-", "_"): setting(settings, name, float) for name in terms}
        offer = Offer(aggregate=read_numbers(vectors, "aggregate"), own=own, **values)
        return _reply(message, MetricRecord({"share": float(load(context).decide(offer))}))

    @app.train(action(UNLEARN))
    def unlearn(message: Message, context: Context) -> Message:
        settings = _config(message)
        share = setting(settings, "share", float)
        arrays, used = load(context).train(_arrays(message), share, settings)
        # the metrics name the round, so that a late answer is never taken for the answer to a later question
        number = setting(settings, "server-round", int)
        metrics = MetricRecord({"num-examples": used, "server-round": number})
        return _reply(message, metrics, arrays=arrays)

    @app.evaluate(action(MEASURE))
    def measure(message: Message, context: Context) -> Message:
        participant, settings = load(context), _config(message)
        values: dict[str, int | float | list[int] | list[float]] = {}
        if "amount" in settings:
            participant.paid(setting(settings, "amount", float), settings)
        for which in ("before", "after"):
            for name, value in participant.measure(_arrays(message, which)).items():
                values[f"{which}.{name}"] = float(value)
        return _reply(message, MetricRecord(values))

    return app


def _arrays(message: Message, name: str = "arrays") -> ArrayRecord:
    record = message.content[name]
    if not isinstance(record, ArrayRecord):
        raise InputError(name, "must hold a model")
    return record


def _config(message: Message) -> ConfigRecord:
    record = message.content["config"]
    if not isinstance(record, ConfigRecord):
        raise InputError("config", "must hold settings")
    return record


def _reply(message: Message, metrics: MetricRecord, arrays: ArrayRecord | None = None) -> Message:
    content = RecordDict({"metrics": metrics})
    if arrays is not None:
        content["arrays"] = arrays
    return Message(content, reply_to=message)
