"""The one bound for linear and capped offers holds on intervals of the total, and is as sharp as the two it would replace."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_bound import Laurent, Multipliers, Problem, Region, bound

from stackfu.leader.capped import bound as capped_bound
from stackfu.leader.certified import bound as linear_bound

seeds = st.integers(0, 2**32 - 1)


def random_problem(rng, capped):
    n, d = int(rng.integers(2, 7)), int(rng.integers(1, 5))
    return Problem(
        alpha=rng.dirichlet(np.full(n, 2.0)),
        theta=rng.uniform(0.05, 3.0, n),
        points=rng.normal(size=(n, d)) * 0.7,
        budget=float(rng.choice([0.01, 0.2, np.inf])),
        constant=float(rng.uniform(0, 0.5)),
        A=float(rng.choice([0.0, rng.uniform(0, 0.2)])),
        noise=rng.uniform(0, 0.1, n) * rng.choice([0, 1]),
        a=float(rng.choice([0.0, rng.uniform(0, 0.3)])),
        payment_weight=float(rng.choice([0.0, 0.5])),
        cap=float(rng.choice([np.inf, 2.0])),
        capped=capped,
    )


def random_multipliers(rng, p, volunteer):
    n, d = p.points.shape
    positive = rng.exponential(0.5, n) * (rng.uniform(size=n) < 0.6)
    signed = rng.normal(size=n) * 0.2
    omega, beta = (
        float(rng.choice([0.0, 1.0])) + 0.2,
        0.0 if np.isinf(p.budget) else float(rng.exponential(2)),
    )
    nu = p.payment_weight * omega + beta
    return Multipliers(
        omega, beta, 0.0 if np.isinf(p.cap) else float(rng.exponential(0.5)), float(rng.uniform(0, nu)),
        float(rng.normal()), np.where(volunteer | p.capped, positive + signed, positive), rng.normal(size=d) * 0.3,
    )  # fmt: skip


def feasible_points(rng, p, a, b, count=40):
    """Points of the problem with a total in [a, b]: for linear offers clients that are eager are full."""
    for _ in range(count):
        s = float(rng.uniform(a, b))
        z = rng.dirichlet(np.full(len(p.alpha), 0.7))
        for _ in range(60):  # shares below alpha / S that add up to 1
            z = np.minimum(z, p.alpha / s)
            missing = 1 - z.sum()
            if missing <= 1e-15:
                break
            room = p.alpha / s - z
            z = z + missing * room / room.sum() if room.sum() > missing else p.alpha / p.alpha.sum()
        if abs(z.sum() - 1) > 1e-12 or (z > p.alpha / s * (1 + 1e-12)).any():
            continue
        eager = p.stakes(z, s) - p.theta * s
        if not p.capped and ((eager > 0) & (z < p.alpha / s * (1 - 1e-12))).any():
            continue
        if p.spend(z, s) <= p.budget and p.loss(z, s) <= p.cap:
            yield z, s, eager


def region_around(rng, p, z, s, eager):
    """A region that holds this point and more."""
    width = float(rng.choice([0.0, 1e-3, 0.1])) * s
    a, b = s - width * rng.uniform(), min(s + width * rng.uniform(), 1.0)
    d = p.stakes(z, s) - p.a / (2 * s)
    n = len(z)
    decided = rng.uniform(size=n) < 0.3
    full = z >= p.alpha / s * (1 - 1e-12)
    linear = not p.capped
    return Region(
        a, max(a, b),
        least=z * rng.choice([0, 1], n) * rng.uniform(size=n) if p.capped else np.zeros(n),
        most=z + (1 - z) * rng.choice([1.0, rng.uniform()], n) if p.capped else np.ones(n),
        near=d * rng.choice([0, rng.uniform()], n),
        far=d + rng.exponential(1.0, n),
        paid=decided & (eager <= 0) & linear,
        volunteer=decided & full & (eager >= 0) & linear,
    )  # fmt: skip


@pytest.mark.parametrize("capped", [False, True])
@settings(max_examples=150)
@given(seed=seeds)
def test_no_multipliers_cut_off_a_feasible_point_of_either_kind_of_offers(capped, seed):
    """With any affine multipliers, g(S) + T |m - c|^2 is not positive at a feasible point whose objective is the claimed bound."""
    rng = np.random.default_rng(seed)
    p = random_problem(rng, capped)
    for z, s, eager in feasible_points(rng, p, 0.05, 1.0, count=15):
        r = region_around(rng, p, z, s, eager)
        pair = [random_multipliers(rng, p, r.volunteer) for _ in range(2)]
        found = bound(p, r, *pair, p.objective(z, s))
        if not np.isfinite(found.at_a):
            continue
        sigma = 0.0 if r.a == r.b else (s - r.a) / (r.b - r.a)
        here = (1 - sigma) * found.at_a + sigma * found.at_b + sigma * (1 - sigma) * found.delta
        size = 1 + abs(found.at_a) + abs(found.at_b)
        assert here >= found.least - 1e-9 * size
        T = (1 - sigma) * found.weights[0] + sigma * found.weights[1]
        w = (1 - sigma) * found.weights[0] * pair[0].c + sigma * found.weights[1] * pair[1].c
        gap = T * np.sum((z @ p.points - w / T) ** 2)
        assert here + gap <= 1e-9 * size


@given(seed=seeds)
def test_divided_differences_bound_laurent_polynomials(seed):
    rng = np.random.default_rng(seed)
    x = Laurent(s2=rng.normal(), sm1=rng.normal(), sm2=rng.normal(), s1=1.0)
    a, h = rng.uniform(0.05, 0.5), rng.uniform(0.01, 0.5)
    for sigma in np.linspace(0, 1, 21):
        chord = (1 - sigma) * x(a) + sigma * x(a + h)
        bent = chord + sigma * (1 - sigma) * x.curvature(a, a + h)
        assert x(a + sigma * h) >= bent - 1e-9 * (1 + abs(bent))


def as_linear(p, y, total):
    """The problem and the multipliers as the bound for linear payments sees them."""
    problem = linear_bound.BoundProblem(
        alpha=p.alpha, theta=p.theta, points=p.points, loss_square=p.W, loss_constant=p.constant,
        noise=np.array(p.noise), loss_weight=p.loss_weight, payment_weight=p.payment_weight, payment_unit=1.0,
        budget=p.budget, loss_cap=p.cap, loss_sampling=p.A, client_sampling=p.a, tells_large_clients=False,
    )  # fmt: skip
    return problem, linear_bound.Multipliers.of(problem, total, y.omega, y.beta, y.gamma, y.t, y.P, y.c)


def as_capped(p):
    """The problem as the bound for capped offers sees it."""
    return capped_bound.PlanProblem(
        alpha=p.alpha, theta=p.theta, points=p.points, target=np.zeros(p.points.shape[1]), loss_square=p.W,
        loss_constant=p.constant, noise=np.array(p.noise), loss_sampling=p.A, client_sampling=p.a,
        loss_weight=p.loss_weight, payment_weight=p.payment_weight, budget=p.budget, loss_cap=p.cap, floor=0.0,
        outside=None, unit_square=1.0, unit_loss=1.0, unit_spend=1.0,
    )  # fmt: skip


def between(first, second, share):
    """Multipliers between two."""
    names = ("omega", "beta", "gamma", "nu2", "t", "P", "c")
    return Multipliers(*((1 - share) * getattr(first, k) + share * getattr(second, k) for k in names))


def old_and_new_on_an_interval(rng, capped, width):
    """Today's bound for the kind of offers and the one bound, on a random interval with the same multipliers."""
    p = random_problem(rng, capped)
    n = len(p.alpha)
    a = float(rng.uniform(0.05, 0.9))
    b = min(a * (1 + width), 1.0)
    nothing = np.zeros(n, bool)
    first, other = (random_multipliers(rng, p, nothing) for _ in range(2))
    near = rng.uniform(size=n) * 0.3
    far = near + rng.exponential(1.0, n) * rng.choice([0.1, 1.0])
    if capped:
        least = rng.uniform(size=n) * 0.2 * np.minimum(p.alpha / b, 1.0)
        most = least + rng.uniform(size=n)
        y, free = first, np.full(n, np.inf)
        old = capped_bound.Multipliers(a, y.omega, y.beta, y.gamma, y.t, y.nu2, y.P, None, None, y.c)
        region = capped_bound.Region(a, b, least, most, near, far, -free, free)
        before = capped_bound.margin(as_capped(p), region, old, 0.3)[0]
        return before, bound(p, Region(a, b, least, most, near, far, nothing, nothing), y, y, 0.3).least
    first.nu2 = other.nu2 = 0.0
    second = between(first, other, width * rng.uniform())
    problem, at_a = as_linear(p, first, a)
    _, at_b = as_linear(p, second, b)
    far = np.minimum(far, problem.reach)  # as the bound for linear payments takes it
    near = np.minimum(near, far)
    classes = linear_bound.classify(problem, a, b, nothing, nothing, near, far)
    if classes is None:
        return -np.inf, np.inf
    before = linear_bound.box_margin(problem, a, b, at_a, at_b, classes, 0.3)
    r = Region(a, b, np.zeros(n), np.ones(n), near, far, classes.paid, classes.volunteer)
    return before, bound(p, r, first, second, 0.3).least


@settings(max_examples=200)
@given(seed=seeds)
def test_at_one_total_it_is_never_weaker_than_the_bound_for_linear_payments(seed):
    rng = np.random.default_rng(seed)
    p = random_problem(rng, False)
    n = len(p.alpha)
    s = float(rng.uniform(0.05, 1.0))
    roots = np.sqrt(p.diagonal)
    far = np.minimum((roots + roots.max()) ** 2, rng.exponential(2.0, n) + 0.05)
    r = Region(s, s, np.zeros(n), np.ones(n), np.zeros(n), far, np.zeros(n, bool), np.zeros(n, bool))
    y = random_multipliers(rng, p, r.volunteer)
    y.nu2 = 0.0
    problem, old = as_linear(p, y, s)
    classes = linear_bound.Classes(r.paid, r.volunteer, far + p.a / (2 * s))
    before = linear_bound.box_margin(problem, s, s, old, old, classes, 0.3)
    now = bound(p, r, y, y, 0.3).least
    assert now >= before - 1e-9 * (1 + abs(before))
    extra = p.a / (2 * s)
    undecided = (far + extra > p.theta * s) & (extra < p.theta * s) & (p.alpha <= s)
    if undecided.all() and np.isfinite(before):
        assert now == pytest.approx(before, rel=1e-9, abs=1e-9)


@settings(max_examples=200)
@given(seed=seeds)
def test_at_one_total_it_is_the_bound_for_capped_offers(seed):
    rng = np.random.default_rng(seed)
    p = random_problem(rng, True)
    n = len(p.alpha)
    s = float(rng.uniform(0.05, 1.0))
    y = random_multipliers(rng, p, np.zeros(n, bool))
    least = rng.uniform(size=n) * 0.2 * np.minimum(p.alpha / s, 1.0)
    most = least + rng.uniform(size=n)
    near = rng.uniform(size=n) * 0.3
    far = near + rng.exponential(1.0, n)
    r = Region(s, s, least, most, near, far, np.zeros(n, bool), np.zeros(n, bool))
    problem = as_capped(p)
    old = capped_bound.Multipliers(s, y.omega, y.beta, y.gamma, y.t, y.nu2, y.P, None, None, y.c)
    region = capped_bound.Region(s, s, least, most, near, far, np.full(n, -np.inf), np.full(n, np.inf))
    before, _, _ = capped_bound.margin(problem, region, old, 0.3)
    now = bound(p, r, y, y, 0.3).least
    if np.isfinite(before):
        assert now == pytest.approx(before, rel=1e-9, abs=1e-9)


@settings(max_examples=150)
@given(seed=seeds)
def test_on_intervals_it_is_as_sharp_as_the_bounds_it_can_replace(seed):
    """Weaker by a twentieth at most, where the interval is a tenth of its total; on most intervals it is sharper."""
    rng = np.random.default_rng(seed)
    before, now = old_and_new_on_an_interval(rng, bool(rng.integers(2)), float(10 ** rng.uniform(-4, -1)))
    if np.isfinite(before):
        assert now >= before - 0.05 * (1 + abs(before))


@settings(max_examples=50)
@given(seed=seeds)
def test_what_an_interval_costs_is_of_second_order_in_its_width(seed):
    """With affine multipliers the curvature shrinks with the square of the width, where no corner changes."""
    rng = np.random.default_rng(seed)
    p = random_problem(rng, bool(rng.integers(2)))
    n = len(p.alpha)
    s = float(rng.uniform(0.2, 0.8))
    first, second = (random_multipliers(rng, p, np.zeros(n, bool)) for _ in range(2))
    deltas = []
    for width in (1e-3, 5e-4):
        r = Region(
            s, s + width, np.zeros(n), np.ones(n), np.zeros(n), np.full(n, 5.0), np.zeros(n, bool), np.zeros(n, bool)
        )  # fmt: skip

        deltas.append(bound(p, r, first, between(first, second, width), 0.3).delta)
    if all(np.isfinite(deltas)) and deltas[0] < -1e-12:
        assert deltas[1] >= 0.3 * deltas[0]
