"""Rounds of training and of unlearning."""

from __future__ import annotations

from dataclasses import dataclass, field

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from stackfu_integration.flower.receipts import Receipt
from stackfu_integration.flower.wire.records import (
    metric,
    metrics,
    model_in,
    receipt_in,
    setting,
    settings_in,
    signed,
)
from stackfu_integration.flower.wire.sums import LONGEST

__all__ = ["REPEAT", "SUMMED", "TRAIN", "UNLEARN", "TrainingAnswer", "TrainingOrder"]

TRAIN = "train"
UNLEARN = "train.stackfu_unlearn"
REPEAT = "train.stackfu_repeat"
SUMMED = "train.stackfu_summed"


@dataclass(frozen=True)
class TrainingOrder:
    """Train round ``number`` from this model on a share of your data; ``settings`` are the run's own."""

    model: ArrayRecord
    share: float
    number: int
    settings: ConfigRecord = field(default_factory=ConfigRecord)

    def encode(self) -> RecordDict:
        """Return the model, and the settings with round and share among them."""
        own = ConfigRecord({**self.settings, "server-round": self.number, "share": self.share})
        return RecordDict({"arrays": self.model, "config": own})

    @classmethod
    def decode(cls, content: RecordDict) -> TrainingOrder:
        """Read model and settings; the settings keep round and share."""
        settings = settings_in(content)
        for name, value in settings.items():
            if isinstance(value, str):
                setting(
                    settings, name, str, *((LONGEST,) if name == "group" else ())
                )  # refuses one that is too long
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
        """Return the model and its metrics."""
        round_number = {} if self.number is None else {"server_round": self.number}
        content = metrics(num_examples=self.samples, **round_number)
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
