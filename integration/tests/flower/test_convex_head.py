"""Convex heads on Flower: the optimum on the participants' data, from signed gradients, and nothing of the removed data."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg
from hypothesis import given, settings
from hypothesis import strategies as st
from scene import REMOVED, TERMS, Averager, Killed, Scene, dies_in_round
from scipy.optimize import minimize
from test_gradients import CLASSES, L2, WIDTH, Softmax, arrays_of, head_of, slope

from stackfu.errors import InputError
from stackfu_integration.flower import PaymentLedger, Policy, Terms, verification
from stackfu_integration.flower.convex import Seen, next_point, with_head, zeroed
from stackfu_integration.flower.events import ClientCommitted, RunStarted, SlopeSummed, StartPrepared
from stackfu_integration.flower.lab import load_federation
from stackfu_integration.flower.ledger import RUN
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.phases import convex_rounds, start
from stackfu_integration.flower.simulation import APP_FOLDER, run_in_process
from stackfu_integration.flower.verification import verify
from stackfu_integration.flower.wire import EMBED, REPEAT, UNLEARN
from stackfu_integration.lab.federation import client_seed
from stackfu_integration.lab.unlearning.participation import SHARE_STREAM

HEAD = ("weight", "bias")
CONVEX = replace(
    TERMS, unlearning="convex-head", head=HEAD, certify_l2=L2, certify_distance=1e-3, rounds=40, min_total=0.5
)
FAULTY = 6


def play(scene: Scene, load=Softmax, terms=CONVEX, behaviours=None, first=None, **options):
    scene = Scene(scene.folder, terms=terms, load=load, behaviours=behaviours or {})
    grid, mechanism = scene.grid(), scene.mechanism(**options)
    try:
        mechanism.train(grid, first or arrays_of(np.ones((CLASSES, WIDTH + 1))), 1)
        facts = mechanism.remove(grid, REMOVED)
        return facts, None if facts["aborted"] else mechanism.model("r1"), grid
    finally:
        mechanism.ledger.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run in which nothing goes wrong: the scene, the audit and the model."""
    scene = Scene(tmp_path_factory.mktemp("whole") / "run")
    facts, model, _ = play(scene)
    return scene, facts, model


def optimum(scene, clients=None, load=Softmax):
    """Return scipy's optimum for the pooled samples of the participants."""
    with scene.ledger() as ledger:
        shares = {c: agreed.share for c, agreed in ledger.by_client("r1", ClientCommitted).items()}
    parts = [load.data_of(c)[: round(shares[c] * len(load.data_of(c)))] for c in clients or shares]
    x = np.concatenate(parts)
    y = x.argmax(1)
    return best_head(lambda head: slope(head, x, y), len(x), L2, (CLASSES, WIDTH + 1))


def best_head(sums, count, l2, shape):
    def objective(values):
        head = values.reshape(shape)
        found, loss = sums(head)
        return loss / count + 0.5 * l2 * (values @ values), (found / count + l2 * head).ravel()

    options = {"gtol": 1e-9, "ftol": 0.0, "maxiter": 5000, "maxfun": 20000}
    found = minimize(objective, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=options)
    assert np.linalg.norm(found.jac) < 1e-6
    return found.x.reshape(shape), np.linalg.norm(found.jac) / l2


def of(facts, client=FAULTY):
    return next(c for c in facts["clients"] if c["client"] == client)


def text_of(scene):
    return (scene.folder / "audit-r1.md").read_text()


# ---- what comes out


def test_digits_reach_the_optimum_of_the_pooled_data_within_the_certified_distance(tmp_path):
    l2, threads = 0.02, torch.get_num_threads()
    given = {"clients": 6, "removed": "0", "training_rounds": 1, "rounds": 60, "local_epochs": 1.0}
    convex = {"unlearning": "convex-head", "head": "head.weight,head.bias", "certify_l2": str(l2)}
    private = {"epsilon": "none", "policy": "open", "features": 128, "certify_distance": 0.01}
    run_in_process(APP_FOLDER, folder=str(tmp_path / "run"), **given, **convex, **private)
    torch.set_num_threads(threads)
    facts = json.loads((tmp_path / "run" / "audit-r1.json").read_text())
    assert (facts["aborted"], facts["faults"], verify(tmp_path / "run").misfit) == (None, [], None)
    with PaymentLedger(tmp_path / "run" / "ledger.sqlite", create=False) as ledger:
        shares = {c: e.share for c, e in ledger.by_client("r1", ClientCommitted).items()}
        assert len(ledger.events("r1", SlopeSummed)) < 60
    federation = load_federation({"clients": 6})
    drawn = [
        federation.clients[c].train.share(share, client_seed(0, c, 0, SHARE_STREAM))
        for c, share in shares.items()
    ]
    x = np.concatenate([data.x.numpy().astype(np.float64) for data in drawn])
    y = np.concatenate([data.y.numpy() for data in drawn])
    best, beside = best_head(lambda head: slope(head, x, y), len(x), l2, (10, x.shape[1] + 1))
    model = ModelStore(tmp_path / "run" / "models").get(facts["model_after"])
    found = np.column_stack([model["head.weight"].numpy(), model["head.bias"].numpy()]).astype(np.float64)
    bound = facts["bound"]
    assert bound["samples"] == len(x)
    assert bound["distance"] <= 0.01
    assert np.linalg.norm(found - best) <= bound["distance"] + beside
    assert np.linalg.norm(best) > 100 * bound["distance"]  # the bound says something
    reached = np.linalg.norm(slope(found, x, y)[0] / len(x) + l2 * found) / l2
    assert bound["distance"] == pytest.approx(reached, rel=1e-6)


def test_the_head_is_the_optimum_and_the_audit_states_the_distance(whole):
    scene, facts, model = whole
    best, beside = optimum(scene)
    assert np.linalg.norm(head_of(model) - best) <= facts["bound"]["distance"] + beside
    assert facts["bound"]["distance"] <= CONVEX.certify_distance
    assert facts["faults"] == []
    assert verify(scene.folder).misfit is None
    assert f"the head is within **{facts['bound']['distance']:.4g}**" in text_of(scene)
    assert "was not reached" not in text_of(scene)
    with scene.ledger() as ledger:
        done = len(ledger.events("r1", SlopeSummed))
    assert done < CONVEX.rounds
    for client in facts[
        "clients"
    ]:  # they agreed to a price for all rounds, and stood ready for those not needed
        if client["share"] > 0:
            assert (client["rounds_delivered"], client["rounds_passed"]) == (done, CONVEX.rounds)
            assert client["paid"] == pytest.approx(client["price"] * client["share"])
            assert client["acknowledged"]


def test_too_few_rounds_are_said_and_the_best_head_is_kept(scene):
    facts, model, _ = play(scene, terms=replace(CONVEX, rounds=4))
    best, _ = optimum(scene)
    assert facts["bound"]["distance"] > CONVEX.certify_distance
    assert np.linalg.norm(head_of(model) - best) <= facts["bound"]["distance"]
    assert "**The terms ask for a distance of 0.001, which was not reached.**" in text_of(scene)
    assert verify(scene.folder).misfit is None
    with scene.ledger() as ledger:
        least = min(event.norm for event in ledger.events("r1", SlopeSummed))
    assert facts["bound"]["gradient_norm"] == pytest.approx(least, rel=1e-5)


def removed_data(shift):
    """Clients of which those that leave hold other data, and as much."""

    class Other(Softmax):
        @staticmethod
        def data_of(client):
            data = Averager.data_of(client)
            return data if client not in REMOVED else data @ np.roll(np.eye(WIDTH), 1, axis=0) * 3 + shift

    return Other


@pytest.mark.parametrize("unlearning", ["convex-head", "continue"])
def test_the_head_does_not_depend_on_the_removed_data(scene, unlearning):
    """To the last bit, if all remaining clients bring all data: the shares of the game do depend on the leaving clients."""
    terms = replace(CONVEX, min_total=1.0, budget_share=1.0)
    if unlearning == "continue":
        terms = replace(terms, unlearning="continue", head=(), rounds=3)
    heads = []
    for number, load in enumerate((Softmax, removed_data(0.0), removed_data(2.0))):
        facts, model, _ = play(Scene(scene.folder / str(number)), load, terms)
        assert facts["aborted"] is None
        assert all(c["share"] == pytest.approx(1.0) for c in facts["clients"] if c["role"] == "remaining")
        heads.append((facts["model_before"], head_of(model)))
    assert len({before for before, _ in heads}) == 3  # training did see it
    same = [np.array_equal(heads[0][1], head) for _, head in heads[1:]]
    assert same == [unlearning == "convex-head"] * 2


def test_layers_below_are_the_first_ones_and_buffers_too(tmp_path):
    given = {"training_rounds": 1, "rounds": 6, "clients": 4, "removed": "0", "certify_l2": "0.1"}
    template = APP_FOLDER.parent / "flower-template"
    head = {"5.weight", "5.bias"}
    run_in_process(
        template, folder=str(tmp_path / "run"), unlearning="convex-head", head=",".join(sorted(head)), **given
    )
    facts = json.loads((tmp_path / "run" / "audit-r1.json").read_text())
    assert (facts["aborted"], facts["faults"]) == (None, [])
    assert verify(tmp_path / "run").misfit is None
    models = ModelStore(tmp_path / "run" / "models")
    with PaymentLedger(tmp_path / "run" / "ledger.sqlite", create=False) as ledger:
        initial = models.get(ledger.need(RUN, RunStarted).initial)
    after = models.get(facts["model_after"])
    same = {n for n in initial if np.array_equal(initial[n].numpy(), after[n].numpy())}
    assert same == set(initial) - head
    assert facts["bound"]["clients"] == [c["client"] for c in facts["clients"] if c["share"] > 0] != []
    assert (
        "All layers below the last one are the first weights"
        in (tmp_path / "run" / "audit-r1.md").read_text()
    )


# ---- steps


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 5), st.sampled_from([0.3, 0.03, 0.01]))
def test_steps_find_the_optimum(seed, classes, width, l2):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(30, width)) * rng.uniform(0.2, 4.0, size=width) + rng.normal(size=width)
    y = rng.integers(classes, size=30)
    shape = (classes, width + 1)
    best, beside = best_head(lambda head: slope(head, x, y), len(x), l2, shape)
    history: list[Seen] = []
    point = np.zeros(best.size)
    for number in range(1, 301):
        gradient = slope(point.reshape(shape), x, y)[0].ravel() / len(x) + l2 * point
        now = Seen(number, point, gradient, number)
        if now.norm <= 1e-6 * l2:
            break
        base, point = next_point(history, now)
        history = [*history, replace(now, base=base)]
    assert now.norm <= 1e-6 * l2
    assert np.linalg.norm(now.point - best.ravel()) <= 1e-6 + beside


# ---- dishonest clients


def liar(lie, only=lambda config: "server-round" in config):
    """One client that changes its gradient in rounds; its data is what it is."""

    class Liar(Softmax):
        def gradient(self, arrays, share, config):
            vector, used = super().gradient(arrays, share, config)
            return (lie(vector) if self.client == FAULTY and only(config) else vector), used

    return Liar


def test_flipped_signs_are_refused_from_the_second_round_on_and_the_head_is_that_of_the_others(scene):
    facts, model, _ = play(scene, liar(lambda vector: -vector))
    problems = {f["client"]: f["problem"] for f in facts["faults"]}
    assert set(problems) == {FAULTY}
    assert "no gradient of a convex loss" in problems[FAULTY]
    assert of(facts)["rounds_passed"] == 1
    assert FAULTY not in facts["bound"]["clients"]
    best, beside = optimum(scene, facts["bound"]["clients"])
    assert np.linalg.norm(head_of(model) - best) <= facts["bound"]["distance"] + beside
    assert facts["bound"]["distance"] <= CONVEX.certify_distance
    assert verify(scene.folder).misfit is None


def test_flips_of_honest_gradients_would_be_seen(whole):
    scene, facts, _ = whole
    work = facts["work"]
    first = sum(c["rounds_delivered"] > 0 for c in facts["clients"])
    assert work["refused"] == 0
    assert work["flip_seen"] >= 0.9 * (work["judged"] - first)
    assert "because gradients of a convex loss do not fall along a step" in text_of(scene)


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda vector: vector * np.nan, "not finite"),
        (lambda vector: vector[:2], "must be the sum over some samples of 12 numbers"),
        (lambda vector: 0.0 * vector, "sent the model back nearly as it was"),
        (lambda vector: vector * 1e45, "not finite"),
    ],
)
def test_what_is_no_gradient_is_refused_and_the_head_is_that_of_the_others(scene, lie, said):
    facts, model, _ = play(scene, liar(lie))
    faults = [f for f in facts["faults"] if f["phase"] != "evidence"]
    assert {f["client"] for f in faults} == {FAULTY}
    assert said in faults[0]["problem"]
    assert of(facts)["paid"] == 0
    best, beside = optimum(scene, facts["bound"]["clients"])
    assert FAULTY not in facts["bound"]["clients"]
    assert np.linalg.norm(head_of(model) - best) <= facts["bound"]["distance"] + beside
    assert verify(scene.folder).misfit is None


def test_a_scaled_gradient_is_clipped_and_the_bound_says_what_it_cost(scene):
    """It cannot be told from data with longer features; it moves the head, and by the honest gradients at the end that is seen."""
    facts, model, _ = play(scene, liar(lambda vector: 1000 * vector))
    best, _ = optimum(scene)
    assert of(facts)["paid"] > 0
    assert facts["bound"]["distance"] > CONVEX.certify_distance
    assert np.linalg.norm(head_of(model) - best) <= facts["bound"]["distance"]
    assert "which was not reached" in text_of(scene)
    free, unbounded, _ = play(
        Scene(scene.folder / "mean"),
        liar(lambda vector: 1000 * vector),
        replace(CONVEX, aggregation="mean"),
    )
    assert np.linalg.norm(head_of(model) - best) < np.linalg.norm(head_of(unbounded) - best)
    assert free["bound"]["distance"] > facts["bound"]["distance"]


def test_work_is_asked_for_again(scene):
    facts, _, grid = play(scene, terms=replace(CONVEX, spot_checks=1.0, rounds=3))
    assert facts["work"]["repeated"] == facts["work"]["judged"] > 0
    assert facts["work"]["repeated_otherwise"] == 0
    assert any(kind == REPEAT for _, kind in grid.log)


# ---- who can, and who cannot


def test_apps_without_gradients_end_the_request_before_anything_is_asked(scene):
    class Plain(Softmax):
        gradient = Averager.gradient

    facts, _, grid = play(scene, Plain)
    reason = facts["aborted"]["reason"]
    assert facts["aborted"]["phase"] == convex_rounds.PHASE
    assert "Convex heads needs gradients of the clients that stay" in reason
    assert "this client's app gives none" in reason
    assert reason.endswith("can be had: retrain, continue, head, shards, federaser, fedrecovery")
    assert not any(kind in (EMBED, UNLEARN) for _, kind in grid.log)
    assert verify(scene.folder).misfit is None


def test_a_client_whose_app_gives_none_or_whose_policy_says_no_is_left_out(scene):
    class Shy(Softmax):
        def __init__(self, context):
            super().__init__(context)
            if self.client == FAULTY:
                self.policy = replace(Policy.open(), only_sums=True)

    facts, _, grid = play(scene, Shy)
    assert facts["aborted"] is None
    # ordinary training shows single updates as well
    assert [(f["client"], f["phase"]) for f in facts["faults"]] == [
        (FAULTY, "train 1"),
        (FAULTY, convex_rounds.PHASE),
    ]
    assert all("in sums only" in fault["problem"] for fault in facts["faults"])
    assert (FAULTY, EMBED) not in grid.log
    assert facts["bound"]["distance"] <= CONVEX.certify_distance
    assert verify(scene.folder).misfit is None


def test_terms_that_make_no_sense_are_refused(scene):
    for changes, named in (
        ({"head": ()}, "head"),
        ({"certify_l2": None}, "certify_l2"),
        ({"aggregation": "krum"}, "no optimum of anybody's loss"),
        ({"aggregation": "trimmed"}, "no optimum of anybody's loss"),
        ({"certify_distance": 0.0}, "certify_distance"),
    ):
        with pytest.raises(InputError, match=named):
            replace(CONVEX, **changes)
    assert Terms.restated(CONVEX.stated()) == CONVEX
    for head in (("weight",), ("weight", "bias", "other"), ("nothing", "bias")):
        with pytest.raises(InputError, match="head"):
            play(Scene(scene.folder / "-".join(head)), terms=replace(CONVEX, head=head))
    mechanism = Scene(scene.folder, terms=CONVEX).mechanism()
    mechanism.adopt(arrays_of(np.ones((CLASSES, WIDTH + 1))))
    with pytest.raises(InputError, match="without its first weights"):
        mechanism.remove(None, REMOVED)
    with pytest.raises(InputError, match="strategy"):
        mechanism.remove(None, REMOVED, strategy=FedAvg())
    mechanism.ledger.close()


# ---- killed


@pytest.mark.parametrize("at", [1, 2, 7])
def test_killed_in_the_middle_of_a_round_the_same_head_comes_out(scene, whole, at):
    _, expected, model = whole
    with pytest.raises(Killed):
        play(scene, behaviours={5: dies_in_round(at)})
    facts, again, grid = play(scene)
    assert np.array_equal(head_of(model), head_of(again))
    assert (facts["paid"], facts["bound"], facts["faults"]) == (expected["paid"], expected["bound"], [])
    assert not any(kind == EMBED for _, kind in grid.log)
    assert verify(scene.folder).misfit is None


def test_killed_after_the_last_round_no_round_is_added(scene, whole, monkeypatch):
    _, expected, model = whole

    def dies(removal):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("stackfu_integration.flower.phases.unlearning.excuse", dies)
        with pytest.raises(Killed):
            play(scene)
    facts, again, grid = play(scene)
    assert not any(kind == UNLEARN for _, kind in grid.log)
    assert np.array_equal(head_of(model), head_of(again))
    assert facts["paid"] == expected["paid"]
    assert verify(scene.folder).misfit is None


def test_a_client_that_is_gone_half_way_changes_the_objective_and_the_bound_is_of_the_others(scene):
    def leaves(message, answer):
        if message.metadata.message_type == UNLEARN and message.content["config"]["server-round"] < 6:
            return answer(message)
        return (
            None
            if message.metadata.message_type != "query.stackfu_roll" and _late(message)
            else answer(message)
        )

    def _late(message):
        return message.metadata.message_type in (UNLEARN, "query.stackfu_gradient")

    facts, model, _ = play(scene, behaviours={FAULTY: leaves})
    assert FAULTY not in facts["bound"]["clients"]
    best, beside = optimum(scene, facts["bound"]["clients"])
    assert np.linalg.norm(head_of(model) - best) <= facts["bound"]["distance"] + beside
    assert facts["bound"]["distance"] <= CONVEX.certify_distance
    assert 0 < of(facts)["rounds_passed"] < CONVEX.rounds
    assert verify(scene.folder).misfit is None


# ---- the audit


def test_a_start_from_anything_but_the_first_weights_is_named(scene, monkeypatch):
    monkeypatch.setattr(
        start,
        "descent_start",
        lambda ledger, models, request, terms: models.get(ledger.need(RUN, RunStarted).initial),
    )
    play(scene)
    assert "do not start from the first weights and a head of zeros" in str(verify(scene.folder).misfit)


def test_layers_that_were_not_reset_are_named(scene, monkeypatch):
    """A model with a layer below the head: a server that keeps it trained is found out."""

    class Deep(Softmax):
        def train(self, arrays, share, config):
            model, used = super().train(arrays, share, config)
            return ArrayRecord({"below": Array(arrays["below"].numpy() + 1), **model}), used

    first = ArrayRecord(
        {"below": Array(np.zeros(2, dtype=np.float32)), **arrays_of(np.zeros((CLASSES, WIDTH + 1)))}
    )
    facts, model, _ = play(Scene(scene.folder / "honest"), Deep, first=first)
    assert not model["below"].numpy().any()
    assert verify(scene.folder / "honest").misfit is None
    assert facts["bound"]["distance"] <= CONVEX.certify_distance

    def kept(removal):
        made = zeroed(removal.models.get(removal.request.before), HEAD)
        removal.ledger.add("r1", StartPrepared(removal.models.put(zeroed(first, HEAD))))
        return with_head(made, HEAD, np.zeros(12))

    monkeypatch.setattr("stackfu_integration.flower.phases.unlearning.first_model", kept)
    play(scene, Deep, first=first)
    assert "in round 1 started from another model" in str(verify(scene.folder).misfit)
    # and where clients signed nothing about the start, the layers themselves show it
    others = tuple((what, check) for what, check in verification.STEPS if what != "rounds")
    monkeypatch.setattr(verification, "STEPS", others)
    assert "below changed, and only the head was to be trained" in str(verify(scene.folder).misfit)
