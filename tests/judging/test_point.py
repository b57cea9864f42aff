"""Spend, loss and total of a profile, enclosed: balls and floats agree, and every constraint can fail."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from leader_games import random_game

from stackfu import Objective, testing
from stackfu.judging.point import _in_balls, _in_floats, enclose_point


@given(testing.plays())
def test_floats_enclose_what_balls_enclose(play):
    game, payments, x = play
    goal = Objective(budget=1.0)
    balls, floats = _in_balls(game, goal, payments, x), _in_floats(game, goal, payments, x)
    for name in ("spend", "loss", "total"):
        (a, b), (low, high) = getattr(balls, name), getattr(floats, name)
        assert low <= max(a, 0.0), name
        assert b <= high, name


@pytest.mark.parametrize(
    "options", [{}, {"min_total": 0.02}, {"finite_sample": True}, {"payment_weight": 0.5}], ids=str
)
def test_the_objective_of_a_solution_is_enclosed(options):
    game, budget = random_game(2, 5)
    solution = game.solve(budget, **options)
    low, high = enclose_point(game, solution.goal, solution.payments, solution.participation).objective(
        solution.goal
    )
    assert low <= high <= low + 1e-9 * abs(low)
    assert low * (1 - 1e-12) <= solution.objective <= high * (1 + 1e-12)
    assert solution.lower_bound <= high


def test_every_constraint_can_fail():
    game, budget = random_game(2, 5)
    solution = game.solve(budget)
    assert solution.verify()

    def message(eq=solution.equilibrium, **changes):
        goal = replace(solution.goal, **changes)
        return replace(solution, goal=goal, budget=goal.budget, equilibrium=eq).verify().message

    eq = solution.equilibrium
    assert "more than the budget" in message(budget=0.999 * solution.spend)
    assert "largest one allowed" in message(max_loss=0.999 * solution.server_loss)
    assert "below the floor" in message(min_total=min(1.0, 1.01 * eq.total))
    assert "payments differ" in message(replace(eq, payments=1.1 * eq.payments + 0.01))
    assert "no profile" in message(replace(eq, participation=np.zeros(5)))
    assert "deviating" in message(replace(eq, participation=0.9 * eq.participation))
