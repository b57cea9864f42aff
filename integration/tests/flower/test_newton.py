"""Certified removal by Newton steps on Flower: near the optimum by signed gradients, and noise that hides what is left."""

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
from scene import REMOVED, Averager, Killed, Scene, dies_in_round
from scipy.stats import norm as normal
from test_convex_head import CONVEX, FAULTY, of, optimum, play, removed_data, text_of
from test_gradients import CLASSES, WIDTH, Softmax, arrays_of, head_of

from stackfu.errors import InputError
from stackfu_integration.flower import Terms
from stackfu_integration.flower.convex import packed, unpacked
from stackfu_integration.flower.events import (
    DistanceBounded,
    GradientReported,
    NoiseDrawn,
    NoisePromised,
    PayloadsErased,
    RoundFinished,
    SlopeSummed,
)
from stackfu_integration.flower.keys import SigningKey
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.phases import release
from stackfu_integration.flower.phases.release import deviation_of, key_file
from stackfu_integration.flower.removal_tasks import summed_curvature, summed_gradient
from stackfu_integration.flower.simulation import APP_FOLDER, run_in_process
from stackfu_integration.flower.torch_client import model_arrays
from stackfu_integration.flower.verification import verify
from stackfu_integration.flower.wire import EMBED, REPEAT, UNLEARN
from stackfu_integration.flower.wire.records import config
from stackfu_integration.lab.federation.clients import LabelledTensors

NEWTON = replace(CONVEX, unlearning="newton", rounds=12, erase=False)


def noiseless(scene):
    with scene.ledger() as ledger:
        return ModelStore(scene.folder / "models").get(ledger.need("r1", NoiseDrawn).noiseless)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run in which nothing goes wrong and nothing is erased: the scene, the audit and the model."""
    scene = Scene(tmp_path_factory.mktemp("whole") / "run")
    facts, model, _ = play(scene, terms=NEWTON)
    return scene, facts, model


# ---- what comes out


def test_few_steps_reach_the_optimum_and_what_is_released_has_noise(whole):
    scene, facts, model = whole
    best, beside = optimum(scene)
    found = head_of(noiseless(scene))
    assert facts["faults"] == []
    assert facts["bound"]["distance"] <= NEWTON.certify_distance
    assert np.linalg.norm(found - best) <= facts["bound"]["distance"] + beside
    with scene.ledger() as ledger:
        done = len(ledger.events("r1", SlopeSummed))
        assert ledger.need("r1", NoiseDrawn).deviation == deviation_of(NEWTON)
    assert done <= 7  # of second order; convex heads take 10 of first order here
    moved = (head_of(model) - found).ravel() / deviation_of(NEWTON)
    assert 0.3 < np.sqrt((moved**2).mean()) < 2.0
    assert verify(scene.folder).misfit is None
    text = text_of(scene)
    assert "before the noise, the gradient" in text
    assert f"has noise of deviation {deviation_of(NEWTON):.4g}" in text
    for client in facts["clients"]:
        if client["share"] > 0:
            assert (client["rounds_delivered"], client["rounds_passed"]) == (done, NEWTON.rounds)
            assert client["acknowledged"]


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_the_noise_is_what_the_terms_promise(epsilon):
    """Two heads as far apart as allowed: the exact trade-off of two normal distributions at that distance."""
    terms = replace(NEWTON, removal_epsilon=epsilon)
    ratio = terms.certify_distance / deviation_of(terms)
    reached = normal.cdf(ratio / 2 - epsilon / ratio) - np.exp(epsilon) * normal.cdf(
        -ratio / 2 - epsilon / ratio
    )
    assert reached == pytest.approx(terms.removal_delta, rel=1e-6)


def test_the_released_head_does_not_depend_on_the_removed_data_but_for_the_distance(scene):
    """All data of those who stay is bought: what comes out without noise is one optimum, whatever the removed data was."""
    terms = replace(NEWTON, min_total=1.0, budget_share=1.0)
    heads = []
    for number, load in enumerate((Softmax, removed_data(0.0), removed_data(2.0))):
        place = Scene(scene.folder / str(number))
        facts, _, _ = play(place, load, terms)
        assert facts["aborted"] is None
        heads.append((facts["model_before"], head_of(noiseless(place))))
    assert len({before for before, _ in heads}) == 3
    assert all(np.linalg.norm(head - heads[0][1]) <= 2 * terms.certify_distance for _, head in heads)


def test_the_labs_clients_and_a_network_of_ones_own_give_second_derivatives(tmp_path):
    threads = torch.get_num_threads()
    given = {"clients": 6, "removed": "0", "training_rounds": 1, "rounds": 10, "certify_l2": "0.02"}
    told = {"unlearning": "newton", "head": "head.weight,head.bias", "epsilon": "none", "policy": "open"}
    run_in_process(APP_FOLDER, folder=str(tmp_path / "lab"), local_epochs=1.0, **given, **told)
    # by default second derivatives of single clients are not shown
    told = {
        "unlearning": "newton",
        "head": "5.weight,5.bias",
        "certify_distance": 0.05,
        "aggregation": "secure",
    }
    template = APP_FOLDER.parent / "flower-template"
    run_in_process(template, folder=str(tmp_path / "own"), **{**given, "clients": 4}, **told)
    torch.set_num_threads(threads)
    for name in ("lab", "own"):
        facts = json.loads((tmp_path / name / "audit-r1.json").read_text())
        assert (facts["aborted"], facts["faults"]) == (None, [])
        assert facts["bound"]["distance"] <= facts["terms"]["certify_distance"]
        assert verify(tmp_path / name).misfit is None


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 4), st.booleans())
def test_second_derivatives_are_differences_of_gradients(seed, classes, width, swapped):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Tanh(), torch.nn.Linear(width, classes))
    data = LabelledTensors(torch.randn(9, 3), torch.randint(classes, (9,)))
    arrays = model_arrays(model.double())
    if swapped:  # numbers follow the arrays, in whatever order these come
        arrays = ArrayRecord(dict(reversed(list(arrays.items()))))
    told = config(only="2.weight,2.bias")
    hessian = summed_curvature(model, data, arrays, told)
    names = [name for name in arrays if name.startswith("2.")]
    columns = []
    for name in names:
        for place in range(arrays[name].numpy().size):
            ends = []
            for step in (1e-5, -1e-5):
                moved = {n: torch.from_numpy(a.numpy().copy()) for n, a in arrays.items()}
                moved[name].view(-1)[place] += step
                model.load_state_dict(moved)
                ends.append(summed_gradient(model, data, arrays, told))
                model.zero_grad()
            columns.append((ends[0] - ends[1]) / 2e-5)
    assert np.allclose(hessian, np.array(columns).T, atol=1e-6)
    assert np.array_equal(unpacked(packed(hessian), len(hessian)), np.triu(hessian) + np.triu(hessian, 1).T)


def test_second_derivatives_are_refused_for_what_is_not_the_last_layer():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 2))
    data = LabelledTensors(torch.randn(4, 3), torch.randint(2, (4,)))
    for only in ("0.weight,0.bias", "1.weight"):
        with pytest.raises(InputError, match="only"):
            summed_curvature(model, data, model_arrays(model), config(only=only))


# ---- dishonest clients


def liar(lie, what="curvature"):
    class Liar(Softmax):
        def curvature(self, arrays, share, config):
            matrix, used = super().curvature(arrays, share, config)
            return (lie(matrix) if self.client == FAULTY and what == "curvature" else matrix), used

        def gradient(self, arrays, share, config):
            vector, used = super().gradient(arrays, share, config)
            lies = self.client == FAULTY and what == "gradient" and "server-round" in config
            return (lie(vector) if lies else vector), used

    return Liar


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda matrix: -matrix, "no second derivatives of a convex loss"),
        (lambda matrix: matrix * np.nan, "not finite"),
        (lambda matrix: matrix[:2, :2], "must be a square of 12 rows"),
        (lambda matrix: matrix * 1e300, "too large"),
    ],
)
def test_what_are_no_second_derivatives_is_refused(scene, lie, said):
    facts, _, _ = play(scene, liar(lie), NEWTON)
    faults = [f for f in facts["faults"] if f["phase"] != "evidence"]
    assert {f["client"] for f in faults} == {FAULTY}
    assert said in faults[0]["problem"]
    assert of(facts)["paid"] == 0
    assert FAULTY not in facts["bound"]["clients"]
    assert facts["bound"]["distance"] <= NEWTON.certify_distance
    assert verify(scene.folder).misfit is None


@pytest.mark.parametrize("factor", [1e12, 1e-12, 0.0])
def test_false_second_derivatives_cost_steps_and_not_the_bound(scene, factor):
    """They only say where to look next; how near the optimum is, gradients say."""
    facts, _, _ = play(scene, liar(lambda matrix: factor * matrix), replace(NEWTON, rounds=40))
    best, beside = optimum(scene)
    assert facts["aborted"] is None
    assert np.linalg.norm(head_of(noiseless(scene)) - best) <= facts["bound"]["distance"] + beside


def test_flipped_gradients_are_refused(scene):
    facts, _, _ = play(scene, liar(lambda vector: -vector, "gradient"), NEWTON)
    assert {f["client"] for f in facts["faults"]} == {FAULTY}
    assert FAULTY not in facts["bound"]["clients"]
    assert verify(scene.folder).misfit is None


def test_work_is_asked_for_again(scene):
    facts, _, grid = play(scene, terms=replace(NEWTON, spot_checks=1.0))
    assert facts["work"]["repeated"] == facts["work"]["judged"] > 0
    assert facts["work"]["repeated_otherwise"] == 0
    assert any(kind == REPEAT for _, kind in grid.log)


# ---- what cannot hold


def test_where_the_distance_is_not_reached_nothing_is_released_and_work_is_paid(scene):
    facts, _, _ = play(scene, terms=replace(NEWTON, rounds=1))
    assert "nothing is released" in facts["aborted"]["reason"]
    assert facts["model_after"] is None
    assert facts["paid"] > 0
    assert verify(scene.folder).misfit is None


def test_a_gradient_that_is_exaggerated_at_the_end_releases_nothing(scene):
    class Liar(Softmax):
        def gradient(self, arrays, share, config):
            vector, used = super().gradient(arrays, share, config)
            return (vector if "server-round" in config or self.client != FAULTY else 1e6 * vector + 1e6), used

    facts, _, _ = play(scene, Liar, NEWTON)
    assert "nothing is released" in facts["aborted"]["reason"]
    assert verify(scene.folder).misfit is None


def test_apps_without_second_derivatives_end_the_request(scene):
    class Plain(Softmax):
        curvature = Averager.curvature

    facts, _, grid = play(scene, Plain, NEWTON)
    assert "this client's app gives no second derivatives" in facts["aborted"]["reason"]
    assert not any(kind in (EMBED, UNLEARN) for _, kind in grid.log)


def test_terms_that_make_no_sense_are_refused(scene):
    for changes, named in (
        ({"head": ()}, "head"),
        ({"certify_l2": None}, "certify_l2"),
        ({"aggregation": "krum"}, "no optimum of anybody's loss"),
        ({"aggregation": "trimmed"}, "no optimum of anybody's loss"),
        ({"removal_epsilon": 0.0}, "removal_epsilon"),
        ({"removal_delta": 1.0}, "removal_delta"),
    ):
        with pytest.raises(InputError, match=named):
            replace(NEWTON, **changes)
    assert Terms.restated(NEWTON.stated()) == NEWTON
    wide = ArrayRecord(
        {"weight": Array(np.zeros((50, 40), np.float32)), "bias": Array(np.zeros(50, np.float32))}
    )
    mechanism = Scene(scene.folder, terms=NEWTON).mechanism()
    mechanism.adopt(ArrayRecord({n: Array(a.numpy() + 1) for n, a in wide.items()}), wide)
    with pytest.raises(InputError, match="2000 at most"):
        mechanism.remove(None, REMOVED)
    with pytest.raises(InputError, match="strategy"):
        mechanism.remove(None, REMOVED, strategy=FedAvg())
    mechanism.ledger.close()


# ---- what the audit sees of the noise


def test_what_would_take_the_noise_off_is_erased_and_the_audit_says_what_that_costs(scene):
    facts, _, _ = play(scene, terms=replace(NEWTON, erase=True))
    assert facts["erased"]
    with scene.ledger() as ledger:
        drawn = ledger.need("r1", NoiseDrawn)
        assert all(len(event.gradient) == 0 for event in ledger.events("r1", GradientReported))
        assert ledger.need("r1", PayloadsErased).rows
    assert not key_file(scene.folder, "r1").exists()
    kept = {path.stem for path in (scene.folder / "models").glob("*.npz")}
    assert drawn.noiseless not in kept
    for name in kept:  # whatever is left, it is not the head without noise
        stored = ModelStore(scene.folder / "models").get(name)
        if "weight" in stored:
            apart = np.linalg.norm(head_of(stored) - optimum(scene)[0])
            assert apart > 0.3 * deviation_of(NEWTON)
    report = verify(scene.folder)
    assert report.misfit is None
    assert any("whether the noise in the released head was drawn" in q for q in report.limits)
    assert any("whether the bound follows from the gradients" in q for q in report.limits)


def test_no_question_about_noise_is_open_where_nothing_is_erased(whole):
    report = verify(whole[0].folder)
    assert not any("noise" in question for question in report.open_questions)


def cheat(monkeypatch, how):
    honest = release.with_noise

    def with_noise(model, head, deviation, key, row):
        return how(
            lambda **other: honest(
                **{"model": model, "head": head, "deviation": deviation, "key": key, "row": row, **other}
            )
        )

    monkeypatch.setattr(release, "with_noise", with_noise)


@pytest.mark.parametrize(
    "how",
    [
        lambda draw: draw(deviation=0.0),
        lambda draw: draw(deviation=1e-4),
        lambda draw: draw(key=SigningKey.generate()),
        lambda draw: draw(row="0" * 64),
    ],
    ids=["none", "less", "another key", "another row"],
)
def test_noise_that_is_not_the_promised_one_is_named(scene, monkeypatch, how):
    cheat(monkeypatch, how)
    play(scene, terms=NEWTON)
    assert "the noise in the released head is not the one that was promised" in str(
        verify(scene.folder).misfit
    )


def test_less_noise_than_the_terms_say_is_named_also_when_all_is_erased(scene, monkeypatch):
    monkeypatch.setattr(release, "deviation_of", lambda terms: deviation_of(terms) / 10)
    play(scene, terms=replace(NEWTON, erase=True))
    assert "the noise has the deviation" in str(verify(scene.folder).misfit)


def test_a_key_that_was_swapped_is_named(scene):
    play(scene, terms=NEWTON)
    path = key_file(scene.folder, "r1")
    path.unlink()
    SigningKey.load_or_create(path)
    assert "is not the one that was promised" in str(verify(scene.folder).misfit)
    path.unlink()
    assert "not a private key" in str(verify(scene.folder).misfit)


def test_a_head_that_is_released_without_noise_is_named(scene, monkeypatch):
    def bare(removal):
        return removal.ledger.need(removal.name, RoundFinished).model

    monkeypatch.setattr("stackfu_integration.flower.phases.unlearning.release", bare)
    play(scene, terms=NEWTON)
    assert "released without noise" in str(verify(scene.folder).misfit)


def test_a_start_from_another_head_is_named(scene, monkeypatch):
    monkeypatch.setattr(
        "stackfu_integration.flower.phases.start.descent_start",
        lambda ledger, models, request, terms: arrays_of(np.full((CLASSES, WIDTH + 1), 0.5)),
    )
    play(scene, terms=NEWTON)
    assert "do not start from the first weights and the head before the request" in str(
        verify(scene.folder).misfit
    )


# ---- killed


@pytest.mark.parametrize("at", [1, 3])
def test_killed_in_the_middle_of_a_round_the_same_bound_comes_out(scene, whole, at):
    _, expected, _ = whole
    with pytest.raises(Killed):
        play(scene, terms=NEWTON, behaviours={5: dies_in_round(at)})
    facts, _, grid = play(scene, terms=NEWTON)
    assert np.array_equal(head_of(noiseless(scene)), head_of(noiseless(whole[0])))
    assert (facts["paid"], facts["bound"], facts["faults"]) == (expected["paid"], expected["bound"], [])
    assert not any(kind == EMBED for _, kind in grid.log)
    assert verify(scene.folder).misfit is None


@pytest.mark.parametrize("event", [NoisePromised, DistanceBounded, NoiseDrawn])
def test_killed_after_a_row_of_the_release_no_second_noise_is_drawn(scene, monkeypatch, event):
    """Two draws of noise, both seen, would halve it."""
    from stackfu_integration.flower.ledger import PaymentLedger

    honest = PaymentLedger.add

    def add(self, request, row):
        honest(self, request, row)
        if isinstance(row, event):
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(PaymentLedger, "add", add)
        with pytest.raises(Killed):
            play(scene, terms=NEWTON)
    promised = key_file(scene.folder, "r1").read_bytes()
    released = None
    with scene.ledger() as ledger:
        drawn = ledger.last("r1", NoiseDrawn)
        released = None if drawn is None else drawn.model
    facts, _, _ = play(scene, terms=NEWTON)
    assert key_file(scene.folder, "r1").read_bytes() == promised
    assert released in (None, facts["model_after"])
    with scene.ledger() as ledger:
        assert len(ledger.events("r1", NoiseDrawn)) == 1
    assert verify(scene.folder).misfit is None


def test_a_second_request_starts_from_what_was_released(scene):
    terms = replace(NEWTON, erase=True)
    place = Scene(scene.folder, terms=terms, load=Softmax)
    grid, mechanism = place.grid(), place.mechanism()
    mechanism.train(grid, arrays_of(np.ones((CLASSES, WIDTH + 1))), 1)
    first = mechanism.remove(grid, (0,), request="r1")
    second = mechanism.remove(grid, (1,), request="r2")
    mechanism.ledger.close()
    assert second["model_before"] == first["model_after"]
    assert second["aborted"] is None
    assert verify(scene.folder).misfit is None
