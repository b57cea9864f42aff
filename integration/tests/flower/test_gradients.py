"""A bound on the distance to the head that never met the removed data, from gradients that participants sign."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from scene import CLIENTS, REMOVED, TERMS, Averager, Scene, client_app, initial
from scipy.optimize import minimize

from stackfu.errors import InputError
from stackfu_integration.flower import InProcessGrid, Terms, UnlearningMechanism
from stackfu_integration.flower.events import ClientCommitted, GradientReported
from stackfu_integration.flower.phases import evidence
from stackfu_integration.flower.phases.evidence import is_head
from stackfu_integration.flower.verification import verify

L2, CLASSES, WIDTH = 0.05, 3, 3


def head_of(arrays):
    return np.column_stack([arrays["weight"].numpy(), arrays["bias"].numpy()]).astype(np.float64)


def arrays_of(head):
    return ArrayRecord(
        {"weight": Array(head[:, :-1].astype(np.float32)), "bias": Array(head[:, -1].astype(np.float32))}
    )


def slope(head, x, y):
    """Sum of the cross-entropy's gradients, and of the cross-entropy."""
    inputs = np.column_stack([x, np.ones(len(x))])
    scores = inputs @ head.T
    scores -= scores.max(1, keepdims=True)
    chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    loss = -np.log(chances[np.arange(len(y)), y]).sum()
    chances[np.arange(len(y)), y] -= 1.0
    return chances.T @ inputs, loss


class Softmax(Averager):
    """The Averager's points, with a class by the largest coordinate, and a softmax head trained on them."""

    def used(self, share):
        x = self.data[: round(share * len(self.data))]
        return x, x.argmax(1)

    def train(self, arrays, share, config):
        head, (x, y) = head_of(arrays), self.used(share)
        for _ in range(20):
            head = head - 0.5 * (slope(head, x, y)[0] / len(x) + L2 * head)
        return arrays_of(head), len(x)

    def gradient(self, arrays, share, config):
        found, _ = slope(head_of(arrays), *self.used(share))
        return np.concatenate([found[:, :-1].ravel(), found[:, -1]]), round(share * len(self.data))

    def curvature(self, arrays, share, config):
        x, _ = self.used(share)
        inputs = np.column_stack([x, np.ones(len(x))])
        scores = inputs @ head_of(arrays).T
        chances = np.exp(scores - scores.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        spread = np.einsum("na,ab->nab", chances, np.eye(CLASSES)) - np.einsum("na,nb->nab", chances, chances)
        blocks = np.einsum("nab,ni,nj->aibj", spread, inputs, inputs)
        places = np.arange(CLASSES * (WIDTH + 1)).reshape(CLASSES, WIDTH + 1)
        order = np.concatenate([places[:, :-1].ravel(), places[:, -1]])
        square = blocks.reshape(len(order), len(order))
        return square[order][:, order], len(x)

    def measure(self, arrays):
        return {}


def run(scene: Scene, load=Softmax, start=None, **changes):
    terms = replace(TERMS, certify_l2=L2, **changes)
    nodes = [{"partition-id": i, "client-folder": str(scene.client_folder(i))} for i in range(CLIENTS)]
    grid = InProcessGrid(client_app(load), nodes)
    mechanism = UnlearningMechanism(scene.folder, CLIENTS, terms, wait=0.0, timeout=1.0)
    mechanism.train(grid, arrays_of(np.zeros((CLASSES, WIDTH + 1))) if start is None else start, 1)
    facts = mechanism.remove(grid, REMOVED)
    model = mechanism.model("r1")
    mechanism.ledger.close()
    return facts, model, (scene.folder / "audit-r1.md").read_text()


def test_the_optimum_on_the_participants_data_is_within_the_bound(scene):
    facts, model, text = run(scene)
    assert verify(scene.folder).misfit is None
    with scene.ledger() as ledger:
        shares = {c: agreed.share for c, agreed in ledger.by_client("r1", ClientCommitted).items()}
    parts = [Softmax.data_of(c)[: round(share * len(Softmax.data_of(c)))] for c, share in shares.items()]
    x = np.concatenate(parts)
    y = x.argmax(1)

    def objective(flat):
        head = flat.reshape(CLASSES, WIDTH + 1)
        found, loss = slope(head, x, y)
        return loss / len(x) + 0.5 * L2 * (flat @ flat), (found / len(x) + L2 * head).ravel()

    best = minimize(
        objective, np.zeros(CLASSES * (WIDTH + 1)), jac=True, method="BFGS", options={"gtol": 1e-9}
    ).x
    truly = np.linalg.norm(head_of(model).ravel() - best)
    bound = facts["bound"]
    assert 0 < truly <= bound["distance"]
    assert bound["samples"] == len(x)
    assert bound["clients"] == sorted(shares)
    assert bound["distance"] == pytest.approx(
        np.linalg.norm(objective(head_of(model).ravel())[1]) / L2, rel=1e-5
    )
    assert "depends on these samples alone" in text
    assert any("gradients behind the bound" in question for question in verify(scene.folder).limits)


def test_a_bound_that_the_gradients_do_not_give_is_named(scene, monkeypatch):
    honest = evidence.bound_on_distance
    monkeypatch.setattr(evidence, "bound_on_distance", lambda *seen: tuple(v / 2 for v in honest(*seen)))
    run(scene)
    assert "the gradients bound the distance by" in str(verify(scene.folder).misfit)


def test_whoever_sends_no_gradient_is_named_and_the_bound_is_of_the_others(scene):
    class Shy(Softmax):
        def gradient(self, arrays, share, config):
            if self.client == 5:
                return np.zeros(2), 1
            if self.client == 4:
                return Averager.gradient(self, arrays, share, config)
            return super().gradient(arrays, share, config)

    facts, _, _ = run(scene, Shy)
    problems = {f["client"]: f["problem"] for f in facts["faults"] if f["phase"] == evidence.PHASE}
    assert "no gradient of 12 numbers" in problems[5]
    assert "computes none" in problems[4]
    assert not {4, 5} & set(facts["bound"]["clients"])
    assert verify(scene.folder).misfit is None
    with scene.ledger() as ledger:
        assert set(ledger.by_client("r1", GradientReported)) == set(facts["bound"]["clients"])


def test_only_heads_have_a_bound(scene):
    facts, _, text = run(scene, Averager, initial())
    assert facts["bound"] is None
    assert "there is none: the model is not a softmax head" in text
    assert is_head(arrays_of(np.zeros((2, 4))))
    assert not is_head(initial())
    with pytest.raises(InputError, match="certify_l2"):
        Terms(certify_l2=0.0)
