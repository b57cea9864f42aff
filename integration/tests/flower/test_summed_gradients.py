"""Gradients of which the server sees the sum alone: the same head, and a bound that follows from what clients signed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scene import Killed, Scene
from test_convex_head import CONVEX, FAULTY, liar, optimum, play, text_of
from test_gradients import CLASSES, WIDTH, Softmax, arrays_of, head_of
from test_gradients import run as run_with_evidence
from test_newton import NEWTON, noiseless

from stackfu_integration.flower import Policy
from stackfu_integration.flower.client_state import read_receipts
from stackfu_integration.flower.events import (
    GradientHidden,
    GradientReported,
    SlopeSummed,
    SumOpened,
    WorkDelivered,
)
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.phases import evidence
from stackfu_integration.flower.verification import verify
from stackfu_integration.flower.wire import GRADIENT, SUMMED, UNLEARN

SECURE = replace(CONVEX, aggregation="secure")


class Shy(Softmax):
    """Shows sums only, once a removal was asked for: ordinary training shows single updates, and would be refused."""

    def __init__(self, context):
        super().__init__(context)
        kept = self.folder / "receipts.jsonl"
        if kept.is_file() and any(r.statement["what"] != "enrolment" for r in read_receipts(kept)):
            self.policy = replace(Policy.open(), only_sums=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    scene = Scene(tmp_path_factory.mktemp("whole") / "run")
    return scene, *play(scene, Shy, SECURE)


def test_the_head_is_the_optimum_and_no_gradient_was_seen(whole):
    scene, facts, model, grid = whole
    best, beside = optimum(scene)
    bound = facts["bound"]
    assert facts["faults"] == []
    assert bound["distance"] <= SECURE.certify_distance
    assert np.linalg.norm(head_of(model) - best) <= bound["distance"] + beside
    with scene.ledger() as ledger:
        assert ledger.events("r1", GradientReported) == []
        hidden = ledger.by_client("r1", GradientHidden)
        assert sorted(hidden) == bound["clients"] != []
        assert all(event.answers == "" for event in ledger.events("r1", SlopeSummed))
    for (
        client,
        event,
    ) in hidden.items():  # uniform numbers of 64 bits: nothing of a gradient of at most some hundreds
        seen = np.abs(np.frombuffer(event.masked, "<u8").view(np.int64).astype(float)) / 2.0**24
        assert np.median(seen) > 1e9, client
    assert not any(kind == UNLEARN for _, kind in grid.log)
    assert any(kind == SUMMED for _, kind in grid.log)
    assert verify(scene.folder).misfit is None
    assert "arrived behind masks" in text_of(scene)
    assert "the head is within" in text_of(scene)


def test_newton_steps_are_taken_from_sums_too(scene):
    facts, _, _ = play(scene, Shy, replace(NEWTON, aggregation="secure"))
    best, beside = optimum(scene)
    assert (facts["aborted"], facts["faults"]) == (None, [])
    assert np.linalg.norm(head_of(noiseless(scene)) - best) <= facts["bound"]["distance"] + beside
    assert verify(scene.folder).misfit is None


def test_the_head_alone_is_trained_on_in_sums(scene):
    """Clients send nothing about fixed layers, so nothing of them needs to be checked."""
    terms = replace(SECURE, unlearning="head", head=("bias",), certify_l2=None, rounds=2)
    facts, model, _ = play(scene, Shy, terms, first=arrays_of(np.zeros((CLASSES, WIDTH + 1))))
    assert (facts["aborted"], facts["faults"]) == (None, [])
    before = ModelStore(scene.folder / "models").get(facts["model_before"])
    assert np.array_equal(before["weight"].numpy(), model["weight"].numpy())
    assert not np.array_equal(before["bias"].numpy(), model["bias"].numpy())
    assert verify(scene.folder).misfit is None


def test_a_client_that_shows_sums_only_tells_nobody_its_gradient(scene):
    """Also where a bound is asked for after ordinary rounds, by a server that says nothing of sums."""

    class Late(Softmax):
        """Changes its mind when it has worked: rounds were shown, its gradient is not."""

        def __init__(self, context):
            super().__init__(context)
            kept = self.folder / "receipts.jsonl"
            if kept.is_file() and any(r.statement["what"] == "work" for r in read_receipts(kept)):
                self.policy = replace(Policy.open(), only_sums=True)

    facts, _, _ = run_with_evidence(scene, Late, rounds=1)
    assert facts["bound"] is None
    with scene.ledger() as ledger:
        assert ledger.events("r1", GradientReported) == []
    said = {f["problem"] for f in facts["faults"] if f["phase"] == evidence.PHASE}
    assert len(said) == 1
    assert "in sums only" in said.pop()


def test_whoever_is_gone_at_the_end_is_missing_from_the_sum_and_from_the_bound(scene):
    def leaves(message, answer):
        return None if message.metadata.message_type == GRADIENT else answer(message)

    facts, model, _ = play(scene, Shy, SECURE, behaviours={FAULTY: leaves})
    assert FAULTY not in facts["bound"]["clients"]
    assert facts["bound"]["clients"]
    assert verify(scene.folder).misfit is None
    with scene.ledger() as ledger:  # it worked to the end, and is in the head
        assert FAULTY in ledger.events("r1", SlopeSummed)[-1].clients
    assert model is not None


def test_whoever_sends_what_cannot_be_summed_is_missing_from_the_bound(scene):
    class Loud(Shy):
        def gradient(self, arrays, share, config):
            vector, used = super().gradient(arrays, share, config)
            return (vector if "server-round" in config or self.client != FAULTY else vector * np.inf), used

    facts, _, _ = play(scene, Loud, SECURE)
    problems = {f["client"]: f["problem"] for f in facts["faults"]}
    assert set(problems) == {FAULTY}
    assert "too large, or not finite" in problems[FAULTY]
    assert FAULTY not in facts["bound"]["clients"]
    assert verify(scene.folder).misfit is None


def test_a_bound_that_the_sum_does_not_give_is_named(scene, monkeypatch):
    honest = evidence.bound_on_summed
    monkeypatch.setattr(evidence, "bound_on_summed", lambda *seen: tuple(v / 2 for v in honest(*seen)))
    play(scene, Shy, SECURE)
    assert "the gradients bound the distance by" in str(verify(scene.folder).misfit)


@pytest.mark.parametrize("kind", [GradientHidden, SumOpened])
def test_a_server_that_writes_down_another_summand_or_opening_is_named(scene, monkeypatch, kind):
    honest = PaymentLedger.add

    def add(self, request, event):
        if isinstance(event, GradientHidden) and kind is GradientHidden and event.client == FAULTY:
            event = replace(event, masked=bytes(8) + event.masked[8:])
        if isinstance(event, SumOpened) and kind is SumOpened and event.number > SECURE.rounds:
            event = replace(event, shares=b"no")
        honest(self, request, event)

    monkeypatch.setattr(PaymentLedger, "add", add)
    play(scene, Shy, SECURE)
    misfit = str(verify(scene.folder).misfit)
    assert "says gradient" in misfit if kind is GradientHidden else misfit != "None"


@pytest.mark.parametrize("at", [1, 4, "gradient"])
def test_killed_in_a_sum_the_same_head_comes_out(scene, whole, at):
    _, expected, model, _ = whole

    def dies(message, answer):
        number = message.content.config_records["config"].get("server-round")
        if (message.metadata.message_type == SUMMED and number == at) or (
            message.metadata.message_type == GRADIENT and at == "gradient"
        ):
            raise Killed
        return answer(message)

    with pytest.raises(Killed):
        play(scene, Shy, SECURE, behaviours={5: dies})
    facts, again, _ = play(scene, Shy, SECURE)
    assert np.array_equal(head_of(model), head_of(again))
    assert (facts["paid"], facts["bound"], facts["faults"]) == (expected["paid"], expected["bound"], [])
    assert verify(scene.folder).misfit is None


def test_flipped_signs_are_not_seen_in_a_sum_and_the_bound_says_what_they_cost(scene):
    facts, _, _ = play(scene, liar(lambda vector: -vector), SECURE)
    with scene.ledger() as ledger:
        assert any(work.client == FAULTY for work in ledger.events("r1", WorkDelivered))
    assert facts["bound"]["distance"] > SECURE.certify_distance
    assert "which was not reached" in text_of(scene)
