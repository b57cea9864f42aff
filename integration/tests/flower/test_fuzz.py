"""One client answers one kind of question with anything: the others are paid, the records fit, and the server does not stop.

What is drawn is a change of an honest reply: records that are missing, of another kind or of another shape, numbers of any size,
text that is no JSON or the wrong JSON, and receipts about anything, signed with the client's own key.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scene import REMOVED, TERMS, Averager, Scene
from test_methods import Leaver

from stackfu_integration.flower.keys import SigningKey
from stackfu_integration.flower.verification import verify
from stackfu_integration.flower.wire import (
    CONSENT,
    EMBED,
    MEASURE,
    PART,
    REPEAT,
    RESPOND,
    ROLL,
    SPREAD,
    SUMMED,
    UNLEARN,
)
from stackfu_integration.flower.wire.sums import KEYS, OPEN, SHARES

FAULTY = 6
PLAIN = replace(TERMS, rounds=1, spot_checks=1.0, bandwidth=None)
SECURE = replace(TERMS, rounds=1, aggregation="secure")
LEAVING = replace(TERMS, rounds=3, unlearning="mode")
CASES = [
    *((PLAIN, kind) for kind in (ROLL, SPREAD, EMBED, RESPOND, UNLEARN, REPEAT, MEASURE, "train")),
    *((SECURE, kind) for kind in (KEYS, SHARES, SUMMED, OPEN)),
    *((LEAVING, kind) for kind in (CONSENT, PART)),
]

numbers = st.sampled_from([0, 1, -1, 7, 10**9, 2**62, -(2**62), 0.5, 1e-300, 1e300, -1.5, float("nan")]) | (
    st.integers(-5, 100) | st.floats(width=32)
)
leaves = st.none() | st.booleans() | numbers | st.text(max_size=8)
plain_json = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
texts = st.sampled_from(["", "{}", "[]", "null", "[" * 3000, '{"a": ', "0" * 200, "é\x00", "1e999"]) | (
    plain_json.map(json.dumps) | st.text(max_size=20)
)
arrays = st.builds(
    lambda dtype, shape, fill: Array(np.full(shape, fill).astype(dtype)),
    st.sampled_from(["float32", "float64", "int64", "uint8", "bool", "complex64", "U3", "float16"]),
    st.sampled_from([(), (0,), (1,), (3,), (2, 2), (64,), (3, 1), (7,)]),
    st.sampled_from([0, 1, 7]),
) | st.builds(
    lambda dtype, shape, data: Array(dtype=dtype, shape=shape, stype="numpy.ndarray", data=data),
    st.sampled_from(["float32", "float64", "object", "", "<V8"]),
    st.sampled_from([(3,), (10**9,), (-1,), ()]),
    st.sampled_from([b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'shape': (10**15,)}"])
    | st.binary(max_size=40),
)


@st.composite
def changes(draw):
    """A function that changes the content of a reply, given the client's key."""
    kind = draw(st.sampled_from(["record", "metric", "setting", "array", "receipt", "several"]))
    if kind == "several":
        parts = [draw(changes()) for _ in range(2)]
        return lambda content, key: [part(content, key) for part in parts]
    if kind == "record":
        name = draw(st.sampled_from(["arrays", "metrics", "config", "receipt", "strange"]))
        what = draw(
            st.none()
            | st.just(MetricRecord({}))
            | st.just(ConfigRecord({}))
            | st.just(ArrayRecord({}))
            | st.builds(lambda a: ArrayRecord({"mean": a}), arrays)
        )
        return lambda content, key: content.pop(name, None) if what is None else _set(content, name, what)
    at, value = draw(st.integers(0, 5)), None
    if kind == "metric":
        value = draw(numbers | st.lists(st.integers(0, 3), max_size=2))
        return lambda content, key: _entry(content.metric_records.get("metrics"), at, value)
    if kind == "setting":
        value = draw(texts | st.binary(max_size=9) | st.integers(-3, 3))
        return lambda content, key: _entry(content.config_records.get("config"), at, value)
    if kind == "array":
        value = draw(arrays)
        return lambda content, key: _entry(content.array_records.get("arrays"), at, value)
    field = draw(
        st.sampled_from(["what", "head", "client", "request", "number", "share", "agreed", "model", "x"])
    )
    value, valid = draw(plain_json), draw(st.booleans())

    def resign(content, key):
        record = content.config_records.get("receipt")
        if record is None:
            return
        statement = {**json.loads(str(record["statement"])), field: value}
        try:
            signature = key.sign(statement) if valid else "00" * 64
        except ValueError:  # no such thing can be signed
            signature = "ff" * 64
        text = json.dumps(statement)
        content["receipt"] = ConfigRecord({"statement": text, "key": key.public, "signature": signature})

    return resign


def _set(content, name, record):
    content[name] = record


def _entry(record, at, value):
    if record:
        names = sorted(record)
        record[names[at % len(names)]] = value


def play(folder: Path, terms, kind, change, client: int) -> None:
    load = Leaver if terms.unlearning == "mode" else Averager

    def behave(message, answer):
        reply = answer(message)
        if message.metadata.message_type != kind or reply.has_error():
            return reply
        key = SigningKey.load_or_create(scene.client_folder(client) / "client.key")
        content = RecordDict(dict(reply.content))
        try:
            change(content, key)
        except (TypeError, ValueError, KeyError):
            return reply  # Flower's own records do not hold it
        reply.content = content
        return reply

    scene = Scene(folder / "run", terms=terms, load=load, behaviours={client: behave})
    facts = scene.run()
    assert facts["closed"] is not None
    assert verify(scene.folder).misfit is None
    named = {f["client"] for f in facts["faults"]} - {client}
    if facts["aborted"] is None:
        honest = [c for c in facts["clients"] if c["client"] not in (client, *REMOVED)]
        assert all(c["rounds_passed"] == c["rounds_agreed"] for c in honest)
        assert not named
    else:  # a spoilt sum, or one that leaves and does not do what it has to
        assert terms is not PLAIN


@pytest.mark.parametrize(("terms", "kind"), CASES, ids=lambda given: given if isinstance(given, str) else "")
def test_anything_in_answer_to_a_question(terms, kind):
    @settings(max_examples=3, suppress_health_check=list(HealthCheck))
    @given(changes())
    def with_change(change):
        with tempfile.TemporaryDirectory() as folder:
            play(Path(folder), terms, kind, change, REMOVED[0] if terms is LEAVING else FAULTY)

    with_change()
