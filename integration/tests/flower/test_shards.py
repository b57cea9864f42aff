"""Shards on Flower: only the heads that met a leaving client are trained anew, and the others stay to the last bit."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg
from scene import TERMS, Averager, Killed, Scene
from test_gradients import CLASSES, WIDTH, Softmax, arrays_of, head_of

from stackfu.errors import InputError
from stackfu_integration.flower.events import ClientPaid, RoundFinished, RunStarted, ShardsTrained
from stackfu_integration.flower.ledger import RUN, PaymentLedger
from stackfu_integration.flower.model_store import ModelStore
from stackfu_integration.flower.phases import shards
from stackfu_integration.flower.simulation import APP_FOLDER, run_in_process
from stackfu_integration.flower.verification import verify
from stackfu_integration.flower.wire import EMBED, REPEAT, UNLEARN

HEAD = ("weight", "bias")
SHARDS = replace(TERMS, unlearning="shards", head=HEAD, shards=2, rounds=2, min_total=0.5)
REMOVED = (0,)
TOUCHED, OTHERS = [2, 4, 6], [1, 3, 5, 7]
FAULTY = 6


class Shard(Softmax):
    """A layer below the head, which must not change."""

    def train(self, arrays, share, config):
        head, used = super().train(arrays, share, config)
        return ArrayRecord({"below": arrays["below"], **head}), used


def first():
    below = Array(np.arange(2, dtype=np.float32))
    return ArrayRecord({"below": below, **arrays_of(np.zeros((CLASSES, WIDTH + 1)))})


def play(scene, load=Shard, terms=SHARDS, behaviours=None, removed=REMOVED, rounds=2):
    scene = Scene(scene.folder, terms=terms, load=load, behaviours=behaviours or {})
    grid, mechanism = scene.grid(), scene.mechanism()
    try:
        trained = mechanism.train(grid, first(), rounds)
        facts = mechanism.remove(grid, removed)
        return facts, trained, None if facts["aborted"] else mechanism.model("r1"), grid
    finally:
        mechanism.ledger.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    scene = Scene(tmp_path_factory.mktemp("whole") / "run")
    return scene, *play(scene)


def by_hand(clients, rounds, shares=None):
    """Averaging among these clients only."""
    head = np.zeros((CLASSES, WIDTH + 1))
    for _ in range(rounds):
        made = []
        for client in clients:
            member = Softmax.__new__(Softmax)
            member.data = Softmax.data_of(client)
            made.append(Softmax.train(member, arrays_of(head), (shares or {}).get(client, 1.0), {}))
        total = sum(used for _, used in made)
        head = sum(used / total * head_of(model) for model, used in made)
        head = head_of(arrays_of(head))
    return head, total


def rows(scene, request):
    with scene.ledger() as ledger:
        return ledger.events(request, ShardsTrained)


def test_training_deals_clients_to_shards_and_the_model_is_the_mean_of_their_heads(whole):
    scene, _, trained, _, _ = whole
    last = rows(scene, RUN)[-1]
    assert dict(last.members) == {0: (0, 2, 4, 6), 1: (1, 3, 5, 7)}
    (left, a), (right, b) = by_hand([0, 2, 4, 6], 2), by_hand([1, 3, 5, 7], 2)
    assert dict(last.samples) == {0: a, 1: b}
    assert np.allclose(head_of(trained), (a * left + b * right) / (a + b), atol=1e-5)
    assert np.array_equal(trained["below"].numpy(), first()["below"].numpy())


def test_only_the_shard_of_whoever_leaves_is_trained_anew(whole):
    scene, facts, _, model, grid = whole
    before, after = rows(scene, RUN)[-1], rows(scene, "r1")[-1]
    assert facts["aborted"] is None
    assert facts["faults"] == []
    assert facts["shards"]["retrained"] == [0]
    assert after.heads[1] == before.heads[1]
    assert after.heads[0] != before.heads[0]
    assert after.members == {0: tuple(c for c in TOUCHED if share_of(facts, c) > 0), 1: tuple(OTHERS)}
    shares = {c: share_of(facts, c) for c in TOUCHED if share_of(facts, c) > 0}
    (left, a), (right, b) = by_hand(sorted(shares), 2, shares), by_hand(OTHERS, 2)
    assert np.allclose(head_of(model), (a * left + b * right) / (a + b), atol=1e-5)
    asked = {client for client, kind in grid.log if kind in (UNLEARN, EMBED)}
    assert asked <= {0, *TOUCHED}
    paid = {c["client"] for c in facts["clients"] if c["paid"] > 0}
    assert paid == set(shares)
    assert verify(scene.folder).misfit is None
    text = (scene.folder / "audit-r1.md").read_text()
    assert "| 1 | as it was | 1, 3, 5, 7 |" in text
    assert "| 0 | trained anew |" in text
    assert "in another shard" in text
    assert any("clients sign nothing in training" in q for q in verify(scene.folder).limits)


def share_of(facts, client):
    return next(c["share"] for c in facts["clients"] if c["client"] == client)


@pytest.mark.parametrize("unlearning", ["shards", "continue"])
def test_the_model_does_not_depend_on_the_removed_data(scene, unlearning):
    """To the last bit, if all asked clients bring all data."""
    terms = replace(SHARDS, min_total=1.0, budget_share=1.0)
    outcomes = []
    for shift in (0.0, 2.0):

        class Other(Shard):
            @staticmethod
            def data_of(client, shift=shift):
                data = Averager.data_of(client)
                return data if client != 0 else data @ np.roll(np.eye(WIDTH), 1, axis=0) * 3 + shift

        place = Scene(scene.folder / str(shift), terms=terms, load=Other)
        grid, mechanism = place.grid(), place.mechanism()
        mechanism.train(grid, first(), 2)
        if unlearning == "continue":
            mechanism.terms = replace(terms, unlearning="continue", head=())
        facts = mechanism.remove(grid, REMOVED)
        outcomes.append((facts["model_before"], facts["model_after"]))
        mechanism.ledger.close()
    assert outcomes[0][0] != outcomes[1][0]  # training did see it
    assert (outcomes[0][1] == outcomes[1][1]) == (unlearning == "shards")


def test_one_request_after_the_other_and_another_method_in_between(scene):
    """A head that met a client removed by another method is trained anew by the next request in shards."""
    terms = replace(SHARDS, shards=2)
    place = Scene(scene.folder, terms=terms, load=Shard)
    grid, mechanism = place.grid(), place.mechanism()
    mechanism.train(grid, first(), 1)
    mechanism.remove(grid, (0,), request="r1")
    mechanism.terms = replace(terms, unlearning="head")
    mechanism.remove(grid, (1,), request="r2")
    mechanism.terms = terms
    third = mechanism.remove(grid, (2,), request="r3")
    mechanism.ledger.close()
    assert third["aborted"] is None
    assert third["shards"]["retrained"] == [0, 1]
    assert not {0, 1, 2} & {c for held in third["shards"]["members"].values() for c in held}
    assert verify(scene.folder).misfit is None


def test_a_shard_that_everybody_leaves_has_no_head_any_more(scene):
    facts, _, _, _ = play(scene, terms=replace(SHARDS, shards=4), removed=(0, 4, 1), rounds=1)
    # shard 0 (0, 4) is gone; shard 1 (1, 5) has one left: too few for a game
    assert "two remaining clients" in facts["aborted"]["reason"]
    other, _, model, _ = play(
        Scene(scene.folder / "again"), terms=replace(SHARDS, shards=4), removed=(0, 4, 1, 2), rounds=1
    )
    assert other["aborted"] is None
    assert other["shards"]["retrained"] == [0, 1, 2]
    assert "0" not in other["shards"]["heads"]
    assert "they have no head" in (scene.folder / "again" / "audit-r1.md").read_text()
    assert verify(scene.folder / "again").misfit is None
    assert model is not None


# ---- who does not keep to it


def test_whoever_changes_another_layer_is_refused(scene):
    class Meddler(Shard):
        def train(self, arrays, share, config):
            model, used = super().train(arrays, share, config)
            if self.client == FAULTY and "request" in config:
                model = ArrayRecord({**model, "below": Array(model["below"].numpy() + 1)})
            return ArrayRecord({name: model[name] for name in arrays}), used

    facts, _, _, _ = play(scene, Meddler)
    assert {f["client"] for f in facts["faults"]} == {FAULTY}
    assert "changed below, which was to stay as it is" in facts["faults"][0]["problem"]
    assert FAULTY not in facts["shards"]["members"]["0"]
    assert verify(scene.folder).misfit is None


def test_work_is_looked_at_within_a_shard_and_asked_for_again(scene):
    class Echo(Shard):
        def train(self, arrays, share, config):
            model, used = super().train(arrays, share, config)
            return (arrays if self.client == FAULTY and "request" in config else model), used

    facts, _, _, grid = play(scene, Echo, replace(SHARDS, spot_checks=1.0))
    assert {f["client"] for f in facts["faults"]} == {FAULTY}
    assert "nearly as it was" in facts["faults"][0]["problem"]
    assert any(kind == REPEAT for _, kind in grid.log)
    assert verify(scene.folder).misfit is None


def test_terms_that_make_no_sense_are_refused(scene):
    for changes, named in (
        ({"head": ()}, "head"),
        ({"shards": 1}, "shards"),
        ({"aggregation": "secure"}, "single updates"),
    ):
        with pytest.raises(InputError, match=named):
            replace(SHARDS, **changes)
    place = Scene(scene.folder, terms=replace(SHARDS, shards=9), load=Shard)
    grid, mechanism = place.grid(), place.mechanism()
    with pytest.raises(InputError, match="more than the 8 clients"):
        mechanism.train(grid, first(), 1)
    mechanism.ledger.close()
    place = Scene(scene.folder.parent / "other", terms=SHARDS, load=Shard)
    grid, mechanism = place.grid(), place.mechanism()
    with pytest.raises(InputError, match="strategy"):
        mechanism.train(grid, first(), 1, strategy=FedAvg())
    mechanism.train(grid, first(), 1)
    mechanism.terms = replace(SHARDS, shards=3)
    with pytest.raises(InputError, match="was trained in 2"):
        mechanism.remove(grid, REMOVED)
    mechanism.terms = SHARDS
    with pytest.raises(InputError, match="strategy"):
        mechanism.remove(grid, REMOVED, strategy=FedAvg())
    mechanism.ledger.close()
    place = Scene(scene.folder.parent / "plain", terms=replace(TERMS, rounds=1), load=Shard)
    grid, mechanism = place.grid(), place.mechanism()
    mechanism.train(grid, first(), 1)
    mechanism.terms = SHARDS
    with pytest.raises(InputError, match="trained in shards"):
        mechanism.remove(grid, REMOVED)
    mechanism.ledger.close()


def test_terms_cannot_be_amended_to_or_from_shards(scene):
    place = Scene(scene.folder, terms=SHARDS, load=Shard)
    grid, mechanism = place.grid(), place.mechanism()
    mechanism.train(grid, first(), 1)

    def dies(phase):
        if phase == "embeddings":
            raise Killed

    mechanism.after = dies
    with pytest.raises(Killed):
        mechanism.remove(grid, REMOVED)
    with pytest.raises(InputError, match="left out already"):
        mechanism.amend("r1", replace(TERMS, unlearning="retrain"), "somebody asked for it")
    mechanism.ledger.close()


# ---- the audit, and kills


def altered(monkeypatch, change):
    """A server that writes other shards down than it has."""
    honest = PaymentLedger.add

    def add(self, request, event):
        honest(self, request, change(event) if getattr(event, "retrained", ()) else event)

    monkeypatch.setattr(PaymentLedger, "add", add)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda e: replace(e, retrained=(0, 1)), "were trained anew, those that had met"),
        (
            lambda e: replace(e, heads={**e.heads, 1: e.heads[0]}),
            "shard 1, which nobody left, is not as it was",
        ),
        (lambda e: replace(e, heads={**e.heads, 0: e.heads[1]}), "in the file is not the one in the ledger"),
        (lambda e: replace(e, samples={**e.samples, 0: 1}), "is not the mean of the shards' heads"),
        (lambda e: replace(e, members={**e.members, 0: (2,)}), "others than those whose work passed"),
    ],
)
def test_a_server_that_lies_about_shards_is_named(scene, monkeypatch, change, said):
    altered(monkeypatch, change)
    play(scene)
    assert said in str(verify(scene.folder).misfit)


def test_a_server_that_keeps_the_head_of_a_shard_that_was_left_is_named(scene, monkeypatch):
    monkeypatch.setattr(shards, "affected", lambda state, request: (1,))
    play(scene)
    monkeypatch.undo()
    assert "client 0, which left, took part in the shards" in str(verify(scene.folder).misfit)


@pytest.mark.parametrize("at", [1, 2])
def test_killed_in_a_round_of_training_or_of_the_request_the_same_comes_out(scene, whole, at):
    def dies(message, answer):
        number = message.content.config_records.get("config", {}).get("server-round")
        if message.metadata.message_type in ("train", UNLEARN) and number == at and not died[0]:
            died[0] = message.metadata.message_type == wanted
            if died[0]:
                raise Killed
        return answer(message)

    for wanted in ("train", UNLEARN):
        died = [False]
        place = Scene(scene.folder / wanted)
        with pytest.raises(Killed):
            play(place, behaviours={2: dies})
        facts, _, _, _ = play(place)
        assert facts["model_after"] == whole[1]["model_after"]
        assert facts["paid"] == whole[1]["paid"]
        assert facts["faults"] == []
        assert verify(place.folder).misfit is None


def test_files_of_shards_are_kept_and_no_others(whole):
    scene = whole[0]
    with scene.ledger() as ledger:
        wanted = {
            ledger.need(RUN, RunStarted).initial,
            *(ledger.need(r, kind).model for r in (RUN, "r1") for kind in (RoundFinished, ShardsTrained)),
        }
        assert len(ledger.events("r1", ClientPaid)) >= 2
    assert {path.stem for path in (scene.folder / "models").glob("*.npz")} == wanted
    assert ModelStore(scene.folder / "models").get(min(wanted)) is not None


def test_a_network_of_ones_own_trains_in_shards(tmp_path):
    given = {"training_rounds": 1, "rounds": 1, "clients": 6, "removed": "0", "shards": 2}
    template = APP_FOLDER.parent / "flower-template"
    run_in_process(
        template, folder=str(tmp_path / "run"), unlearning="shards", head="5.weight,5.bias", **given
    )
    facts = json.loads((tmp_path / "run" / "audit-r1.json").read_text())
    assert (facts["aborted"], facts["faults"]) == (None, [])
    assert facts["shards"]["retrained"] == [0]
    assert verify(tmp_path / "run").misfit is None
