"""Derivatives of certified optima, against problems solved again."""

import numpy as np
import pytest

import stackfu as sf
from stackfu.demo import digits_game
from stackfu.sensitivity.optimum import OPTIMUM_OUTPUTS, OPTIMUM_PARAMETERS, OptimumDerivatives

GAP = 1e-9


def random_game(rng, n):
    rows = 0.4 * rng.normal(size=(n + 1, 3))
    sizes = rng.uniform(1.0, 5.0, n + 1)
    costs = rng.uniform(0.2, 1.0, n) * rng.choice([0.3, 1.0])
    weights = {
        "lambda_v": float(rng.uniform(0.2, 2.0)),
        "lambda_s": float(rng.uniform(0.2, 2.0)),
        "lambda_q": float(rng.uniform(0.5, 2.0)),
        "loss_constant": float(rng.uniform(0.5, 2.0)),
        "sampling_constant": float(rng.choice([0.0, 0.05])),
    }
    emb = sf.MeanEmbeddings.from_features(rows)
    return sf.StackelbergGame(emb, sizes, removed=[0], costs=costs, **weights)


def solved(game, budget, goal, start=None):
    return game.solve(budget, gap=GAP, max_nodes=20_000, progress=False, start=start, warn_below=0, **goal)


def output(solution, name):
    source = solution.equilibrium if name == "total" else solution
    return np.atleast_1d(np.asarray(getattr(source, name), dtype=float))


def differences(solution, game, budget, goal, parameter, direction, step):
    """Central differences of problems solved again."""
    ends = []
    for sign in (1, -1):
        change = sign * step * direction
        other, limit, asked = game, budget, dict(goal)
        if parameter == "budget":
            limit = budget + change
        elif parameter in goal:
            asked[parameter] = goal[parameter] + change
        elif parameter in ("max_loss", "min_total"):
            return None
        else:
            base = game.all_sizes if parameter == "sizes" else getattr(game, parameter)
            other = game.replace(**{"costs": game.costs, parameter: base + change})
        ends.append(solved(other, limit, asked, solution.participation))
    return {name: (output(ends[0], name) - output(ends[1], name)) / (2 * step) for name in OPTIMUM_OUTPUTS}


@pytest.mark.parametrize("seed", range(12))
def test_derivatives_are_those_of_problems_solved_again(seed):
    rng = np.random.default_rng(seed)
    compared = 0
    while compared < 1:
        game = random_game(rng, int(rng.integers(2, 5)))
        budget = float(rng.uniform(0.05, 0.5)) * game.full_participation_price
        goal = [{}, {"payment_weight": 0.3}, {"min_total": 0.4}][int(rng.integers(3))]
        try:
            solution = solved(game, budget, goal)
            derivatives = OptimumDerivatives(solution)
        except (sf.NotDifferentiableError, sf.InfeasibleError):
            continue
        if not derivatives._active.limits:
            continue
        compared += 1
        for parameter in OPTIMUM_PARAMETERS:
            if parameter == "sampling_constant" and game.sampling_constant == 0.0:
                continue
            base = np.asarray(derivatives._numbers[parameter], dtype=float)
            if not np.isfinite(base).all():
                continue
            direction = rng.normal(size=base.shape) * base if base.ndim else float(base)
            wanted = differences(solution, game, budget, goal, parameter, direction, 1e-4)
            if wanted is None:
                continue
            for name in OPTIMUM_OUTPUTS:
                found = derivatives.derivative(parameter, name)
                along = np.atleast_1d(found @ direction if base.ndim else found * direction)
                size = max(np.abs(wanted[name]).max(), 0.1 * np.abs(output(solution, name)).max())
                assert np.abs(along - wanted[name]).max() <= 5e-3 * size, (parameter, name)


def test_the_price_of_the_budget_is_the_derivative_of_the_objective():
    """The envelope theorem: the multiplier alone says how the objective changes with the limit."""
    for goal in ({}, {"finite_sample": True}, {"payment_weight": 0.01}):
        solution = digits_game().solve(0.05, gap=GAP, progress=False, **goal)
        derivatives = OptimumDerivatives(solution)
        price = derivatives.prices["budget"]
        assert price > 0
        assert float(derivatives.derivative("budget", "objective")) == pytest.approx(-price, rel=1e-9)
        assert float(solution.sensitivity("budget", "objective")) == pytest.approx(-price, rel=1e-9)
        assert solution.shadow_price == pytest.approx(price, rel=0.05)


@pytest.mark.filterwarnings("ignore:.*noise is known roughly")
@pytest.mark.parametrize("seed", range(3))
def test_the_noise_of_samples_changes_with_sizes(seed):
    """If sizes are numbers of embedded samples, the variance of one sample is estimated from them."""
    rng = np.random.default_rng(seed)
    emb = sf.MeanEmbeddings.from_features(0.25 * rng.normal(size=(4, 3)))
    game = sf.StackelbergGame(emb, rng.uniform(3.0, 9.0, 4), removed=[0], costs=[0.3, 0.2, 0.4])
    goal = {"finite_sample": True}
    solution, direction = solved(game, 0.1, goal), rng.normal(size=4)
    wanted = differences(solution, game, 0.1, goal, "sizes", direction, 1e-4)
    for name in ("objective", "server_loss"):
        found = float(solution.sensitivity("sizes", name) @ direction)
        assert found == pytest.approx(float(wanted[name][0]), rel=1e-4)


def test_a_budget_that_does_not_bind_changes_nothing():
    game = digits_game()
    solution = game.solve(10 * game.full_participation_price, gap=GAP, payment_weight=0.05, progress=False)
    derivatives = OptimumDerivatives(solution)
    assert derivatives.prices["budget"] == 0.0
    assert not derivatives.derivative("budget", "payments").any()


def test_what_is_no_optimum_is_refused():
    game = digits_game()
    for solution in (game.solve(0.05, "uniform"), game.solve(0.05, "haipo")):
        with pytest.raises(sf.InputError, match="must be one of the certified search"):
            solution.sensitivity("budget")
    best = game.solve(0.05, gap=1e-3)
    with pytest.raises(sf.InputError, match="parameter = 'payments'"):
        best.sensitivity("payments")
    with pytest.raises(sf.InputError, match="of = 'mood'"):
        best.sensitivity("budget", "mood")


def test_an_optimum_at_a_kink_is_refused():
    """With just the money for full participation the budget binds, and more of it buys nothing."""
    game = digits_game()
    solution = game.solve(0.0, progress=False)
    with pytest.raises(sf.NotDifferentiableError, match="no derivative here"):
        OptimumDerivatives(solution)
