"""A run in which nothing goes wrong, and one that is killed wherever it can be."""

from __future__ import annotations

import json

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from scene import (
    CLIENTS,
    REMOVED,
    SIZES,
    TERMS,
    TRAINING_ROUNDS,
    Averager,
    Killed,
    Scene,
    initial,
    killed_after_any_row,
)

import stackfu as sf
from stackfu.errors import InputError, StackfuError
from stackfu_integration.flower import PHASES, Terms, UnlearningMechanism
from stackfu_integration.flower.events import (
    ClientCommitted,
    ClientPaid,
    CommitmentsClosed,
    GameSolved,
    PriceOffered,
    RemovalRequested,
    RunStarted,
    WorkDelivered,
)
from stackfu_integration.flower.ledger import RUN
from stackfu_integration.flower.phases.enrolment import NotEnoughNodesError
from stackfu_integration.flower.wire import ROLL


def test_offers_payments_and_participation_are_those_of_the_game(sound):
    samples = [Averager(Context(1, 1, {"partition-id": i}, RecordDict(), {})).data for i in range(CLIENTS)]
    features = np.array([sf.client_features(x, 1.5, 64, 0) for x in samples])
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(features),
        SIZES,
        removed=REMOVED,
        cost_scale=TERMS.cost_scale,
        loss_constant=5.0,
    )
    solution = game.solve(0.4 * game.full_participation_price)
    with sound.ledger() as ledger:
        offers = [e.price for e in ledger.by_client("r1", PriceOffered).values()]
        shares = {c: e.share for c, e in ledger.by_client("r1", ClientCommitted).items()}
        payments = {c: e.amount for c, e in ledger.by_client("r1", ClientPaid).items()}
    assert offers == pytest.approx(solution.payments, rel=1e-6, abs=1e-9)
    expected = dict(zip(game.remaining.tolist(), solution.participation, strict=True))
    for client, share in expected.items():
        assert shares.get(client, 0.0) == pytest.approx(share, rel=1e-6, abs=0.5 / SIZES[client])
    for client, payment in payments.items():
        k = game.remaining.tolist().index(client)
        assert payment == pytest.approx(solution.payments[k] * solution.participation[k], rel=1e-6, abs=1e-9)
    assert len(payments) >= 3  # the game is not a trivial one


def test_clients_find_the_certified_equilibrium_by_themselves(sound):
    with sound.ledger() as ledger:
        committed = ledger.need("r1", CommitmentsClosed)
        solved = ledger.need("r1", GameSolved)
    assert committed.settled
    assert committed.from_certified == 0.0
    assert committed.regret < 1e-12
    assert solved.status == "CERTIFIED"
    assert solved.gap < 1e-3


def test_the_audit_says_who_left_and_what_was_paid(sound):
    facts = json.loads((sound.folder / "audit-r1.json").read_text())
    text = (sound.folder / "audit-r1.md").read_text()
    assert facts["removed"] == list(REMOVED)
    assert facts["paid"] == pytest.approx(sum(c["paid"] for c in facts["clients"]))
    assert facts["paid"] <= facts["budget"] * (1 + 1e-9)
    assert facts["faults"] == []
    assert all(c["measures"] for c in facts["clients"])
    for heading in ("Who left", "What was paid", "Certificate of the equilibrium", "Measures of forgetting"):
        assert f"## {heading}" in text


def test_the_audit_says_what_each_clients_data_is_worth(sound, tmp_path):
    facts = json.loads((sound.folder / "audit-r1.json").read_text())
    with sound.ledger() as ledger:
        solved = ledger.need("r1", GameSolved)
    (tmp_path / "s.npz").write_bytes(bytes(solved.solution))
    solution = sf.load(tmp_path / "s.npz")
    game, x = solution.game, solution.participation
    stated = {c["client"]: c for c in facts["clients"]}
    for k, client in enumerate(sorted(solved.participation)):
        without = np.where(np.arange(game.count) == k, 0.0, x)
        rise = game.server_loss(without) - game.server_loss(x)
        assert stated[client]["leave_one_out"] == pytest.approx(rise, rel=1e-6, abs=1e-12)
    total = sum(stated[client]["shapley"] for client in solved.participation)
    assert total == pytest.approx(solution.values().whole, rel=1e-9)
    assert all(stated[client]["shapley"] is None for client in REMOVED)
    assert "Shapley value" in (sound.folder / "audit-r1.md").read_text()


def test_removed_clients_do_no_work_and_their_data_is_not_met(sound):
    with sound.ledger() as ledger:
        workers = {e.client for e in ledger.events("r1", WorkDelivered)}
        assert not workers & set(REMOVED)
        start = ledger.need(RUN, RunStarted).initial
        before = ledger.need("r1", RemovalRequested).before
    assert start != before


@pytest.mark.parametrize("phase", PHASES)
def test_killed_after_a_phase_the_server_goes_on_where_it_was(phase, scene, sound):
    def die(closed):
        if closed == phase:
            raise Killed

    with pytest.raises(Killed):
        scene.run(after=die)
    rerun = scene.grid()
    scene.run(rerun)
    assert scene.records() == sound.records()
    assert scene.final_model() == sound.final_model()


def test_killed_after_any_row_nothing_is_lost_or_done_twice(tmp_path, sound, monkeypatch):
    once = ("payment", "settled", "work", "commitment", "embedding", "round", "enrolled")
    places = range(1, len(sound.records()) + 20)
    assert killed_after_any_row(monkeypatch, places, lambda name: Scene(tmp_path / name), sound, once) > 15


def test_a_killed_server_asks_no_client_twice_for_what_it_has(scene):
    def die(closed):
        if closed == "unlearning":
            raise Killed

    with pytest.raises(Killed):
        scene.run(after=die)
    grid = scene.grid()
    scene.run(grid)
    assert {kind for _, kind in grid.log} == {"query.stackfu_roll", "evaluate.stackfu_measure"}


def test_another_request_under_the_same_name_is_refused(sound):
    mechanism = sound.mechanism()
    with pytest.raises(InputError, match="other clients or other terms"):
        mechanism.remove(sound.grid(), (3,))


def test_another_run_in_the_same_folder_is_refused(sound):
    with pytest.raises(InputError, match="another number of clients or rounds"):
        sound.mechanism().train(sound.grid(), initial(), TRAINING_ROUNDS + 1)


@pytest.mark.parametrize(
    ("removed", "said"),
    [
        ((), "must name some"),
        (tuple(range(CLIENTS)), "must name some"),
        ((99,), "99: there is no such client"),
    ],
)
def test_a_request_must_name_some_of_the_clients(scene, removed, said):
    mechanism = scene.mechanism()
    mechanism.train(grid := scene.grid(), initial(), 1)
    with pytest.raises(InputError, match=said):
        mechanism.remove(grid, removed)


@pytest.mark.parametrize("removed", ["York", ["3"], [True], [], ["5", 5.0], [1, 2, 5], ["0"]])
def test_a_wrong_name_is_refused_before_training(tmp_path, removed):
    mechanism = UnlearningMechanism(
        tmp_path, ["3", "1", "2"] if removed != ["3"] else ["York", "Hull", "3 "][:2]
    )
    with pytest.raises(InputError, match="removed"):
        mechanism.leaving(removed)


def test_the_clients_that_leave_are_those_that_are_named(tmp_path):
    assert UnlearningMechanism(tmp_path / "a", ["3", "1", "2"]).leaving([1, "3"]) == (0, 1)
    with pytest.warns(sf.StackfuWarning, match="client 'York' is removed and 'york' stays"):
        assert UnlearningMechanism(tmp_path / "b", ["york", "York", "Ely"]).leaving(["York"]) == (1,)


def test_a_second_removal_starts_from_the_first(scene):
    grid = scene.grid()
    scene.run(grid)
    mechanism = scene.mechanism()
    facts = mechanism.remove(grid, (4,), request="r2")
    assert facts["model_before"] == scene.final_model()
    assert {c["client"] for c in facts["clients"]} == set(range(CLIENTS)) - set(REMOVED)
    with pytest.raises(InputError, match="must name some"):
        mechanism.remove(grid, (0,), request="r3")


def test_continuing_from_the_trained_model(scene, sound):
    scene.terms = Terms(**{**vars(scene.terms), "unlearning": "continue"})
    scene.run()
    assert scene.records("payment") == sound.records("payment")
    assert scene.final_model() != sound.final_model()


def test_the_clients_agree_on_a_bandwidth_when_none_is_given(scene):
    scene.terms = Terms(**{**vars(scene.terms), "bandwidth": None})
    facts = scene.run()
    samples = [Averager(Context(1, 1, {"partition-id": i}, RecordDict(), {})).data for i in range(CLIENTS)]
    own = sorted(float(sf.median_bandwidth([x])) for x in samples)
    assert own[0] <= facts["bandwidth"] <= own[-1]


def test_nobody_there(scene):
    grid = scene.grid()
    grid.contexts.clear()
    with pytest.raises(NotEnoughNodesError, match="0 of 8"):
        scene.run(grid)


def test_a_node_that_is_busy_at_the_roll_call_is_asked_again(scene, sound):
    grid, calls = scene.grid(), []

    def busy(message, answer):
        if message.metadata.message_type == ROLL:
            calls.append(message)
            if len(calls) < 3:
                return None
        return answer(message)

    grid.behaviours[5] = busy
    mechanism = UnlearningMechanism(scene.folder, CLIENTS, scene.terms, wait=30.0, timeout=1.0)
    mechanism.train(grid, initial(), TRAINING_ROUNDS)
    mechanism.remove(grid, REMOVED)
    assert len(calls) == 3
    assert scene.records() == sound.records()


def test_a_budget_of_nothing_buys_what_comes_for_free(scene):
    scene.terms = Terms(**{**vars(scene.terms), "budget": 0.0})
    facts = scene.run()
    assert facts["paid"] == 0.0
    assert any(c["share"] > 0 for c in facts["clients"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget": -1},
        {"budget_share": 0},
        {"rounds": 0},
        {"damping": 0},
        {"epsilon": 0},
        {"bandwidth": 0},
        {"budget": float("nan")},
        {"cost_intervals": {"1": (2.0, 1.0)}},
        {"costs": {"1": -1.0}},
        {"decimals": -1},
        {"offers": "free"},
        {"aggregation": "hope"},
        {"deadline": 0},
        {"min_total": 2},
        {"method": "bribery"},
        {"unlearning": "hoping"},
        {"announcements": 0},
    ],
)
def test_terms_are_checked_before_anything_starts(wrong):
    with pytest.raises(InputError):
        Terms(**wrong)


def test_nothing_trained_yet(scene):
    with pytest.raises(StackfuError, match="nothing has been trained"):
        scene.mechanism().remove(scene.grid(), (0,))
