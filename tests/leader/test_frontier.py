"""Loss along the budget."""

from dataclasses import replace

import numpy as np
import pytest
from leader_games import random_game

import stackfu as sf


def test_frontier_falls_and_stays_above_its_envelope():
    game, _ = random_game(4, 5)
    budgets = np.linspace(0, 1.2, 7) * game.full_participation_price
    frontier = game.frontier(budgets[::-1])
    slack = 2e-6 * game.equilibrium().server_loss
    assert np.array_equal(frontier.budgets, budgets)
    assert np.all(np.diff(frontier.losses) <= slack)
    assert np.all(frontier.lower_bounds <= frontier.losses + 1e-15)
    assert np.all(frontier.losses - frontier.lower_bounds <= slack)
    assert np.all(frontier.spends <= budgets * (1 + 1e-9) + 1e-300)
    assert frontier.payments.shape == frontier.participation.shape == (7, 5)
    assert len(frontier) == 7
    assert frontier[0] is frontier.solutions[0]


def test_saturation_budget_is_where_money_stops_helping():
    game, _ = random_game(2, 5)
    frontier = game.frontier([0.1 * game.full_participation_price])
    enough = frontier.saturation_budget
    least = game.solve(None).server_loss
    unpaid = game.equilibrium().server_loss
    assert game.solve(enough * 1.001).server_loss <= least + 1.2e-4 * (unpaid - least)
    assert game.solve(enough * 0.99).server_loss > least + 1e-4 * (unpaid - least)
    assert frontier.full_participation_price == game.full_participation_price


def test_saturation_is_that_of_the_objective_that_was_asked_for():
    """If spending is weighed too, money stops helping where the weighted sum does, long before the loss does."""
    game, _ = random_game(2, 5)
    unlimited = game.solve(None)
    weight = 0.5 * (game.solve(0.0).server_loss - unlimited.server_loss) / unlimited.spend
    frontier = game.frontier([0.1 * game.full_participation_price], payment_weight=weight)
    enough, best = frontier.saturation_budget, game.solve(None, payment_weight=weight)
    spread = game.solve(0.0, payment_weight=weight).objective - best.objective
    assert 0.0 < enough <= best.spend
    assert (
        game.solve(1.001 * enough, payment_weight=weight).objective <= best.objective + 1.2e-4 * spread + 1e-9
    )
    assert game.solve(0.9 * enough, payment_weight=weight).objective > best.objective + 1e-4 * spread
    assert enough < 0.98 * game.frontier([0.0]).saturation_budget


def test_saturation_of_contracts_begins_where_the_first_ones_are_found(monkeypatch):
    """Contracts never say that a budget is proved to be too small, only that none were found."""
    monkeypatch.setattr("stackfu.results.frontier.SATURATED", 0.2)
    game, _ = random_game(2, 3)
    asked = {"offers": "contract", "min_total": 0.6, "gap": 1e-2, "max_nodes": 5}
    whole = game.solve(None, **asked)
    with pytest.raises(sf.errors.ConvergenceError):
        game.solve(0.0, **asked)
    enough = game.frontier([whole.spend], **asked).saturation_budget
    assert 0.0 < enough <= whole.spend * (1 + 1e-9)


@pytest.mark.parametrize("options", [{"min_total": 0.5}, {"gap": 1e-3}, {"start": np.ones(5)}])
def test_what_a_mechanism_does_not_know_is_refused_by_its_own_name(options):
    """A frontier starts each search from the one before only if the mechanism can, and raises no error otherwise."""
    game, budget = random_game(4, 5)
    (name,) = options
    with pytest.raises(sf.InputError, match=f"^{name}: is not an option of method .haipo"):
        game.frontier([0.5 * budget, budget], method="haipo", **options)
    assert len(game.frontier([0.5 * budget, budget], method="haipo")) == 2


def test_budgets_that_are_no_numbers_are_refused():
    embeddings = sf.MeanEmbeddings.from_features(np.eye(3))
    with pytest.raises(sf.errors.InputError, match="budgets"):
        sf.StackelbergGame(embeddings, [1, 1, 1]).frontier("much")


def test_envelope_takes_the_best_bound_of_any_larger_budget():
    game, budget = random_game(4, 5)
    frontier = game.frontier([0.5 * budget, budget, 2 * budget])
    bounds = (1.0, 3.0, 2.0)
    proved = tuple(replace(s, lower_bound=b) for s, b in zip(frontier, bounds, strict=True))
    np.testing.assert_array_equal(replace(frontier, solutions=proved).lower_bounds, [3.0, 3.0, 2.0])


def test_saturation_is_measured_by_the_range_of_the_loss_and_not_by_its_size():
    game, _ = random_game(2, 5)
    far = game.replace(lambda_v=0.2, lambda_s=2.0)  # the removed data keep the loss above 0
    frontier = far.frontier([0.1 * far.full_participation_price])
    least, unpaid = far.solve(None).server_loss, far.solve(0.0).server_loss
    assert least > 0.1 * (unpaid - least)
    reached = far.solve(frontier.saturation_budget).server_loss
    assert reached - least == pytest.approx(1e-4 * (unpaid - least), rel=0.1)


def test_searches_that_are_stopped_help_each_other():
    """Neighbours' results are used from both sides: no budget is worse than a smaller one, and none is empty."""
    game, _ = random_game(3, 12)
    budgets = np.linspace(0.1, 0.9, 5) * game.full_participation_price
    frontier = game.frontier(budgets, time_limit=0.0, gap=1e-12)
    assert not any(s.status.success for s in frontier)
    assert np.all(np.diff(frontier.objectives) <= 1e-9 * frontier.objectives[:-1])
    assert np.all(frontier.spends <= budgets * (1 + 1e-9))
    alone = [game.solve(budget, time_limit=0.0, gap=1e-12).objective for budget in budgets]
    assert np.all(frontier.objectives <= alone)
    assert frontier.objectives.sum() < 0.9 * sum(alone)
    assert all(s.verify() for s in frontier)


def test_payments_of_a_smaller_budget_stand_in_for_worse_ones_judged_for_the_larger(monkeypatch):
    game, _ = random_game(2, 5)
    small, large = np.array([0.05, 0.2]) * game.full_participation_price
    real = sf.leader.budget_sequence.solve

    def lazy(game, budget, method, options):
        """A search that finds nothing for the larger budget, though it proves a bound."""
        found = real(game, budget, method, options)
        if budget < large:
            return found
        nothing = game.equilibrium()
        value = found.goal.value(nothing.server_loss, 0.0)
        return replace(
            found,
            payments=game.no_payments,
            equilibrium=nothing,
            objective=value,
            status=sf.Status.TIME_LIMIT,
        )

    monkeypatch.setattr("stackfu.leader.budget_sequence.solve", lazy)
    frontier = game.frontier([small, large])
    assert frontier[1].objective <= frontier[0].objective
    assert frontier[1].budget == large
    assert frontier[1].status is sf.Status.TIME_LIMIT
    assert frontier[1].lower_bound < frontier[0].lower_bound
    assert frontier[1].verify()
    assert "neighbouring budget" in frontier[1].message
