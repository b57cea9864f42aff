"""The pieces of the path's core, each against a direct computation."""

import numpy as np
import pytest

from stackfu.followers.path import _factor, _piece, _polynomials
from stackfu.followers.path._piece import FULL, INSIDE, OUT


def random_problem(seed, count=5):
    """Gram matrix with the largest squared distance about 1, shares, reluctance."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(count, count)) * 0.4
    return points @ points.T, rng.dirichlet(np.ones(count)), rng.uniform(-0.1, 1.0, count), rng


def factor_of(matrix):
    """The factor built row by row, with room for one more."""
    n = len(matrix)
    L = np.zeros((n + 1, n + 1))
    for i in range(n):
        assert _factor.append(L, i, matrix[:i, i].copy(), matrix[i, i], 1e-12)
    return L


@pytest.mark.parametrize("seed", range(5))
def test_factor_grows_shrinks_and_solves(seed):
    G, _, _, rng = random_problem(seed)
    matrix = G + 1.0
    L = factor_of(matrix)
    np.testing.assert_allclose(np.tril(L[:5, :5]), np.linalg.cholesky(matrix), atol=1e-12)
    b = rng.normal(size=(3, 5))
    x = b.copy()
    _factor.solve(L, 5, x, len(x))
    np.testing.assert_allclose(x, np.linalg.solve(matrix, b.T).T, rtol=1e-7)
    four = np.concatenate([b, rng.normal(size=(1, 5))])
    x = four.copy()
    _factor.solve_four(L, 5, x)
    np.testing.assert_allclose(x, np.linalg.solve(matrix, four.T).T, rtol=1e-7)
    for gone in range(5):
        shrunk, order = L.copy(), np.arange(5)
        _factor.drop(shrunk, order, 5, gone)
        keep = np.delete(np.arange(5), gone)
        assert list(order[:4]) == list(keep)
        rest = np.tril(shrunk[:4, :4])
        np.testing.assert_allclose(rest @ rest.T, matrix[np.ix_(keep, keep)], atol=1e-12)


def test_a_dependent_row_is_refused():
    points = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    matrix = points @ points.T + 1.0
    L = np.zeros((4, 4))
    assert _factor.append(L, 0, matrix[:0, 0].copy(), matrix[0, 0], 1e-12)
    assert _factor.append(L, 1, matrix[:1, 1].copy(), matrix[1, 1], 1e-12)
    assert not _factor.append(L, 2, matrix[:2, 2].copy(), matrix[2, 2], 1e-12)
    assert _factor.append(L, 2, matrix[:2, 2].copy(), matrix[2, 2] + 0.1, 0.05)
    assert not _factor.append(L, 2, matrix[:2, 2].copy(), matrix[2, 2] + 0.1, 0.2)


def test_room_before_a_bound():
    assert _piece.room(2.0, 0.25, 1.0) == pytest.approx(0.375)
    assert _piece.room(-2.0, 0.25, 1.0) == pytest.approx(0.125)
    assert _piece.room(0.0, 0.25, 1.0) == np.inf
    assert _piece.room(2.0, 1.5, 1.0) == 0.0
    assert _piece.room(-2.0, -0.5, 1.0) == 0.0


def expanded(G, alpha, w, s0, status):
    order = np.zeros(len(alpha), dtype=np.int64)
    inside = np.flatnonzero(status == INSIDE)
    order[: len(inside)] = inside
    L = factor_of(G[np.ix_(inside, inside)] + 1.0) if len(inside) else np.zeros((1, 1))
    z, rho = np.full((3, len(alpha)), np.nan), np.full((3, len(alpha)), np.nan)
    eta, level, b = np.full(3, np.nan), np.full(5, np.nan), np.full((4, len(alpha) + 1), np.nan)
    largest = _piece.expand(G, alpha, w, s0, status, order, len(inside), L, z, rho, eta, level, b)
    return z, rho, eta, level, largest


@pytest.mark.parametrize("seed", range(12))
def test_expansion_solves_the_level_problem_with_its_sets(seed):
    """At several u: the linear system of the optimality conditions, and t(u) from its definition."""
    G, alpha, w, rng = random_problem(seed)
    w = w * (1.0, 6.0)[seed % 2]  # the violation is relative where reluctance is large
    status = np.array([INSIDE, FULL, OUT, INSIDE, INSIDE], dtype=np.int8)
    rng.shuffle(status)
    if seed % 3 == 0:
        status[status == FULL] = OUT
    inside, full = np.flatnonzero(status == INSIDE), np.flatnonzero(status == FULL)
    s0 = rng.uniform(0.3, 1.0)
    z, rho, eta, level, largest = expanded(G, alpha, w, s0, status)
    assert largest == pytest.approx(np.abs(s0 * w[inside]).max())
    for u in (0.0, 0.1, 0.5):
        point = z[0] + u * z[1] + u**2 * z[2]
        value = np.zeros(5)
        value[full] = alpha[full] / s0
        # stationarity inside, and the total: unknown are the shares inside and eta
        system = np.block(
            [[2 * G[np.ix_(inside, inside)], np.ones((len(inside), 1))], [np.ones((1, len(inside))), 0.0]]
        )
        linear = (1 - u) * np.diag(G) - (1 - u) ** 2 * s0 * w - 2 * G @ value
        answer = np.linalg.solve(system, np.append(linear[inside], 1 - u - value.sum()))
        value[inside] = answer[:-1]
        np.testing.assert_allclose(point, value, atol=1e-9)
        assert eta[0] + u * eta[1] + u**2 * eta[2] == pytest.approx(answer[-1], abs=1e-9)
        gradient = (1 - u) * np.diag(G) - (1 - u) ** 2 * s0 * w - 2 * G @ value
        np.testing.assert_allclose(rho[0] + u * rho[1] + u**2 * rho[2], gradient - answer[-1], atol=1e-9)
        square = value @ G @ value
        told = sum(level[i] * u**i for i in range(5))
        assert told == pytest.approx(square + (1 - u) * answer[-1], abs=1e-9)
        violation = _piece.violation_at(G, alpha, w, s0, u, status, z, eta, np.empty(len(alpha)))
        worst = max(np.max(-value), np.max(value - alpha / s0), 0.0)
        scale = max(1.0, np.abs(s0 * w[inside]).max())
        for k in range(5):
            size = max(scale, abs((1 - u) ** 2 * s0 * w[k]))
            excess = gradient[k] - answer[-1]
            worst = max(worst, {INSIDE: 0.0, OUT: excess, FULL: -excess}[int(status[k])] / size)
        assert violation == pytest.approx(worst / scale, abs=1e-9)


def test_expansion_with_nobody_inside():
    G, alpha, w, _ = random_problem(3)
    status = np.array([FULL, OUT, FULL, FULL, OUT], dtype=np.int8)
    s0 = alpha[status == FULL].sum()
    z, rho, eta, level, largest = expanded(G, alpha, w, s0, status)
    mixture = np.where(status == FULL, alpha, 0.0) / s0
    np.testing.assert_allclose(z[0], mixture)
    assert largest == 0.0
    np.testing.assert_array_equal(eta, 0.0)
    np.testing.assert_allclose(rho[0], np.diag(G) - s0 * w - 2 * G @ mixture, atol=1e-12)
    assert level[0] == pytest.approx(mixture @ G @ mixture)


@pytest.mark.parametrize("seed", range(300))
def test_first_violation_against_a_grid(seed):
    rng = np.random.default_rng(seed)
    c = rng.normal(size=3) * (rng.random(3) < 0.8)
    c[0] = abs(c[0])
    u = _polynomials.first_violation(*c, 1e-12, 1e-12, 1e-12)
    grid = np.linspace(0, 1.999, 20_001)[1:]
    below = np.flatnonzero(np.polyval(c[::-1], grid) < -1e-9)
    if len(below):
        assert u == pytest.approx(grid[below[0]], abs=1e-3)
    else:
        assert u >= 1.99


@pytest.mark.parametrize(
    ("c", "expected"),
    [
        ((1.0, -2.0, 0.0), 0.5),
        ((1.0, 2.0, 0.0), 2.0),
        ((0.0, -1.0, 5.0), 0.0),
        ((0.0, 0.0, -1.0), 0.0),
        ((0.0, 0.0, 1.0), 2.0),
        ((0.0, 1.0, -2.0), 0.5),
        ((0.0, 1.0, 2.0), 2.0),
        ((1.0, 0.0, -4.0), 0.5),
        ((1.0, -3.0, 2.0), 0.5),
        ((1.0, 3.0, 2.0), 2.0),
        ((1.0, 1.0, 5.0), 2.0),
        ((0.5e-3, -1.0, 0.0), 0.0),  # below tiny: the slope decides
        ((-0.5e-3, 1.0, -4.0), 0.25),
        ((0.0, 0.5e-3, -1.0), 0.0),  # and below its own, the bend
        ((0.0, 0.5e-3, -0.5e-3), 2.0),
        ((0.0, -0.5e-3, 0.0), 2.0),
    ],
)
def test_first_violation_by_hand(c, expected):
    assert _polynomials.first_violation(*c, 1e-3, 1e-3, 1e-3) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_roots_between_against_numpy(seed, degree):
    rng = np.random.default_rng(seed)
    p = rng.normal(size=5)
    if seed % 2:  # all roots real, most of them within
        p[: degree + 1] = np.poly(rng.uniform(-0.2, 1.2, degree))[::-1] * rng.choice([-2.0, 3.0])
    out = np.empty(6)
    count = _polynomials.roots_between(p, degree, 0.0, 1.0, out, np.empty((3, degree + 2)))
    roots = np.roots(p[: degree + 1][::-1])
    real = np.sort(roots.real[(np.abs(roots.imag) < 1e-7) & (roots.real > 0) & (roots.real < 1)])
    assert count == len(real)
    np.testing.assert_allclose(out[:count], real, atol=1e-6)
    for u in out[:count]:
        assert abs(_polynomials.evaluate(p, degree, u)) < 1e-12
    for u in (0.0, 0.3, 1.7):
        assert _polynomials.evaluate(p, degree, u) == pytest.approx(np.polyval(p[: degree + 1][::-1], u))


def test_bracketed_root_finds_ends_and_inner_roots():
    cubic = np.array([-0.027, 0.27, -0.9, 1.0, 0.0])  # (u - 0.3)^3
    assert _polynomials.bracketed_root(cubic, 3, 0.0, 1.0) == pytest.approx(0.3, abs=1e-5)
    line = np.array([-0.5, 1.0, 0.0, 0.0, 0.0])
    assert _polynomials.bracketed_root(line, 1, 0.5, 1.0) == 0.5
    assert _polynomials.bracketed_root(line, 1, 0.0, 0.5) == 0.5
    assert _polynomials.bracketed_root(-line, 1, 0.1, 0.7) == pytest.approx(0.5, abs=1e-15)


@pytest.mark.parametrize("seed", range(100))
def test_keeps_sign_is_right_when_it_says_so(seed):
    rng = np.random.default_rng(seed)
    p, hi = rng.normal(size=5), rng.uniform(0.1, 1.0)
    p[0] *= 4
    values = np.polyval(p[::-1], np.linspace(0, hi, 200))
    if _polynomials.keeps_sign(p, hi, 1e-12):
        assert (values > 0).all() or (values < 0).all()
    elif (np.abs(values) > 6 * np.abs(p[1:]).sum() * hi).all():
        pytest.fail("far from zero and not seen")


def test_keeps_sign_is_sharp_where_bernstein_is():
    # Bernstein coefficients of degree 4 on [0, 2] of p0 + p1 u: p0 + p1 i / 2
    for p, expected in (
        ((1.0, -0.49), True),
        ((1.0, -0.51), False),
        ((-1.0, 0.49), True),
        ((-1.0, 0.51), False),
    ):
        assert _polynomials.keeps_sign(np.array([*p, 0.0, 0.0, 0.0]), 2.0, 1e-12) is expected
    assert not _polynomials.keeps_sign(np.array([1e-14, 1.0, 1.0, 0.0, 0.0]), 1.0, 1e-12)
    # degree 4 on [0, 1]: 1, 1 + p1/4, 1 + p1/2 + p2/6, ...
    assert _polynomials.keeps_sign(np.array([1.0, -3.9, 6.0, 0.0, 0.0]), 1.0, 1e-12)
    assert not _polynomials.keeps_sign(np.array([1.0, -4.1, 9.0, 0.0, 0.0]), 1.0, 1e-12)
    assert not _polynomials.keeps_sign(np.array([1.0, -2.5, 1.4, 0.0, 2.0]), 1.0, 1e-12)


def test_indifferent_clients_at_a_bound_are_counted():
    # three clients on a line at -1, 0, 1 (distances in units of 1); the middle one is out
    points = np.array([[-0.5], [0.0], [0.5]])
    G = points @ points.T
    y = np.array([0.25, 0.0, 0.25])
    status = np.array([INSIDE, OUT, INSIDE], dtype=np.int8)
    # the mixture is at 0: the middle client's distance is 0, so it is indifferent exactly at reluctance 0
    for w, count in ((0.0, 1), (0.1, 0), (-0.1, 0)):
        assert _piece.tight_bounds(G, np.array([0.5, w, 0.5]), y, status) == count
    status = np.array([FULL, OUT, FULL], dtype=np.int8)
    # d^2 = 1/4 and S = 1/2: the outer ones are indifferent at reluctance 1/2
    assert _piece.tight_bounds(G, np.array([0.5, 0.1, 0.4]), y, status) == 1
    assert _piece.tight_bounds(G, np.array([0.5, 0.0, 0.5]), y, status) == 3


@pytest.mark.parametrize("seed", range(6))
def test_polish_brings_a_disturbed_root_back(seed):
    """At an equilibrium of a random game, started a little off: the residual ends at rounding."""
    import stackfu as sf

    rng = np.random.default_rng(seed)
    points = rng.normal(size=(4, 3))
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), rng.uniform(1, 5, 4), cost_scale=1.0)
    eq = game.equilibrium()
    scale = game.geometry.scale
    G, w = game.geometry.gram / scale, game.reluctance(np.zeros(4)) / scale
    x = eq.participation
    status = np.where(x == 1, FULL, np.where(x == 0, OUT, INSIDE)).astype(np.int8)
    shapes = np.empty((3, 4)), np.empty((3, 4)), np.empty(3), np.empty(5), np.empty((4, 5))
    order, L, y = np.empty(4, dtype=np.int64), np.zeros((5, 5)), np.empty(4)
    s = _piece.polish(G, game.alpha, w, eq.total * (1 + 1e-5), status, order, L, *shapes, y)
    assert s == pytest.approx(eq.total, rel=1e-11)
    np.testing.assert_allclose(y, game.alpha * x, atol=1e-11)


def test_a_zero_whose_level_is_no_number_is_still_a_profile():
    """Nothing is left of what the memory held before."""
    G, alpha, status = np.eye(2), np.array([0.5, 0.5]), np.array([INSIDE, FULL], dtype=np.int8)
    y = np.full(2, 1e250)
    room = np.empty((3, 2)), np.empty((3, 2)), np.empty(3), np.empty(5), np.empty((4, 3))
    w = np.array([1e300, 1e300])
    with np.errstate(all="ignore"):
        _piece.polish(G, alpha, w, 1e-320, status, np.empty(2, np.int64), np.zeros((3, 3)), *room, y)
    assert np.all((y >= 0.0) & (y <= alpha))
