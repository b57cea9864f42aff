"""The judge of feasible points: it accepts what solvers return, and every constraint can fail."""

from dataclasses import replace

import numpy as np
import pytest
from leader_games import random_game

from stackfu.judging.feasible import check_feasible


@pytest.mark.parametrize(
    "options", [{}, {"min_total": 0.02}, {"finite_sample": True}, {"payment_weight": 0.5}], ids=str
)
@pytest.mark.parametrize("arithmetic", ["balls", "intervals"])
def test_solutions_are_feasible_and_their_objective_is_enclosed(options, arithmetic):
    game, budget = random_game(2, 5)
    solution = game.solve(budget, time_limit=5.0, **options)
    verdict = check_feasible(game, solution.goal, solution.payments, solution.participation, arithmetic)
    assert verdict, verdict.message
    low, high = verdict.objective
    assert low <= high <= low + 1e-9 * abs(low)
    assert low * (1 - 1e-12) <= solution.objective <= high * (1 + 1e-12)
    assert solution.lower_bound <= high


def test_every_constraint_can_fail():
    game, budget = random_game(2, 5)
    solution = game.solve(budget)
    p, x, goal = solution.payments, solution.participation, solution.goal

    def message(goal=goal, p=p, x=x):
        return check_feasible(game, goal, p, x).message

    assert "budget" in message(replace(goal, budget=0.999 * solution.spend))
    assert "cap" in message(replace(goal, max_loss=0.999 * solution.server_loss))
    assert "floor" in message(replace(goal, min_total=min(1.0, 1.01 * solution.equilibrium.total)))
    assert "deviating" in message(p=1.1 * p + 0.01)
    assert "less than nothing" in message(p=p - 1.0)
    assert "numbers" in message(p=np.full(5, np.nan))
    assert "participation" in message(x=np.zeros(5))
    assert "one number" in message(x=np.ones(4))
