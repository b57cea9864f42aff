"""Pilot trainings, the constants they give, and clients that answer as measured losses say."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import REMOVED
from typer.testing import CliRunner

from stackfu.errors import InputError
from stackfu_integration.cli import app
from stackfu_integration.lab.answers import measured_answer
from stackfu_integration.lab.data.partition import clusters, renamed
from stackfu_integration.lab.federation import Client, LabelledTensors, LabFederation
from stackfu_integration.lab.measures import evaluate, pooled_losses
from stackfu_integration.lab.payments import build_game, penultimate_features
from stackfu_integration.lab.pilots import (
    Pilots,
    calibrated_game,
    calibration_report,
    run_pilots,
    saturating_r2,
)
from stackfu_integration.lab.unlearning import ConvexHead


@pytest.fixture(scope="module")
def views(federation, trained):
    samples = penultimate_features(federation, trained.final)
    labels = [client.train.y.numpy() for client in federation.clients]
    return {
        view: build_game(samples, REMOVED, labels=labels, view=view, loss_constant=1.0)
        for view in ("features", "labels", "joint")
    }


@pytest.fixture(scope="module")
def pilots(trained):
    method = ConvexHead(l2=1e-3, curvature="hessian", passes=8)
    profiles = np.array([[1, 1, 1, 1], [1, 0.1, 0.1, 0.1], [0.1, 0.1, 1, 0.1], [0.1, 0.1, 0.1, 0.1]])
    before = method.before(trained, REMOVED, seed=7)
    return run_pilots(trained, REMOVED, method, before, profiles, seed=7)


def test_views_see_what_they_are_named_after(federation, views):
    shares = [np.bincount(client.train.y, minlength=4) / len(client.train) for client in federation.clients]
    sizes = federation.sizes
    pooled = np.average(shares, axis=0, weights=sizes)
    expected = ((shares[2] - shares[5]) ** 2 / pooled).sum()
    assert views["labels"].embeddings.distance(2, 5) ** 2 == pytest.approx(expected)
    for game in views.values():
        np.testing.assert_allclose(game.costs, 10 * sizes[2:] / sizes.sum())
    with pytest.raises(InputError, match="labels"):
        build_game([np.zeros((2, 2))] * 3, (0,), view="labels")


def test_pilots_say_what_happened_to_every_client(federation, trained, pilots):
    method = ConvexHead(l2=1e-3, curvature="hessian", passes=8)
    shares = {2: 1.0, 3: 0.1, 4: 0.1, 5: 0.1}
    weights = replace(method, shares=shares).unlearn(trained, REMOVED, seed=8).weights
    np.testing.assert_allclose(pilots.losses["own"][1], evaluate(federation, weights).losses)
    before = evaluate(federation, method.before(trained, REMOVED, seed=7))
    np.testing.assert_allclose(
        pilots.changes("own")[1], pilots.losses["own"][1][2:] - before.losses[2:], atol=1e-12
    )
    alone = replace(method, shares={2: 1.0, 3: 0.0, 4: 0.0, 5: 0.0}).unlearn(trained, REMOVED, seed=7 + 4)
    assert pilots.alone["own"][0] == pytest.approx(evaluate(federation, alone.weights).losses[2])
    again = Pilots.of(pilots.as_dict())
    np.testing.assert_array_equal(again.changes("pooled"), pilots.changes("pooled"))
    # less data of the same mixture is worse on average
    assert pilots.changes("pooled")[3].mean() > pilots.changes("pooled")[0].mean()


def test_what_everybody_trained_together_is_the_head_on_everybodys_data(federation, trained):
    """The reference of changes is not a removal: its cohort has the removed clients in it."""
    method = ConvexHead(l2=1e-3, curvature="hessian")
    both = evaluate(federation, method.before(trained, REMOVED, seed=1))
    without = evaluate(federation, method.unlearn(trained, REMOVED, seed=1).weights)
    gone = list(REMOVED)
    assert both.losses[gone].mean() < without.losses[gone].mean()


def test_the_constants_are_those_that_the_losses_were_made_with(views, pilots):
    """Losses made by the model itself, with noise: C and A come back, and the game says that it is calibrated."""
    game = views["labels"].replace(loss_constant=0.4, sampling_constant=30.0)
    rng = np.random.default_rng(0)
    made = np.array([game.impacts(x).clients for x in pilots.participation])
    losses = np.zeros((len(made), 6))
    losses[:, 2:] = made + 1e-4 * rng.normal(size=made.shape)
    zeros = np.zeros(6)
    known = replace(
        pilots,
        losses={"own": losses, "pooled": losses},
        before={"own": zeros, "pooled": zeros},
    )
    fitted, constants = calibrated_game(views["labels"], known)
    assert fitted.calibrated
    assert constants.loss_constant == pytest.approx(0.4, rel=0.01)
    assert constants.sampling_constant == pytest.approx(30.0, rel=0.01)
    unknown = replace(known, losses={"own": losses, "pooled": rng.normal(size=losses.shape)})
    assert not calibrated_game(views["labels"], unknown)[0].calibrated
    report = calibration_report(views, {"convex": known})
    assert "convex, labels, own test samples: C = 0.4" in report
    assert "saturating" not in report
    assert "C is not told from zero" in calibration_report(views, {"convex": unknown})


def test_losses_that_end_at_knowing_nothing_are_read_as_such(views, pilots):
    """Losses made with C = 0.4 and a sampling term t r / (t + r): the line misses what the saturating reading predicts."""
    game, before = views["labels"], np.linspace(0.2, 0.5, 6)
    drift = np.array([game.impacts(x).clients for x in pilots.participation])
    used = pilots.participation @ game.sizes
    t, r = 300.0 * (1 / used - 1 / game.all_sizes.sum())[:, None], np.log(4) - before[2:]
    losses = np.tile(before, (len(drift), 1))
    losses[:, 2:] += 0.4 * drift + t * r / (t + r)
    made = replace(pilots, losses={"own": losses, "pooled": losses}, before={"own": before, "pooled": before})
    line = game.calibrate(made.participation, made.changes("own")).r2
    # whatever constants a game has, the reading fits its own
    for seen in (game, game.replace(loss_constant=7.0, sampling_constant=3.0)):
        assert saturating_r2(seen, made, "own", 4) == pytest.approx(1.0, abs=1e-3)
    assert line < 0.98
    assert "; saturating 1.00" in calibration_report({"labels": game}, {"convex": made}, classes=4)


@given(seed=st.integers(0, 10**6))
def test_pooled_losses_are_own_losses_where_every_sample_of_a_class_is_alike(seed):
    """One input per class: a client's own samples and the pooled ones in its mixture agree."""
    rng = np.random.default_rng(seed)
    inputs = torch.from_numpy(rng.normal(size=(3, 2)).astype(np.float32))
    clients = []
    for _ in range(4):
        y = torch.from_numpy(rng.integers(0, 3, size=int(rng.integers(1, 9))))
        data = LabelledTensors(inputs[y], y)
        clients.append(Client(data, data))

    class Linear(torch.nn.Linear):
        pass

    model = Linear(2, 3)
    federation = LabFederation(tuple(clients), lambda seed: model)
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    performance = evaluate(federation, weights)
    np.testing.assert_allclose(pooled_losses(federation, performance), performance.losses, rtol=1e-6)


# ---- answers


def test_clients_move_until_nobody_gains_and_never_beyond_their_caps():
    """A game with a known equilibrium: losses that fall with the total, so that each client waits for the others."""
    looked = []

    def losses(x):
        looked.append(tuple(x))
        return np.full(2, 1.0 / (0.25 + x.sum()))

    caps, costs = np.array([1.0, 0.5]), np.array([0.3, 0.3])
    found = measured_answer(losses, np.array([0.0, 0.3]), caps, costs, np.zeros(2) + 0.25, steps=4)
    assert found.settled
    assert found.participation[1] == 0.5  # paid its cost, it brings all that is taken
    assert (found.participation <= caps).all()
    for k in range(2):
        for other in np.linspace(0, caps[k], 5):
            x = found.participation.copy()
            x[k] = other
            paid = np.array([0.0, 0.3])[k] - costs[k]
            gain = (paid * other - losses(x)[k]) - (
                paid * found.participation[k] - losses(found.participation)[k]
            )
            assert gain <= 1e-12
    assert len(set(looked)) == found.trainings


def test_the_last_client_with_data_stays_and_input_is_checked():
    found = measured_answer(lambda x: np.zeros(1), np.zeros(1), np.ones(1), np.ones(1), np.ones(1))
    assert 0 < found.participation[0] < 1
    with pytest.raises(InputError, match="steps"):
        measured_answer(lambda x: x, np.ones(1), np.ones(1), np.ones(1), np.ones(1), steps=0)
    with pytest.raises(InputError, match="payments"):
        measured_answer(lambda x: x, np.ones(2), np.ones(1), np.ones(1), np.ones(1))


# ---- other ways in which clients differ


def test_clusters_and_other_names():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    truth = rng.integers(0, 3, 60)
    train, test = clusters(centres[truth] + 0.1 * rng.normal(size=(60, 2)), centres, 3)
    assert len({(int(a), int(b)) for a, b in zip(truth, train, strict=True)}) == len(set(train.tolist()))
    assert test.shape == (3,)
    labels = rng.integers(0, 5, 40)
    np.testing.assert_array_equal(renamed(renamed(labels, 5), 5), labels)
    with pytest.raises(InputError, match="count"):
        clusters(centres, centres, 4)


def test_command_line_proposes_pilots_and_fits_their_constants(tmp_path, monkeypatch):
    runner = CliRunner()
    monkeypatch.chdir(tmp_path)
    asked = runner.invoke(app, ["calibrate", "digits", "--pilots", "4", "--propose"], catch_exceptions=False)
    assert len(asked.output.splitlines()) == 4
    assert list(tmp_path.iterdir()) == []
    ran = runner.invoke(
        app,
        [
            "calibrate",
            "digits",
            "--pilots",
            "4",
            "--tested-on",
            "digits-concept",
            "--out",
            str(tmp_path / "runs"),
            "--cache",
            str(tmp_path / "cache"),
        ],
        catch_exceptions=False,
    )
    assert ran.exit_code == 0
    (folder,) = (tmp_path / "runs" / "calibrations").glob("digits-b*")
    trained = json.loads((folder / "pilots.json").read_text())["convex"]["participation"]
    assert asked.output.splitlines()[0] == "pilot 0: " + " ".join(f"{x:.2f}" for x in trained[0])
    assert "convex, labels, own test samples: C = " in ran.output
    assert "from 4 pilots; out of sample R2" in ran.output
    assert "on the other federation R2" in ran.output
