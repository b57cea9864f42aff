"""What crosses the network.

- :mod:`~stackfu_integration.flower.wire.messages`: what server and clients say to each other, one class per
  question and per answer, each with its way into Flower's records and back
- :mod:`~stackfu_integration.flower.wire.sums`: what is said around a secure sum
- :mod:`~stackfu_integration.flower.wire.exchange`: sending questions, and knowing whose answer is whose
- :mod:`~stackfu_integration.flower.wire.records`: vectors, settings and metrics in Flower's records
"""

from stackfu_integration.flower.wire.exchange import Refusal, ask, decoded, messages_to, sort_replies
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
    TRAIN,
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
from stackfu_integration.flower.wire.records import setting
from stackfu_integration.flower.wire.sums import (
    KeysAnswer,
    KeysQuestion,
    OpenAnswer,
    OpenQuestion,
    SharesAnswer,
    SharesQuestion,
)

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
    "KeysAnswer",
    "KeysQuestion",
    "MeasureAnswer",
    "MeasureQuestion",
    "OfferQuestion",
    "OpenAnswer",
    "OpenQuestion",
    "PartingOrder",
    "Refusal",
    "RollAnswer",
    "RollQuestion",
    "ShareAnswer",
    "SharesAnswer",
    "SharesQuestion",
    "SpreadAnswer",
    "SpreadQuestion",
    "TrainingAnswer",
    "TrainingOrder",
    "ask",
    "decoded",
    "messages_to",
    "setting",
    "sort_replies",
]
