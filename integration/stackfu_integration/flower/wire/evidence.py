"""Gradients at the unlearned model, for the bound on its distance."""

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
    read_hidden_or_plain,
    receipt_in,
    request_in,
    setting,
    settings_in,
    signed,
)
from stackfu_integration.flower.wire.sums import group_in, group_text

__all__ = ["GRADIENT", "GradientAnswer", "GradientQuestion"]

GRADIENT = "query.stackfu_gradient"


@dataclass(frozen=True)
class GradientQuestion:
    """Question for the gradient of a client's losses at a model, summed over the samples of the agreed share.

    ``only`` names the arrays of the gradient, unless it is that of all. With a ``group`` it is sent behind masks, for the
    sum ``number``.
    """

    message_type: ClassVar[str] = GRADIENT

    model: ArrayRecord
    request: str
    share: float
    samples: int
    seed: int
    only: tuple[str, ...] = ()
    group: Mapping[int, Keys] = field(default_factory=dict)
    number: int = 0

    def encode(self) -> RecordDict:
        """Return the model and the settings."""
        settings = config(request=self.request, share=self.share, samples=self.samples, seed=self.seed)
        if self.only:
            settings["only"] = ",".join(self.only)
        if self.group:
            settings["group"], settings["number"] = group_text(self.group), self.number
        return RecordDict({"arrays": self.model, "config": settings})

    @classmethod
    def decode(cls, content: RecordDict) -> GradientQuestion:
        """Read model and settings."""
        settings = settings_in(content)
        return cls(
            model_in(content),
            request_in(settings),
            setting(settings, "share", float),
            setting(settings, "samples", int),
            setting(settings, "seed", int),
            tuple(setting(settings, "only", str).split(",")) if "only" in settings else (),
            group_in(settings) if "group" in settings else {},
            setting(settings, "number", int) if "group" in settings else 0,
        )


@dataclass(frozen=True)
class GradientAnswer:
    """The trained numbers' gradient, in the order of the model, and of how many samples it is one; ``masked`` in a secure sum."""

    gradient: FloatArray
    samples: float | int
    receipt: Receipt | None = None
    masked: UIntArray | None = None

    def encode(self) -> RecordDict:
        """Return a vector and a metric, signed."""
        content = metrics(samples=self.samples)
        content["arrays"] = hidden_or_plain(self.masked, gradient=self.gradient)
        return signed(content, self.receipt)

    @classmethod
    def decode(cls, content: RecordDict) -> GradientAnswer:
        """Read vector and metric."""
        gradient, masked = read_hidden_or_plain(model_in(content), "gradient")
        return cls(gradient, metric(content, "samples"), receipt_in(content), masked)
