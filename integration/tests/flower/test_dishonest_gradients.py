"""Servers that ask for more derivatives than was agreed, and ledgers that attack the auditor."""

from __future__ import annotations

import re
import zlib
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from scene import REMOVED, TRAINING_ROUNDS, Scene, initial
from test_convex_head import CONVEX, play
from test_dishonest import when
from test_gradients import Softmax
from test_newton import NEWTON
from test_summed_gradients import SECURE, Shy
from typer.testing import CliRunner

from stackfu.errors import InputError
from stackfu_integration.cli import app
from stackfu_integration.flower import Policy, UnlearningMechanism
from stackfu_integration.flower import audit as report
from stackfu_integration.flower.convex import Seen, next_point, with_curvature
from stackfu_integration.flower.events import SumOpened
from stackfu_integration.flower.ledger import PaymentLedger
from stackfu_integration.flower.naming import one_line
from stackfu_integration.flower.phases import request as opening
from stackfu_integration.flower.phases.sums import read_shares
from stackfu_integration.flower.verification import verify
from stackfu_integration.flower.wire import GRADIENT, SUMMED, UNLEARN

CLIENT = 3


def also(kind, change, answers):
    """A server that asks the same client again with another question; ``answers`` collects the replies."""

    def act(message, answer):
        reply = answer(message)
        other = RecordDict(dict(message.content))
        config = message.content["config"]
        other["config"] = type(config)({**config, **change})
        if change.get("method") == "newton":
            other["arrays"] = with_curvature(message.content["arrays"], ("weight", "bias"))
        sent = Message(other, dst_node_id=message.metadata.dst_node_id, message_type=kind)
        found = answer(sent)
        answers.append(found.error.reason if found.has_error() else "it told")
        return reply

    return when(kind, act)


@pytest.mark.parametrize("method", ["convex-head", "newton"])
def test_derivatives_are_told_for_the_method_that_was_consented_to(scene, method):
    """In rounds of training, and second ones in rounds of first ones: those of a few samples are the samples."""
    answers = []
    terms = replace(CONVEX, rounds=2)
    if method == "convex-head":
        terms = replace(terms, unlearning="retrain", head=(), certify_l2=None)
    told = {"method": method, "only": "weight,bias", "server-round": 2}
    play(scene, Softmax, terms, {CLIENT: also(UNLEARN, told, answers)})
    assert answers
    assert all("consented to nothing of the kind" in said for said in answers[:1])
    assert "it told" not in answers


def test_second_derivatives_by_themselves_need_the_policy(scene):
    class Careful(Softmax):
        def __init__(self, context):
            super().__init__(context)
            self.policy = replace(Policy.open(), curvature=False)

    assert not Policy().curvature
    facts, _, _ = play(scene, Careful, NEWTON)
    assert "second derivatives in sums only" in facts["aborted"]["reason"]
    facts, _, _ = play(Scene(scene.folder / "sums"), Careful, replace(NEWTON, aggregation="secure"))
    assert (facts["aborted"], facts["faults"]) == (None, [])


def test_no_second_sum_at_one_head(scene):
    """With a missing member the difference of two sums would be its gradient."""
    answers = []
    facts, _, _ = play(
        scene, Shy, replace(SECURE, rounds=3), {CLIENT: also(SUMMED, {"server-round": 3}, answers)}
    )
    assert "has answered for this model" in answers[0]
    assert "it told" not in answers[:2]
    assert facts["aborted"] is None


def test_no_second_sum_of_gradients(scene):
    answers = []
    facts, _, _ = play(scene, Shy, SECURE, {CLIENT: also(GRADIENT, {"number": 99}, answers)})
    assert len(answers) == 1
    assert "told its gradient in another sum" in answers[0]
    assert facts["bound"]["distance"] <= SECURE.certify_distance


def test_a_spoilt_matrix_stops_nobody():
    now = Seen(1, np.zeros(2), np.array([3.0, 4.0]), 1)
    _, point = next_point([], now, np.zeros((2, 2)))
    assert np.allclose(point, [-0.6, -0.8])
    _, point = next_point([], now, np.full((2, 2), np.nan))
    assert not np.isfinite(point).all()  # which the server looks at before it goes there


# ---- ledgers that aim at the auditor


def crafted(scene, monkeypatch, name):
    """A ledger with a request of this name, which no honest server writes."""
    with monkeypatch.context() as patch:
        for module in (opening, report):
            patch.setattr(module, "PLAIN_NAME", re.compile(r"(?s).*"))
        place = Scene(scene.folder)
        grid, mechanism = place.grid(), place.mechanism()
        mechanism.train(grid, initial(), TRAINING_ROUNDS)
        mechanism.remove(grid, REMOVED, request=name)
        mechanism.ledger.close()


def test_a_request_whose_name_is_a_path_writes_nothing_at_the_auditors(scene, monkeypatch, tmp_path):
    mechanism = scene.mechanism()
    for name in ("", "../../evil", "a/b", "line\nbreak", "<script>", ".hidden", "x" * 65):
        with pytest.raises(InputError, match="request"):
            opening.open_request(mechanism.ledger, name, (0,), mechanism.terms, 8)
    mechanism.ledger.close()
    outside = tmp_path / "outside"
    crafted(scene, monkeypatch, f"x/../../../{outside.relative_to(tmp_path)}/evil")
    for path in tmp_path.rglob("*evil*"):
        path.unlink()
    assert "no request has such a name" in str(verify(scene.folder).misfit)
    told = CliRunner().invoke(app, ["audit", str(scene.folder)])
    assert told.exit_code == 1
    assert list(tmp_path.rglob("*evil*")) == []


def test_names_are_lines_and_no_pages(scene):
    with pytest.raises(InputError, match=r"clients\[client 1\] = ' ': is empty"):
        UnlearningMechanism(scene.folder, ["Bath", " "])
    for name in ("Leeds\n## Recomputed", "<b>York</b>", "a|b", "`"):
        with pytest.raises(InputError, match="a name is one line"):
            UnlearningMechanism(scene.folder, ["Bath", name])
    assert one_line("Leeds\n\n## all <b>fits</b> | `yes`") == "Leeds all b fits /b yes "


def test_text_of_a_dishonest_ledger_makes_no_headings(scene, monkeypatch):
    monkeypatch.setattr("stackfu_integration.flower.mechanism.one_line", lambda text: text)
    evil = "Leeds\n\n# Everything fits\n\n<script>alert(1)</script>"
    names = [evil, *(f"client {k}" for k in range(1, 8))]
    mechanism = UnlearningMechanism(scene.folder, names, scene.terms, wait=0.0, timeout=1.0)
    grid = scene.grid()
    mechanism.train(grid, initial(), TRAINING_ROUNDS)
    mechanism.remove(grid, [names[k] for k in REMOVED])
    mechanism.ledger.close()
    text = (scene.folder / "audit-r1.md").read_text()
    assert "Leeds Everything fits script alert(1) /script" in text
    assert not re.search(r"^# Everything", text, re.MULTILINE)
    assert "<script>" not in text


def test_shares_that_grow_when_they_are_read_are_cut_off(scene, monkeypatch):
    bomb = zlib.compress(b" " * 200_000_000, 9)
    assert len(bomb) < 300_000
    with pytest.raises(ValueError, match=r"."):
        read_shares(SumOpened(1, bomb))
    honest = PaymentLedger.add

    def add(self, request, event):
        honest(self, request, replace(event, shares=b"no") if isinstance(event, SumOpened) else event)

    monkeypatch.setattr(PaymentLedger, "add", add)
    play(scene, Shy, SECURE)
    assert verify(scene.folder).misfit is not None
