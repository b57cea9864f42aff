from __future__ import annotations

import numpy as np
import pytest
from tiny import REMOVED

from stackfu.errors import InputError
from stackfu_integration.lab.measures import evaluate
from stackfu_integration.lab.mechanisms import BUDGETED, CAPPED_LABELS, MECHANISMS, UNPAID
from stackfu_integration.lab.payments import build_game, penultimate_features, plan_payments
from stackfu_integration.lab.unlearning import HeadFineTuning, ParticipationRetraining


@pytest.fixture(scope="module")
def game(federation, trained):
    return build_game(penultimate_features(federation, trained.final), REMOVED, loss_constant=3.0)


@pytest.fixture(scope="module")
def games(game):
    """The game that each mechanism plays: with a sampling term where it is one that pilots calibrate."""
    thin = game.replace(sampling_constant=5.0)
    return {name: game if known.view is None else thin for name, known in MECHANISMS.items()}


@pytest.fixture(scope="module")
def plans(game, games):
    budget = 0.4 * game.full_participation_price
    return {mechanism: plan_payments(games[mechanism], mechanism, budget) for mechanism in MECHANISMS}


def test_the_game_is_that_of_the_federation(federation, game):
    assert game.removed == REMOVED
    assert game.remaining.tolist() == [2, 3, 4, 5]
    sizes = federation.sizes
    np.testing.assert_allclose(game.costs, 10 * sizes[2:] / sizes.sum())
    samples = [client.train.x.numpy().astype(float) for client in federation.clients]
    sigma = game.embeddings.bandwidth
    a, b = samples[2], samples[5]
    squared = ((a[:, None] - b[None]) ** 2).sum(-1)
    np.testing.assert_allclose(
        game.embeddings.gram[2, 5], np.exp(-squared / (2 * sigma**2)).mean(), rtol=1e-5
    )


@pytest.mark.parametrize("mechanism", [name for name in MECHANISMS if name != UNPAID])
def test_every_mechanism_moves_the_clients(games, plans, mechanism):
    made, game = plans[mechanism], games[mechanism]
    unpaid = game.equilibrium(np.zeros(game.count))
    assert made.spend > 0
    assert np.abs(made.participation - unpaid.participation).max() > 0.01
    assert game.profile(made.participation).total > unpaid.total
    assert made.spend == pytest.approx(made.payments @ made.participation)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_clients_answer_with_an_equilibrium(games, plans, mechanism):
    made = plans[mechanism]
    assert games[mechanism].regret(made.payments, made.participation, caps=made.caps) < 1e-6
    assert (made.participation <= made.caps + 1e-12).all()
    np.testing.assert_allclose(made.changes, games[mechanism].impacts(made.participation).clients)


@pytest.mark.parametrize("mechanism", BUDGETED)
def test_budgets_are_kept(game, plans, mechanism):
    assert plans[mechanism].spend <= plans[mechanism].budget * (1 + 1e-6)


def test_full_participation_is_full_and_costs_its_price(game, plans):
    assert np.array_equal(plans["full"].participation, np.ones(game.count))
    assert plans["full"].spend == pytest.approx(game.full_participation_price)


def test_nobody_beats_the_certified_optimum(plans):
    best = plans["certified"]
    assert best.lower_bound == pytest.approx(best.server_loss, rel=1e-3, abs=1e-6)
    for rival in ("uniform", "haipo", "certified-finite"):
        assert best.server_loss <= plans[rival].server_loss * (1 + 1e-4) + 1e-9


def test_the_finite_sample_term_buys_more_data(game, plans):
    def penalised(made):
        return game.server_loss(made.participation) + game.finite_sample_penalty(made.participation)

    assert penalised(plans["certified-finite"]) <= penalised(plans["certified"]) + 1e-6
    assert plans["certified-finite"].objective == pytest.approx(
        penalised(plans["certified-finite"]), rel=1e-6
    )
    used = {m: game.profile(plans[m].participation).total for m in ("certified", "certified-finite")}
    assert used["certified-finite"] >= used["certified"] - 1e-6


def test_uniform_pays_everyone_alike(plans):
    payments = plans["uniform"].payments
    assert np.ptp(payments) < 1e-9 or np.ptp(payments[payments > 0]) < 1e-9


def test_unknown_mechanism_is_refused(game):
    with pytest.raises(InputError, match="mechanism"):
        plan_payments(game, "bribery", 1.0)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("method", [HeadFineTuning, ParticipationRetraining])
def test_every_mechanism_ends_in_a_useful_model(federation, trained, game, plans, mechanism, method):
    shares = plans[mechanism].shares(game)
    outcome = method(shares=shares).unlearn(trained, REMOVED, seed=1)
    expected = sum(round(x * len(federation.clients[i].train)) for i, x in shares.items())
    assert outcome.effort.samples == pytest.approx(expected * 2 * trained.rounds, abs=1)
    after, untrained = evaluate(federation, outcome.weights), evaluate(federation, trained.initial)
    remaining = federation.remaining(REMOVED)
    assert after.mean(after.accuracies, remaining) > untrained.mean(untrained.accuracies, remaining) + 0.2


def test_random_features_come_close_to_the_exact_game(federation, trained, game):
    samples = penultimate_features(federation, trained.final)
    approximate = build_game(samples, REMOVED, loss_constant=3.0, features=4096)
    exact, close = (np.asarray(g.embeddings.distances()) for g in (game, approximate))
    np.testing.assert_allclose(close, exact, atol=0.03)


@pytest.mark.parametrize(("view", "part"), [("features", 0.5), ("labels", 1.0)])
def test_where_more_data_taught_nothing_capped_offers_have_a_floor(federation, trained, view, part):
    """A calibration may end at A = 0; a loss that does not count data has no best plan. The floor is within the budget."""
    samples = penultimate_features(federation, trained.final)
    labels = [client.train.y.numpy() for client in federation.clients]
    game = build_game(samples, REMOVED, labels=labels, view=view, loss_constant=3.0)
    budget = part * game.full_participation_price
    plan = plan_payments(game, CAPPED_LABELS, budget)
    assert plan.spend <= budget * (1 + 1e-9)
    assert game.alpha @ plan.participation >= part * (1 - 1e-5)
