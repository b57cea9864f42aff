"""Clients that go wrong: the run ends with the right records, and they are named."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from scene import REMOVED, SIZES, Averager, Scene, initial

from stackfu_integration.flower.events import GameFounded
from stackfu_integration.flower.wire import EMBED, MEASURE, RESPOND, ROLL, TRAIN, UNLEARN

FAULTY = 5


def when(message_type, act, rounds=None):
    """Behave at one kind of message (in some rounds), and soundly otherwise."""

    def behave(message, answer):
        if message.metadata.message_type != message_type:
            return answer(message)
        if rounds is not None and message.content["config"]["server-round"] not in rounds:
            return answer(message)
        return act(message, answer)

    return behave


def silence(message, answer):
    return None


def changed(**metrics):
    """Answer, with other metrics than the true ones."""

    def act(message, answer):
        reply = answer(message)
        reply.content["metrics"] = MetricRecord({**reply.content["metrics"], **metrics})
        return reply

    return act


def with_arrays(change):
    def act(message, answer):
        reply = answer(message)
        arrays = {name: Array(change(array.numpy())) for name, array in reply.content["arrays"].items()}
        reply.content["arrays"] = ArrayRecord(arrays)
        return reply

    return act


def check_books(scene: Scene, facts) -> dict:
    """Check the invariants; return the facts about the faulty client."""
    clients = {c["client"]: c for c in facts["clients"]}
    for c in clients.values():
        agreed = (c["price"] or 0.0) * c["share"]
        fraction = c["rounds_delivered"] / c["rounds_agreed"] if c["rounds_agreed"] else 0.0
        assert c["paid"] == pytest.approx(agreed * fraction, rel=1e-9)
        if c["role"] != "remaining":
            assert c["paid"] == 0.0
    assert facts["paid"] == pytest.approx(sum(c["paid"] for c in clients.values()))
    assert facts["paid"] <= facts["budget"] * (1 + 1e-9)
    paid = [row[2] for row in scene.records("payment")]
    assert len(paid) == len(set(paid))
    assert facts["closed"] is not None
    # those who are paid for full delivery are the sound ones
    for number, c in clients.items():
        if number != FAULTY and c["share"] > 0:
            assert c["rounds_delivered"] == c["rounds_agreed"]
    assert {f["client"] for f in facts["faults"]} <= {FAULTY}
    return clients[FAULTY]


def problems(facts) -> str:
    return "; ".join(f["problem"] for f in facts["faults"] if f["client"] == FAULTY)


def test_never_answers(scene):
    def mute(message, answer):
        return answer(message) if message.metadata.message_type == "query.stackfu_roll" else None

    scene.behaviours[FAULTY] = mute
    facts = scene.run()
    faulty = check_books(scene, facts)
    assert faulty["role"] == "left out"
    assert "did not answer" in problems(facts)


def test_never_even_says_who_it_is(scene):
    scene.behaviours[FAULTY] = silence
    facts = scene.run()
    assert check_books(scene, facts)["role"] == "left out"
    assert "has no node" in problems(facts)


@pytest.mark.parametrize("claim", [{}, {"client": -1}, {"client": 99}, {"client": 2.5}, {"client": [5]}])
def test_says_nonsense_about_who_it_is(scene, claim):
    def reply(message, answer):
        return Message(RecordDict({"metrics": MetricRecord(claim)}), reply_to=message)

    scene.behaviours[FAULTY] = when(ROLL, reply)
    facts = scene.run()
    assert check_books(scene, facts)["role"] == "left out"
    assert "has no node" in problems(facts)


def test_stops_answering_when_prices_are_posted(scene, sound):
    scene.behaviours[FAULTY] = when(RESPOND, silence)
    facts = scene.run()
    assert check_books(scene, facts)["role"] == "left out"
    assert facts["offers_made"] == 2
    assert facts["certificate"]["status"] == "CERTIFIED"
    assert facts["responses"]["regret"] < 1e-12
    # the costs and the budget are those of the first offers
    with sound.ledger() as ledger:
        assert facts["budget"] == pytest.approx(ledger.need("r1", GameFounded).budget)


def test_dies_in_mid_round(scene):
    def dead(message, answer):
        return None

    def behave(message, answer):
        kind = message.metadata.message_type
        if kind == UNLEARN and message.content["config"]["server-round"] >= 2:
            scene.behaviours[FAULTY] = dead
            return None
        return answer(message)

    scene.behaviours[FAULTY] = behave
    facts = scene.run()
    faulty = check_books(scene, facts)
    assert faulty["rounds_delivered"] == 1
    assert 0 < faulty["paid"] < faulty["price"] * faulty["share"]
    assert "did not answer" in problems(facts)


def test_dies_in_the_first_round_and_is_paid_nothing(scene):
    scene.behaviours[FAULTY] = when(UNLEARN, silence)
    faulty = check_books(scene, scene.run())
    assert faulty["share"] > 0
    assert faulty["paid"] == 0.0


def test_misses_a_round_and_comes_back(scene):
    scene.behaviours[FAULTY] = when(UNLEARN, silence, rounds={2})
    faulty = check_books(scene, scene.run())
    assert faulty["rounds_delivered"] == 2


def test_answers_late(scene):
    """The answer to round 1 comes among the answers to round 2, before the right one, and is not paid."""
    grid = scene.grid()

    def late(message, answer):
        grid.late.append(answer(message))

    grid.behaviours[FAULTY] = when(UNLEARN, late, rounds={1})
    facts = scene.run(grid)
    assert check_books(scene, facts)["rounds_delivered"] == 2
    assert [row[3] for row in scene.records("work") if row[2] == FAULTY] == [2, 3]


def test_only_a_late_answer_comes(scene):
    grid = scene.grid()

    def late(message, answer):
        grid.late.append(answer(message))

    grid.behaviours[FAULTY] = when(UNLEARN, late)
    facts = scene.run(grid)
    assert check_books(scene, facts)["rounds_delivered"] == 0
    assert "answered round 1 instead of round 2" in problems(facts)


def test_answers_late_with_its_embedding(scene):
    grid = scene.grid()

    def late(message, answer):
        grid.late.append(answer(message))
        return

    grid.behaviours[FAULTY] = when(EMBED, late)
    assert check_books(scene, scene.run(grid))["role"] == "left out"


def test_raises_an_exception(scene):
    class Broken(Averager):
        def samples(self, arrays):
            if self.client == FAULTY:
                raise RuntimeError("disk full")
            return super().samples(arrays)

    scene.load = Broken
    facts = scene.run()
    assert check_books(scene, facts)["role"] == "left out"
    assert "disk full" in problems(facts)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (with_arrays(lambda mean: mean * np.nan), "not finite"),
        (with_arrays(lambda mean: np.where(np.arange(len(mean)) == 3, np.inf, mean)), "not finite"),
        (with_arrays(lambda mean: mean / np.linalg.norm(mean) * 1.01), "norm 1.01"),
        (with_arrays(lambda mean: mean[:-2]), "shape"),
        (changed(size=-5), "claims -5 samples"),
        (changed(size=0), "claims 0 samples"),
        (changed(size=10**15), "claims 1000000000000000 samples"),
        (changed(size=5000), "claims 5000 samples after training with 50"),
        (changed(size=50.5), "claims 50.5 samples"),
        (changed(deviation=0.1), "noise"),
        (lambda message, answer: Message(RecordDict(), reply_to=message), "incomplete"),
    ],
    ids=["nan", "inf", "norm", "shape", "negative", "zero", "absurd", "other", "fraction", "noise", "empty"],
)
def test_nonsense_instead_of_an_embedding(scene, act, said):
    scene.behaviours[FAULTY] = when(EMBED, act)
    facts = scene.run()
    assert check_books(scene, facts)["role"] == "left out"
    assert said in problems(facts) or "signed something else than it sent" in problems(facts)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (with_arrays(lambda w: (w * np.nan).astype(np.float32)), "not finite"),
        (with_arrays(lambda w: w[:1]), "not float32[3]"),
        (with_arrays(lambda w: w.astype(np.float64)), "float64"),
        (changed(**{"num-examples": 10**9}), "claims"),
        (changed(**{"num-examples": -1}), "claims -1 samples"),
        (changed(**{"num-examples": 1}), "were agreed"),
    ],
    ids=["nan", "shape", "type", "absurd", "negative", "less"],
)
def test_nonsense_instead_of_a_model(scene, act, said):
    scene.behaviours[FAULTY] = when(UNLEARN, act)
    facts = scene.run()
    faulty = check_books(scene, facts)
    assert faulty["share"] > 0
    assert faulty["paid"] == 0.0
    assert said in problems(facts)


def test_nonsense_in_training_is_left_out_of_the_average(scene, sound):
    scene.behaviours[FAULTY] = when(TRAIN, with_arrays(lambda w: (w * np.nan).astype(np.float32)))
    facts = scene.run()
    assert "not finite" in problems(facts)
    model = scene.mechanism().model()
    assert np.isfinite(model["mean"].numpy()).all()


def test_joins_twice(scene, sound):
    scene.extra_nodes = (FAULTY,)
    facts = scene.run()
    check_books(scene, facts)
    assert "claims this number as well" in problems(facts)
    assert scene.records("payment", "work", "commitment") == sound.records("payment", "work", "commitment")


def test_a_second_node_cannot_take_over_from_the_first(scene):
    """After a restart of the server the node that was there first still speaks for the client."""
    grid = scene.grid()
    scene.mechanism().train(grid, initial(), 2)
    first = next(n for n, c in grid.contexts.items() if c.node_config["partition-id"] == FAULTY)
    intruder = grid.join({"partition-id": FAULTY})
    grid.contexts = dict(sorted(grid.contexts.items(), key=lambda item: item[0] != intruder))
    facts = scene.run(grid)
    assert f"node {intruder} claims this number as well; it stays with node {first}" in problems(facts)


@pytest.mark.parametrize("played", [1.0, 0.0])
def test_plays_something_else_than_its_best_response(scene, sound, played):
    """Within the budget its choice stands and the others react; above it the offers are made without it."""

    class Stubborn(Averager):
        def decide(self, offer):
            return played if self.client == FAULTY else super().decide(offer)

    scene.load = Stubborn
    facts = scene.run()
    faulty = check_books(scene, facts)
    assert f"took {played:g} where" in problems(facts)
    if faulty["role"] == "remaining":
        assert faulty["share"] == pytest.approx(played)
    assert facts["responses"]["settled"]
    others = [c for c in facts["clients"] if c["client"] not in (FAULTY, *REMOVED)]
    assert any(c["share"] > 0 for c in others)


def test_changes_its_mind_for_ever(scene):
    calls = {"n": 0}

    class Fickle(Averager):
        def decide(self, offer):
            if self.client != FAULTY:
                return super().decide(offer)
            calls["n"] += 1
            return float(calls["n"] % 2)

    scene.load = Fickle
    facts = scene.run()
    assert check_books(scene, facts)["role"] == "left out"
    assert facts["responses"]["regret"] < 1e-12


@pytest.mark.parametrize("share", [-0.5, 1.5, float("nan")])
def test_takes_part_with_an_impossible_share(scene, share):
    scene.behaviours[FAULTY] = when(RESPOND, changed(share=share))
    facts = scene.run()
    assert check_books(scene, facts)["role"] == "left out"
    assert "share of" in problems(facts)


def test_removed_clients_may_be_gone(scene):
    for client in REMOVED:
        scene.behaviours[client] = silence
    facts = scene.run()
    assert facts["faults"] == [] or all(f["phase"].startswith("train") for f in facts["faults"])
    assert facts["closed"] is not None
    assert facts["paid"] > 0


def test_a_server_that_misquotes_an_embedding_gets_no_answer(scene):
    """The client refuses to decide on an embedding that it did not send."""
    grid = scene.grid()

    def misquoted(message, answer):
        arrays = message.content["arrays"]
        own = arrays["own"].numpy().copy()
        own[0] += 1e-3
        message.content["arrays"] = ArrayRecord({"aggregate": arrays["aggregate"], "own": Array(own)})
        return answer(message)

    grid.behaviours[FAULTY] = when(RESPOND, misquoted)
    facts = scene.run(grid)
    assert "did not repeat the embedding" in problems(facts)


def test_measures_are_numbers_about_the_models_and_nothing_else(scene):
    odd = {"amount": 7.0, "client": 3, "before.": 1.0, "after.loss": float("nan"), "before.rank": 2.0}
    scene.behaviours[FAULTY] = when(MEASURE, changed(**odd))
    facts = scene.run()
    measures = check_books(scene, facts)["measures"]
    assert sorted(measures) == ["before.loss", "before.rank"]


def test_sizes_are_known_to_the_tests():
    assert SIZES[FAULTY] == 50
