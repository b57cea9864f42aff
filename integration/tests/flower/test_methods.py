"""The lab's unlearning methods on Flower: what they compute, what they need, and what happens where it cannot be had."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st
from scene import (
    CLIENTS,
    REMOVED,
    TERMS,
    TRAINING_ROUNDS,
    Averager,
    FaultyGrid,
    Scene,
    client_app,
    initial,
    killed_after_any_row,
)

from stackfu.errors import InputError
from stackfu_integration.flower import Policy, Terms, add_mechanism
from stackfu_integration.flower.events import EmbeddingReceived, PartingWork, StartPrepared
from stackfu_integration.flower.methods import (
    METHODS,
    MODE_GUIDANCE_RATE,
    MODE_MOMENTUM,
    MODE_RATE,
    distance_between,
    is_degradation,
    recovered,
)
from stackfu_integration.flower.model_store import ModelStore, digest
from stackfu_integration.flower.phases import leaving
from stackfu_integration.flower.policy import PARTING_METHODS, PolicyError
from stackfu_integration.flower.removal_tasks import SET_FILE
from stackfu_integration.flower.simulation import APP_FOLDER, run_in_process
from stackfu_integration.flower.verification import verify
from stackfu_integration.flower.wire import CONSENT, EMBED, PART, ConsentQuestion
from stackfu_integration.lab.federation.trained import UpdateHistory
from stackfu_integration.lab.unlearning import FedRecovery, MoDe

MODE = replace(TERMS, unlearning="mode", rounds=4, aggregation="mean")
DROP = replace(TERMS, unlearning="quickdrop", rounds=2)
ASCENT = replace(TERMS, unlearning="gradient-ascent", rounds=2)
LEAVER = REMOVED[0]


class Leaver(Averager):
    """Moves the model away from its own data, or towards another model."""

    def part(self, order):
        old = order.model["mean"].numpy()
        aim = 2 * old - self.data.mean(0) if order.method != "mode" else order.aside["mean"].numpy()
        new = old + 0.5 * (aim - old)
        return ArrayRecord({"mean": Array(new.astype(np.float32))}), len(self.data)


class Unwilling(Leaver):
    """Consents to MoDe only, and to nothing else."""

    def __init__(self, context):
        super().__init__(context)
        self.policy = replace(Policy.open(), parting=("mode",))


def played(scene, terms, load=Leaver, behaviours=None):
    return Scene(scene.folder, terms=terms, load=load, behaviours=behaviours or {})


def when(kind, act):
    return lambda message, answer: (
        act(message, answer) if message.metadata.message_type == kind else answer(message)
    )


def silent(message, answer):
    return None


# ---- what is computed


def test_the_methods_of_the_lab_are_spoken_or_named():
    """Every method of the lab but three has a counterpart here; convex heads with noise are Newton's."""
    from stackfu_integration.lab import unlearning

    here = {
        "Retrain": "retrain",
        "ParticipationRetraining": "retrain",
        "HeadFineTuning": "head",
        "ConvexHead": "convex-head",
        "Shards": "shards",
        "FedEraser": "federaser",
        "FedRecovery": "fedrecovery",
        "GradientAscent": "gradient-ascent",
        "QuickDrop": "quickdrop",
        "MoDe": "mode",
    }
    methods = {
        name
        for name in unlearning.__all__
        if isinstance(kind := getattr(unlearning, name), type)
        and issubclass(kind, unlearning.UnlearningMethod)
        and kind is not unlearning.UnlearningMethod
    }
    lab_alone = {"NoT", "FedOSD", "Sifu"}  # docs/howto/flower.md says so
    assert methods == set(here) | lab_alone
    assert set(METHODS) - set(here.values()) == {"continue", "newton"}
    assert {name for name, method in METHODS.items() if method.leavers} == set(PARTING_METHODS)


def test_constants_are_the_labs():
    lab = MoDe()
    assert (lab.momentum, lab.rate, lab.guidance_rate) == (MODE_MOMENTUM, MODE_RATE, MODE_GUIDANCE_RATE)
    rounds = lab.rounds + lab.degradation_rounds
    assert sum(is_degradation(n, rounds) for n in range(1, rounds + 1)) == lab.degradation_rounds


@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([(0,), (0, 2), (0, 1, 2, 3)]))
def test_fedrecovery_is_the_labs(seed, rounds, removed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 50, size=4)
    removed = removed if len(removed) < 4 else (1, 2, 3)
    starts, kept, updates = [], [], {}
    weights = rng.normal(size=5)
    for number in range(rounds):
        made = {c: weights + rng.normal(size=5) for c in range(4)}
        starts.append(ArrayRecord({"w": Array(weights)}))
        kept.append({c: ArrayRecord({"w": Array(w)}) for c, w in made.items()})
        updates[number] = {c: torch.tensor(w - weights) for c, w in made.items()}
        weights = sum(sizes[c] * made[c] for c in made) / sizes.sum()
    history = UpdateHistory()
    history.updates = updates
    clients = [SimpleNamespace(train=range(n)) for n in sizes]
    trained = SimpleNamespace(
        observers={"history": history},
        federation=SimpleNamespace(clients=clients),
        final=torch.tensor(weights),
    )
    effort = SimpleNamespace()
    theirs = FedRecovery(noise=0.0)._run(trained, removed, 0, effort).numpy()
    samples = [{c: int(n) for c, n in enumerate(sizes)}] * rounds
    ours = recovered(ArrayRecord({"w": Array(weights)}), starts, kept, samples, removed, 0.0, 0)["w"].numpy()
    assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)  # the lab rounds to single precision


def test_fedrecovery_starts_from_kept_updates_and_the_audit_works_it_out_again(scene):
    terms = replace(TERMS, unlearning="fedrecovery", rounds=1, recovery_noise=0.1)
    facts = played(scene, terms, Averager).run()
    assert (facts["aborted"], facts["faults"], facts["updates_kept"]) == (None, [], True)
    assert verify(scene.folder).misfit is None
    assert "keeps what every client sent" in (scene.folder / "audit-r1.md").read_text()
    with scene.ledger() as ledger:
        start = ledger.need("r1", StartPrepared).model
    # by hand: two rounds of training, of which the second is corrected by its share of the way
    data = {c: Averager.data_of(c) for c in range(CLIENTS)}
    sizes = np.array([len(d) for d in data.values()], dtype=float)
    others = np.array([c not in REMOVED for c in range(CLIENTS)])
    w, moved, parts = np.zeros(3), [], []
    for _ in range(TRAINING_ROUNDS):
        updates = np.array([0.5 * (d.mean(0) - w) for d in data.values()])
        all_, rest = np.average(updates, 0, sizes), np.average(updates[others], 0, sizes[others])
        moved.append((all_**2).sum())
        parts.append(all_ - rest)
        w = w + all_
    expected = w - moved[1] / moved[0] * parts[1]
    noise = 0.1 * np.random.default_rng([81, terms.seed]).standard_normal(3)
    assert ModelStore(scene.folder / "models").get(start)["mean"].numpy() == pytest.approx(
        expected + noise, abs=1e-5
    )
    # a start of the server's own making does not pass
    other = ModelStore(scene.folder / "models").put(
        ArrayRecord({"mean": Array(np.ones(3, dtype=np.float32))})
    )
    wrong = ModelStore(scene.folder / "models").get(other)
    from stackfu_integration.flower.recomputed import models

    original = models.recovered_from
    models.recovered_from = lambda *given: wrong
    try:
        assert "FedRecovery" in str(verify(scene.folder).misfit)
    finally:
        models.recovered_from = original


def test_mode_by_hand(scene):
    facts = played(scene, MODE).run()
    assert (facts["aborted"], facts["faults"]) == (None, [])
    assert verify(scene.folder).misfit is None
    shares = {c["client"]: c["share"] for c in facts["clients"] if c["share"] > 0}
    data = {c: Averager.data_of(c) for c in range(CLIENTS)}
    used = {c: data[c][: round(x * len(data[c]))] for c, x in shares.items()}
    trained = np.zeros(3)
    for _ in range(TRAINING_ROUNDS):
        steps = [0.5 * (d.mean(0) - trained) for d in data.values()]
        trained = trained + np.average(steps, 0, [len(d) for d in data.values()])

    def paid_round(start):
        return np.average(
            [start + 0.5 * (d.mean(0) - start) for d in used.values()], 0, [len(d) for d in used.values()]
        )

    with scene.ledger() as ledger:
        most = leaving.furthest(played(scene, MODE).mechanism()._papers(None, {}).removal("r1"))
        parted = ledger.events("r1", PartingWork)
    assert {(w.client, w.number) for w in parted} == {(c, n) for c in REMOVED for n in (2, 3, 4)}
    degraded = paid_round(np.zeros(3))
    model = MODE_MOMENTUM * trained + (1 - MODE_MOMENTUM) * degraded
    for _ in (2, 3, 4):
        theirs = model + 0.5 * (degraded - model)
        assert np.linalg.norm(theirs - model) < most
        weights = [sum(len(d) for d in used.values()), *(len(data[c]) for c in REMOVED)]
        model = np.average([paid_round(model), theirs, theirs], 0, weights)
    assert played(scene, MODE).mechanism().model("r1")["mean"].numpy() == pytest.approx(model, abs=1e-5)


@pytest.mark.parametrize("terms", [DROP, ASCENT], ids=lambda terms: terms.unlearning)
def test_those_who_leave_prepare_the_model_that_rounds_start_from(scene, terms):
    grid = (acting := played(scene, terms)).grid()
    facts = acting.run(grid)
    assert (facts["aborted"], facts["faults"]) == (None, [])
    assert verify(scene.folder).misfit is None
    kinds = [kind for client, kind in grid.log if client == LEAVER]
    assert kinds.index(CONSENT) < kinds.index(PART)
    everybody = [kind for _, kind in grid.log]
    assert everybody.index(CONSENT) < everybody.index(EMBED)  # nobody is asked for anything before
    with scene.ledger() as ledger:
        start = ModelStore(scene.folder / "models").get(ledger.need("r1", StartPrepared).model)
        before = ModelStore(scene.folder / "models").get(facts["model_before"])
    theirs = np.concatenate([Averager.data_of(c) for c in REMOVED]).mean(0)
    assert np.linalg.norm(start["mean"].numpy() - theirs) > np.linalg.norm(before["mean"].numpy() - theirs)
    assert "made of their data" in (scene.folder / "audit-r1.md").read_text()


class Heady(Averager):
    """A model with a body, which only client 5 changes when only the head is to be trained."""

    def train(self, arrays, share, config):
        old = ArrayRecord({"mean": arrays["mean"]})
        new, used = super().train(old, share, config)
        body = arrays["body"].numpy()
        if "only" not in config or (self.client == 5 and config["server-round"] == 2):
            body = body + np.float64(1 / 3)
        return ArrayRecord({"mean": new["mean"], "body": Array(body)}), used


def test_only_the_head_is_trained_and_whoever_changes_more_is_refused(scene):
    terms = replace(TERMS, unlearning="head", head=("mean",), rounds=2)
    acting = Scene(scene.folder, terms=terms, load=Heady)
    mechanism, grid = acting.mechanism(), acting.grid()
    first = ArrayRecord({"mean": initial()["mean"], "body": Array(np.array([0.1, 0.7]))})
    mechanism.train(grid, first, TRAINING_ROUNDS)
    facts = mechanism.remove(grid, REMOVED)
    assert [f["problem"] for f in facts["faults"]] == ["changed body, which was to stay as it is"]
    models = ModelStore(scene.folder / "models")
    before, after = models.get(facts["model_before"]), models.get(facts["model_after"])
    assert np.array_equal(before["body"].numpy(), after["body"].numpy())
    assert not np.array_equal(before["mean"].numpy(), after["mean"].numpy())
    assert verify(scene.folder).misfit is None
    replaced = Scene(scene.folder, terms=replace(terms, head=("neck",)), load=Heady).mechanism()
    with pytest.raises(InputError, match="no array of the model"):
        replaced.remove(grid, (2,), request="r2")


# ---- what is needed


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"unlearning": "mode", "rounds": 2}, "at least 3"),
        ({"unlearning": "mode", "aggregation": "secure"}, "single updates"),
        ({"unlearning": "head"}, "names the arrays"),
        ({"head": ("mean",)}, "names the arrays"),
        ({"unlearning": "fedrecovery", "recovery_noise": -1.0}, "must not be negative"),
        ({"unlearning": "sisa"}, "must be one of"),
    ],
)
def test_terms_that_cannot_be_meant(wrong, said):
    with pytest.raises(InputError, match=said):
        Terms(**wrong)


@pytest.mark.parametrize("name", ["fedrecovery", "gradient-ascent"])
def test_what_was_not_kept_is_not_used_and_the_request_is_not_opened(scene, name):
    mechanism, grid = scene.mechanism(), scene.grid()
    mechanism.train(grid, initial(), TRAINING_ROUNDS)
    mechanism.terms = replace(TERMS, unlearning=name)
    with pytest.raises(InputError, match="keep_updates"):
        mechanism.remove(grid, REMOVED)
    mechanism.terms = replace(TERMS, unlearning="mode", rounds=4)
    with pytest.raises(InputError, match="one of its own"):
        mechanism.remove(grid, REMOVED, strategy=FedAvg())
    assert mechanism.ledger.requests() == []


def test_a_refusal_ends_the_request_before_anybody_is_asked_and_says_what_can_be_had(scene):
    acting = played(scene, DROP, Unwilling)
    facts = acting.run()
    assert facts["aborted"]["phase"] == "leaving"
    reason = facts["aborted"]["reason"]
    assert "works for mode, not for quickdrop" in reason
    assert (
        "can be had: retrain, continue, head, convex-head, newton, shards, federaser, fedrecovery" in reason
    )
    assert verify(scene.folder).misfit is None
    with acting.ledger() as ledger:
        assert ledger.events("r1", EmbeddingReceived) == []
    mechanism, grid = acting.mechanism(), acting.grid()
    mechanism.terms = replace(DROP, unlearning="continue")
    assert mechanism.remove(grid, REMOVED, request="r2")["aborted"] is None


def test_by_default_nobody_works_when_it_leaves(tmp_path):
    with pytest.raises(PolicyError, match="works for nothing"):
        Policy().check_parting("mode")
    with pytest.raises(PolicyError, match="sums only"):
        Policy(parting=("mode",), only_sums=True).check_parting("mode")
    with pytest.raises(InputError, match="must be among"):
        Policy(parting=("retrain",))
    (tmp_path / "policy.toml").write_text('parting = ["quickdrop"]\n')
    assert Policy.load(tmp_path / "policy.toml").parting == ("quickdrop",)


@pytest.mark.parametrize("kind", [CONSENT, PART])
@pytest.mark.parametrize("terms", [MODE, DROP, ASCENT], ids=lambda terms: terms.unlearning)
def test_a_leaver_that_is_gone_ends_the_request_in_bounded_time(tmp_path, terms, kind):
    scene = played(Scene(tmp_path / "run"), terms, behaviours={LEAVER: when(kind, silent)})
    grid = scene.grid()
    facts = scene.run(grid)
    assert f"{LEAVER}: did not answer" in facts["aborted"]["reason"]
    assert sum(c == LEAVER and k == kind for c, k in grid.log) <= 2
    assert verify(scene.folder).misfit is None
    before = {c["client"]: c["rounds_passed"] for c in facts["clients"]}
    assert max(before.values()) <= (1 if terms is MODE and kind == PART else 0)


def with_model(values, dtype=np.float32):
    def act(message, answer):
        reply = answer(message)
        reply.content["arrays"] = ArrayRecord({"mean": Array(np.array(values, dtype=dtype))})
        return reply

    return act


class Huge(Leaver):
    """Signs what it sends, and sends a model far away."""

    def part(self, order):
        return ArrayRecord({"mean": Array(np.full(3, 1e30, dtype=np.float32))}), len(self.data)


@pytest.mark.parametrize("terms", [MODE, DROP, ASCENT], ids=lambda terms: terms.unlearning)
def test_a_leaver_that_sends_anything_moves_the_model_by_so_much(tmp_path, terms):
    scene = played(Scene(tmp_path / "run"), terms, Huge)
    facts = scene.run()
    assert facts["aborted"] is None
    assert verify(scene.folder).misfit is None
    removal = scene.mechanism()._papers(None, {}).removal("r1")
    models = ModelStore(scene.folder / "models")
    assert np.abs(models.get(facts["model_after"])["mean"].numpy()).max() < 100
    if terms is not ASCENT:
        assert all(w["moved"] <= leaving.furthest(removal) * (1 + 1e-6) for w in facts["partings"])
    else:
        with scene.ledger() as ledger:
            start = models.get(ledger.need("r1", StartPrepared).model)
        assert distance_between(start, models.get(facts["model_before"])) < 10


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (with_model([np.nan] * 3), "not finite"),
        (with_model([1, 2]), "not float32"),
        (with_model([1, 2, 3]), "signed something else"),
        (lambda m, a: Message(RecordDict(), reply_to=m), "incomplete"),
    ],
)
def test_a_leaver_that_sends_no_model_ends_the_request(scene, act, said):
    facts = played(scene, DROP, behaviours={LEAVER: when(PART, act)}).run()
    assert said in facts["aborted"]["reason"]
    assert verify(scene.folder).misfit is None


# ---- crashes, and servers that do not keep to it


@pytest.mark.parametrize("terms", [MODE, ASCENT], ids=lambda terms: terms.unlearning)
def test_killed_after_any_row_those_who_leave_end_where_they_would_have(tmp_path, terms, monkeypatch):
    calm = played(Scene(tmp_path / "calm"), terms)
    calm.run()
    with calm.ledger() as ledger:
        opened = next(row.seq for row in ledger.rows() if row.kind == "request")
    once = ("payment", "settled", "work", "round", "parting", "start", "consent")
    deaths = killed_after_any_row(
        monkeypatch, range(opened - 6, 200), lambda name: played(Scene(tmp_path / name), terms), calm, once
    )
    assert deaths > 10


def test_a_client_does_what_it_consented_to_and_nothing_else(scene):
    """Orders that a server invents: without consent, for another method, from another model, after the end."""
    acting = played(scene, MODE)
    grid = acting.grid()
    tried = []

    def tampering(change):
        def act(message, answer):
            config = message.content["config"]
            other = RecordDict(dict(message.content))
            other["config"] = type(config)({**config, **change})
            sent = Message(other, dst_node_id=message.metadata.dst_node_id, message_type=PART)
            tried.append(answer(sent).error.reason)
            return answer(message)

        return act

    for change, said in (
        ({"method": "quickdrop"}, "nothing of the kind"),
        ({"request": "r9"}, "nothing of the kind"),
        ({"server-round": 10**6}, "no more"),
    ):
        grid.behaviours = {LEAVER: when(PART, tampering(change))}
        folder = Scene(
            scene.folder.parent / said.replace(" ", "-") / str(len(tried)), terms=MODE, load=Leaver
        )
        folder.behaviours = grid.behaviours
        assert folder.run()["aborted"] is None
        assert said in tried[-1]

    again = {}

    def twice(message, answer):
        reply = answer(message)
        other = RecordDict(dict(message.content))
        other["arrays"] = ArrayRecord({"mean": Array(np.ones(3, dtype=np.float32))})
        other["aside"] = other["arrays"]
        again.setdefault(
            "reason",
            answer(Message(other, dst_node_id=message.metadata.dst_node_id, message_type=PART)).error.reason,
        )
        again["message"] = other
        return reply

    acting.behaviours = {LEAVER: when(PART, twice)}
    late = acting.grid()
    acting.run(late)
    assert "from another model" in again["reason"]
    node = next(n for n, c in late.contexts.items() if c.node_config["partition-id"] == LEAVER)
    after = late.answer(Message(again["message"], dst_node_id=node, message_type=PART))
    assert "is settled" in after.error.reason
    stays = next(n for n, c in late.contexts.items() if c.node_config["partition-id"] == 3)
    question = ConsentQuestion("r1", "mode").encode()
    asked = late.answer(Message(question, dst_node_id=stays, message_type=CONSENT))
    assert "as one that stays" in asked.error.reason


@pytest.mark.parametrize("terms", [MODE, ASCENT], ids=lambda terms: terms.unlearning)
def test_local_privacy_of_flowers_applies_to_those_who_leave(scene, terms):
    """It wants one model in a message, and an order can hold two; what it lets through is what is signed."""
    acting, sent = played(scene, terms), []

    def clear(message, context, call_next):
        reply = call_next(message, context)
        if message.metadata.message_type == PART:
            assert len(message.content.array_records) == 1
            sent.append(digest(reply.content["arrays"]))
        return reply

    mods = [LocalDpMod(0.05, 1.0, 5.0, 1e-5), clear]
    app = add_mechanism(client_app(mechanism=False), Leaver, mods=mods)
    grid = FaultyGrid(app, [dict(c.node_config) for c in acting.grid().contexts.values()], {})
    facts = acting.run(grid)
    assert facts["aborted"] is None
    assert verify(scene.folder).misfit is None
    with scene.ledger() as ledger:
        works = ledger.events("r1", PartingWork)
    assert works
    assert {w.receipt["statement"]["model"] for w in works} == {w.model for w in works}
    assert not {w.model for w in works} & set(sent)  # there is noise in it


def test_a_server_that_does_without_one_of_those_who_leave_is_named(scene, monkeypatch):
    from stackfu_integration.flower.phases import start

    hear = start.hear
    monkeypatch.setattr(
        start, "hear", lambda removal, number, orders: hear(removal, number, {LEAVER: orders[LEAVER]})
    )
    played(scene, DROP).run()
    assert "not everybody who leaves worked" in str(verify(scene.folder).misfit)


# ---- with the lab's clients, and with a network


@pytest.mark.parametrize("name", [*PARTING_METHODS, "fedrecovery", "head"])
def test_the_labs_clients_speak_every_method(tmp_path, name):
    given = {"clients": 4, "removed": "0", "training_rounds": 2, "rounds": 3, "local_epochs": 1.0}
    if name == "head":
        given["head"] = "head.weight,head.bias"
    grid = run_in_process(folder=str(tmp_path), unlearning=name, policy="open", wire=True, **given)
    facts = json.loads((tmp_path / "audit-r1.json").read_text())
    assert (facts["aborted"], facts["faults"]) == (None, [])
    assert verify(tmp_path).misfit is None
    assert all((tmp_path / "clients" / str(c) / SET_FILE).exists() == (name == "quickdrop") for c in range(4))
    if name == "quickdrop":
        rows = torch.load(tmp_path / "clients" / "0" / SET_FILE, weights_only=True)["sets"][0]["x"]
        model = sum(
            a.numpy().nbytes for a in ModelStore(tmp_path / "models").get(facts["model_after"]).values()
        )
        assert rows.shape[0] >= 2
        assert grid.bytes_up[PART] < model + 4000  # a model and its receipt: the set stays where it is
    if name in ("quickdrop", "gradient-ascent"):
        told = {c["client"]: c["measures"] for c in facts["clients"]}
        assert told[0]["after.loss"] > 0


@pytest.mark.parametrize("name", ["quickdrop", "mode", "head"])
def test_a_network_of_ones_own_does_too(tmp_path, name):
    given = {"clients": 4, "removed": "0", "training_rounds": 1, "rounds": 3, "unlearning": name}
    if name == "head":
        given["head"] = "5.weight,5.bias"
    template = APP_FOLDER.parent / "flower-template"
    run_in_process(template, folder=str(tmp_path / "run"), policy="open", **given)
    facts = json.loads((tmp_path / "run" / "audit-r1.json").read_text())
    assert (facts["aborted"], facts["faults"]) == (None, [])
    assert verify(tmp_path / "run").misfit is None
