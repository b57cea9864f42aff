"""What is done differently for very many clients, against what is done for few."""

import numpy as np
import pytest

from stackfu.judging import bound as judge
from stackfu.judging import rows as judged_rows
from stackfu.judging.bound import check_bound
from stackfu.leader.certified import bound
from stackfu.leader.certified.bound import BoundProblem, Multipliers, ball, box_margin, classify, interpolate
from stackfu.model import Objective


def random_problem(rng, count=300, width=4, **changes):
    return BoundProblem(
        **{
            "alpha": rng.dirichlet(np.ones(count)),
            "theta": rng.uniform(0.1, 3.0, count),
            "points": rng.normal(size=(count, width)),
            "loss_square": 1.0,
            "loss_constant": 0.1,
            "noise": rng.uniform(0.0, 0.1, count),
            "loss_weight": 1.0,
            "payment_weight": 0.2,
            "payment_unit": 1.0,
            "budget": 0.3,
            "loss_cap": np.inf,
            "client_sampling": 0.01,
            "loss_sampling": 0.01,
            **changes,
        }
    )


def random_multipliers(rng, problem, total):
    count = len(problem.alpha)
    rows = rng.exponential(size=count) * (rng.uniform(size=count) < 0.2) * 0.02
    centre = rng.dirichlet(np.ones(count)) @ problem.points
    return Multipliers.of(problem, total, 1.0, rng.exponential(), 0.0, rng.normal() * 0.1, rows, centre)


@pytest.mark.parametrize("seed", range(8))
def test_passes_on_all_cores_say_what_the_plain_ones_say(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng)
    knots = [random_multipliers(rng, problem, s) for s in (0.2, 0.9)]
    low, high = np.sort(rng.uniform(0.25, 0.85, 2))
    ends = [interpolate(*knots, s) for s in (low, high)]
    paid = rng.uniform(size=300) < 0.1
    volunteer = ~paid & (rng.uniform(size=300) < 0.1)

    def everything():
        known = classify(problem, low, high, paid, volunteer)
        margin = box_margin(problem, low, high, *ends, known, 0.5)
        alone = box_margin(problem, low, high, knots[0], ends[1], known, 0.5)
        near, far = ball(problem, *ends, min(margin, -1e-3))
        again = classify(problem, low, high, paid, volunteer, near, far)
        closer = ball(problem, knots[1], knots[1], -1e-3, near, far)
        return known, again, [margin, alone, *near, *far, *closer[0], *closer[1]]

    plain = everything()
    monkeypatch.setattr(bound, "MANY", 1)
    fast = everything()
    assert np.allclose(plain[2], fast[2], rtol=1e-12, atol=1e-14)
    for before, after in zip(plain[:2], fast[:2], strict=True):
        assert (before is None) == (after is None)
        if before is not None:
            assert np.array_equal(before.paid, after.paid)
            assert np.array_equal(before.volunteer, after.volunteer)
            assert np.allclose(before.ceiling, after.ceiling, rtol=1e-14)
