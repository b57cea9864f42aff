"""Work before pay: what free riders, noise and flipped signs do to the model, and what they are paid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.serverapp.strategy import FedAdam, FedAvg
from hypothesis import given
from hypothesis import strategies as st
from scene import CLIENTS, REMOVED, TERMS, Averager, Scene, client_app, initial

from stackfu_integration.flower import InProcessGrid, UnlearningMechanism, add_mechanism
from stackfu_integration.flower.directions import digits_participants, refused_shares
from stackfu_integration.flower.events import WorkDelivered, WorkJudged, WorkRepeated
from stackfu_integration.flower.robust import average, judge, refused_by_chance, robust_average, update_of
from stackfu_integration.flower.terms import LEAST_COSINE
from stackfu_integration.flower.verification import verify
from stackfu_integration.flower.wire import UNLEARN

FAULTY = 5


def record(values, counter=None) -> ArrayRecord:
    arrays = {"w": Array(np.asarray(values, dtype=np.float32))}
    if counter is not None:
        arrays["seen"] = Array(np.asarray(counter, dtype=np.int64))
    return ArrayRecord(arrays)


# ---- rules


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(3, 9),
    scale=st.floats(10.0, 1e6),
    rule=st.sampled_from(["clipped", "trimmed", "krum"]),
)
def test_one_client_cannot_put_the_model_anywhere(seed, n, scale, rule):
    """Whatever one client sends, the step stays within a few times the largest honest update."""
    rng = np.random.default_rng(seed)
    sent = record(np.zeros(6))
    honest = {k: record(1.0 + 0.1 * rng.normal(size=6)) for k in range(1, n)}
    models = {0: record(scale * rng.normal(size=6)), **honest}
    samples = dict.fromkeys(models, 10)
    most = max(np.linalg.norm(update_of(m, sent)) for m in honest.values())
    moved = update_of(robust_average(models, samples, sent, rule, clip_factor=4.0, trim=0.34), sent)
    assert np.linalg.norm(moved) <= 4.0 * most * 1.01
    free = update_of(robust_average(models, samples, sent, "mean", clip_factor=4.0, trim=0.2), sent)
    assert np.linalg.norm(free) >= np.linalg.norm(moved) or np.linalg.norm(free) <= most


@given(seed=st.integers(0, 10**6), n=st.integers(2, 6))
def test_without_outliers_clipping_is_the_plain_average_to_the_last_bit(seed, n):
    rng = np.random.default_rng(seed)
    models = {k: record(1.0 + 0.1 * rng.normal(size=5), counter=k) for k in range(n)}
    samples = {k: int(rng.integers(1, 50)) for k in range(n)}
    clipped = robust_average(models, samples, record(np.zeros(5), 0), "clipped", clip_factor=4.0, trim=0.2)
    for name, array in average(models, samples).items():
        assert np.array_equal(array.numpy(), clipped[name].numpy())


@pytest.mark.parametrize("rule", ["mean", "clipped", "trimmed", "krum"])
def test_counters_of_batch_normalisation_stay_whole_numbers_without_dimensions(rule):
    """A state dict of batch normalisation has a 0-d integer array."""
    models = {k: record([1.0, 2.0 + k], counter=3 + k) for k in range(3)}
    models[2] = record([1e6, 1e6], counter=5)
    out = robust_average(models, {0: 1, 1: 1, 2: 2}, record([0, 0], 0), rule, clip_factor=4.0, trim=0.34)
    seen = out["seen"].numpy()
    assert seen.shape == ()
    assert seen.dtype == np.int64


def test_what_is_measured_of_an_update():
    sent = record(np.zeros(4))
    models = {
        0: record([0, 0, 0, 0]),
        1: record([1, 0.1, 0, 0]),
        2: record([1, 0, 0.1, 0]),
        3: record([-1, 0, 0, 0]),
    }
    found = judge(models, dict.fromkeys(models, 5), sent, clip_factor=4.0, least_norm=0.01, least_cosine=-0.5)
    assert "nearly as it was" in found[0].problem
    assert found[1].passed
    assert found[1].measured["of the median norm"] == pytest.approx(1.005, abs=1e-3)
    assert (
        found[1].measured["coherence"] < 0.5
    )  # of the others one echoes and one flips: nothing to compare with
    reference = np.array([1.0, 0, 0, 0])
    found = judge(
        models,
        dict.fromkeys(models, 5),
        sent,
        clip_factor=4.0,
        least_norm=0.01,
        least_cosine=0.0,
        reference=reference,
    )
    assert found[2].passed
    assert found[2].measured["flip refused"] == 1.0
    assert "point against the server's own" in found[3].problem


def test_one_bad_round_is_forgiven_and_many_are_not():
    """The mean over the rounds so far counts, this one included."""
    sent, reference = record(np.zeros(2)), np.array([1.0, 0.0])
    models = {0: record([-1, 0.0]), 1: record([1, 0.1]), 2: record([1, -0.1])}

    def found(earlier):
        return judge(
            models,
            dict.fromkeys(models, 5),
            sent,
            clip_factor=4.0,
            least_norm=0.01,
            least_cosine=-0.05,
            reference=reference,
            earlier=earlier,
        )

    assert not found({})[0].passed
    forgiven = found({0: [0.6, 0.5]})[0]
    assert forgiven.passed
    assert forgiven.measured["cosine"] == pytest.approx(-1.0)
    assert forgiven.measured["mean cosine"] == pytest.approx(0.1 / 3)
    assert not found({0: [-1.0, 0.5]})[0].passed
    assert found({1: [-1.0, -0.2]})[1].problem.endswith("on average of 3 rounds")


def test_flipped_signs_are_not_paid_by_default_and_honest_clients_are():
    """The default threshold on a federation of digits; flower/directions.py has the rates over many."""
    clients, initial = digits_participants(beta=0.5, seed=0)
    assert not any(refused_shares(clients, initial, LEAST_COSINE, rounds=5).values())
    flipped = refused_shares(clients, initial, LEAST_COSINE, rounds=5, flip=4)
    assert flipped[4] == 1.0
    assert not any(share for client, share in flipped.items() if client != 4)


def test_near_the_end_honest_clients_cancel_and_nobody_is_refused_for_it():
    """The updates sum to nothing: each points exactly against the others."""
    sent = record(np.zeros(2))
    models = {0: record([1, 0]), 1: record([-0.5, 0.9]), 2: record([-0.5, -0.9])}
    found = judge(models, dict.fromkeys(models, 5), sent, clip_factor=4.0, least_norm=0.01, least_cosine=-0.5)
    assert all(judgement.passed for judgement in found.values())


@pytest.mark.parametrize(("dimension", "least"), [(2, -0.5), (3, -0.1), (3, 0.3), (40, -0.1), (600, -0.1)])
def test_how_often_chance_alone_is_refused(dimension, least):
    directions = np.random.default_rng(0).normal(size=(40_000, dimension))
    cosines = directions[:, 0] / np.linalg.norm(directions, axis=1)
    assert refused_by_chance(dimension, least) == pytest.approx(np.mean(cosines < least), abs=0.01)
    assert refused_by_chance(dimension, -1.0) == 0.0


@pytest.mark.parametrize(("dimension", "judged"), [(3, False), (600, True)])
def test_few_numbers_tell_no_direction(dimension, judged):
    """Six who agree and one against them: with three numbers that is an honest client of other data in one case of six."""
    sent, ahead = record(np.zeros(dimension)), np.eye(dimension)[0]
    models = {k: record(ahead) for k in range(6)} | {6: record(-0.7 * ahead + 0.7 * np.eye(dimension)[1])}
    found = judge(models, dict.fromkeys(models, 5), sent, clip_factor=4.0, least_norm=0.01, least_cosine=-0.1)
    assert found[6].passed is not judged
    assert ("cosine" in found[6].measured) is judged


# ---- in a run


def lies(kind):
    """Answer an order with something else than work."""
    rng = np.random.default_rng(0)

    class Liar(Averager):
        def train(self, arrays, share, config):
            model, used = super().train(arrays, share, config)
            if self.client != FAULTY or "request" not in config:
                return model, used
            sent, honest = arrays["mean"].numpy(), model["mean"].numpy()
            told = {
                "echo": sent,
                "noise": sent + rng.normal(size=sent.shape).astype(np.float32),
                "flip": (2 * sent - honest).astype(np.float32),
                "huge": (sent + 1e6).astype(np.float32),
            }[kind]
            return ArrayRecord({"mean": Array(told)}), used

    return Liar


def outcome(scene: Scene, **options):
    facts = scene.run(**options)
    clients = {c["client"]: c for c in facts["clients"]}
    assert verify(scene.folder).misfit is None
    return facts, clients[FAULTY], (scene.folder / "audit-r1.md").read_text()


def test_a_free_rider_that_echoes_the_model_is_not_paid(scene):
    scene.load = lies("echo")
    facts, faulty, text = outcome(scene)
    assert faulty["share"] > 0
    assert faulty["rounds_delivered"] == 3
    assert faulty["paid"] == 0.0
    assert facts["work"]["refused"] == 3
    assert "3 were refused and not paid" in text


def test_noise_that_cannot_be_repeated_is_found_by_asking_again(scene):
    scene.load = lies("noise")
    scene.terms = replace(TERMS, spot_checks=1.0)
    facts, faulty, _ = outcome(scene)
    assert faulty["paid"] == 0.0
    assert facts["work"]["repeated"] == 3 * 6
    assert facts["work"]["repeated_otherwise"] == 3
    with scene.ledger() as ledger:
        assert {w.client for w in ledger.events("r1", WorkRepeated) if not w.same} == {FAULTY}


def test_spot_checks_are_drawn_when_nobody_can_know_any_more(scene):
    scene.terms = replace(TERMS, spot_checks=0.4)
    facts, _, _ = outcome(scene)
    assert 0 < facts["work"]["repeated"] < facts["work"]["judged"]
    assert facts["faults"] == []
    with scene.ledger() as ledger:
        first = min(row.seq for row in ledger.rows("r1", WorkRepeated.kind))
        delivered = [r.seq for r in ledger.rows("r1", WorkDelivered.kind) if r.round == 1]
    assert first > max(delivered)


def test_flipped_signs_are_refused_beside_data_of_the_servers_own(scene):
    """The server's probe is a sample of all data; without one the audit states that nothing would have been seen."""

    class Probe(Averager):
        def __init__(self):
            self.data = np.concatenate([Averager.data_of(k)[:6] for k in range(CLIENTS)])

    scene.load = lies("flip")
    _, paid, text = outcome(scene)
    assert paid["paid"] > 0
    assert "directions are not a ground for refusal here" in text
    assert "would have been refused in 0 of 18" in text
    beside = Scene(scene.folder.parent / "beside", terms=replace(TERMS, least_cosine=0.0), load=lies("flip"))
    _, _, text = outcome(beside, probe=Probe())
    with beside.ledger() as ledger:
        first = {w.client: w for w in ledger.events("r1", WorkJudged) if w.number == 1}
    assert not first[FAULTY].passed
    assert "point against the server's own" in first[FAULTY].problem


def test_an_absurd_update_does_not_move_the_model_far(scene, sound):
    scene.load = lies("huge")
    outcome(scene)
    mechanism = scene.mechanism()
    assert np.abs(mechanism.model("r1")["mean"].numpy()).max() < 50.0
    plain = Scene(scene.folder.parent / "plain", terms=replace(TERMS, aggregation="mean"), load=lies("huge"))
    plain.run()
    assert np.abs(plain.mechanism().model("r1")["mean"].numpy()).max() > 1e4


@pytest.mark.parametrize("rule", ["trimmed", "krum"])
def test_other_rules_of_aggregation(scene, rule):
    scene.terms = replace(TERMS, aggregation=rule, trim=0.2)
    scene.load = lies("huge")
    outcome(scene)
    assert np.abs(scene.mechanism().model("r1")["mean"].numpy()).max() < 50.0


def test_training_on_removed_data_cannot_be_seen_and_the_audit_says_so(scene):
    class Secret(Averager):
        def train(self, arrays, share, config):
            if self.client == FAULTY and "request" in config:
                self.data = np.concatenate([self.data_of(REMOVED[0]), self.data])[: len(self.data)]
            return super().train(arrays, share, config)

    scene.load = Secret
    _, faulty, text = outcome(scene)
    assert faulty["paid"] > 0
    assert "was not used" not in text
    assert "can have used it: this cannot be seen from outside" in text
    assert any("copy of removed data" in q for q in verify(scene.folder).limits)


def test_one_sample_more_or_less_is_rounding_and_two_are_not(scene):
    class Rounder(Averager):
        def train(self, arrays, share, config):
            model, used = super().train(arrays, share, config)
            extra = {4: 1, FAULTY: 2}.get(self.client, 0) if "request" in config else 0
            return model, used + extra

    scene.load = Rounder
    facts = scene.run()
    assert {f["client"] for f in facts["faults"]} == {FAULTY}
    assert next(c for c in facts["clients"] if c["client"] == 4)["rounds_passed"] == 3


def test_an_order_says_how_many_samples_were_agreed(scene):
    seen = set()

    def look(message, answer):
        if message.metadata.message_type == UNLEARN:
            seen.add(message.content["config"]["samples"])
        return answer(message)

    scene.behaviours = dict.fromkeys(range(CLIENTS), look)
    facts = scene.run()
    assert seen == {c["samples_used"] for c in facts["clients"] if c["samples_used"]}


# ---- strategies and modifiers of Flower's


def run_with(scene: Scene, app=None, training=None, unlearning=None, evaluated=None):
    grid = scene.grid() if app is None else None
    if grid is None:
        nodes = [{"partition-id": i, "client-folder": str(scene.client_folder(i))} for i in range(CLIENTS)]
        grid = InProcessGrid(app, nodes)
    mechanism = UnlearningMechanism(scene.folder, CLIENTS, scene.terms, wait=0.0, timeout=1.0)
    mechanism.train(grid, initial(), 2, strategy=training)
    facts = mechanism.remove(grid, REMOVED, strategy=unlearning)
    mechanism.ledger.close()
    assert verify(scene.folder).misfit is None
    return facts


def test_another_strategy_for_training_and_unlearning(scene, sound):
    adam = [
        FedAdam(fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=2, eta=0.1) for _ in range(2)
    ]
    facts = run_with(scene, training=adam[0], unlearning=adam[1])
    assert facts["faults"] == []
    assert scene.final_model() != sound.final_model()
    assert all(c["rounds_passed"] == 3 for c in facts["clients"] if c["share"] > 0)


def test_a_strategy_that_samples_pays_those_that_stood_ready(scene):
    sampling = FedAvg(fraction_train=0.5, fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=2)
    facts = run_with(scene, unlearning=sampling)
    working = [c for c in facts["clients"] if c["share"] > 0]
    assert sum(c["rounds_delivered"] for c in working) < 3 * len(working)
    assert all(c["rounds_passed"] == 3 for c in working)
    with scene.ledger() as ledger:
        assert any("was not asked" in w.problem for w in ledger.events("r1", WorkJudged))


def app_with(mods):
    return add_mechanism(client_app_without_mechanism(), Averager, mods=mods)


def client_app_without_mechanism():
    return client_app(mechanism=False)


def test_modifiers_clip_and_add_noise_and_what_they_let_through_is_signed(scene, sound):
    facts = run_with(scene, app=app_with([LocalDpMod(1.0, 1.0, 5.0, 1e-5)]))
    assert facts["faults"] == []
    assert scene.final_model() != sound.final_model()
    with scene.ledger() as ledger:
        for work in ledger.events("r1", WorkDelivered):
            assert work.receipt["statement"]["model"] == work.model


def test_clipping_by_flowers_own_modifier(scene):
    class Clipping(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            config["clipping_norm"] = 0.01
            return super().configure_train(server_round, arrays, config, grid)

    strategy = Clipping(fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=2)
    facts = run_with(scene, app=app_with([fixedclipping_mod]), unlearning=strategy)
    assert facts["faults"] == []
    with scene.ledger() as ledger:
        norms = [w.measured["norm"] for w in ledger.events("r1", WorkJudged)]
    assert max(norms) <= 0.01 * (1 + 1e-4)


# ---- models from elsewhere


def test_an_already_trained_model_is_adopted(scene, sound):
    trained = sound.mechanism().model()
    mechanism, grid = scene.mechanism(), scene.grid()
    mechanism.adopt(trained, initial())
    facts = mechanism.remove(grid, REMOVED)
    assert facts["adopted"]
    assert facts["model_before"] == sound.mechanism().ledger.rows("r1", "request")[0].detail["before"]
    assert scene.final_model() == sound.final_model()
    assert "operator gave" in (scene.folder / "audit-r1.md").read_text()
    report = verify(scene.folder)
    assert report.misfit is None
    assert any("operator's word" in question for question in report.limits)


def test_without_its_first_weights_an_adopted_model_is_continued(scene, sound):
    mechanism, grid = scene.mechanism(), scene.grid()
    mechanism.adopt(sound.mechanism().model())
    with pytest.raises(Exception, match="cannot be retrained"):
        mechanism.remove(grid, REMOVED)
    assert mechanism.ledger.requests() == []  # nothing was opened that had to be aborted
    mechanism.terms = replace(TERMS, unlearning="continue")
    assert mechanism.remove(grid, REMOVED)["aborted"] is None
