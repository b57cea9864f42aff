"""Messages on the network: one class per question and per answer, in modules named like the phases that ask.

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
``query.stackfu_gradient``    the model, its share; members of a sum       gradient of its loss, or a masked one,
                                                                           samples; signed
``evaluate.stackfu_measure``  model before and after, its payment          measures; the payment acknowledged or
                                                                           disputed, signed
============================  ===========================================  =====================================

What is said around a secure sum is in :mod:`.sums`. Every question shows the signed head of the ledger among its
settings. Ordinary training uses Flower's own ``train`` message with ``arrays`` and ``config``.

Every class is one side of one message: ``encode`` makes Flower's records of it, ``decode`` reads them. What an
answer claims is read as it is; whether it makes sense is for the phase to judge that asked.

:mod:`.exchange` sends questions and assigns answers to clients; :mod:`.records` has vectors, settings and metrics in
Flower's records.
"""

from stackfu_integration.flower.wire.embeddings import (
    EMBED,
    SPREAD,
    EmbeddingAnswer,
    EmbeddingQuestion,
    SpreadAnswer,
    SpreadQuestion,
)
from stackfu_integration.flower.wire.enrolment import ROLL, RollAnswer, RollQuestion
from stackfu_integration.flower.wire.evidence import GRADIENT, GradientAnswer, GradientQuestion
from stackfu_integration.flower.wire.exchange import Refusal, ask, decoded, messages_to, sort_replies
from stackfu_integration.flower.wire.leaving import (
    CONSENT,
    PART,
    ConsentAnswer,
    ConsentQuestion,
    PartingOrder,
)
from stackfu_integration.flower.wire.measures import MEASURE, MeasureAnswer, MeasureQuestion
from stackfu_integration.flower.wire.records import setting
from stackfu_integration.flower.wire.responses import RESPOND, OfferQuestion, ShareAnswer
from stackfu_integration.flower.wire.rounds import (
    REPEAT,
    SUMMED,
    TRAIN,
    UNLEARN,
    TrainingAnswer,
    TrainingOrder,
)
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
