"""Messages of methods with special needs: consent, and work of leaving clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flwr.app import ArrayRecord, RecordDict

from stackfu_integration.flower.receipts import Receipt
from stackfu_integration.flower.wire.records import (
    config,
    metric,
    metrics,
    model_in,
    optional,
    receipt_in,
    request_in,
    setting,
    settings_in,
    signed,
)

__all__ = ["CONSENT", "PART", "ConsentAnswer", "ConsentQuestion", "PartingOrder"]

CONSENT = "query.stackfu_consent"
PART = "train.stackfu_part"

_LONGEST_NAME = 40  # of a method


@dataclass(frozen=True)
class ConsentQuestion:
    """Will you work for this method, which makes the model forget, before you go or, with gradients, as one that stays?

    ``summed``: of gradients only sums are to be seen.
    """

    message_type: ClassVar[str] = CONSENT

    request: str
    method: str
    summed: bool = False

    def encode(self) -> RecordDict:
        """Return the settings."""
        hidden = {"summed": 1} if self.summed else {}
        return RecordDict({"config": config(request=self.request, method=self.method, **hidden)})

    @classmethod
    def decode(cls, content: RecordDict) -> ConsentQuestion:
        """Read the settings."""
        settings = settings_in(content)
        summed = optional(settings, "summed", int) == 1
        return cls(request_in(settings), setting(settings, "method", str, _LONGEST_NAME), summed)


@dataclass(frozen=True)
class ConsentAnswer:
    """The client will; one that will not says why instead."""

    receipt: Receipt | None = None

    def encode(self) -> RecordDict:
        """Return a metric, signed."""
        return signed(metrics(consent=1), self.receipt)

    @classmethod
    def decode(cls, content: RecordDict) -> ConsentAnswer:
        """Read the metric, which has one value."""
        if metric(content, "consent") != 1:
            raise ValueError("consent is 1, or it is not given")
        return cls(receipt_in(content))


@dataclass(frozen=True)
class PartingOrder:
    """Work for ``method`` from this model, in round ``number`` (0: before the first).

    ``aside`` is a second model: the one with the labels that MoDe learns, or the one that ascent stays close to, within
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
        """Return one or two models, and the settings."""
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
            request_in(settings),
            setting(settings, "method", str, _LONGEST_NAME),
            setting(settings, "server-round", int),
            setting(settings, "seed", int),
            model_in(content, "aside") if "aside" in content else None,
            optional(settings, "radius", float),
        )
