"""Distances inside a client's data, and embeddings of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from flwr.app import ArrayRecord, RecordDict

from stackfu_integration.arrays import FloatArray, UIntArray
from stackfu_integration.flower.receipts import Receipt
from stackfu_integration.flower.secure_sum import Keys
from stackfu_integration.flower.wire.records import (
    config,
    hidden_or_plain,
    metric,
    metrics,
    model_in,
    optional,
    read_hidden_or_plain,
    receipt_in,
    request_in,
    setting,
    settings_in,
    signed,
)
from stackfu_integration.flower.wire.sums import group_in, group_text

__all__ = ["EMBED", "SPREAD", "EmbeddingAnswer", "EmbeddingQuestion", "SpreadAnswer", "SpreadQuestion"]

SPREAD = "query.stackfu_spread"
EMBED = "query.stackfu_embed"


@dataclass(frozen=True)
class SpreadQuestion:
    """Question for the distances between a client's samples under a model. ``epsilon`` asks for privacy."""

    message_type: ClassVar[str] = SPREAD

    model: ArrayRecord
    request: str
    epsilon: float | None = None

    def encode(self) -> RecordDict:
        """Return the model and the settings."""
        return RecordDict(
            {"arrays": self.model, "config": config(request=self.request, epsilon=self.epsilon)}
        )

    @classmethod
    def decode(cls, content: RecordDict) -> SpreadQuestion:
        """Read model and settings."""
        settings = settings_in(content)
        request, epsilon = request_in(settings), optional(settings, "epsilon", float)
        return cls(model_in(content), request, epsilon)


@dataclass(frozen=True)
class SpreadAnswer:
    """The median squared distance of so many samples."""

    squared: float
    size: float | int

    def encode(self) -> RecordDict:
        """Return two metrics."""
        return metrics(squared=self.squared, size=self.size)

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
        """Return the model and the settings; without noise, nothing about noise."""
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
            request=request_in(settings),
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

    mean: FloatArray
    size: float | int
    deviation: float
    receipt: Receipt | None = None
    masked: UIntArray | None = None

    def encode(self) -> RecordDict:
        """Return a vector and two metrics."""
        content = metrics(size=self.size, deviation=self.deviation)
        content["arrays"] = hidden_or_plain(self.masked, mean=self.mean)
        return signed(content, self.receipt)

    @classmethod
    def decode(cls, content: RecordDict) -> EmbeddingAnswer:
        """Read vector and metrics."""
        mean, masked = read_hidden_or_plain(model_in(content), "mean")
        size, deviation = metric(content, "size"), float(metric(content, "deviation"))
        return cls(mean, size, deviation, receipt_in(content), masked)
