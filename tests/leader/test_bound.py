"""The bound never cuts off a feasible point, with any multipliers; with good ones it is sharp (test_certified)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stackfu.leader.certified.payment_bound import BoundProblem, Multipliers, ball, box_margin, classify


def feasible_point(rng):
    """A random problem of the leader with a point that meets all its constraints, and that point's total and embedding."""
    count, rank = int(rng.integers(2, 8)), int(rng.integers(1, 5))
    points = rng.normal(size=(count, rank)) * 10 ** rng.uniform(-1, 1) + rng.normal(size=rank) * rng.choice(
        [0, 1]
    )
    alpha = rng.dirichlet(np.ones(count) * rng.choice([0.5, 2, 10]))
    x = rng.uniform(size=count) ** rng.choice([0.3, 1, 3])
    x[rng.uniform(size=count) < 0.3] = 0
    x[rng.uniform(size=count) < 0.35] = 1
    x[0] = x[0] or 1.0
    total = float(alpha @ x)
    z = alpha * x / total
    m = z @ points
    sampling = rng.choice([0, 0.3 * rng.uniform()])
    gain = ((m - points) ** 2).sum(1) + sampling / 2 / total
    slack = np.where(
        x < 1,
        1 + rng.choice([0, 1], size=count) * rng.exponential(size=count),
        np.exp(rng.normal(size=count)),
    )
    theta = np.maximum(gain / total * slack, 1e-6)
    unit, weight, constant = np.exp(rng.normal()), np.exp(rng.normal()), rng.uniform()
    noise, scatter = rng.uniform(size=count) * rng.choice([0, 1]), rng.choice([0, rng.uniform()])
    pull = points @ rng.normal(size=rank) * rng.choice([0, 1])
    spend = unit * float((total * z * np.maximum(theta - gain / total, 0)).sum())
    loss = weight * float(m @ m) - 2 * float(pull @ z) + constant + (float(noise @ z) + scatter) / total
    by_loss, by_payment = rng.choice([0, 1, 0.5]), rng.choice([0, 1, 0.3])
    problem = BoundProblem(
        alpha=alpha,
        theta=theta,
        points=points,
        loss_square=weight,
        loss_constant=constant,
        noise=noise,
        loss_weight=by_loss,
        payment_weight=by_payment,
        payment_unit=unit,
        budget=np.inf if rng.uniform() < 0.2 else spend * (1 + rng.choice([0, rng.exponential()])),
        loss_cap=np.inf
        if rng.uniform() < 0.5 or loss <= 0
        else loss * (1 + rng.choice([0, rng.exponential()])),
        loss_sampling=scatter,
        client_sampling=sampling,
        loss_pull=pull,
        reach=((points[:, None] - points[None]) ** 2).sum(2).max(1),
    )
    eager = (x == 1) & (gain >= theta * total)
    return problem, by_loss * loss + by_payment * spend, total, m, eager


def random_multipliers(rng, p, total, m, volunteer):
    omega = rng.choice([1, 0, rng.uniform()])
    beta = 0.0 if np.isinf(p.budget) else rng.choice([0, rng.exponential()])
    gamma = 0.0 if np.isinf(p.loss_cap) else rng.choice([0, rng.exponential()])
    count = len(p.alpha)
    rows = rng.exponential(size=count) * (rng.uniform(size=count) < 0.5) * 10 ** rng.uniform(-2, 1)
    nu = p.payment_unit * (omega * p.payment_weight + beta)
    if rng.uniform() < 0.5:
        rows = np.minimum(rows, p.alpha * nu / total)
    rows = np.where(volunteer & (rng.uniform(size=count) < 0.5), -0.1 * rows, rows)
    centre = m + rng.normal(size=len(m)) * 10 ** rng.uniform(-6, 0)
    y = Multipliers.of(p, total, omega, beta, gamma, 0.0, rows, centre)
    ell = omega * p.loss_weight + gamma
    q = 2 * (y.slope - ell * p.loss_pull) + nu * (p.theta * total - p.diagonal) + ell / total * p.noise
    level = rng.choice([np.median(q), q.min(), q[0], rng.normal()])
    return Multipliers.of(p, total, omega, beta, gamma, level, rows, centre)


def size_of(p, *ends):
    return 1 + sum(
        abs(y.level) + abs(y.weight) * p.diagonal.max() + float(np.abs(y.pull).max()) for y in ends
    )


@settings(max_examples=400)
@given(st.integers(0, 2**32 - 1))
def test_no_multipliers_cut_off_a_feasible_point(seed):
    rng = np.random.default_rng(seed)
    p, value, total, m, eager = feasible_point(rng)
    decided = rng.integers(0, 2, size=len(p.alpha)).astype(bool)
    volunteer, paid = eager & decided, ~eager & decided
    width = 10 ** rng.uniform(-8, 0)
    low, high = total * (1 - width * rng.uniform()), total * (1 + width * rng.uniform())
    low = 0.0 if rng.uniform() < 0.1 else low
    known = classify(p, low, high, paid, volunteer)
    assert known is not None
    assert not (known.paid & volunteer).any()
    first = random_multipliers(rng, p, low or high, m, volunteer)
    second = random_multipliers(rng, p, high, m, volunteer) if rng.uniform() < 0.7 else first
    margin = box_margin(p, low, high, first, second, known, value)
    assert margin <= 1e-11 * (size_of(p, first, second) + abs(value))
    if low > 0 and np.isfinite(margin):
        near, far = ball(p, first, second, min(margin, -1e-11 * size_of(p, first, second)))
        distance = ((m - p.points) ** 2).sum(1)
        assert (distance <= far * (1 + 1e-9) + 1e-12).all()
        assert (distance >= near * (1 - 1e-9) - 1e-12).all()


@pytest.mark.parametrize("seed", range(20))
def test_a_false_bound_would_be_seen(seed):
    """The property above can fail: claim a value above the point's own with multipliers that are sharp there."""
    rng = np.random.default_rng(seed)
    p, value, total, m, eager = feasible_point(rng)
    if not p.loss_weight or p.payment_weight or p.noise.any():
        return
    known = classify(p, total, total, ~eager, eager)
    y = Multipliers.of(p, total, 1.0, 0.0, 0.0, 0.0, np.zeros(len(p.alpha)), m).at_best_level(p, known)
    own = value + box_margin(p, total, total, y, y, known, value)
    assert box_margin(p, total, total, y, y, known, own - 1e-6 * (1 + abs(own))) > 0
    assert box_margin(p, total, total, y, y, known, own + 1e-6 * (1 + abs(own))) < 0
