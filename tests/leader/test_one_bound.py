"""The bound for linear and capped offers holds on intervals of the total, and is as sharp as the two it would replace."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_bound import Laurent, Multipliers, Problem, Region, bound

from stackfu.leader import bound as fast
from stackfu.leader.capped import capped_bound
from stackfu.leader.certified import payment_bound as linear_bound
from stackfu.leader.certified.points import ArrayPoints

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
    """With any affine multipliers, g(S) + T |m - c|^2 is not positive at a feasible point with the claimed bound as objective."""
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


# ---------------------------------------------------------------- the compiled bound


def compiled_problem(p, **more):
    """The problem of the reference as the solver's bound reads it."""
    return fast.Problem(
        p.alpha, p.theta, ArrayPoints(p.points), p.budget, p.cap, 0.0, p.W, p.constant, noise=np.array(p.noise),
        loss_sampling=p.A, client_sampling=p.a, loss_weight=p.loss_weight, payment_weight=p.payment_weight,
        capped=p.capped, **more,
    )  # fmt: skip


def compiled_multipliers(q, y, total, keep=None):
    """Multipliers of the reference as the solver's bound reads them."""
    return fast.Multipliers.of(q, total, y.omega, y.beta, y.gamma, y.t, y.P, y.c, y.nu2, keep)


def value_at(g, share):
    """Return the value of a bound at a total this far from the lower end, and the centre there."""
    here = (1 - share) * g.ends[0] + share * g.ends[1] + share * (1 - share) * g.bend
    one, two = (part * y.centre for part, y in ((1.0, g.segment.first), (1.0, g.segment.second)))
    centres = [(1 - part) * one + part * two for part in g.segment.parts]
    low, high = ((1 - share) * g.segment.weights[0], share * g.segment.weights[1])
    return here, low + high, (low * centres[0] + high * centres[1]) / (low + high)


@settings(max_examples=150)
@given(seed=seeds)
def test_the_compiled_bound_proves_what_the_reference_proves_or_more(seed):
    """The same ends, and a curvature that is bounded from below more closely."""
    rng = np.random.default_rng(seed)
    p = random_problem(rng, bool(rng.integers(2)))
    q = compiled_problem(p)
    for z, s, eager in feasible_points(rng, p, 0.05, 1.0, count=4):
        r = region_around(rng, p, z, s, eager)
        pair = [random_multipliers(rng, p, r.volunteer) for _ in range(2)]
        if r.a == r.b:
            pair[1] = pair[0]
        lower = p.objective(z, s)
        want = bound(p, r, *pair, lower)
        knots = [compiled_multipliers(q, y, total) for y, total in zip(pair, (r.a, r.b), strict=True)]
        if r.a == r.b:
            knots[1] = knots[0]
        cuts = np.where(r.volunteer, 0.0, -np.inf), np.where(r.paid, 0.0, np.inf)
        found = fast.bound(q, fast.Region(r.a, r.b, r.least, r.most, r.near, r.far, *cuts), *knots, lower)
        if not np.isfinite(want.least):
            assert found.margin == want.least
            continue
        size = 1 + abs(want.least)
        assert found.margin >= want.least - 1e-9 * size
        if (p.alpha <= r.b).all():
            assert found.ends == pytest.approx((want.at_a, want.at_b), rel=1e-9, abs=1e-9 * size)


def general_problem(rng, capped):
    """A problem with everything that the bound knows: outside options, a target that is no mixture."""
    p = random_problem(rng, capped)
    n = len(p.alpha)
    outside = None
    if capped and rng.uniform() < 0.5:
        outside = np.where(rng.uniform(size=n) < 0.3, -np.inf, rng.normal(size=n) * 0.3)
    pull = rng.normal(size=n) * rng.choice([0.0, 0.2])
    return p, replace(compiled_problem(p, outside=outside, pull=pull), constant=p.constant + 1.0)


def loss_and_spend(p, q, z, s):
    """From the definitions, with what keeps clients from leaving."""
    stakes = p.stakes(z, s)
    paid = z * np.maximum(p.theta * s - stakes, 0.0)
    if q.outside is not None:
        paid = np.maximum(paid, p.theta * s * z + 0.5 * stakes + 0.25 * p.a / s + q.outside)
    return p.loss(z, s) + 1.0 - 2.0 * q.pull @ z, paid.sum()


def general_region(rng, p, z, s, eager):
    """A region that holds this point, cut in every way that there is."""
    n, d = len(z), p.stakes(z, s) - p.a / (2 * s)
    width = float(rng.choice([0.0, 1e-3, 0.1, 0.6, 3.0])) * s
    a, b = s - min(width, 0.9 * s) * rng.uniform(), min(s + width * rng.uniform(), 1.0)
    low = np.where(rng.uniform(size=n) < 0.3, eager - rng.exponential(0.3, n) - 1e-15, -np.inf)
    high = np.where(rng.uniform(size=n) < 0.3, eager + rng.exponential(0.3, n), np.inf)
    if not p.capped:
        decided = rng.uniform(size=n) < 0.3
        high = np.where(decided & (eager <= 0), np.minimum(high, 0.0), high)
        low = np.where(decided & (eager > 0), np.maximum(low, 0.0), low)
    return fast.Region(
        a, max(a, b), z * rng.choice([0, 1], n) * rng.uniform(size=n) * (1 - 1e-13),
        z + (1 - z) * rng.choice([1.0, 1.0, rng.uniform()], n), d * rng.choice([0, rng.uniform()], n),
        d + rng.exponential(1.0, n) * rng.choice([1.0, 0.01]), low, high,
    )  # fmt: skip


def general_knots(rng, p, q, r):
    """Two knots, near each other or not, or twice the same, with any level or the best one."""
    n = len(p.alpha)
    anyone = np.ones(n, bool)
    base, knots = random_multipliers(rng, p, anyone), []
    for total in (r.low, r.high):
        y = random_multipliers(rng, p, anyone)
        if rng.uniform() < 0.3:
            y.P, y.nu2 = 0.0 * y.P, y.nu2 * rng.choice([0.0, 1.0])
        y = between(base, y, 0.1) if rng.uniform() < 0.5 else y
        keep = rng.exponential(0.5, n) * (rng.uniform(size=n) < 0.5)
        knots.append(compiled_multipliers(q, y, total, keep if q.outside is not None else None))
    if r.low == r.high or rng.uniform() < 0.3:
        knots[1] = knots[0]
    if rng.uniform() < 0.5:
        best = [fast.at_best_level(q, r.between(y.total, y.total), y) for y in knots]
        knots = best if knots[0] is not knots[1] else [best[0]] * 2
    return knots


@pytest.mark.parametrize("capped", [False, True])
@settings(max_examples=200)
@given(seed=seeds)
def test_no_multipliers_cut_off_a_feasible_point_of_the_general_problem(capped, seed):
    """With outside options, cuts of shares and of eagerness, wide intervals, and totals below what single clients own."""
    rng = np.random.default_rng(seed)
    p, q = general_problem(rng, capped)
    totals = (0.001, 0.2) if rng.uniform() < 0.4 else (0.05, 1.0)
    for z, s, eager in feasible_points(rng, p, *totals, count=6):
        loss, spend = loss_and_spend(p, q, z, s)
        if spend > q.budget or loss > q.loss_cap:
            continue
        r = general_region(rng, p, z, s, eager)
        lower = q.loss_weight * loss + q.payment_weight * spend
        found = fast.bound(q, r, *general_knots(rng, p, q, r), lower)
        if not np.isfinite(found.margin):
            assert found.margin < 0
            continue
        share = 0.0 if r.low == r.high else (s - r.low) / (r.high - r.low)
        here, weight, centre = value_at(found, share)
        size = 1 + abs(found.ends[0]) + abs(found.ends[1])
        assert here + weight * np.sum((z @ p.points - centre) ** 2) <= 1e-9 * size
        assert found.margin <= here + 1e-9 * size
        smaller, d = fast.narrowed(q, r, found), p.stakes(z, s) - p.a / (2 * s)
        assert (smaller.near <= d + 1e-9).all()
        assert (smaller.far >= d - 1e-9).all()


@pytest.mark.parametrize("capped", [False, True])
@settings(max_examples=200)
@given(seed=seeds)
def test_no_multipliers_cut_off_a_feasible_point_near_total_zero(capped, seed):
    rng = np.random.default_rng(seed)
    p, q = general_problem(rng, capped)
    n = len(p.alpha)
    for z, s, eager in feasible_points(rng, p, 0.001, 0.3, count=6):
        loss, spend = loss_and_spend(p, q, z, s)
        if spend > q.budget or loss > q.loss_cap:
            continue
        r = replace(general_region(rng, p, z, s, eager), low=0.0)
        y = random_multipliers(rng, p, np.zeros(n, bool))
        y.P, y.t = np.abs(y.P) * rng.choice([0.0, 1.0]), y.t - rng.choice([0.0, 3.0])
        keep = rng.exponential(0.5, n) if q.outside is not None else None
        knot = compiled_multipliers(q, y, r.high, keep)
        found = fast.bound(q, r, knot, knot, q.loss_weight * loss + q.payment_weight * spend)
        if np.isfinite(found.margin):
            gap = knot.weight * np.sum((z @ p.points - knot.centre) ** 2)
            assert found.margin + gap <= 1e-9 * (1 + abs(found.margin))


def test_a_client_that_can_only_just_be_eager_may_still_hold_back():
    """If the least eagerness is exactly 0, a client may be indifferent: it need not be full under linear payments."""
    points = ArrayPoints(np.array([[0.0], [1.0]]))
    q = fast.Problem(np.array([0.5, 0.5]), np.array([0.0, 0.0]), points, constant=0.0)
    # without costs every client has f = d^2 >= 0, and the mixture of one client alone is feasible: that client has f = 0
    r = fast.Region.whole(q, 0.3, 0.3)
    y = fast.Multipliers.of(q, 0.3, 1.0, 0.0, 0.0, 0.0, np.zeros(1), np.zeros(1))
    found = fast.bound(q, r, y, y, 0.0)
    assert found.margin <= 0.0


@settings(max_examples=100)
@given(seed=seeds)
def test_no_level_proves_more_than_the_best_one(seed):
    rng = np.random.default_rng(seed)
    p, q = general_problem(rng, bool(rng.integers(2)))
    s = float(rng.uniform(p.alpha.max(), 1.0))
    r = fast.Region.whole(q, s, s)
    y = compiled_multipliers(q, random_multipliers(rng, p, np.ones(len(p.alpha), bool)), s)
    best = fast.at_best_level(q, r, y)
    most = fast.bound(q, r, best, best, 0.3).margin
    if not np.isfinite(most):
        return
    (low, high), shares = fast.client_terms(q, r, best)
    leasts = np.minimum(low - best.level * shares[0], high - best.level * shares[1]).sum()
    for level in (*rng.normal(best.level, 1.0, 5), best.level * 1.001, y.level):
        other = replace(best, level=float(level))
        assert fast.bound(q, r, other, other, 0.3).margin <= most + 1e-9 * (1 + abs(most))
        (low, high), _ = fast.client_terms(q, r, other)
        there = np.minimum(low - level * shares[0], high - level * shares[1]).sum()
        assert fast.bound(q, r, other, other, 0.3).margin - most == pytest.approx(
            level + there - best.level - leasts, abs=1e-9 * (1 + abs(most))
        )
