"""What server and clients say to each other.

============================  ===========================================  =====================================
message                       server sends                                 client replies
============================  ===========================================  =====================================
``query.stackfu_roll``        nothing                                      its client number
``query.stackfu_spread``      the model                                    median squared distance in its data
``query.stackfu_embed``       the model, bandwidth, D, seed, privacy       D numbers, its size, the noise's
                                                                           deviation
``query.stackfu_respond``     price, public sum, its own embedding         the share it would take part with
``train.stackfu_unlearn``     the model, its share                         the trained model, samples used
``evaluate.stackfu_measure``  model before and after, its payment          measures on its own data
============================  ===========================================  =====================================

Ordinary training uses Flower's own ``train`` message with ``arrays`` and ``config``.

Every class is one side of one message: ``encode`` makes Flower's records of it, ``decode`` reads them. What an
answer claims is read as it is; whether it makes sense is for the phase to judge that asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from stackfu_integration.flower.offer import Offer
from stackfu_integration.flower.wire.records import (
    config,
    metric,
    model_in,
    read_vector,
    setting,
    settings_in,
    vectors,
)

__all__ = [
    "EMBED",
    "MEASURE",
    "RESPOND",
    "ROLL",
    "SPREAD",
    "TRAIN",
    "UNLEARN",
    "EmbeddingAnswer",
    "EmbeddingQuestion",
    "MeasureAnswer",
    "MeasureQuestion",
    "OfferQuestion",
    "RollAnswer",
    "RollQuestion",
    "ShareAnswer",
    "SpreadAnswer",
    "SpreadQuestion",
    "TrainingAnswer",
    "TrainingOrder",
]

ROLL = "query.stackfu_roll"
SPREAD = "query.stackfu_spread"
EMBED = "query.stackfu_embed"
RESPOND = "query.stackfu_respond"
TRAIN = "train"
UNLEARN = "train.stackfu_unlearn"
MEASURE = "evaluate.stackfu_measure"

_OFFER_NUMBERS = ("price", "cost", "alpha", "lam", "share", "total", "noise", "own_noise")


def _metrics(**entries: float | int) -> RecordDict:
    return RecordDict({"metrics": MetricRecord({k.replace("_", "-"): v for k, v in entries.items()})})


# ---- who is there


@dataclass(frozen=True)
class RollQuestion:
    """Which client are you?"""

    message_type: ClassVar[str] = ROLL

    def encode(self) -> RecordDict:
        """An empty message."""
        return RecordDict()


@dataclass(frozen=True)
class RollAnswer:
    """The client's number, if it is one."""

    client: float | int

    def encode(self) -> RecordDict:
        """One metric."""
        return _metrics(client=self.client)

    @classmethod
    def decode(cls, content: RecordDict) -> RollAnswer:
        """Read the metric."""
        return cls(metric(content, "client"))


# ---- embeddings


@dataclass(frozen=True)
class SpreadQuestion:
    """How far apart are your samples, seen by this model?"""

    message_type: ClassVar[str] = SPREAD

    model: ArrayRecord

    def encode(self) -> RecordDict:
        """The model."""
        return RecordDict({"arrays": self.model})

    @classmethod
    def decode(cls, content: RecordDict) -> SpreadQuestion:
        """Read the model."""
        return cls(model_in(content))


@dataclass(frozen=True)
class SpreadAnswer:
    """The median squared distance of so many samples."""

    squared: float
    size: float | int

    def encode(self) -> RecordDict:
        """Two metrics."""
        return _metrics(squared=self.squared, size=self.size)

    @classmethod
    def decode(cls, content: RecordDict) -> SpreadAnswer:
        """Read the metrics."""
        return cls(float(metric(content, "squared")), metric(content, "size"))


@dataclass(frozen=True)
class EmbeddingQuestion:
    """Send the mean of D random features; ``epsilon`` and ``delta`` ask for privacy noise."""

    message_type: ClassVar[str] = EMBED

    model: ArrayRecord
    request: str
    bandwidth: float
    features: int
    seed: int
    epsilon: float | None = None
    delta: float | None = None

    def encode(self) -> RecordDict:
        """The model and the settings; without noise, nothing about noise."""
        settings = config(
            request=self.request,
            bandwidth=self.bandwidth,
            features=self.features,
            seed=self.seed,
            epsilon=self.epsilon,
            delta=None if self.epsilon is None else self.delta,
        )
        return RecordDict({"arrays": self.model, "config": settings})

    @classmethod
    def decode(cls, content: RecordDict) -> EmbeddingQuestion:
        """Read model and settings."""
        settings = settings_in(content)
        private = "epsilon" in settings
        return cls(
            model_in(content),
            request=setting(settings, "request", str),
            bandwidth=setting(settings, "bandwidth", float),
            features=setting(settings, "features", int),
            seed=setting(settings, "seed", int),
            epsilon=setting(settings, "epsilon", float) if private else None,
            delta=setting(settings, "delta", float) if private else None,
        )


@dataclass(frozen=True, eq=False)
class EmbeddingAnswer:
    """A mean embedding, of how many samples, and the deviation of the noise in it."""

    mean: NDArray[np.float64]
    size: float | int
    deviation: float

    def encode(self) -> RecordDict:
        """A vector and two metrics."""
        content = _metrics(size=self.size, deviation=self.deviation)
        content["arrays"] = vectors(mean=self.mean)
        return content

    @classmethod
    def decode(cls, content: RecordDict) -> EmbeddingAnswer:
        """Read vector and metrics."""
        mean = read_vector(model_in(content), "mean")
        return cls(mean, metric(content, "size"), float(metric(content, "deviation")))


# ---- offers and responses


@dataclass(frozen=True)
class OfferQuestion:
    """Given this offer, how much do you take part?"""

    message_type: ClassVar[str] = RESPOND

    request: str
    offer: Offer

    def encode(self) -> RecordDict:
        """The numbers of the offer as settings, the public sum and the client's own embedding as vectors."""
        told = {name: getattr(self.offer, name) for name in _OFFER_NUMBERS}
        arrays = vectors(aggregate=self.offer.aggregate, own=self.offer.own)
        return RecordDict({"config": config(request=self.request, **told), "arrays": arrays})

    @classmethod
    def decode(cls, content: RecordDict) -> OfferQuestion:
        """Read the offer."""
        settings, arrays = settings_in(content), model_in(content)
        told = {name: setting(settings, name.replace("_", "-"), float) for name in _OFFER_NUMBERS}
        offer = Offer(aggregate=read_vector(arrays, "aggregate"), own=read_vector(arrays, "own"), **told)
        return cls(setting(settings, "request", str), offer)


@dataclass(frozen=True)
class ShareAnswer:
    """The share of its data that the client would bring."""

    share: float

    def encode(self) -> RecordDict:
        """One metric."""
        return _metrics(share=self.share)

    @classmethod
    def decode(cls, content: RecordDict) -> ShareAnswer:
        """Read the metric."""
        return cls(float(metric(content, "share")))


# ---- training and unlearning rounds


@dataclass(frozen=True)
class TrainingOrder:
    """Train round ``number`` from this model on a share of your data; ``settings`` are the run's own."""

    model: ArrayRecord
    share: float
    number: int
    settings: ConfigRecord = field(default_factory=ConfigRecord)

    def encode(self) -> RecordDict:
        """The model, and the settings with round and share among them."""
        own = ConfigRecord({**self.settings, "server-round": self.number, "share": self.share})
        return RecordDict({"arrays": self.model, "config": own})

    @classmethod
    def decode(cls, content: RecordDict) -> TrainingOrder:
        """Read model and settings; the settings keep round and share."""
        settings = settings_in(content)
        share, number = setting(settings, "share", float), setting(settings, "server-round", int)
        return cls(model_in(content), share, number, settings)


@dataclass(frozen=True)
class TrainingAnswer:
    """A trained model and the number of samples used.

    ``number`` names the round, so that a late answer is never taken for the answer to a later question;
    Flower's own ``train`` has no place for it.
    """

    model: ArrayRecord
    samples: float | int
    number: float | int | None = None

    def encode(self) -> RecordDict:
        """The model and its metrics."""
        round_number = {} if self.number is None else {"server_round": self.number}
        content = _metrics(num_examples=self.samples, **round_number)
        content["arrays"] = self.model
        return content

    @classmethod
    def decode(cls, content: RecordDict, *, numbered: bool = True) -> TrainingAnswer:
        """Read model and metrics, with the round's number where it must be there."""
        samples = metric(content, "num-examples")
        number = metric(content, "server-round") if numbered else None
        return cls(model_in(content), samples, number)


# ---- measures


@dataclass(frozen=True)
class MeasureQuestion:
    """You were paid ``amount`` (``None``: nothing was owed); look at the model before and after."""

    message_type: ClassVar[str] = MEASURE

    before: ArrayRecord
    after: ArrayRecord
    request: str
    amount: float | None = None

    def encode(self) -> RecordDict:
        """Two models and the settings."""
        settings = config(request=self.request, amount=self.amount)
        return RecordDict({"before": self.before, "after": self.after, "config": settings})

    @classmethod
    def decode(cls, content: RecordDict) -> MeasureQuestion:
        """Read models and settings."""
        settings = settings_in(content)
        amount = setting(settings, "amount", float) if "amount" in settings else None
        before, after = model_in(content, "before"), model_in(content, "after")
        return cls(before, after, setting(settings, "request", str), amount)


@dataclass(frozen=True)
class MeasureAnswer:
    """What the client measured, named ``before.loss``, ``after.loss`` and so on."""

    measures: Mapping[str, float]

    def encode(self) -> RecordDict:
        """One metric per measure."""
        return RecordDict({"metrics": MetricRecord({k: float(v) for k, v in self.measures.items()})})

    @classmethod
    def decode(cls, content: RecordDict) -> MeasureAnswer:
        """Take finite numbers about the two models and nothing else; nobody has to measure anything."""
        found: dict[str, float] = {}
        for name, value in content.metric_records.get("metrics", MetricRecord()).items():
            which, _, what = name.partition(".")
            if which in ("before", "after") and what and not isinstance(value, list) and isfinite(value):
                found[name] = float(value)
        return cls(found)
