from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from hypothesis import given
from hypothesis import strategies as st

from stackfu_integration.flower import Offer
from stackfu_integration.flower.chain import Head
from stackfu_integration.flower.keys import SigningKey
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.naming import PLAIN_NAME
from stackfu_integration.flower.receipts import SHARE, Receipt
from stackfu_integration.flower.secure_sum import Keys, SumName
from stackfu_integration.flower.wire import (
    ConsentAnswer,
    ConsentQuestion,
    EmbeddingAnswer,
    EmbeddingQuestion,
    GradientAnswer,
    GradientQuestion,
    KeysAnswer,
    KeysQuestion,
    MeasureAnswer,
    MeasureQuestion,
    OfferQuestion,
    OpenAnswer,
    OpenQuestion,
    PartingOrder,
    Refusal,
    RollAnswer,
    RollQuestion,
    ShareAnswer,
    SharesAnswer,
    SharesQuestion,
    SpreadAnswer,
    SpreadQuestion,
    TrainingAnswer,
    TrainingOrder,
    decoded,
)

number = st.floats(allow_nan=False, allow_infinity=False)
count = st.integers(0, 2**40)
text = st.text(max_size=10)
request = st.from_regex(PLAIN_NAME, fullmatch=True)
vector = st.lists(number, min_size=1, max_size=5).map(lambda v: np.array(v, dtype=np.float64))
model = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=5).map(
    lambda v: ArrayRecord({"w": Array(np.array(v, dtype=np.float32))})
)
settings = st.dictionaries(st.sampled_from(["seed", "request", "rate"]), count | number | text).map(
    lambda entries: ConfigRecord(entries)
)
offers = st.builds(Offer, number, number, number, number, number, number, vector, vector, bias=number)
KEY = SigningKey.generate()
receipts = st.none() | st.builds(
    lambda share, seq: Receipt.sign(KEY, SHARE, Head.signed(seq, "ab", KEY), share=share), number, count
)
digits = st.binary(min_size=32, max_size=32).map(bytes.hex)
keys = st.builds(Keys, digits, digits, digits)
group, members = (st.dictionaries(count, keys, min_size=least, max_size=3) for least in (0, 1))
nothing = st.builds(np.empty, st.just(0))
masked = st.lists(st.integers(0, 2**64 - 1), max_size=5).map(lambda v: np.array(v, dtype=np.uint64))
names = st.builds(SumName, request, text, count)
sealed = st.dictionaries(count, st.binary(max_size=9).map(bytes.hex), max_size=3)
MESSAGES = {
    RollQuestion: st.builds(RollQuestion, text),
    RollAnswer: st.builds(RollAnswer, count | number, receipts),
    SpreadQuestion: st.builds(SpreadQuestion, model, request, st.none() | number),
    KeysQuestion: st.builds(KeysQuestion, names),
    KeysAnswer: st.builds(KeysAnswer, keys, receipts),
    SharesQuestion: st.builds(
        SharesQuestion,
        names,
        group,
        count,
        st.dictionaries(count, st.dictionaries(text, number | text, max_size=2), max_size=2),
    ),
    SharesAnswer: st.builds(SharesAnswer, sealed),
    OpenQuestion: st.builds(OpenQuestion, names, st.lists(count, max_size=4).map(tuple), sealed),
    OpenAnswer: st.builds(OpenAnswer, st.dictionaries(count, count.map("{:x}".format), max_size=3)),
    SpreadAnswer: st.builds(SpreadAnswer, number, count | number),
    EmbeddingQuestion: st.builds(EmbeddingQuestion, model, request, number, count, count)
    | st.builds(EmbeddingQuestion, model, request, number, count, count, number, number)
    | st.builds(
        EmbeddingQuestion,
        model,
        request,
        number,
        count,
        count,
        number,
        number,
        text,
        st.booleans(),
        group,
    ),
    EmbeddingAnswer: st.builds(EmbeddingAnswer, vector, count | number, number, receipts)
    | st.builds(EmbeddingAnswer, nothing, count | number, number, receipts, masked),
    OfferQuestion: st.builds(
        OfferQuestion,
        request,
        offers,
        count,
        count,
        st.none() | number,
        count,
        st.integers(-1, 9),
        st.lists(count, max_size=3).map(tuple),
        text,
        count,
        st.booleans(),
    ),
    ShareAnswer: st.builds(ShareAnswer, number, receipts),
    ConsentQuestion: st.builds(ConsentQuestion, request, text),
    ConsentAnswer: st.builds(ConsentAnswer, receipts),
    PartingOrder: st.builds(
        PartingOrder, model, request, text, count, count, st.none() | model, st.none() | number
    ),
    GradientQuestion: st.builds(
        GradientQuestion, model, request, number, count, count, st.sampled_from([(), ("w",), ("w", "b")])
    )
    | st.builds(GradientQuestion, model, request, number, count, count, st.just(()), members, count),
    GradientAnswer: st.builds(GradientAnswer, vector, count | number, receipts)
    | st.builds(GradientAnswer, nothing, count | number, receipts, masked),
    TrainingAnswer: st.builds(TrainingAnswer, model, count | number, count, receipts),
    MeasureQuestion: st.builds(
        MeasureQuestion, model, model, request, number, count, count, st.integers(-1, 9)
    ),
    MeasureAnswer: st.builds(
        MeasureAnswer,
        st.dictionaries(st.sampled_from(["before.loss", "after.loss", "after.auc"]), number),
        receipts,
    ),
}


def through_the_wire(content: RecordDict) -> RecordDict:
    data = recorddict_to_proto(content)
    return recorddict_from_proto(type(data).FromString(data.SerializeToString()))


def plain(value):
    """Return the content of a message, in values that can be compared."""
    if isinstance(value, ArrayRecord):
        return digest(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict) or not hasattr(value, "__dataclass_fields__"):
        return value
    return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_what_arrives_is_what_was_said(kind):
    @given(MESSAGES[kind])
    def check(message):
        assert plain(kind.decode(through_the_wire(message.encode()))) == plain(message)

    check()


@given(model, st.floats(0, 1), count, settings)
def test_an_order_carries_its_settings_beside_round_and_share(arrays, share, number, given):
    order = TrainingOrder.decode(through_the_wire(TrainingOrder(arrays, share, number, given).encode()))
    assert (digest(order.model), order.share, order.number) == (digest(arrays), share, number)
    assert dict(order.settings) == {**given, "server-round": number, "share": share}


def test_without_noise_nothing_is_said_about_noise():
    arrays = ArrayRecord({"w": Array(np.zeros(1, dtype=np.float32))})
    settings = EmbeddingQuestion(arrays, "r1", 1.0, 8, 0, epsilon=None, delta=1e-5).encode()["config"]
    assert not {"epsilon", "delta"} & set(settings)


def test_an_ordinary_training_reply_needs_no_round():
    arrays = ArrayRecord({"w": Array(np.zeros(1, dtype=np.float32))})
    content = TrainingAnswer(arrays, 7).encode()
    assert set(content["metrics"]) == {"num-examples"}
    assert TrainingAnswer.decode(content, numbered=False).samples == 7
    assert "server-round" in decoded(content, TrainingAnswer.decode).problem


@pytest.mark.parametrize(
    ("content", "decode"),
    [
        (RecordDict(), RollAnswer.decode),
        (RecordDict({"metrics": MetricRecord({"client": [1, 2]})}), RollAnswer.decode),
        (RecordDict({"metrics": ConfigRecord({"share": 0.5})}), ShareAnswer.decode),
        (RecordDict({"metrics": MetricRecord({"size": 1, "deviation": 0.0})}), EmbeddingAnswer.decode),
        (RecordDict({"arrays": MetricRecord({"mean": 1.0})}), EmbeddingAnswer.decode),
        (RecordDict({"metrics": MetricRecord({"squared": 1.0})}), SpreadAnswer.decode),
        (RecordDict({"metrics": MetricRecord({})}), partial(TrainingAnswer.decode, numbered=False)),
        (RecordDict({"metrics": MetricRecord({"consent": 0})}), ConsentAnswer.decode),
        (
            RecordDict({"config": ConfigRecord({"sealed": f'{{"1": "{"0" * 2_000_000}"}}'})}),
            SharesAnswer.decode,
        ),
    ],
)
def test_an_answer_that_lacks_something_is_refused(content, decode):
    answer = decoded(content, decode)
    assert isinstance(answer, Refusal)
    assert "incomplete" in answer.problem


def test_measures_that_are_no_numbers_about_the_models_are_dropped():
    said = {"before.loss": 1.0, "after.loss": float("nan"), "loss": 2.0, "after.": 3.0, "before.list": [1.0]}
    assert MeasureAnswer.decode(RecordDict({"metrics": MetricRecord(said)})).measures == {"before.loss": 1.0}
    assert MeasureAnswer.decode(RecordDict()).measures == {}
