"""What crosses the network.

- :mod:`~stackfu_integration.flower.wire.messages`: what server and clients say to each other, one class per
  question and per answer, each with its way into Flower's records and back
- :mod:`~stackfu_integration.flower.wire.exchange`: sending questions, and knowing whose answer is whose
- :mod:`~stackfu_integration.flower.wire.records`: vectors, settings and metrics in Flower's records
"""

from stackfu_integration.flower.wire.exchange import Refusal, ask, decoded, messages_to, sort_replies
from stackfu_integration.flower.wire.messages import (
    EMBED,
    GRADIENT,
    MASK,
    MEASURE,
    REPEAT,
    RESPOND,
    ROLL,
    SPREAD,
    TRAIN,
    UNLEARN,
    EmbeddingAnswer,
    EmbeddingQuestion,
    GradientAnswer,
    GradientQuestion,
    MaskAnswer,
    MaskQuestion,
    MeasureAnswer,
    MeasureQuestion,
    OfferQuestion,
    RollAnswer,
    RollQuestion,
    ShareAnswer,
    SpreadAnswer,
    SpreadQuestion,
    TrainingAnswer,
    TrainingOrder,
)
from stackfu_integration.flower.wire.records import setting

__all__ = [
    "EMBED",
    "GRADIENT",
    "MASK",
    "MEASURE",
    "REPEAT",
    "RESPOND",
    "ROLL",
    "SPREAD",
    "TRAIN",
    "UNLEARN",
    "EmbeddingAnswer",
    "EmbeddingQuestion",
    "GradientAnswer",
    "GradientQuestion",
    "MaskAnswer",
    "MaskQuestion",
    "MeasureAnswer",
    "MeasureQuestion",
    "OfferQuestion",
    "Refusal",
    "RollAnswer",
    "RollQuestion",
    "ShareAnswer",
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
