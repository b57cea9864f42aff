"""All equilibria: against exhaustive search, a NumPy reference, a QP solver, and known degenerate cases."""

from __future__ import annotations

import os
from itertools import pairwise

import numpy as np
import pytest
from follower_games import enumerate_supports, game_from, payments_for_w, random_batch
from hypothesis import example, given, settings

import stackfu as sf
from stackfu import catalog, testing
from stackfu.followers.path import follow_path
from stackfu.followers.path.tracing import _follow
from stackfu.followers.qp import level_profile
from stackfu.followers.reference import follow_slowly

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"


@pytest.mark.parametrize(
    ("clients", "dimension", "count"),
    [(2, 3, 800), (3, 4, 800), (4, 5, 500), (3, 1, 800), (4, 1, 800), (4, 2, 500), (5, 2, 200), (5, 6, 100)],
)
def test_agrees_with_support_enumeration(clients, dimension, count):
    rng = np.random.default_rng([7, clients, dimension])
    multiple = 0
    for _ in range(20 if DEEP else 1):
        points, alpha, w = random_batch(rng, count, clients, dimension)
        for b, expected in enumerate(enumerate_supports(points, alpha, w)):
            game = game_from(points[b], alpha[b], w[b])
            found = game.equilibria()
            assert found.complete
            assert len(found) == len(expected), (clients, b)
            for equilibrium, y in zip(found, expected, strict=True):
                np.testing.assert_allclose(game.alpha * equilibrium.participation, y, atol=2e-7)
                assert equilibrium.residual <= 1e-9
                assert equilibrium.status is sf.Status.CERTIFIED
            multiple += len(found) > 1
            expected_verdict = sf.Uniqueness.MULTIPLE if len(found) > 1 else sf.Uniqueness.UNIQUE
            assert found.uniqueness is expected_verdict
    if (clients, dimension) == (4, 1):
        assert multiple >= 5  # the comparison must have seen games with several equilibria


def test_agrees_with_the_numpy_reference():
    rng = np.random.default_rng(3)
    for _ in range(150):
        N = int(rng.integers(2, 9))
        points, alpha, w = (a[0] for a in random_batch(rng, 1, N, N + 2))
        game = game_from(points, alpha, w)
        path = follow_path(game, np.zeros(N))
        slow = follow_slowly(game.geometry.gram, game.alpha, game.reluctance())
        expected = sorted(root for piece in slow for root in piece.roots)
        fast = [float(game.alpha @ root.participation) for root in path.roots]
        # an equilibrium without inside clients lies on a vertical part, which the reference leaves to its caller
        fast_inside = [s for s, root in zip(fast, path.roots, strict=True) if np.any(root.status == 0)]
        np.testing.assert_allclose(fast_inside, expected, rtol=1e-8)
        ends = {round(s, 9) for s in path.column("top")}
        assert {round(piece.top, 9) for piece in slow} <= ends


def test_profiles_along_the_path_agree_with_a_qp_solver():
    rng = np.random.default_rng(12)
    for _ in range(8):
        points, alpha, w = (a[0] for a in random_batch(rng, 1, 6, 7))
        game = game_from(points, alpha, w)
        gram, reluctance = game.geometry.gram, game.reluctance()
        for piece in follow_slowly(gram, game.alpha, reluctance):
            s = 0.5 * (piece.top + piece.bottom)
            y, level = level_profile(gram, game.alpha, reluctance, s)
            np.testing.assert_allclose(piece.y @ [1.0, s, s * s], y, atol=1e-5)
            assert level == pytest.approx(
                np.polyval(piece.quartic[::-1], s) / s**2, abs=1e-5 * game.diameter**2
            )


def test_the_level_agrees_with_a_qp_solver():
    rng = np.random.default_rng(11)
    for dimension in (1, 2, 3, 12):  # affinely dependent for the most part
        N = int(rng.integers(6, 10))
        points, alpha, w = (a[0] for a in random_batch(rng, 1, N, dimension))
        game = game_from(points, alpha, w)
        path = follow_path(game, np.zeros(N))
        assert path.complete
        gram, reluctance = game.geometry.gram, game.reluctance()
        for row in path.table:
            if row[4] > 0 and row[0] > row[1]:
                _, level = level_profile(gram, game.alpha, reluctance, 0.5 * (row[0] + row[1]))
                low, high = sorted((row[2], row[3]))
                assert low - 0.5 * (high - low) - 1e-6 <= level <= high + 0.5 * (high - low) + 1e-6
        # a dense scan changes sign as often as the path found crossings, or an even number of times less
        # often
        signs = [False]
        signs += [
            level_profile(gram, game.alpha, reluctance, s)[1] > 0 for s in np.linspace(0.999, 0.001, 80)
        ]
        missed = sum(root.kind == "crossing" for root in path.roots) - int(np.sum(np.diff(signs)))
        assert missed >= 0
        assert missed % 2 == 0


@settings(max_examples=300 if DEEP else 60, deadline=None)
@given(testing.plays())
def test_every_returned_equilibrium_is_one(play):
    """No client gains a billionth of its stakes. Payments at a threshold may leave other equilibria open, never silently."""
    game, payments, _ = play
    found = game.equilibria(payments)
    assert found.complete == (found.uniqueness is not sf.Uniqueness.UNKNOWN) or game.is_homogeneous
    for equilibrium in found:
        assert equilibrium.status is sf.Status.CERTIFIED
        assert equilibrium.total > 0
        assert equilibrium.verify(1e-9)
    if not game.is_homogeneous:
        assert len(found) >= 1


@pytest.mark.parametrize("entry", catalog.entries(), ids=lambda entry: entry.name)
def test_catalog(entry):
    found = entry.game.equilibria(entry.payments)
    assert found.uniqueness is entry.uniqueness
    assert len(found) == len(entry.equilibria)
    for equilibrium, known in zip(found, entry.equilibria, strict=True):
        if entry.uniqueness is not sf.Uniqueness.CONTINUUM:
            np.testing.assert_allclose(equilibrium.participation, known, atol=entry.tolerance)
        assert equilibrium.total == pytest.approx(float(entry.game.alpha @ known), abs=1e-10)


@pytest.mark.parametrize("count", [10, 30, 50])
def test_residual_targets(count):
    rng = np.random.default_rng(count)
    for dimension in (3, 2 * count):
        points, alpha, w = (a[0] for a in random_batch(rng, 1, count, dimension))
        for equilibrium in game_from(points, alpha, w).equilibria():
            assert equilibrium.residual <= 1e-9
            assert equilibrium.status is sf.Status.CERTIFIED


def test_three_equilibria_are_found_and_ordered():
    entry = catalog.three_equilibria()
    found = entry.game.equilibria()
    assert found.uniqueness is sf.Uniqueness.MULTIPLE
    np.testing.assert_allclose([e.total for e in found], [0.3906, 0.5007, 0.5289], atol=5e-5)
    assert entry.game.equilibrium().total == found[-1].total


# ------------------------------------------------------------------ degenerate inputs


def test_identical_clients_form_a_continuum_with_a_described_face():
    game = game_from([[0, 0], [0, 0], [1, 0], [0, 1]], [1, 2, 2, 2], [2, 2, 8, 6])
    found = game.equilibria()
    assert found.uniqueness is sf.Uniqueness.CONTINUUM
    face = found[0].face
    assert face.clients == (0, 1)
    assert face.dimension == 1
    ends = []
    for k, other in ((0, 1), (1, 0)):
        x = found[0].participation.copy()
        together = game.alpha[[0, 1]] @ x[[0, 1]]
        x[k] = face.upper[k]
        x[other] = (together - game.alpha[k] * x[k]) / game.alpha[other]
        assert x[other] == pytest.approx(face.lower[other], abs=1e-9)
        ends.append(game.residual(None, np.clip(x, 0, 1)))
    assert max(ends) <= 1e-12


def test_a_square_has_a_face_of_dimension_one():
    # the centre of a square is the mean of either diagonal: weight can move between the diagonals
    game = game_from([[1, 1], [1, -1], [-1, 1], [-1, -1]], [1, 1, 1, 1], [9, 9, 9, 9])
    found = game.equilibria()
    assert found.uniqueness is sf.Uniqueness.CONTINUUM
    assert found[0].face.dimension == 1
    assert found[0].face.clients == (0, 1, 2, 3)


def test_affinely_dependent_embeddings_without_room_to_trade_are_unique():
    # collinear with different reluctance: only two clients can be indifferent at once
    game = game_from([[0.0], [0.3], [1.0], [0.6]], [1, 1, 1, 1], [2.0, 3.1, 4.3, 5.7])
    found = game.equilibria()
    assert found.uniqueness is sf.Uniqueness.UNIQUE
    assert found[0].face is None


def test_symmetric_simplex_where_everybody_ties():
    for N in (2, 3, 7, 20):
        game = game_from(np.eye(N), np.ones(N), np.full(N, 3.0))
        found = game.equilibria()
        assert found.uniqueness is sf.Uniqueness.UNIQUE
        # d^2 = 1 - 1/N and S w = d^2
        np.testing.assert_allclose(found[0].participation, (1 - 1 / N) / 3.0, rtol=1e-12)


def test_payments_equal_to_costs():
    game = game_from(np.eye(4), [1, 2, 3, 4], [3.0, 2.0, 4.0, 3.0])
    payments = np.array(game.costs)
    payments[2:] = 0.0
    found = game.equilibria(payments)
    assert found.complete
    for equilibrium in found:
        assert np.all(equilibrium.participation[:2] == 1.0)
        assert equilibrium.residual <= 1e-9
    everybody = game.equilibrium(game.costs)
    assert np.all(everybody.participation == 1.0)
    assert everybody.uniqueness is sf.Uniqueness.UNIQUE


def test_a_paid_twin_pair_far_from_reluctant_others_leaves_the_total_open():
    # two clients own the same data and are paid their cost; the third stays out: any total of theirs is an
    # equilibrium
    game = game_from([[0.0], [0.0], [0.1]], [1, 1, 1], [1.0, 1.0, 50.0])
    payments = np.array([game.costs[0], game.costs[1], 0.0])
    found = game.equilibria(payments)
    assert found.uniqueness is sf.Uniqueness.CONTINUUM
    assert found[-1].total == pytest.approx(2 / 3)
    assert set(found[-1].face.clients) == {0, 1}
    assert found[-1].face.dimension == 2


@pytest.mark.parametrize("tiny", [1e-12, 1e-15, 1e-9])
@pytest.mark.parametrize("place", [0, 3])
def test_tiny_weights(tiny, place):
    rng = np.random.default_rng(5)
    for _ in range(30):
        points, alpha, w = (a[0] for a in random_batch(rng, 1, 5, 6))
        alpha[place] = tiny
        found = game_from(points, alpha, w).equilibria()
        assert found.complete
        assert all(e.residual <= 1e-9 for e in found)


def test_a_client_with_nearly_all_the_data():
    rng = np.random.default_rng(6)
    for _ in range(60):
        points, alpha, w = (a[0] for a in random_batch(rng, 1, 6, 7))
        alpha[0] = 0.0
        alpha[0] = 999.0 * alpha.sum()
        found = game_from(points, alpha, w).equilibria()
        assert found.complete
        assert all(e.residual <= 1e-9 for e in found)
        assert found.uniqueness in (sf.Uniqueness.UNIQUE, sf.Uniqueness.MULTIPLE)


@pytest.mark.parametrize("form", ["gram", "features"])
def test_ties_on_a_lattice(form):
    """Nothing but ties: all is settled, but for one game.

    There four clients at the corners of a square are indifferent and could trade, if one of them were not at its cap and one out.
    As binary numbers the ties are off by a rounding, one way or the other: nothing is claimed.
    """
    open_ = []
    for seed in range(400) if DEEP else range(200, 300):
        rng = np.random.default_rng([13, seed])
        N = int(rng.integers(3, 9))
        points = rng.integers(0, 2, size=(N, 3)).astype(float)
        if np.ptp(points, axis=0).max() == 0:
            continue
        game = game_from(points, rng.integers(1, 3, size=N), rng.choice([0.5, 1.0, 2.0], size=N), form=form)
        found = game.equilibria()
        assert len(found) >= 1
        assert all(e.status is sf.Status.CERTIFIED for e in found), seed
        assert all(e.residual <= 1e-9 for e in found), seed
        assert found.complete == (found.uniqueness is not sf.Uniqueness.UNKNOWN)
        if not found.complete:
            open_.append(seed)
    assert open_ == [211]


@pytest.mark.parametrize("form", ["gram", "features"])
def test_reluctances_over_many_orders_of_magnitude(form):
    """Settled throughout where embeddings are given; inner products are rounded, and once too coarse to tell."""
    open_ = []
    for seed in range(200) if DEEP else range(60, 120):
        rng = np.random.default_rng([17, seed])
        N = int(rng.integers(2, 9))
        points = rng.normal(size=(N, int(rng.integers(1, 9))))
        game = game_from(points, rng.exponential(size=N), np.exp(10 * rng.normal(size=N)), form=form)
        found = game.equilibria()
        assert all(e.status is sf.Status.CERTIFIED for e in found), seed
        assert all(e.residual <= 1e-9 for e in found), seed
        if not found.complete:
            assert found.uniqueness is sf.Uniqueness.UNKNOWN
            open_.append(seed)
    assert len(open_) <= (2 if form == "gram" else 0), open_


def test_overpaid_clients_take_part_fully():
    rng = np.random.default_rng(9)
    for _ in range(100):
        points, alpha, w = (a[0] for a in random_batch(rng, 1, 5, 6))
        w[rng.integers(5)] *= -1.0
        game = game_from(points, alpha, w)
        payments = payments_for_w(game, w)
        found = game.equilibria(payments)
        assert found.complete
        for equilibrium in found:
            assert np.all(equilibrium.participation[w < -1e-9] == 1.0)


def test_homogeneous_games():
    gram = np.full((3, 3), 0.7)
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_gram(gram), [1, 2, 3], costs=[1.0, 1.0, 1.0])
    none = game.equilibria([0.5, 0.2, 0.0])
    assert len(none) == 0
    assert none.complete
    assert "nobody" in none.reason
    with pytest.raises(sf.NoEquilibriumError):
        game.equilibrium([0.5, 0.2, 0.0])
    one = game.equilibrium([2.0, 0.2, 0.0])
    np.testing.assert_array_equal(one.participation, [1.0, 0.0, 0.0])
    tie = game.equilibrium([1.0, 0.2, 2.0])
    assert tie.uniqueness is sf.Uniqueness.CONTINUUM
    assert tie.face.clients == (0,)


def test_touching_zero_is_not_called_unique():
    """Raise the reluctance of one client until two of three equilibria merge: next to there nothing is claimed."""
    game = catalog.three_equilibria().game
    claims = {sf.Uniqueness.UNIQUE: [], sf.Uniqueness.MULTIPLE: [], sf.Uniqueness.UNKNOWN: []}

    def look(factor):
        payments = np.zeros(5)
        payments[2] = game.costs[2] * (1.0 - factor)
        found = game.equilibria(payments)
        claims[found.uniqueness].append(factor)
        if found.uniqueness is sf.Uniqueness.UNKNOWN:
            assert not found.complete
            assert "rounding" in found.reason or "could not be proved" in found.reason
        else:
            assert found.complete
            assert len(found) == (1 if found.uniqueness is sf.Uniqueness.UNIQUE else 3)
        return found

    low, high = 0.9, 1.0
    assert look(high).uniqueness is sf.Uniqueness.MULTIPLE
    assert look(low).uniqueness is sf.Uniqueness.UNIQUE
    while (middle := 0.5 * (low + high)) not in (low, high):
        low, high = (middle, high) if len(look(middle)) == 1 else (low, middle)
    unique, several, open_ = claims.values()
    assert max(unique) < min(several)
    assert open_
    assert max(unique) <= max(open_) < min(several)


@example(testing.Play(catalog.three_equilibria().game, np.zeros(5), np.ones(5)))
@settings(max_examples=40, deadline=None)
@given(testing.plays())
def test_full_participation_is_found_exactly_when_everybody_wants_it(play):
    game, payments, _ = play
    if game.is_homogeneous:
        return
    wanted = game.inclination(payments, np.ones(game.count))
    found = [bool(np.all(e.participation == 1)) for e in game.equilibria(payments)]
    if np.all(wanted > 1e-9 * game.geometry.scale):
        assert any(found)
    if np.any(wanted < -1e-9 * game.geometry.scale):
        assert not any(found)


def test_a_point_that_failed_is_not_called_unique():
    features = np.array([[0.0, 0.6], [0.5, 0.5], [0.5, 0.5 + 1e-5], [0.5 + 1e-5, 0.5]])
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(features), [1, 1, 2, 1], [0], cost_scale=1.0)
    eq = game.equilibrium(tolerance=1e-60)
    assert eq.residual > 1e-60
    assert eq.status is sf.Status.FAILED
    assert eq.uniqueness is sf.Uniqueness.UNKNOWN


@pytest.mark.parametrize("spacing", [1e-3, 1e-5, 1e-7, 1e-9])
@pytest.mark.parametrize("dimension", [2, 12])
def test_clients_that_are_almost_alike_are_resolved(spacing, dimension):
    """A common offset of 1 takes digits off the inner products, not off differences of features.

    The game of the differences alone, stretched to ordinary size with its costs, has the same equilibrium.
    """
    for seed in range(10):
        rng = np.random.default_rng(seed)
        offsets = rng.normal(size=(5, dimension))
        points = 1.0 + spacing * offsets
        exact = (points - 1.0) / spacing  # what the rounded points really are
        sizes, costs = rng.uniform(1, 9, 5), rng.uniform(0.1, 2.0, 5)
        close = sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), sizes, costs=costs)
        wide = sf.StackelbergGame(sf.MeanEmbeddings.from_features(exact), sizes, costs=costs / spacing**2)
        found, known = close.equilibrium(), wide.equilibrium()
        assert found.status is sf.Status.CERTIFIED
        assert found.uniqueness is known.uniqueness is sf.Uniqueness.UNIQUE
        np.testing.assert_allclose(found.participation, known.participation, rtol=1e-6)


def test_no_equilibrium_lies_above_the_largest_total():
    from stackfu.followers.path.tracing import _largest_total

    lower = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        points = rng.normal(size=(4, 3)) * 0.1
        game = sf.StackelbergGame(
            sf.MeanEmbeddings.from_features(points), rng.uniform(1, 9, 4), costs=rng.uniform(0.1, 2.0, 4)
        )
        payments = game.costs * rng.uniform(0, 0.9, 4)
        w = game.reluctance(payments)
        most = _largest_total(game, w)
        lower += most < 1.0
        found = game.equilibria(payments)
        assert all(eq.total <= most for eq in found)
        path = _follow(game, w, 0.0, most)
        assert path.complete
        # above it the curve belongs to smaller shares, except where no client is at a cap
        assert np.all((path.column("top") <= most * (1 + 1e-12)) | (path.column("capped") == 0))
        assert path.column("bottom").min() == 0.0
        assert _follow(game, w).column("top").max() == pytest.approx(1.0)
        assert len(path.roots) == len(found)
        for root, eq in zip(path.roots, found, strict=True):
            np.testing.assert_allclose(root.participation, eq.participation, rtol=1e-9, atol=1e-12)
    assert lower > 20
    assert _largest_total(game, game.reluctance(1.5 * game.costs)) == 1.0


@pytest.mark.parametrize("generous", [1.0, 1e4, 1e7, 1e12])
def test_how_much_more_than_its_cost_a_client_is_paid_does_not_matter(generous):
    points = np.array([[0.0, 0.0], [0.8, 0.0], [0.1, 0.9]])
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), [1, 2, 1], costs=[0.2, 0.4, 0.2])
    known = game.equilibrium([0.3, 0.0, 0.0])
    found = game.equilibrium([0.2 + generous, 0.0, 0.0])
    assert found.status is sf.Status.CERTIFIED
    assert found.uniqueness is sf.Uniqueness.UNIQUE
    np.testing.assert_allclose(found.participation, known.participation, rtol=1e-12)


@pytest.mark.parametrize("weight", [1e-3, 1e-9, 1e-15])
def test_clients_who_hardly_care_bring_next_to_nothing_in_the_right_mixture(weight):
    """A weight on drift that is a million times smaller makes the total so, and leaves the mixture."""
    points = np.array([[0.0, 0.0], [0.8, 0.0], [0.1, 0.9]])
    make = lambda q: sf.StackelbergGame(  # noqa: E731
        sf.MeanEmbeddings.from_features(points), [1, 1, 1], costs=[1.0, 2.0, 1.5], lambda_q=q
    )
    known, found = make(0.02).equilibrium(), make(weight).equilibrium()
    assert not np.any(known.participation == 1)
    assert found.status is sf.Status.CERTIFIED
    np.testing.assert_allclose(found.mixture, known.mixture, rtol=1e-9)
    assert found.total * 0.02 == pytest.approx(known.total * weight, rel=1e-9)


def test_a_path_with_more_pieces_than_expected_gets_more_room(monkeypatch):
    from stackfu.followers.path import _loop as kernels

    entry, real, asked = catalog.three_equilibria(), kernels.follow, []

    def cramped(G, alpha, w, floor, pieces, root_s, *rest):
        asked.append((len(pieces), len(root_s)))
        if len(pieces) < 2000 or len(root_s) < 300:
            return kernels.NO_ROOM, 0, 0, 0, 0.0
        return real(G, alpha, w, floor, pieces, root_s, *rest)

    monkeypatch.setattr(kernels, "follow", cramped)
    assert len(entry.game.equilibria()) == 3
    assert len(asked) == 3
    assert all(b[0] == 8 * a[0] and b[1] == 8 * a[1] for a, b in pairwise(asked))


def test_nearly_zero_on_an_interval_is_not_called_a_continuum():
    """A client with almost zero cost: alone it is almost, but not quite, at an equilibrium at many totals."""
    alpha, square = np.array([1.0 - 1e-5, 1e-5]), 0.00390625
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_gram(np.diag([0.0, square])), alpha, costs=[7.8e-13, 1.157e-3]
    )
    found = game.equilibria()
    assert found.uniqueness is sf.Uniqueness.UNIQUE
    assert found[0].status is sf.Status.CERTIFIED
    # no cap binds: d_1 / d_2 = sqrt(w_1 / w_2) with d_1 + d_2 = sqrt(D)
    roots = np.sqrt(game.reluctance())
    assert found[0].total == pytest.approx(square / roots.sum() ** 2, rel=1e-12)
    np.testing.assert_allclose(found[0].mixture, roots[::-1] / roots.sum(), rtol=1e-9)
