"""Offers, and what clients would bring for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flwr.app import RecordDict

from stackfu_integration.flower.offer import Offer
from stackfu_integration.flower.receipts import Receipt
from stackfu_integration.flower.wire.records import (
    config,
    metric,
    metrics,
    model_in,
    optional,
    read_vector,
    receipt_in,
    request_in,
    setting,
    settings_in,
    signed,
    vectors,
)

__all__ = ["RESPOND", "OfferQuestion", "ShareAnswer"]

RESPOND = "query.stackfu_respond"

_LONGEST_NAME, _LONGEST_LIST = 40, 10_000_000  # of a method; of all clients that leave
_OFFER_NUMBERS = ("price", "cost", "alpha", "lam", "share", "total", "bias", "cap")


@dataclass(frozen=True)
class OfferQuestion:
    """Given this offer, the ``number``-th announcement in the ``attempt``-th set of offers, how much do you bring?

    The price is for ``rounds`` rounds, and what is paid is rounded down to ``decimals`` places, -1 for not at all. ``removed`` are
    the clients that leave, none of which may work. ``unlearning`` is the method, ``seed`` the one from
    which every round draws, and ``summed`` states that updates are seen in secure sums alone.
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
    removed: tuple[int, ...] = ()
    unlearning: str = ""
    seed: int = 0
    summed: bool = False

    def encode(self) -> RecordDict:
        """Return the numbers of the offer as settings, the public sum and the client's own embedding as vectors."""
        told = {name: getattr(self.offer, name) for name in _OFFER_NUMBERS}
        arrays = vectors(aggregate=self.offer.aggregate, own=self.offer.own)
        settings = config(
            request=self.request,
            number=self.number,
            attempt=self.attempt,
            least_cost=self.least_cost,
            rounds=self.rounds,
            decimals=self.decimals,
            removed=",".join(str(client) for client in self.removed),
            unlearning=self.unlearning,
            seed=self.seed,
            summed=int(self.summed),
            **told,
        )
        return RecordDict({"config": settings, "arrays": arrays})

    @classmethod
    def decode(cls, content: RecordDict) -> OfferQuestion:
        """Read the offer."""
        settings, arrays = settings_in(content), model_in(content)
        told = {name: setting(settings, name.replace("_", "-"), float) for name in _OFFER_NUMBERS}
        offer = Offer(aggregate=read_vector(arrays, "aggregate"), own=read_vector(arrays, "own"), **told)
        request, number = request_in(settings), setting(settings, "number", int)
        least = optional(settings, "least-cost", float)
        return cls(
            request,
            offer,
            number,
            setting(settings, "attempt", int),
            least,
            setting(settings, "rounds", int),
            setting(settings, "decimals", int),
            tuple(
                int(client)
                for client in setting(settings, "removed", str, _LONGEST_LIST).split(",")
                if client
            ),
            setting(settings, "unlearning", str, _LONGEST_NAME),
            setting(settings, "seed", int),
            setting(settings, "summed", int) == 1,
        )


@dataclass(frozen=True)
class ShareAnswer:
    """The share of its data that the client would bring."""

    share: float
    receipt: Receipt | None = None

    def encode(self) -> RecordDict:
        """Return one metric, signed."""
        return signed(metrics(share=self.share), self.receipt)

    @classmethod
    def decode(cls, content: RecordDict) -> ShareAnswer:
        """Read the metric."""
        return cls(float(metric(content, "share")), receipt_in(content))
