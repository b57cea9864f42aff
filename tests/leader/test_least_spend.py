"""The least spend for a loss among many clients: budgets asked one after the other, against the search that minimises it itself."""

import numpy as np
import pytest
from leader_games import random_game
from test_large import federation

import stackfu as sf
from stackfu.judging.bound_check import check_bound
from stackfu.leader.certified import least_spend as module
from stackfu.leader.certified.least_spend import least_spend
from stackfu.model import Objective


def cheapest(game, share=0.5, **options):
    """By budgets alone."""
    unpaid = game.equilibrium()
    goal = Objective(
        np.inf, loss_weight=0.0, payment_weight=2.0, max_loss=share * unpaid.server_loss, **options
    )
    gap = 1e-3 * goal.payment_weight * game.full_participation_price
    starts = (unpaid.participation, np.ones(game.count))
    return goal, gap, least_spend(game, goal, gap=gap, time_limit=np.inf, max_nodes=10_000, starts=starts)


@pytest.mark.parametrize(("seed", "count"), [(0, 4), (1, 8), (2, 15), (3, 30), (5, 4)])
def test_budgets_lead_to_the_least_spend(seed, count, monkeypatch):
    monkeypatch.setattr(module, "DIRECTLY", 0.0)
    game, _ = random_game(seed, count)
    goal, gap, run = cheapest(game)
    itself = game.solve(
        None, loss_weight=0.0, payment_weight=2.0, max_loss=goal.max_loss, gap=1e-3, progress=False
    )
    assert run.status is itself.status is sf.Status.CERTIFIED
    assert run.best.value - run.bound <= gap
    assert run.bound <= itself.objective * (1 + 1e-9)
    assert itself.lower_bound <= run.best.value * (1 + 1e-9)
    assert run.best.loss <= goal.max_loss * (1 + 1e-9)
    assert check_bound(game, goal, run.certificate, "balls")


def test_a_loss_out_of_reach_is_called_that():
    game, _ = random_game(6, 8)
    with pytest.raises(sf.InfeasibleError, match="refuted"):
        cheapest(game)
    with pytest.raises(sf.InfeasibleError, match="out of reach"):
        game.solve(
            None,
            loss_weight=0.0,
            payment_weight=1.0,
            max_loss=0.5 * game.equilibrium().server_loss,
            progress=False,
        )


def test_what_is_proved_is_no_more_than_what_there_is(monkeypatch):
    """A certificate with a claim above the found spend is refused."""
    monkeypatch.setattr(module, "DIRECTLY", 0.0)
    game, _ = random_game(1, 8)
    goal, _, run = cheapest(game)
    raised = sf.results.certificate.LeaderCertificate(
        1.01 * run.best.value, run.certificate.knots, run.certificate.tree
    )
    assert not check_bound(game, goal, raised, "intervals")


def test_hundreds_of_clients_whose_spend_was_ten_times_the_least():
    """A search for the spend itself stayed at payments of 0.48, with nothing proved."""
    game, _ = federation(300, 128)
    unpaid = game.equilibrium()
    found = game.solve(
        None,
        loss_weight=0.0,
        payment_weight=1.0,
        max_loss=0.5 * unpaid.server_loss,
        gap=4e-3,
        max_nodes=200,
        progress=False,
    )
    assert found.spend < 0.1
    assert found.verify(), found.verify().message


def test_floors_and_limits_of_nodes_are_kept(monkeypatch):
    monkeypatch.setattr(module, "DIRECTLY", 0.0)
    game, _ = random_game(1, 8)
    goal, gap, run = cheapest(game, min_total=0.6)
    assert run.status is sf.Status.CERTIFIED
    assert float(game.alpha @ run.best.x) >= 0.6 * (1 - 1e-9)
    unpaid = game.equilibrium()
    starts = (unpaid.participation, np.ones(game.count))
    few = least_spend(game, goal, gap=gap, time_limit=np.inf, max_nodes=1, starts=starts)
    assert few.best.value >= run.bound


@pytest.mark.parametrize("count", [5, 40])
def test_a_loss_that_is_met_for_nothing_is_cheapest_at_once(count):
    """No spend is below 0, so there is nothing to search for: neither the limit of nodes nor that of seconds is used."""
    game, _ = random_game(count, count)
    found = game.cheapest(2.0 * game.equilibrium().server_loss, progress=False)
    assert (found.status, found.spend, found.gap, found.nodes) == (sf.Status.CERTIFIED, 0.0, 0.0, 0)
    assert found.verify(), found.verify().message
