"""Inner products of vectors up to a defect only: what the judge of bounds gives away for it is enough, and little."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackfu.judging.bound_formula import Checker
from stackfu.judging.numbers import IntervalArithmetic


def checker(alpha, defect):
    numbers = IntervalArithmetic()
    return SimpleNamespace(space=SimpleNamespace(defect=defect, alpha=numbers.of(alpha)), numbers=numbers)


def shares(rng, alpha, total):
    """Shares of a profile with this total: ``0 <= z_k <= alpha_k / total``, as long as they can be or anything."""
    caps, z = alpha / total, np.zeros(len(alpha))
    left = 1.0
    order = np.argsort(-alpha) if rng.random() < 0.5 else rng.permutation(len(alpha))
    for k in order:
        z[k] = min(caps[k] * (1.0 if rng.random() < 0.7 else rng.random()), left)
        left -= z[k]
    room = caps - z
    return z + left * room / room.sum() if left > 0 else z


@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.floats(-12, 0))
def test_no_square_is_further_below_zero_than_what_is_given_away(seed, count, digits):
    rng = np.random.default_rng(seed)
    alpha = rng.pareto(1.0, count) + 1e-3
    alpha /= alpha.sum()
    low = rng.uniform(0.01, 1.0)
    z = shares(rng, alpha, rng.uniform(low, 1.0))
    centre = rng.dirichlet(np.ones(count)) * rng.uniform(-1, 1)
    # the worst matrix there is: -defect along the very difference
    difference, defect = z - centre, 10.0**digits
    judge = checker(alpha, defect)
    longest = Checker.longest(judge, np.array([[low]]))
    assert np.sqrt(z @ z) <= longest[0, 0]
    given_away = Checker.fuzz(judge, longest, np.array([[np.sqrt(centre @ centre)]]))
    assert -defect * (difference @ difference) >= -given_away[0, 0]


def test_many_clients_who_own_little_give_little_away():
    alpha = np.full(10_000, 1e-4)
    judge = checker(alpha, 1.0)
    assert Checker.longest(judge, np.array([[0.25]]))[0, 0] == pytest.approx(0.02)
    assert Checker.longest(judge, np.array([[1e-9]]))[0, 0] == pytest.approx(1.0)
