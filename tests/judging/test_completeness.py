"""The checker of completeness: what it accepts is true, whatever chain it is given."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from chains import slow_chain
from hypothesis import given, settings
from hypothesis import strategies as st

import stackfu as sf
from stackfu import catalog
from stackfu.followers.path import follow_path
from stackfu.judging._segment_kernels import positive_definite
from stackfu.judging.completeness import check_complete
from stackfu.judging.completeness_balls import check_complete_in_balls
from stackfu.judging.stakes import NEGLIGIBLE, _in_balls, _in_floats, check_stakes


def play(seed, count=None):
    """A game with affinely independent embeddings, and payments."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 8)) if count is None else count
    points, sizes = rng.normal(size=(n, n + 1)), rng.dirichlet(np.ones(n)) * 1000
    emb = (
        sf.MeanEmbeddings.from_features(points)
        if seed % 2
        else sf.MeanEmbeddings.from_gram(points @ points.T)
    )
    game = sf.StackelbergGame(emb, sizes, costs=rng.uniform(0.01, 3, n) * sizes / sizes.sum() * n)
    return game, rng.uniform(0, 1.2, n) * game.costs * (rng.random() < 0.5)


@pytest.mark.parametrize("seed", range(60))
def test_a_followed_path_is_accepted_and_a_missing_equilibrium_is_noticed(seed):
    game, payments = play(seed)
    chain, _ = slow_chain(game, payments)
    found = [e.participation for e in game.equilibria(payments)]
    verdict = check_complete(game, payments, chain, found)
    assert verdict, verdict.message
    assert len(verdict.brackets) == len(found)
    for left_out in range(len(found)):
        assert not check_complete(game, payments, chain, found[:left_out] + found[left_out + 1 :])
    moved = [np.clip(x * 0.9, 0, 1) for x in found]
    assert not check_complete(game, payments, chain, moved)


@pytest.mark.parametrize("seed", range(16))
def test_floats_and_balls_follow_a_chain_alike(seed):
    """Two implementations of one argument: the same verdict with and without an equilibrium, brackets that overlap, and at a total
    that no equilibrium has nothing in either."""
    game, payments = play(seed, 2 + seed % 3)
    rng = np.random.default_rng(seed)
    caps = None if seed % 3 else rng.uniform(0.2, 1.0, game.count)
    path = follow_path(game, game.check_payments(payments), caps)
    found = [root.participation for root in path.roots]
    judges = check_complete, check_complete_in_balls
    for told in (found, found[:-1], [*found, np.full(game.count, 0.77) * (1.0 if caps is None else caps)]):
        floats, balls = (judge(game, payments, path.chain, told, caps) for judge in judges)
        assert floats.accepted == balls.accepted, (floats.message, balls.message)
        for (low, high), (least, most) in zip(floats.brackets, balls.brackets, strict=True):
            assert low <= most * (1 + 1e-9)
            assert least <= high * (1 + 1e-9)
    assert check_complete(game, payments, path.chain, found, caps)


def several():
    for name in dir(catalog):
        make = getattr(catalog, name)
        if callable(make) and not name.startswith("_") and name[0].islower():
            try:
                entry = make()
            except TypeError:
                continue
            if hasattr(entry, "equilibria") and hasattr(entry, "game") and len(entry.equilibria) > 1:
                yield name, entry


def test_games_with_several_equilibria_are_settled():
    settled = 0
    for _, entry in several():
        found = entry.game.equilibria(entry.payments)
        if found.uniqueness is not sf.Uniqueness.MULTIPLE:
            continue
        try:
            chain, _ = slow_chain(entry.game, entry.game.check_payments(entry.payments))
        except np.linalg.LinAlgError:
            continue
        verdict = check_complete(entry.game, entry.payments, chain, [e.participation for e in found])
        settled += bool(verdict)
        for k in range(len(found)):
            rest = [e.participation for i, e in enumerate(found) if i != k]
            assert not check_complete(entry.game, entry.payments, chain, rest)
    assert settled >= 1


@settings(max_examples=150)
@given(st.integers(0, 10_000), st.floats(-12, 0), st.integers(0, 2))
def test_no_chain_makes_an_equilibrium_disappear(seed, size, kind):
    """Chains that are wrong by a little or by much, cut, reversed: an equilibrium left out is never called impossible."""
    rng = np.random.default_rng(seed)
    game, payments = play(seed % 40)
    chain, _ = slow_chain(game, payments)
    found = [e.participation for e in game.equilibria(payments)]
    if kind == 0:
        chain = np.clip(chain + 10.0**size * rng.normal(size=chain.shape), 0.0, 1.0)
        chain[0] = 1.0
    elif kind == 1:
        keep = np.sort(rng.choice(len(chain), size=max(len(chain) // 2, 3) | 1, replace=False))
        chain = chain[keep][: len(keep) - 1 + len(keep) % 2]
        chain[0] = 1.0
        chain = chain if len(chain) % 2 else chain[:-1]
    else:
        chain = np.linspace(np.ones(game.count), np.full(game.count, 1e-9), 2 * int(rng.integers(1, 60)) + 1)
    if len(chain) < 3:
        return
    assert not check_complete(game, payments, chain, [])
    assert not check_complete(game, payments, chain, found[:-1])


@pytest.mark.parametrize(
    "chain",
    [
        [[1.0, 1.0], [0.5, 0.5], [0.6, 0.6]],  # ends too early
        [[0.4, 0.4], [0.2, 0.2], [1e-3, 1e-3]],  # begins too late
        [[1.0, 1.0], [0.5, 1.5], [1e-3, 1e-3]],
        [[1.0, 1.0], [np.nan, 0.5], [1e-3, 1e-3]],
    ],
)
def test_a_chain_that_does_not_reach_is_refused(chain):
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [1, 1], costs=[1.0, 1.0])
    assert not check_complete(game, None, chain, [[0.5, 0.5]])


def test_twins_are_never_called_unique():
    """Two clients alike can trade participation: a continuum, which no chain settles."""
    points = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), [1, 1, 2], costs=[0.5, 0.5, 1.0])
    x = game.equilibrium().participation
    line = np.array([np.ones(3), np.full(3, 0.5), np.full(3, 1e-4)])
    assert not check_complete(game, None, line, [x])


# ---------------------------------------------------------------- stakes


@given(st.integers(0, 2000))
def test_bound_holds_what_a_search_finds(seed):
    rng = np.random.default_rng(seed)
    game, payments = play(seed % 60)
    x = rng.uniform(0.01, 1.0, game.count)
    gains = game.regrets(payments, x)
    stakes = np.maximum(np.maximum(game.costs, payments), game.lam * game.profile(x).to_clients)
    bounds = check_stakes(game, payments, x)
    assert np.all(bounds >= gains / stakes * (1 - 1e-9) - 1e-15)


@given(st.integers(0, 2000))
def test_floats_and_balls_agree(seed):
    game, payments = play(seed % 60)
    x = np.random.default_rng(seed).uniform(0.0, 1.0, game.count)
    arguments = (game, game.check_payments(payments), game.check_participation(x), game.no_caps)
    floats, balls = _in_floats(*arguments), _in_balls(*arguments)
    assert np.all(balls <= floats)
    np.testing.assert_allclose(floats, balls, rtol=1e-6, atol=1e-9)


def test_a_client_is_judged_by_its_own_terms():
    """Two clients at 0 and 1, the first ten million times larger: x_0 = 1 is 31% of its cost away from its best."""
    e = 1.0 / (1e7 + 1.0)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(np.array([[0.0], [1.0]])), [1e7, 1.0], costs=[16 * e * e, 0.5 * e]
    )
    assert check_stakes(game, None, [1.0, 1.0])[0] > 0.3
    y = game.best_response(None, [0.5, 1.0])
    right = np.array([y[0], 1.0])
    assert right[0] == pytest.approx(0.5, rel=1e-6)
    assert check_stakes(game, None, right).max() <= NEGLIGIBLE


def test_many_clients_are_judged_row_by_row():
    rng = np.random.default_rng(0)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(rng.normal(size=(2000, 5))), rng.uniform(1, 2, 2000), cost_scale=0.5
    )
    eq = game.equilibrium()
    assert check_stakes(game, None, eq.participation).max() < 1e-6
    away = eq.participation.copy()
    away[3] = 0.5
    at_stake = np.maximum(game.costs, game.lam * game.profile(away).to_clients)
    assert check_stakes(game, None, away)[3] >= game.regrets(None, away)[3] / at_stake[3] * (1 - 1e-9)


# ---------------------------------------------------------------- definite matrices


def exactly_definite(matrix):
    """Return True if a symmetric matrix of floats is positive definite, by rational pivots."""
    rows = [[Fraction(float(v)) for v in row] for row in matrix]
    for k in range(len(rows)):
        if rows[k][k] <= 0:
            return False
        for i in range(k + 1, len(rows)):
            factor = rows[i][k] / rows[k][k]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return True


@settings(max_examples=200)
@given(st.integers(0, 10**6), st.integers(1, 5), st.floats(-17, -1.5), st.sampled_from([-1.0, 0.0, 1.0]))
def test_what_is_called_positive_definite_is(seed, n, size, sign):
    """Matrices with an eigenvalue at, just above or just below 0, and every sign pattern of what is in doubt."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(n, n)))[0]
    values = np.append(rng.uniform(0.1, 2.0, n - 1), sign * 10.0**size)
    matrix = (turn * values) @ turn.T
    matrix = 0.5 * (matrix + matrix.T)
    doubt = np.zeros((n, n)) if seed % 2 else np.full((n, n), 10.0**size / (4 * n))
    if positive_definite(matrix, doubt):
        for signs in product((-1.0, 1.0), repeat=n):
            assert exactly_definite(matrix - 0.999 * doubt * np.outer(signs, signs))
    elif sign > 0 and size > -8:
        pytest.fail("a matrix that is definite by far was not recognised")


def test_a_matrix_of_no_numbers_is_not_definite():
    assert not positive_definite(np.eye(2), np.array([[0.0, np.nan], [0.0, 0.0]]))
    assert not positive_definite(np.array([[np.nan]]), np.zeros((1, 1)))
    assert not positive_definite(np.eye(2), np.full((2, 2), np.inf))
