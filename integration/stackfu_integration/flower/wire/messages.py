"""What server and clients say to each other.

============================  ===========================================  =====================================
message                       server sends                                 client replies
============================  ===========================================  =====================================
``query.stackfu_roll``        a number drawn for the occasion              its client number, signed
``query.stackfu_spread``      the model, privacy                           median distance, with noise
``query.stackfu_embed``       the model, bandwidth, D, seed, privacy       D numbers, its size, the noise's
                                                                           deviation; signed
``query.stackfu_respond``     price, public sum, its own embedding         the share it would bring; signed
``train.stackfu_unlearn``     the model, its share                         trained model, samples; signed
``train.stackfu_repeat``      the same once more                           the same
``train.stackfu_summed``      the model, its share, members of a sum       trained model behind masks, samples; signed
``query.stackfu_consent``     a method, to those who must be able to       that it will work for it; signed
``train.stackfu_part``        the model, and one to keep to                what it made of the model, samples; signed
``query.stackfu_gradient``    the model, its share                         gradient of its loss, samples; signed
``evaluate.stackfu_measure``  model before and after, its payment          measures; the payment acknowledged or
                                                                           disputed, signed
============================  ===========================================  =====================================

What is said around a secure sum is in :mod:`.sums`. Every question shows the signed head of the ledger among its
settings. Ordinary training uses Flower's own ``train`` message with ``arrays`` and ``config``.

Every class is one side of one message: ``encode`` makes Flower's records of it, ``decode`` reads them. What an
answer claims is read as it is; whether it makes sense is for the phase to judge that asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from stackfu_integration.flower.offer import Offer
from stackfu_integration.flower.receipts import Receipt
from stackfu_integration.flower.secure_sum import Keys
from stackfu_integration.flower.wire.records import (
    config,
    masked_record,
    metric,
    model_in,
    read_masked,
    read_vector,
    receipt_in,
    setting,
    settings_in,
    signed,
    vectors,
)
from stackfu_integration.flower.wire.sums import group_in, group_text

__all__ = [
    "CONSENT",
    "EMBED",
    "GRADIENT",
    "MEASURE",
    "PART",
    "REPEAT",
    "RESPOND",
    "ROLL",
    "SPREAD",
    "SUMMED",
    "TRAIN",
    "UNLEARN",
    "ConsentAnswer",
    "ConsentQuestion",
    "EmbeddingAnswer",
    "EmbeddingQuestion",
    "GradientAnswer",
    "GradientQuestion",
    "MeasureAnswer",
    "MeasureQuestion",
    "OfferQuestion",
    "PartingOrder",
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
REPEAT = "train.stackfu_repeat"
SUMMED = "train.stackfu_summed"
CONSENT = "query.stackfu_consent"
PART = "train.stackfu_part"
GRADIENT = "query.stackfu_gradient"
MEASURE = "evaluate.stackfu_measure"

_PLAIN_NAME, _MEASURES = re.compile(r"[A-Za-z0-9_-]{1,40}"), 20
_OFFER_NUMBERS = ("price", "cost", "alpha", "lam", "share", "total", "noise", "own_noise", "cap")


def _metrics(**entries: float | int) -> RecordDict:
    return RecordDict({"metrics": MetricRecord({k.replace("_", "-"): v for k, v in entries.items()})})


# ---- who is there


@dataclass(frozen=True)
class RollQuestion:
    """Which client are you? ``nonce`` is drawn for the occasion, so that an old answer is of no use."""

    message_type: ClassVar[str] = ROLL

    nonce: str = ""

    def encode(self) -> RecordDict:
        """One setting."""
        return RecordDict({"config": config(nonce=self.nonce)})

    @classmethod
    def decode(cls, content: RecordDict) -> RollQuestion:
        """Read the setting."""
        return cls(setting(settings_in(content), "nonce", str))


@dataclass(frozen=True)
class RollAnswer:
    """The client's number, if it is one."""

    client: float | int
    receipt: Receipt | None = None

    def encode(self) -> RecordDict:
        """One metric, signed."""
        return signed(_metrics(client=self.client), self.receipt)

    @classmethod
    def decode(cls, content: RecordDict) -> RollAnswer:
        """Read the metric."""
        return cls(metric(content, "client"), receipt_in(content))


# ---- embeddings


@dataclass(frozen=True)
class SpreadQuestion:
    """How far apart are your samples, seen by this model? ``epsilon`` asks for privacy."""

    message_type: ClassVar[str] = SPREAD

    model: ArrayRecord
    request: str
    epsilon: float | None = None

    def encode(self) -> RecordDict:
        """The model and the settings."""
        return RecordDict(
            {"arrays": self.model, "config": config(request=self.request, epsilon=self.epsilon)}
        )

    @classmethod
    def decode(cls, content: RecordDict) -> SpreadQuestion:
        """Read model and settings."""
        settings = settings_in(content)
        epsilon = setting(settings, "epsilon", float) if "epsilon" in settings else None
        return cls(model_in(content), setting(settings, "request", str), epsilon)


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
    """Send the mean of D random features; ``epsilon`` and ``delta`` ask for privacy noise.

    ``erase`` promises that the embedding is erased after settlement. With a ``group``, the members of a secure sum that made
    shares, the embedding times the client's size is sent, masked (:mod:`.secure_sum`).
    """

    message_type: ClassVar[str] = EMBED

    model: ArrayRecord
    request: str
    bandwidth: float
    features: int
    seed: int
    epsilon: float | None = None
    delta: float | None = None
    kernel: str = "rbf"
    erase: bool = False
    group: Mapping[int, Keys] = field(default_factory=dict)

    def encode(self) -> RecordDict:
        """The model and the settings; without noise, nothing about noise."""
        settings = config(
            request=self.request,
            bandwidth=self.bandwidth,
            features=self.features,
            seed=self.seed,
            epsilon=self.epsilon,
            delta=None if self.epsilon is None else self.delta,
            kernel=self.kernel,
            erase=self.erase,
        )
        if self.group:
            settings["group"] = group_text(self.group)
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
            kernel=setting(settings, "kernel", str),
            erase=bool(setting(settings, "erase", int)),
            group=group_in(settings) if "group" in settings else {},
        )


@dataclass(frozen=True, eq=False)
class EmbeddingAnswer:
    """A mean embedding, of how many samples, and the deviation of the noise in it; ``masked`` in a secure sum."""

    mean: NDArray[np.float64]
    size: float | int
    deviation: float
    receipt: Receipt | None = None
    masked: NDArray[np.uint64] | None = None

    def encode(self) -> RecordDict:
        """A vector and two metrics."""
        content = _metrics(size=self.size, deviation=self.deviation)
        content["arrays"] = vectors(mean=self.mean) if self.masked is None else masked_record(self.masked)
        return signed(content, self.receipt)

    @classmethod
    def decode(cls, content: RecordDict) -> EmbeddingAnswer:
        """Read vector and metrics."""
        arrays, masked = model_in(content), None
        if "masked" in arrays:
            mean, masked = np.empty(0), read_masked(arrays)
        else:
            mean = read_vector(arrays, "mean")
        size, deviation = metric(content, "size"), float(metric(content, "deviation"))
        return cls(mean, size, deviation, receipt_in(content), masked)


# ---- offers and responses


@dataclass(frozen=True)
class OfferQuestion:
    """Given this offer, the ``number``-th announcement in the ``attempt``-th set of offers, how much do you bring?

    The price is for ``rounds`` rounds, and what is paid is rounded down to ``decimals`` places, -1 for not at all.
    """

    message_type: ClassVar[str] = RESPOND

    request: str
    offer: Offer
    number: int = 0
    attempt: int = 0
    least_cost: float | None = (
        None  # where the server knows an interval, of which the offer quotes the upper end
    )
    rounds: int = 1
    decimals: int = -1

    def encode(self) -> RecordDict:
        """The numbers of the offer as settings, the public sum and the client's own embedding as vectors."""
        told = {name: getattr(self.offer, name) for name in _OFFER_NUMBERS}
        arrays = vectors(aggregate=self.offer.aggregate, own=self.offer.own)
        settings = config(
            request=self.request,
            number=self.number,
            attempt=self.attempt,
            least_cost=self.least_cost,
            rounds=self.rounds,
            decimals=self.decimals,
            **told,
        )
        return RecordDict({"config": settings, "arrays": arrays})

    @classmethod
    def decode(cls, content: RecordDict) -> OfferQuestion:
        """Read the offer."""
        settings, arrays = settings_in(content), model_in(content)
        told = {name: setting(settings, name.replace("_", "-"), float) for name in _OFFER_NUMBERS}
        offer = Offer(aggregate=read_vector(arrays, "aggregate"), own=read_vector(arrays, "own"), **told)
        request, number = setting(settings, "request", str), setting(settings, "number", int)
        least = setting(settings, "least-cost", float) if "least-cost" in settings else None
        counts = (setting(settings, name, int) for name in ("rounds", "decimals"))
        return cls(request, offer, number, setting(settings, "attempt", int), least, *counts)


@dataclass(frozen=True)
class ShareAnswer:
    """The share of its data that the client would bring."""

    share: float
    receipt: Receipt | None = None

    def encode(self) -> RecordDict:
        """One metric, signed."""
        return signed(_metrics(share=self.share), self.receipt)

    @classmethod
    def decode(cls, content: RecordDict) -> ShareAnswer:
        """Read the metric."""
        return cls(float(metric(content, "share")), receipt_in(content))


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
    receipt: Receipt | None = None

    def encode(self) -> RecordDict:
        """The model and its metrics."""
        round_number = {} if self.number is None else {"server_round": self.number}
        content = _metrics(num_examples=self.samples, **round_number)
        content["arrays"] = self.model
        return signed(content, self.receipt)

    @classmethod
    def decode(cls, content: RecordDict, *, numbered: bool = True) -> TrainingAnswer:
        """Read model and metrics, with the round's number where it must be there."""
        samples, model = metric(content, "num-examples"), model_in(content)
        number = metric(content, "server-round") if numbered else None
        for array in model.values():
            array.numpy()  # one that cannot be read is refused here, before anybody computes with it
        return cls(model, samples, number, receipt_in(content))


# ---- those who leave


@dataclass(frozen=True)
class ConsentQuestion:
    """Will you work for this method, which makes the model forget, before you go or, with gradients, as one that stays?"""

    message_type: ClassVar[str] = CONSENT

    request: str
    method: str

    def encode(self) -> RecordDict:
        """Two settings."""
        return RecordDict({"config": config(request=self.request, method=self.method)})

    @classmethod
    def decode(cls, content: RecordDict) -> ConsentQuestion:
        """Read the settings."""
        settings = settings_in(content)
        return cls(setting(settings, "request", str), setting(settings, "method", str))


@dataclass(frozen=True)
class ConsentAnswer:
    """The client will; one that will not says why instead."""

    receipt: Receipt | None = None

    def encode(self) -> RecordDict:
        """A metric, signed."""
        return signed(_metrics(consent=1), self.receipt)

    @classmethod
    def decode(cls, content: RecordDict) -> ConsentAnswer:
        """Read the metric, which has one value."""
        if metric(content, "consent") != 1:
            raise ValueError("consent is 1, or it is not given")
        return cls(receipt_in(content))


@dataclass(frozen=True)
class PartingOrder:
    """Work for ``method`` from this model, in round ``number`` (0: before the first).

    ``aside`` is what the method looks at besides: the model whose labels MoDe learns, or the one that ascent stays close to, within
    ``radius``.
    """

    message_type: ClassVar[str] = PART

    model: ArrayRecord
    request: str
    method: str
    number: int
    seed: int
    aside: ArrayRecord | None = None
    radius: float | None = None

    def encode(self) -> RecordDict:
        """One or two models, and the settings."""
        settings = config(
            request=self.request,
            method=self.method,
            server_round=self.number,
            seed=self.seed,
            radius=self.radius,
        )
        content = RecordDict({"arrays": self.model, "config": settings})
        if self.aside is not None:
            content["aside"] = self.aside
        return content

    @classmethod
    def decode(cls, content: RecordDict) -> PartingOrder:
        """Read models and settings."""
        settings = settings_in(content)
        return cls(
            model_in(content),
            setting(settings, "request", str),
            setting(settings, "method", str),
            setting(settings, "server-round", int),
            setting(settings, "seed", int),
            model_in(content, "aside") if "aside" in content else None,
            setting(settings, "radius", float) if "radius" in settings else None,
        )


# ---- measures


@dataclass(frozen=True)
class GradientQuestion:
    """What is the gradient of your losses at this model, summed over the samples of the agreed share?

    ``only`` names the arrays whose gradient it is, where it is not that of all.
    """

    message_type: ClassVar[str] = GRADIENT

    model: ArrayRecord
    request: str
    share: float
    samples: int
    seed: int
    only: tuple[str, ...] = ()

    def encode(self) -> RecordDict:
        """The model and the settings."""
        settings = config(request=self.request, share=self.share, samples=self.samples, seed=self.seed)
        if self.only:
            settings["only"] = ",".join(self.only)
        return RecordDict({"arrays": self.model, "config": settings})

    @classmethod
    def decode(cls, content: RecordDict) -> GradientQuestion:
        """Read model and settings."""
        settings = settings_in(content)
        return cls(
            model_in(content),
            setting(settings, "request", str),
            setting(settings, "share", float),
            setting(settings, "samples", int),
            setting(settings, "seed", int),
            tuple(setting(settings, "only", str).split(",")) if "only" in settings else (),
        )


@dataclass(frozen=True)
class GradientAnswer:
    """The trained numbers' gradient, in the order of the model, and of how many samples it is the sum."""

    gradient: NDArray[np.float64]
    samples: float | int
    receipt: Receipt | None = None

    def encode(self) -> RecordDict:
        """A vector and a metric, signed."""
        content = _metrics(samples=self.samples)
        content["arrays"] = vectors(gradient=self.gradient)
        return signed(content, self.receipt)

    @classmethod
    def decode(cls, content: RecordDict) -> GradientAnswer:
        """Read vector and metric."""
        gradient = read_vector(model_in(content), "gradient")
        return cls(gradient, metric(content, "samples"), receipt_in(content))


@dataclass(frozen=True)
class MeasureQuestion:
    """You were paid ``amount`` for ``passed`` of ``agreed`` rounds; look at the model before and after.

    ``decimals`` is to how many places the amount was rounded down, -1 for none.
    """

    message_type: ClassVar[str] = MEASURE

    before: ArrayRecord
    after: ArrayRecord
    request: str
    amount: float = 0.0
    passed: int = 0
    agreed: int = 0
    decimals: int = -1

    def encode(self) -> RecordDict:
        """Two models and the settings."""
        settings = config(
            request=self.request,
            amount=self.amount,
            passed=self.passed,
            agreed=self.agreed,
            decimals=self.decimals,
        )
        return RecordDict({"before": self.before, "after": self.after, "config": settings})

    @classmethod
    def decode(cls, content: RecordDict) -> MeasureQuestion:
        """Read models and settings."""
        settings = settings_in(content)
        counts = (setting(settings, name, int) for name in ("passed", "agreed", "decimals"))
        before, after = model_in(content, "before"), model_in(content, "after")
        return cls(
            before, after, setting(settings, "request", str), setting(settings, "amount", float), *counts
        )


@dataclass(frozen=True)
class MeasureAnswer:
    """What the client measured, named ``before.loss``, ``after.loss`` and so on."""

    measures: Mapping[str, float]
    receipt: Receipt | None = None

    def encode(self) -> RecordDict:
        """One metric per measure, and the payment, acknowledged or disputed."""
        content = RecordDict({"metrics": MetricRecord({k: float(v) for k, v in self.measures.items()})})
        return signed(content, self.receipt)

    @classmethod
    def decode(cls, content: RecordDict) -> MeasureAnswer:
        """Take some finite numbers about the two models, with names that are fit for a table, and nothing else."""
        found: dict[str, float] = {}
        for name, value in content.metric_records.get("metrics", MetricRecord()).items():
            which, _, what = name.partition(".")
            if which not in ("before", "after") or not _PLAIN_NAME.fullmatch(what) or len(found) == _MEASURES:
                continue
            if not isinstance(value, list) and isfinite(value):
                found[name] = float(value)
        return cls(found, receipt_in(content))
