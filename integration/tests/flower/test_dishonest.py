"""Dishonest clients and a dishonest server: what they try, and what comes of it.

Whatever works is either refused or said in the audit's own words. Plain faults are in ``test_faults.py``, edits of the file in
``test_tampering.py``, and what a server may ask of a client in secure sums in ``test_sums.py``.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from dishonest_server import evidence_of
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from scene import CLIENTS, REMOVED, SIZES, TERMS, Averager, Scene, initial
from typer.testing import CliRunner

from stackfu.errors import InputError
from stackfu_integration.cli import app
from stackfu_integration.flower import Terms
from stackfu_integration.flower.client_state import read_receipts
from stackfu_integration.flower.keys import SigningKey, canonical, read_public_key
from stackfu_integration.flower.model_store import digest
from stackfu_integration.flower.receipts import PAYMENT, SHARE, WORK, Receipt
from stackfu_integration.flower.verification import Evidence, verify
from stackfu_integration.flower.wire import (
    EMBED,
    GRADIENT,
    MEASURE,
    REPEAT,
    RESPOND,
    ROLL,
    SPREAD,
    SUMMED,
    UNLEARN,
)
from stackfu_integration.flower.wire.records import receipt_in
from stackfu_integration.flower.wire.sums import KEYS, OPEN, SHARES

FAULTY = 6
SECURE = replace(TERMS, aggregation="secure")


def when(kind, act):
    return lambda message, answer: (
        act(message, answer) if message.metadata.message_type == kind else answer(message)
    )


def of(facts, client=FAULTY):
    return next(c for c in facts["clients"] if c["client"] == client)


def text_of(scene):
    return (scene.folder / "audit-r1.md").read_text()


# ---- to be paid without work


def replayer():
    """Works in the first round, and sends the outcome again in all others, newly signed."""
    kept = {}

    class Replayer(Averager):
        def train(self, arrays, share, config):
            if self.client == FAULTY and "request" in config:
                if "model" not in kept:
                    kept["model"] = super().train(arrays, share, config)
                return kept["model"]
            return super().train(arrays, share, config)

    return Replayer


def test_an_update_sent_again_is_found_by_spot_checks_only_if_it_is_not_sent_the_same_way_twice(scene):
    """A repeated question gets the same false answer, like training that ends at the same place. The audit counts it."""
    scene.load, scene.terms = replayer(), replace(TERMS, spot_checks=1.0)
    facts = scene.run()
    assert of(facts)["paid"] > 0
    assert facts["work"]["sent_again"] == 2
    assert "2 updates are models that the same client had delivered in an earlier round" in text_of(scene)
    assert verify(scene.folder).misfit is None


def test_noise_is_paid_where_nothing_is_asked_for_again_and_the_audit_says_that_nothing_was(scene):
    class Noise(Averager):
        def train(self, arrays, share, config):
            model, used = super().train(arrays, share, config)
            if self.client == FAULTY and "request" in config:
                noise = np.random.default_rng().normal(size=3).astype(np.float32)
                model = ArrayRecord({"mean": Array(arrays["mean"].numpy() + noise)})
            return model, used

    scene.load = Noise
    facts = scene.run()
    assert of(facts)["paid"] > 0
    assert "work that was asked for again: 0 times" in text_of(scene)
    assert "noise is paid like work" in text_of(scene)


def test_a_client_that_claims_three_times_its_size_everywhere_gains_and_the_audit_says_that_nobody_sees_it(
    scene,
):
    class Liar(Averager):
        @property
        def size(self):
            return super().size * (3 if self.client == FAULTY else 1)

        def train(self, arrays, share, config):
            model, used = super().train(arrays, share, config)
            return model, (round(share * self.size) if self.client == FAULTY else used)

    honest = of(Scene(scene.folder.parent / "honest").run())
    scene.load = Liar
    facts = scene.run()
    assert of(facts)["samples"] == 3 * SIZES[FAULTY]
    assert of(facts)["paid"] > honest["paid"]
    assert (
        "a client that claims more than it has is offered more; this cannot be seen from outside"
        in text_of(scene)
    )


@pytest.mark.parametrize("adopted", [False, True])
def test_one_client_does_not_choose_the_bandwidth_by_claiming_a_size(scene, adopted):
    """With a bandwidth of its own choice it could have every other client refuse the question."""

    def lie(message, answer):
        reply = answer(message)
        reply.content["metrics"] = MetricRecord({"squared": 1e-12, "size": 10_000_000})
        return reply

    scene.terms = replace(TERMS, bandwidth=None)
    scene.behaviours[FAULTY] = when(SPREAD, lie)
    mechanism, grid = scene.mechanism(), scene.grid()
    if adopted:
        mechanism.adopt(ArrayRecord({"mean": Array(np.ones(3, dtype=np.float32))}), initial())
    else:
        mechanism.train(grid, initial(), 2)
    facts = mechanism.remove(grid, REMOVED)
    assert facts["bandwidth"] > 0.1
    if not adopted:
        assert "claims 10000000 samples after training with 20" in str(facts["faults"])


def claims(size):
    """Clients of whom one claims a size, in training and ever after, and says that its samples are very near to each other."""

    class Claims(Averager):
        @property
        def size(self):
            return size if self.client == FAULTY else super().size

        def samples(self, arrays):
            return super().samples(arrays) * (1e-9 if self.client == FAULTY else 1.0)

        def train(self, arrays, share, config):
            made, used = super().train(arrays, share, config)
            return made, round(share * self.size) if self.client == FAULTY else used

    return Claims


@pytest.mark.parametrize("size", [9_999_999, 2_000])
def test_whoever_claims_a_size_throughout_neither_ends_the_request_nor_chooses_the_bandwidth(scene, size):
    """A size beyond all others is left out; one that is merely large counts, and not for half of all."""
    scene.load, scene.terms = claims(size), replace(TERMS, bandwidth=None)
    facts = scene.run()
    assert facts["aborted"] is None
    assert facts["bandwidth"] > 0.1
    assert sum(client["paid"] > 0 for client in facts["clients"]) > 2
    left_out = of(facts)["role"] == "left out"
    assert left_out == (size == 9_999_999)
    assert ("more than 100 times the median of all clients" in str(facts["faults"])) == left_out
    assert verify(scene.folder, evidence_of(scene)).misfit is None


def test_sizes_that_the_operator_expects_are_asked_for_and_checked_by_the_audit(scene):
    stated = {str(client): (size, size) for client, size in enumerate(SIZES)}
    scene.load, scene.terms = claims(60), replace(TERMS, sizes=stated)
    facts = scene.run()
    assert of(facts)["role"] == "left out"
    assert "claims 60 samples, and 20 are expected of it" in str(facts["faults"])
    assert facts["paid"] > 0
    assert verify(scene.folder, evidence_of(scene)).misfit is None


@pytest.mark.parametrize("terms", [{"sizes": {"3": (61, 99)}}, {"size_factor": 1.4}])
def test_a_server_that_takes_a_size_that_its_terms_refuse_is_a_misfit(scene, monkeypatch, terms):
    monkeypatch.setattr(Terms, "refused_size", lambda *_: None)
    scene.terms = replace(TERMS, **terms)
    scene.run()
    monkeypatch.undo()
    assert "and was not left out" in verify(scene.folder, evidence_of(scene)).misfit


def test_a_request_that_cannot_go_on_names_those_who_caused_it(scene):
    """All but one send nonsense: the reason says who, and what was wrong."""

    def nonsense(message, answer):
        reply = answer(message)
        reply.content["metrics"] = MetricRecord({"size": -1, "deviation": 0.0})
        return reply

    for client in range(2, 7):
        scene.behaviours[client] = when(EMBED, nonsense)
    facts = scene.run()
    assert "left out: client 2 (claims -1 samples)" in facts["aborted"]["reason"]


@pytest.mark.parametrize(
    "terms",
    [
        {"sizes": {"3": 0}},
        {"sizes": {"3": (5, 4)}},
        {"sizes": {"3": 2.5}},
        {"sizes": {"3": "many"}},
        {"size_factor": 0.5},
    ],
)
def test_expected_sizes_that_are_none_are_refused(terms):
    with pytest.raises(InputError, match="size"):
        Terms(**terms)
    assert Terms.from_config({"sizes": "3=5,York=4:6"}).sizes == {"3": (5, 5), "York": (4, 6)}


def test_a_size_other_than_in_training_is_refused(scene):
    class Liar(Averager):
        @property
        def size(self):
            return super().size * (3 if self.client == FAULTY else 1)

    scene.load = Liar
    facts = scene.run()
    assert of(facts)["role"] == "left out"
    assert "claims 60 samples after training with 20" in str(facts["faults"])


def resign(change, key=None):
    """Change what is said in a receipt, and sign it anew with the client's key, or with another."""

    def act(message, answer, grid_key=key):
        reply = answer(message)
        receipt = receipt_in(reply.content)
        statement = dict(receipt.statement)
        change(statement)
        plain = canonical(statement).decode()
        signer = grid_key or SigningKey.load(act.folder / "client.key")
        reply.content["receipt"] = ConfigRecord(
            {"statement": plain, "key": signer.public, "signature": signer.sign(statement)}
        )
        return reply

    return act


FORGERS = {3: EMBED, 5: RESPOND, 6: UNLEARN, 7: MEASURE}
FORGERIES = {
    "another key": (lambda s: None, SigningKey.generate()),
    "another request": (lambda s: s.update(request="r0"), None),
    "another client": (lambda s: s.update(client=99), None),
    "about something else": (lambda s: s.update(what="nothing"), None),
    "a head that was never shown": (lambda s: s["head"].__setitem__(2, "00" * 32), None),
    "a head that is none": (lambda s: s.update(head=[1]), None),
    "no head": (lambda s: s.update(head=None), None),
    "a head of the future": (lambda s: s["head"].__setitem__(1, 10**9), None),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_receipt_that_is_not_one_is_refused_and_the_audit_of_the_honest_server_still_fits(scene, forgery):
    """Otherwise one client could make the records of an honest server look forged."""
    for client, kind in FORGERS.items():
        act = resign(*FORGERIES[forgery])
        act.folder = scene.client_folder(client)
        scene.behaviours[client] = when(kind, act)
    facts = scene.run()
    assert verify(scene.folder).misfit is None
    assert set(FORGERS) == {f["client"] for f in facts["faults"]}
    assert all(of(facts, client)["paid"] == 0.0 for client, kind in FORGERS.items() if kind != MEASURE)


@pytest.mark.parametrize(
    ("what", "lie"),
    [
        (SHARE, {"price": 1e6}),
        (SHARE, {"cap": 0.123}),
        (WORK, {"model": "00" * 32}),
        (PAYMENT, {"amount": 0.0, "agreed": False}),
        (PAYMENT, {"amount": 1e9}),
    ],
)
def test_a_client_that_signs_two_statements_about_one_thing_contradicts_itself_and_not_the_server(
    sound, what, lie
):
    """A receipt is the client's word; brought along from outside, it must not make an honest server's records look forged."""
    signer = SigningKey.load(sound.client_folder(FAULTY) / "client.key")
    kept = [
        r
        for r in read_receipts(sound.client_folder(FAULTY) / "receipts.jsonl")
        if r.statement["what"] == what
    ]
    assert verify(sound.folder, Evidence(receipts=tuple(kept))).misfit is None
    statement = {**kept[-1].statement, **lie}
    forged = Receipt(statement, signer.public, signer.sign(statement))
    report = verify(sound.folder, Evidence(receipts=(*kept, forged)))
    assert report.misfit is None
    assert any(f"two statements of client {FAULTY} about its {what}" in q for q in report.open_questions)


def test_an_acknowledgement_that_is_neither_yes_nor_no_is_refused(scene):
    act = resign(lambda s: s.update(agreed="perhaps"))
    act.folder = scene.client_folder(FAULTY)
    scene.behaviours[FAULTY] = when(MEASURE, act)
    facts = scene.run()
    assert "signed something else" in str(facts["faults"])
    assert verify(scene.folder).misfit is None


# ---- to stop the server


def garbage_array():
    return Array(dtype="float32", shape=(3,), stype="numpy.ndarray", data=b"\x93NUMPY garbage")


def with_record(name, record):
    def act(message, answer):
        reply = answer(message)
        reply.content[name] = record
        return reply

    return act


DEEP = "[" * 200_000
METRICS = ("client", "size", "deviation", "share", "num-examples", "server-round", "samples")
NONSENSE = {
    "nothing": lambda m, a: Message(RecordDict(), reply_to=m),
    "arrays that are none": with_record("arrays", ArrayRecord({"mean": garbage_array()})),
    "masks that are none": with_record("arrays", ArrayRecord({"masked": garbage_array()})),
    "empty arrays": with_record(
        "arrays", ArrayRecord({"mean": Array(dtype="float32", shape=(3,), stype="numpy.ndarray", data=b"")})
    ),
    "arrays of text": with_record("arrays", ArrayRecord({"mean": Array(np.array(["a", "b"]))})),
    "metrics that are not numbers": with_record(
        "metrics",
        MetricRecord(dict.fromkeys(METRICS, float("nan"))),
    ),
    "metrics without end": with_record(
        "metrics",
        MetricRecord(dict.fromkeys(METRICS, float("inf"))),
    ),
    "metrics in lists": with_record("metrics", MetricRecord({"client": [1], "size": [2], "share": [0.5]})),
    "settings for metrics": with_record("metrics", ConfigRecord({"client": "six"})),
    "a receipt without end": with_record(
        "receipt", ConfigRecord({"statement": DEEP, "key": "00", "signature": "00"})
    ),
    "a receipt of bytes": with_record(
        "receipt", ConfigRecord({"statement": b"x", "key": "0", "signature": "0"})
    ),
    "a long receipt": with_record(
        "receipt", ConfigRecord({"statement": json.dumps({"x": "y" * 10**6}), "key": "00", "signature": "00"})
    ),
    "settings without end": with_record(
        "config", ConfigRecord({"keys": DEEP, "sealed": DEEP, "shares": DEEP, "alive": DEEP})
    ),
    "settings of another kind": with_record(
        "config", ConfigRecord({"keys": "a.b.c", "sealed": "[1]", "shares": '{"x": 1}'})
    ),
}


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_nonsense_in_answer_to_any_question_stops_nobody(tmp_path, nonsense):
    """One client answers one kind of question with it, for every kind; the others are paid in full."""
    for terms, kinds in (
        (replace(TERMS, rounds=1, spot_checks=1.0), (ROLL, EMBED, RESPOND, UNLEARN, REPEAT, MEASURE)),
        (replace(SECURE, rounds=1), (KEYS, SHARES, SUMMED, OPEN)),
    ):
        scene = Scene(tmp_path / terms.aggregation, terms=terms)
        scene.behaviours = {
            client: when(kind, NONSENSE[nonsense]) for client, kind in zip(range(2, 8), kinds, strict=False)
        }
        if terms.aggregation == "secure":  # four of six members must be left
            scene.behaviours.pop(4)
        facts = scene.run()
        assert facts["closed"] is not None
        assert verify(scene.folder).misfit is None
        honest = [c for c in facts["clients"] if c["client"] not in (*scene.behaviours, *REMOVED)]
        if facts["aborted"] is None:
            assert all(c["rounds_passed"] == c["rounds_agreed"] for c in honest)


def test_a_gradient_of_no_number_of_samples_stops_nobody(scene):
    from test_gradients import CLASSES, WIDTH, Softmax, arrays_of

    scene.load, scene.terms = Softmax, replace(TERMS, certify_l2=0.1)
    scene.behaviours[FAULTY] = when(GRADIENT, with_record("metrics", MetricRecord({"samples": float("nan")})))
    mechanism, grid = scene.mechanism(), scene.grid()
    mechanism.train(grid, arrays_of(np.zeros((CLASSES, WIDTH + 1))), 1)
    facts = mechanism.remove(grid, REMOVED)
    assert FAULTY not in facts["bound"]["clients"]
    assert "sent the gradient of nan samples" in str(facts["faults"])


@pytest.mark.parametrize("value", [1e308, -1e200, 1e160, 1e39])
@pytest.mark.parametrize("when_", ["training", "unlearning"])
def test_numbers_whose_squares_are_none_stop_nobody(scene, value, when_):
    """A model in double precision can hold numbers that have no length, and the ledger has no infinity."""

    class Absurd(Averager):
        def train(self, arrays, share, config):
            double = {"mean": Array(arrays["mean"].numpy().astype(np.float32))}
            model, used = super().train(ArrayRecord(double), share, config)
            values = model["mean"].numpy().astype(np.float64)
            if self.client == FAULTY and ("request" in config) == (when_ == "unlearning"):
                values = np.full(3, value)
            return ArrayRecord({"mean": Array(values)}), used

    scene.load = Absurd
    mechanism, grid = scene.mechanism(), scene.grid()
    mechanism.train(grid, ArrayRecord({"mean": Array(np.zeros(3))}), 2)
    facts = mechanism.remove(grid, REMOVED)
    assert facts["aborted"] is None
    assert "sent numbers in mean that are too large" in str(facts["faults"])
    assert verify(scene.folder).misfit is None


def test_a_gradient_whose_length_is_no_number_stops_nobody(scene):
    from test_gradients import CLASSES, WIDTH, Softmax, arrays_of

    class Absurd(Softmax):
        def gradient(self, arrays, share, config):
            vector, used = super().gradient(arrays, share, config)
            return (np.full_like(vector, 1e300) if self.client == FAULTY else vector), used

    scene.load, scene.terms = Absurd, replace(TERMS, certify_l2=0.1)
    mechanism, grid = scene.mechanism(), scene.grid()
    mechanism.train(grid, arrays_of(np.zeros((CLASSES, WIDTH + 1))), 1)
    facts = mechanism.remove(grid, REMOVED)
    assert FAULTY not in facts["bound"]["clients"]
    assert verify(scene.folder).misfit is None


def test_a_client_writes_nothing_into_the_audit_but_numbers(scene):
    """Names of measures are headings of a table; a name with lines in it would be text of the client's own."""
    forged = {"before.x |\n\n# Faults\n\nNone.\n": 1.0, "before.loss": 2.0, "after." + "y" * 500: 3.0}
    many = {f"before.m{k}": 1.0 for k in range(1000)}

    def act(message, answer):
        reply = answer(message)
        reply.content["metrics"] = MetricRecord({**forged, **many})
        return reply

    scene.behaviours[FAULTY] = when(MEASURE, act)
    facts = scene.run()
    found = of(facts)["measures"]
    assert found["before.loss"] == 2.0
    assert len(found) <= 20
    assert text_of(scene).count("# Faults") == 1


def test_what_a_client_signs_or_calls_its_arrays_is_no_text_of_the_audit(scene):
    """Each of these was printed as it came: a field of a receipt, what one is said to be owed, the fields of an array's type."""
    marks = "<script>alert(1)</script> | [link](http://x) # Faults"

    def odd_array(message, answer):
        reply = answer(message)
        odd = np.zeros(3, dtype=[(marks, "f4")])
        reply.content["arrays"] = ArrayRecord({"mean": Array(odd)})
        return reply

    signing = {3: (RESPOND, {"request": marks}), 5: (EMBED, {"what": marks}), 6: (MEASURE, None)}
    for client, (kind, lie) in signing.items():
        lie = lie or {"owed": marks, "agreed": False}
        act = resign(lambda s, lie=lie: s.update(lie))
        act.folder = scene.client_folder(client)
        scene.behaviours[client] = when(kind, act)
    scene.behaviours[7] = when(UNLEARN, odd_array)
    scene.run()
    report = verify(scene.folder)
    assert report.misfit is None
    (dispute,) = (question for question in report.open_questions if "client 6 disputes" in question)
    assert re.search(
        r"of [\d.e-]+; .* owed ' script alert\(1\).*, and 3 of the 3 rounds that it delivered passed", dispute
    )
    for text in (text_of(scene), "\n".join(report.lines())):
        assert "script alert(1)" in text
        marked = [line for line in text.splitlines() if "<script>" in line or "[link]" in line]
        assert marked == []


def test_a_reason_for_failing_is_one_line_without_marks(scene):
    class Failing(Averager):
        def decide(self, offer):
            if self.client == FAULTY:
                raise RuntimeError("ok\n# Faults: **none** | `x` <b>")
            return super().decide(offer)

    scene.load = Failing
    scene.run()
    assert text_of(scene).count("# Faults") == 1
    assert "**none**" not in text_of(scene)
    assert "<b>" not in text_of(scene)


# ---- attacks that make others look guilty


def test_whoever_claims_anothers_number_is_told_apart_from_it(scene):
    scene.extra_nodes = (FAULTY,)
    facts = scene.run()
    said = [f["problem"] for f in facts["faults"] if f["client"] == FAULTY]
    assert len(said) == 1
    assert "claims this number as well" in said[0]
    assert of(facts)["rounds_passed"] == 3


# ---- a dishonest server


def order_from(message, **changes):
    settings = ConfigRecord(
        {**message.content["config"], **{k.replace("_", "-"): v for k, v in changes.items()}}
    )
    return RecordDict({"arrays": message.content["arrays"], "config": settings})


def asked_by_hand(scene, grid, client, kind, content):
    node = next(n for n, c in grid.contexts.items() if c.node_config["partition-id"] == client)
    return grid.answer(Message(content, dst_node_id=node, message_type=kind))


@pytest.fixture
def worked(scene):
    """A run, and the orders that a client got."""
    orders = []

    def keep(message, answer):
        orders.append(RecordDict({k: message.content[k] for k in ("arrays", "config")}))
        return answer(message)

    scene.behaviours[3] = when(UNLEARN, keep)
    grid = scene.grid()
    return scene, grid, orders


def test_no_work_beyond_what_was_agreed(worked):
    """The same round from another model, a repetition of something else, a round too many, rounds after the settlement."""
    scene, grid, orders = worked
    tried = {}

    def try_things(phase):
        if phase != "unlearning":
            return
        other = ArrayRecord({"mean": Array(np.full(3, 7.0, dtype=np.float32))})
        config = orders[0]["config"]
        tried["another model"] = asked_by_hand(
            scene, grid, 3, UNLEARN, RecordDict({"arrays": other, "config": config})
        )
        tried["repeated otherwise"] = asked_by_hand(
            scene, grid, 3, REPEAT, RecordDict({"arrays": other, "config": config})
        )
        everything = ConfigRecord({**config, "share": 1.0})
        tried["all data"] = asked_by_hand(
            scene, grid, 3, REPEAT, RecordDict({"arrays": orders[0]["arrays"], "config": everything})
        )
        tried["the same"] = asked_by_hand(scene, grid, 3, REPEAT, orders[-1])
        tried["an earlier one"] = asked_by_hand(scene, grid, 3, REPEAT, orders[0])
        one_more = ConfigRecord({**config, "server-round": scene.terms.rounds + 1})
        tried["one more"] = asked_by_hand(
            scene, grid, 3, UNLEARN, RecordDict({"arrays": other, "config": one_more})
        )

    scene.run(grid, after=try_things)
    assert "from another model" in tried["another model"].error.reason
    assert "has not delivered this round" in tried["repeated otherwise"].error.reason
    assert "has not delivered this round" in tried["all data"].error.reason
    assert not tried["the same"].has_error()
    assert "its last round only" in tried["an earlier one"].error.reason
    assert "agreed to 3 rounds" in tried["one more"].error.reason
    after = ConfigRecord({**orders[0]["config"], "server-round": 3})
    late = asked_by_hand(
        scene, grid, 3, UNLEARN, RecordDict({"arrays": orders[0]["arrays"], "config": after})
    )
    assert "is settled" in late.error.reason


def test_a_gradient_is_told_of_one_model(scene):
    from stackfu_integration.flower.wire import GradientQuestion

    class Telling(Averager):
        def gradient(self, arrays, share, config):
            return np.zeros(3), 5

    scene.load = Telling
    grid = scene.grid()
    facts = scene.run(grid)
    share = of(facts, 3)["share"]
    first = GradientQuestion(initial(), "r1", share, 5, 0)
    other = replace(first, model=ArrayRecord({"mean": Array(np.ones(3, dtype=np.float32))}))
    assert not asked_by_hand(scene, grid, 3, GRADIENT, first.encode()).has_error()
    assert not asked_by_hand(scene, grid, 3, GRADIENT, first.encode()).has_error()
    refused = asked_by_hand(scene, grid, 3, GRADIENT, other.encode())
    assert "at another one" in refused.error.reason


def test_a_server_that_plays_all_the_clients_is_sound_in_itself_and_the_audit_asks_for_their_keys(sound):
    """Keys that clients handed out themselves show it; without them the report says what is missing."""
    alone = verify(sound.folder, Evidence(server_key=read_public_key(sound.folder / "keys" / "server.pub")))
    assert alone.misfit is None
    assert any("public keys that you got from the clients" in q for q in alone.open_questions)
    keys = {c: read_public_key(sound.client_folder(c) / "client.pub") for c in range(CLIENTS)}
    known = verify(sound.folder, Evidence(client_keys=keys))
    assert not any("got from the clients" in q for q in known.open_questions)
    real = {**keys, 3: SigningKey.generate().public}
    assert "another key than its own" in verify(sound.folder, Evidence(client_keys=real)).misfit


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.95])
def test_a_file_cut_in_the_middle_is_no_ledger_and_the_exit_code_tells(sound, tmp_path, part):
    import shutil

    with sound.ledger() as ledger:
        ledger.flush()
    shutil.copytree(sound.folder, tmp_path / "run")
    file = tmp_path / "run" / "ledger.sqlite"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(part * len(whole))])
    result = CliRunner().invoke(app, ["audit", str(tmp_path / "run"), "--plain"])
    assert result.exit_code != 0
    assert "fits" not in result.output.split("Does not fit")[0] or "Does not fit" in result.output


def test_two_models_do_not_share_a_name_by_way_of_their_arrays_names():
    """The name of an array could hold the beginning of the next one."""
    text = "abcdefgh"
    two = ArrayRecord({"a": Array(np.frombuffer(text.encode(), dtype="<f4")), "b": Array(np.ones(2, "<f4"))})
    one = ArrayRecord({f"a/<f4/(2,)/{text}b": Array(np.ones(2, "<f4"))})
    assert digest(two)
    with pytest.raises(ValueError, match="name"):
        digest(one)
