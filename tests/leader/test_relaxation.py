"""The cone programs of the leader against the same programs written in cvxpy, and their safe bounds against points."""

import cvxpy as cp
import numpy as np
import pytest
from leader_games import random_game

import stackfu as sf
from stackfu.leader.certified import relaxation
from stackfu.leader.certified.relaxation import FREE, PAID, VOLUNTEER, LeaderProblem, Relaxation

KINDS = ("wide", "narrow", "point")
VARIANTS = {
    "budget": {},
    "payment": {"payment_weight": 0.7},
    "samples": {"finite_sample": True},
    "both": {"payment_weight": 0.3, "finite_sample": True},
    "spend only": {"loss_weight": 0.0, "payment_weight": 1.0},
}


def reference(problem, kind, low, high, decided, *, shrink=0.0, penalty=30.0):
    """The relaxation as its description states it; the optimum and the total participation there."""
    p, n = problem, len(problem.alpha)
    middle, half = (low + high) / 2, (high - low) / 2
    ends = {"wide": [low, high], "narrow": [middle], "point": [middle]}[kind]
    tangent = [1 / high] if kind == "narrow" else [2 / middle - s / middle**2 for s in ends]
    volunteers = np.flatnonzero(decided == VOLUNTEER)
    a = [cp.Variable(n, nonneg=True) for _ in ends]
    tau = [cp.Variable() for _ in ends]
    tilt, excess = cp.Variable(n), cp.Variable(nonneg=True)
    lam = [cp.sum(part) for part in a]
    mean = [p.factor.T @ part for part in a]
    rules = [sum(lam) == 1]
    rules += [cp.quad_over_lin(m, weight) <= t for m, weight, t in zip(mean, lam, tau, strict=True)]
    brought = sum(s * part for s, part in zip(ends, a, strict=True))
    total = sum(s * weight for s, weight in zip(ends, lam, strict=True))
    if kind == "narrow":
        rules += [cp.abs(tilt) <= a[0]]
        brought = brought + half * tilt
        total = total + half * cp.sum(tilt)
    distances = [  # lambda_j d_k^2 at every end
        t - 2 * p.factor @ m + cp.multiply(p.diagonal, weight)
        for t, m, weight in zip(tau, mean, lam, strict=True)
    ]
    loss = sum(tau) + sum(inv * (p.noise @ part) for inv, part in zip(tangent, a, strict=True))
    pay = p.theta @ brought + sum(tau) - p.diagonal @ sum(a)
    for k in volunteers:
        pay = pay + sum(p.alpha[k] * inv * d[k] for inv, d in zip(tangent, distances, strict=True))
        pay = pay - p.theta[k] * p.alpha[k]
    for k in range(n):
        if decided[k] == VOLUNTEER:
            rules += [brought[k] == p.alpha[k]]
        else:
            rules += [brought[k] <= p.alpha[k]]
        beyond = sum(d[k] for d in distances) - p.theta[k] * total
        if decided[k] == VOLUNTEER:
            rules += [beyond >= -excess]
        elif decided[k] == PAID:
            rules += [beyond <= excess]
    strict = 1 / min(max(p.budget, 1e-4), 1.0)
    if np.isfinite(p.budget):
        rules += [pay <= p.budget * (1 - shrink) + excess / strict]
    if np.isfinite(p.loss_cap):
        rules += [loss + p.constant <= p.loss_cap * (1 - shrink) + excess]
    if kind == "wide":
        for part, weight, d in zip(a, lam, distances, strict=True):
            for k in range(n):
                rules += [part[k] <= min(p.alpha[k] / low, 1.0) * weight]
                if decided[k] == VOLUNTEER:
                    rules += [part[k] >= p.alpha[k] / high * weight]
                    rules += [d[k] - p.theta[k] * low * weight >= -excess]
                elif decided[k] == PAID:
                    rules += [d[k] - p.theta[k] * high * weight <= excess]
    objective = p.loss_weight * (loss + p.constant) + p.payment_weight * pay + penalty * excess
    program = cp.Problem(cp.Minimize(objective), rules)
    program.solve(solver="CLARABEL")
    if program.status == "infeasible":
        return np.inf, None, None
    assert program.status == "optimal", program.status
    return float(program.value), np.asarray(sum(a).value), float(total.value)


def box(seed, kind):
    """A game, an interval of totals and decisions that leave room in it."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(6, 3)) * rng.choice([0.1, 0.3, 1.0])
    points *= min(1.0, 0.9 / np.linalg.norm(points, axis=1).max())  # the finite-sample term wants k(a, a) = 1
    costs = rng.uniform(0.05, 1, size=4) * rng.choice([0.1, 1.0])
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points),
        rng.uniform(1, 30, size=6),
        removed=(0, 1),
        costs=costs,
        lambda_v=rng.uniform(0, 2),
        lambda_s=rng.uniform(0.1, 2),
        lambda_q=0.7,
        loss_constant=1.3,
    )
    budget = float(rng.uniform(0.05, 0.8) * costs.sum())
    low, high = np.sort(rng.uniform(0.05, 1.0, size=2))
    if kind == "narrow":
        high = low * (1 + 10 ** rng.uniform(-4, -1))
    if kind == "point":
        high = low
    decided = rng.choice([FREE, PAID, VOLUNTEER], size=4, p=[0.4, 0.35, 0.25]).astype(np.int8)
    while game.alpha[decided == VOLUNTEER].sum() > 0.9 * low:
        decided[np.flatnonzero(decided == VOLUNTEER)[0]] = PAID
    return game, budget, float(low), float(min(high, 1.0)), decided


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_the_program_is_the_one_described(seed, kind, variant):
    game, budget, low, high, decided = box(10 * seed + list(VARIANTS).index(variant), kind)
    cap = 1.5 * game.equilibrium().server_loss if seed % 2 else np.inf
    problem = LeaderProblem.of(game, budget=budget, loss_cap=cap, **VARIANTS[variant])
    shrink = 0.05 if seed == 2 else 0.0
    value, z, total = reference(problem, kind, low, high, decided, shrink=shrink)
    for unit in (1.0, 0.25):
        program = Relaxation(problem, kind, unit, decided == VOLUNTEER)
        point = program.solve(low, high, decided, shrink=shrink)
        if not np.isfinite(value):
            assert point.bound == np.inf
            continue
        value_known = max(
            value, problem.least_loss
        )  # what holds for every mixture is known without a program
        assert point.bound == pytest.approx(value_known, rel=1e-6, abs=1e-6)
        if point.solved and problem.loss_weight:  # the loss is strictly convex in the mean, not in z itself
            assert problem.factor.T @ point.z == pytest.approx(problem.factor.T @ (z / z.sum()), abs=2e-3)
            assert low - 1e-9 <= point.total <= high + 1e-9
            if (
                kind != "wide" and value > problem.least_loss + 1e-4
            ):  # something binds, so the total is no matter of taste
                assert point.total == pytest.approx(total, abs=0.02 * (high - low) + 1e-9)


@pytest.mark.parametrize("variant", ["budget", "samples"])
def test_normalised_units_are_the_games_own(variant):
    """Distances, losses and payments of random mixtures, from the game and from the normalised problem."""
    rng = np.random.default_rng(0)
    for seed in range(6):
        game, budget, *_ = box(seed, "wide")
        problem = LeaderProblem.of(game, budget=budget, loss_cap=0.7, payment_weight=0.3, **VARIANTS[variant])
        scale = problem.unit_payment / (2 * game.lam)
        assert problem.budget * problem.unit_payment == pytest.approx(budget)
        assert problem.loss_cap * problem.unit_loss == pytest.approx(0.7)
        assert problem.payment_weight * problem.unit_loss == pytest.approx(0.3 * problem.unit_payment)
        assert problem.theta * problem.unit_payment == pytest.approx(game.kappa)
        losses = []
        for x in rng.uniform(0.05, 1, size=(40, 4)):
            z, total = game.profile(x).mixture, float(game.alpha @ x)
            d2 = game.profile(x).to_clients
            assert problem.squared_distances(z) * scale == pytest.approx(d2, abs=1e-12)
            m = problem.factor.T @ z
            loss = (m @ m + problem.constant) * problem.unit_loss
            assert loss == pytest.approx(game.server_loss(x))
            losses.append(loss)
            extra = game.finite_sample_penalty(x) if variant == "samples" else 0.0
            assert problem.noise @ z / total * problem.unit_loss == pytest.approx(extra)
        assert problem.nearest_loss * problem.unit_loss <= min(losses) * (1 + 1e-9)
        nearest = problem.factor.T @ problem.ideal
        reached = (nearest @ nearest + problem.constant) * problem.unit_loss
        assert problem.nearest_loss * problem.unit_loss == pytest.approx(reached, rel=1e-6)
        assert problem.least_loss == problem.nearest_loss
        spread = np.array([[((a - b) ** 2).sum() for a in problem.factor] for b in problem.factor])
        assert problem.reach == pytest.approx(spread.max(axis=1))
        assert spread.max() <= 4 + 1e-12  # of the order of one


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_held_back_comes_off_the_budget_and_the_cap(kind):
    """A tenth held back is a budget, or a cap on the loss, that is a tenth smaller."""
    binding = 0
    for seed in range(8):
        game, budget, low, high, decided = box(seed, kind)
        cap = 1.02 * game.server_loss(np.ones(4)) + 0.05 * game.geometry.scale
        for limits in (
            {"budget": 0.2 * budget},
            {"loss_cap": cap, "budget": budget, "payment_weight": 1.0, "loss_weight": 0.0},
        ):
            values = {}
            for name, factor, shrink in (("whole", 1.0, 0.0), ("held", 1.0, 0.1), ("smaller", 0.9, 0.0)):
                scaled = {k: v * factor if k in ("budget", "loss_cap") else v for k, v in limits.items()}
                program = Relaxation(LeaderProblem.of(game, **scaled), kind, 0.25, decided == VOLUNTEER)
                values[name] = program.solve(low, high, decided, shrink=shrink).bound
            if np.isfinite(values["whole"]):
                # the excess is priced per row, whose scale follows the budget; compare where nothing is in excess
                if values["smaller"] < 1:
                    assert values["held"] == pytest.approx(values["smaller"], rel=2e-3, abs=1e-5)
                binding += values["held"] > values["whole"] + 1e-4
    assert binding >= 2


def test_a_server_without_weights_of_its_own_has_no_loss():
    game, budget, *_ = box(1, "wide")
    problem = LeaderProblem.of(game.replace(lambda_v=0.0, lambda_s=0.0), budget=budget, payment_weight=1.0)
    assert problem.loss_weight == 0.0
    assert problem.least_loss == 0.0
    assert problem.unit_loss == problem.unit_payment


def test_a_refuted_box_says_so():
    """Volunteers who together bring more than the box holds."""
    game, budget, *_ = box(1, "wide")
    problem = LeaderProblem.of(game, budget=budget)
    decided = np.full(4, VOLUNTEER, dtype=np.int8)
    point = Relaxation(problem, "wide", 0.25, decided == VOLUNTEER).solve(0.2, 0.5, decided)
    assert point.bound == np.inf
    assert point.slack == 0.0
    assert not point.solved


@pytest.mark.parametrize("kind", ["wide", "narrow"])
def test_an_updated_program_answers_like_a_new_one(kind):
    game, budget, low, high, decided = box(5, kind)
    problem = LeaderProblem.of(game, budget=budget)
    used = Relaxation(problem, kind, 0.25, decided == VOLUNTEER)
    used.solve(0.5 * low + 0.1, 0.5 * high + 0.2, decided, penalty=3.0)
    again = used.solve(low, high, decided)
    fresh = Relaxation(problem, kind, 0.25, decided == VOLUNTEER).solve(low, high, decided)
    assert again.bound == pytest.approx(fresh.bound, rel=1e-7, abs=1e-9)


def feasible_variables(program, problem, rng):
    """Random variables of the program that satisfy what ``_least`` relies on."""
    n, ends = len(problem.alpha), program.ends
    v = np.zeros(program._columns)
    share = rng.dirichlet(np.ones(ends)) if rng.random() < 0.5 else np.eye(ends)[rng.integers(ends)]
    largest = problem.diagonal.max()
    for j in range(ends):
        z = rng.dirichlet(np.full(n, 0.3)) if rng.random() < 0.5 else np.eye(n)[rng.integers(n)]
        v[program._a(j)], v[program._lam(j)] = share[j] * z, share[j]
        v[program._c(j)] = share[j] * (problem.factor.T @ z) / program._unit
        square = float((problem.factor.T @ z) @ (problem.factor.T @ z))
        v[program._tau(j)] = share[j] * rng.choice([square, largest]) / program._unit**2
    if program.kind == "narrow":
        v[program._tilt] = v[program._a(0)] * rng.choice([-1, 1], size=n)
        v[program._shift] = v[program._tilt].sum()
    return v


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", [1.0, 0.25])
def test_the_least_value_of_a_slope_is_below_all_points_and_no_lower_than_needed(kind, unit):
    rng = np.random.default_rng(0)
    game, budget = random_game(3, 4)
    problem = LeaderProblem.of(game, budget=budget)
    program = Relaxation(problem, kind, unit, np.zeros(4, dtype=bool))
    points = [feasible_variables(program, problem, rng) for _ in range(300)]
    for _ in range(30):
        slope = rng.normal(size=program._columns) * (rng.random(program._columns) < 0.7)
        slope[program._excess] = 0.0
        least = program._least(slope)
        assert least <= min(slope @ v for v in points) + 1e-12
    # with one part of the slope at a time, the bound is reached
    largest = float(problem.diagonal.max())
    for j in range(program.ends):
        slope = np.zeros(program._columns)
        other = {"a": np.array([0.3, -0.4, 0.1, 0.2])}
        slope[program._a(j)] = other["a"]
        assert program._least(slope) == pytest.approx(-0.4)
        slope = np.zeros(program._columns)
        slope[program._lam(j)] = -0.6
        assert program._least(slope) == pytest.approx(-0.6)
        slope[program._lam(j)], slope[program._tau(j)] = 0.0, -0.5
        assert program._least(slope) == pytest.approx(-0.5 * largest / unit**2)
        slope[program._tau(j)] = 0.5
        assert program._least(slope) == 0.0
        slope = np.zeros(program._columns)
        slope[program._c(j)[0]] = 0.5
        assert program._least(slope) == pytest.approx(-0.5 * np.sqrt(largest) / unit)
    if kind == "narrow":
        slope = np.zeros(program._columns)
        slope[program._tilt[1]] = 0.3
        assert program._least(slope) == pytest.approx(-0.3)
        slope = np.zeros(program._columns)
        slope[program._shift] = -0.2
        assert program._least(slope) == pytest.approx(-0.2)


@pytest.mark.parametrize("kind", KINDS)
def test_dual_vectors_are_moved_into_their_cone_and_not_further(kind):
    rng = np.random.default_rng(1)
    game, budget = random_game(2, 4)
    program = Relaxation(LeaderProblem.of(game, budget=budget), kind, 0.5, np.zeros(4, dtype=bool))
    for _ in range(20):
        dual = rng.normal(size=program._height)
        inside = program._into_dual_cone(dual)
        free = slice(0, program._equalities)
        assert np.array_equal(inside[free], dual[free])
        line = slice(program._equalities, program._cone_row)
        assert np.array_equal(inside[line], np.where(dual[line] > 0, dual[line], 0.0))
        top = program._cone_row
        for _ in range(program.ends):
            rest = slice(top + 1, top + 2 + program._r)
            assert np.array_equal(inside[rest], dual[rest])
            radius = np.sqrt((dual[rest] ** 2).sum())
            assert inside[top] == pytest.approx(dual[top] if dual[top] > radius else radius)
            top += 2 + program._r
        assert top == program._height
        assert np.array_equal(program._into_dual_cone(inside), inside)


def test_what_an_inexact_solver_costs_is_measured(monkeypatch):
    """Asked for more digits than there are, the solver gives up; its bound still holds, and the slack says how good it is."""
    monkeypatch.setattr(relaxation, "TOLERANCE", 1e-17)
    unsolved = 0
    for seed in range(8):
        game, budget, low, high, decided = box(seed, "wide")
        problem = LeaderProblem.of(game, budget=budget)
        value, _, _ = reference(problem, "wide", low, high, decided)
        point = Relaxation(problem, "wide", 0.25, decided == VOLUNTEER).solve(low, high, decided)
        if not np.isfinite(value):
            continue
        assert point.bound <= max(value, problem.least_loss) * (1 + 1e-7) + 1e-8
        if point.slack:
            unsolved += 1
            assert max(value, problem.least_loss) - point.bound <= point.slack + 1e-7
            assert point.slack <= 1e-4
    assert unsolved >= 3
