"""The structured interior-point method against a general cone solver, on the same convex programs."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stackfu.leader.certified.interior_point import Columns, Constants, Goal, Rows, solve_slice


def program(seed):
    """A random slice: every kind of row, held clients, counted volunteers, with and without budget and cap."""
    rng = np.random.default_rng(seed)
    n, r = int(rng.integers(3, 40)), int(rng.integers(1, 6))
    total = rng.uniform(0.1, 0.95)
    points = rng.normal(size=(n, r))
    points /= np.sqrt((points**2).sum(axis=1).max())
    points -= points.mean(axis=0) + 0.1 * rng.normal(size=r) / np.sqrt(r)
    square = (points**2).sum(axis=1)
    wanted = np.exp(0.7 * rng.normal(size=n)) * square.mean() * rng.choice([1, 3, 10])
    cap = rng.dirichlet(np.ones(n)) / total
    kind = rng.integers(0, 3, size=n)  # paid, between, full or free of the hull
    room = np.maximum(4 * square.max() - wanted, 0.0)
    between = (kind == 1) & (room > 0)
    relief = np.where((kind == 2) | between, cap, 0.0)
    hull = np.where(between, room / cap, np.inf)
    held = rng.integers(0, 2)
    constants = Constants(
        mass=0.05 * held,
        point=0.05 * held * points[0],
        pay=0.01 * held,
        loss=0.0,
        square=0.1 * held,
        pull=0.1 * held * points[-1],
    )
    noise = 0.01 * rng.uniform(size=n) * rng.integers(0, 2)
    goal = Goal(
        loss_weight=float(rng.choice([1.0, 1.0, 0.3])),
        pay_weight=float(rng.choice([0.0, 0.2])),
        budget=float(rng.choice([0.02, 0.1, 0.3, np.inf])),
        loss_cap=float(rng.choice([np.inf, np.inf, 0.05])),
        penalty=30.0,
    )
    columns = Columns(points, cap, wanted - square, noise / total)
    rows = Rows(points, square - wanted, relief, hull, np.where(between, np.arange(n), -1))
    return columns, rows, constants, goal


def by_clarabel(columns, rows, constants, goal):
    """The same program, written down as it stands."""
    n, r = columns.points.shape
    z, e, m, square, xi = (
        cp.Variable(n),
        cp.Variable(n),
        cp.Variable(r),
        cp.Variable(),
        cp.Variable(nonneg=True),
    )
    omega = min(max(goal.budget, 1e-4), 1.0) if np.isfinite(goal.budget) else 1.0
    pay = (
        columns.pay @ z
        + rows.relief @ e
        + (1 + constants.square) * square
        - 2 * constants.pull @ m
        + constants.pay
    )
    loss = square + columns.loss @ z + constants.loss
    rules = [z >= 0, z <= columns.cap, cp.sum(z) == 1 - constants.mass, e >= 0, square >= cp.sum_squares(m)]
    rules += [m == columns.points.T @ z + constants.point]
    rules += [square - 2 * rows.points @ m + rows.offset <= e + xi]
    paid, hulled = np.flatnonzero(rows.relief == 0), np.flatnonzero(np.isfinite(rows.hull))
    rules += [e[paid] == 0] if len(paid) else []
    if len(hulled):
        rules += [e[hulled] <= cp.multiply(rows.hull[hulled], z[rows.column[hulled]])]
    if np.isfinite(goal.budget):
        rules += [pay <= goal.budget + omega * xi]
    if np.isfinite(goal.loss_cap):
        rules += [loss <= goal.loss_cap + xi]
    objective = goal.loss_weight * loss + goal.pay_weight * pay + goal.penalty * xi
    problem = cp.Problem(cp.Minimize(objective), rules)
    problem.solve(solver="CLARABEL")
    return problem.value


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_the_optimum_is_the_one_of_a_general_cone_solver(seed):
    slice_ = program(seed)
    point = solve_slice(*slice_)
    found = point.value + slice_[-1].penalty * point.excess
    assert found == pytest.approx(by_clarabel(*slice_), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_the_point_keeps_its_constraints_and_the_multipliers_their_signs(seed):
    columns, rows, constants, goal = program(seed)
    point = solve_slice(columns, rows, constants, goal)
    assert point.solved
    assert (point.z >= 0).all()
    assert (point.z <= columns.cap).all()
    assert point.z.sum() + constants.mass == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(point.m, columns.points.T @ point.z + constants.point, atol=1e-8)
    distances = point.m @ point.m - 2 * rows.points @ point.m + rows.offset
    assert (distances <= point.e + point.excess + 1e-7).all()
    assert (point.row_price >= 0).all()
    assert point.price >= 0
    assert point.cap_price >= 0
