"""The game's formulas against the definitions they abbreviate, computed from coordinates."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import stackfu as sf
from stackfu import testing
from stackfu.model import geometry as module
from stackfu.model.responses import violations


def everyone(game):
    """Embeddings of all original clients."""
    features = game.embeddings.features
    if features is None:
        values, vectors = np.linalg.eigh(game.embeddings.gram)
        features = vectors * np.sqrt(np.maximum(values, 0))
    return features


def coordinates(game):
    """Embeddings of the remaining clients, mu_N and mu_O."""
    features = everyone(game)
    rows = features[game.remaining]
    share = game.all_sizes[game.remaining] / game.all_sizes[game.remaining].sum()
    return rows, share @ rows, game.all_sizes @ features / game.all_sizes.sum()


def mixture(game, x):
    rows, _, _ = coordinates(game)
    weights = game.sizes * x
    return weights @ rows / weights.sum()


def utility(game, payments, x, k):
    """Client k's utility by its definition."""
    rows, _, _ = coordinates(game)
    drift = np.sum((mixture(game, x) - rows[k]) ** 2)
    return payments[k] * x[k] - game.costs[k] * x[k] - game.lambda_q * game.loss_constant * drift


def close(a, b, unit=1.0, tolerance=1e-9):
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=tolerance * unit)


@given(testing.plays())
def test_profile_is_the_change_of_variables(play):
    game, _, x = play
    profile = game.profile(x)
    rows, _, _ = coordinates(game)
    m = mixture(game, x)
    close(game.alpha, game.sizes / game.sizes.sum())
    close(profile.y, game.alpha * x)
    close(profile.total, np.sum(game.alpha * x))
    close(profile.mixture, game.alpha * x / np.sum(game.alpha * x))
    close(profile.to_clients, np.sum((rows - m) ** 2, axis=1))
    close(profile.variance, profile.mixture @ np.sum(rows**2, axis=1) - m @ m)
    close(profile.others, [np.sum(np.delete(game.alpha * x, k)) for k in range(game.count)])


@given(testing.plays())
def test_losses_and_utilities_by_definition(play):
    game, p, x = play
    rows, mu_n, mu_o = coordinates(game)
    m = mixture(game, x)
    c = game.loss_constant
    to_n, to_o = np.sum((m - mu_n) ** 2), np.sum((m - mu_o) ** 2)
    close(game.server_loss(x), game.lambda_v * c * to_n + game.lambda_s * c * to_o)
    close(game.server_utility(p, x), -game.server_loss(x) - p @ x)
    close(game.effectiveness_bound(x), c * to_n)
    close(game.stability_bound(x), c * to_o)
    d2 = np.sum((m - rows) ** 2, axis=1)
    close(game.change_bounds(x, gaps=np.arange(game.count)), c * d2 + np.arange(game.count))
    close(game.client_impacts(x), game.lambda_q * c * d2)
    close(game.client_utilities(p, x), [utility(game, p, x, k) for k in range(game.count)])
    close(game.reluctance(p), (game.costs - p) / (2 * game.lambda_q * c * game.alpha))
    close(game.kappa, game.costs / game.alpha)


@given(testing.games(form="features"))
def test_finite_sample_penalty_is_the_variance_of_the_used_samples(game):
    x = np.linspace(0.3, 1.0, game.count)
    rows, _, _ = coordinates(game)
    weights = game.sizes * x
    # what samples of one distribution know of its variance, they know together; nothing is known from a single one
    counts = np.full(game.count, game.sizes.sum()) if game.is_homogeneous else game.sizes
    variances = [
        1.0 if n <= 1 else min(n / (n - 1) * (1 - row @ row), 1.0)
        for n, row in zip(counts, rows, strict=True)
    ]
    noise = weights / weights.sum() @ variances / weights.sum()
    close(game.finite_sample_penalty(x), (game.lam_v + game.lam_s) * noise)


@given(testing.games(max_removed=2))
def test_heterogeneity_is_the_distance_to_the_removed_data(game):
    if not game.removed:
        assert np.isnan(game.heterogeneity).all()
        return
    gone = list(game.removed)
    share = game.all_sizes[gone] / game.all_sizes[gone].sum()
    points = everyone(game)
    centre = share @ points[gone]
    expected = np.linalg.norm(points[game.remaining] - centre, axis=1)
    np.testing.assert_allclose(game.heterogeneity, expected, atol=1e-6)


@given(testing.plays())
def test_slope_of_utility_is_the_inclination(play):
    """d U_k / d y_k = (2 lam / S) g_k, by central differences."""
    game, p, x = play
    profile = game.profile(x)
    g = game.inclination(p, x)
    step = 1e-6
    for k in range(game.count):
        if profile.others[k] < 1e-3 or not step <= x[k] <= 1 - step:
            continue
        up, down = np.array(x), np.array(x)
        up[k] += step
        down[k] -= step
        slope = (utility(game, p, up, k) - utility(game, p, down, k)) / (2 * step * game.alpha[k])
        size = game.kappa[k] + p[k] / game.alpha[k] + 2 * game.lam / profile.total
        assert abs(slope - 2 * game.lam / profile.total * g[k]) <= 1e-5 * size


@given(testing.plays())
def test_best_response_beats_a_grid_and_the_formula_is_published(play):
    game, p, x = play
    best = game.best_response(p, x)
    low, high = game.thresholds(x)
    for k in range(game.count):
        y = game.alpha * x
        rest = np.delete(y, k).sum()
        if rest <= 1e-6:
            continue
        answer = np.array(x)
        answer[k] = best[k]
        value = utility(game, p, answer, k)
        for candidate in np.linspace(0, 1, 21):
            other = np.array(x)
            other[k] = candidate
            assert utility(game, p, other, k) <= value + 1e-9 * (game.lam + game.costs[k])
        margin = 1e-9 * game.costs[k]
        if p[k] < low[k] - margin:
            assert best[k] == 0
        elif p[k] > high[k] + margin:
            assert best[k] == 1
        gap = np.sum((game.alpha * np.where(np.arange(game.count) == k, 0, x)) / rest)
        assert abs(gap - 1) < 1e-12


@given(testing.plays())
def test_thresholds_are_where_the_utility_turns(play):
    """At the lower threshold the slope at x_k = 0 vanishes, at the upper one the slope at x_k = 1."""
    game, _, x = play
    low, high = game.thresholds(x)
    for k in range(game.count):
        for threshold, end in ((low, 0.0), (high, 1.0)):
            at = np.array(x)
            at[k] = end
            if np.delete(game.alpha * x, k).sum() <= 1e-6:
                continue
            w = (game.costs[k] - threshold[k]) / (2 * game.lam * game.alpha[k])
            profile = game.profile(at)
            g = profile.to_clients[k] - profile.total * w
            assert abs(g) <= 1e-9 * (1 + abs(profile.total * w))


@given(testing.plays())
def test_regret_is_what_the_best_response_gains(play):
    game, p, x = play
    best, regrets = game.best_response(p, x), game.regrets(p, x)
    assert game.regret(p, x) == regrets.max() >= 0
    for k in range(game.count):
        if np.delete(game.alpha * x, k).sum() <= 1e-6:
            continue
        answer = np.array(x)
        answer[k] = best[k]
        gain = utility(game, p, answer, k) - utility(game, p, x, k)
        assert abs(regrets[k] - max(gain, 0)) <= 1e-9 * (game.lam + game.costs[k] + p[k])


@given(testing.plays())
def test_residual_is_the_largest_violation(play):
    """Relative to each client's own terms, which are computed here from coordinates."""
    game, p, x = play
    rows, _, _ = coordinates(game)
    drift = np.sum((mixture(game, x) - rows) ** 2, axis=1)
    unit = np.sum(game.alpha * x) / (2 * game.lam * game.alpha)
    g = drift - unit * (game.costs - p)
    wrong = np.where(x == 0, np.maximum(g, 0), np.where(x == 1, np.maximum(-g, 0), np.abs(g)))
    terms = np.maximum(drift, unit * np.maximum(game.costs, p))
    # coordinates are known to rounding of the largest norm, and so is what follows from them: the doubt beside own terms
    doubt = 1e-12 * max(float(np.max(np.sum(rows**2, axis=1))), 1.0)
    safe = terms > 1e3 * doubt
    expected = wrong[safe] / terms[safe]
    found = violations(game.reluctance(p), game._prices(p), game.profile(x))
    assert np.all(np.abs(found[safe] - expected) <= 4 * doubt / terms[safe])
    assert game.residual(p, x) == found.max()


@given(testing.plays(twins=False, interior=True))
def test_no_residual_iff_no_regret(play):
    """The three conditions on g_k are the Nash equilibrium.

    The price that holds a client where it is differs from its cost by ``2 lam alpha d^2 / S``, and as a float it is known to a
    rounding of the cost: that, beside what is added up, is what the residual can be.
    """
    game, _, x = play
    profile = game.profile(x)
    prices = game.costs - 2 * game.lam * game.alpha * profile.to_clients / profile.total
    assume((prices >= 0).all())
    blur = 8 * np.finfo(float).eps * (profile.to_clients + profile.total * game.kappa / (2 * game.lam))
    terms = np.maximum(profile.to_clients, profile.total * game.kappa / (2 * game.lam))
    assert game.residual(prices, x) <= 2 * float(np.max(blur / terms))
    assert np.all(game.regrets(prices, x) <= 64 * np.finfo(float).eps * (game.lam + game.costs))
    bumped = prices + 0.25 * game.costs
    assert game.residual(bumped, x) > 0
    assert game.regret(bumped, x) > 0


@given(testing.plays())
def test_psi_is_concave_with_gradient_d_squared(play):
    """psi(y) = S Var(y / S): homogeneous, concave, gradient d_k^2."""
    game, _, x = play
    x = np.maximum(x, 1e-3)

    def psi(v):
        profile = game.profile(v)
        return profile.total * profile.variance

    other = np.linspace(1.0, 0.2, game.count)
    assert psi(0.5 * (x + other)) >= 0.5 * (psi(x) + psi(other)) - 1e-12
    close(psi(0.5 * x), 0.5 * psi(x))
    profile = game.profile(x)
    # the first-order expansion bounds a concave function, with equality along the ray
    assert psi(other) <= profile.to_clients @ (game.alpha * other) + 1e-12
    close(profile.to_clients @ profile.y, psi(x))


@given(testing.games(max_removed=1), st.sampled_from(["costs", "sizes"]))
def test_default_costs_follow_the_paper(game, what):
    plain = game.replace(cost_scale=7.0)
    close(plain.costs, 7.0 * game.sizes / game.all_sizes.sum())
    assert game.replace(lambda_v=0.125).costs is not None
    np.testing.assert_array_equal(game.replace(lambda_v=0.125).costs, game.costs)


@given(testing.plays())
def test_variance_is_the_weighted_mean_of_squared_distances(play):
    game, _, x = play
    pairwise = game.geometry.pairwise
    z = game.profile(x).mixture
    close(game.profile(x).variance, 0.5 * z @ pairwise @ z)
    close(game.profile(x).to_clients, pairwise @ z - 0.5 * z @ pairwise @ z)


@given(testing.plays())
def test_facing_nobody_there_is_nothing_to_gain_from_drift(play):
    game, p, _ = play
    x = np.zeros(game.count)
    x[0] = 0.5
    assert game.profile(x).others[0] == 0
    assert game.profile(x).to_clients[0] == pytest.approx(0, abs=1e-12)
    assert game.best_response(p, x)[0] in (0.0, 0.5, 1.0)
    expected = {True: 1.0, False: 0.0}[bool(p[0] > game.costs[0])] if p[0] != game.costs[0] else 0.5
    assert game.best_response(p, x)[0] == expected


@given(testing.games())
def test_geometry_is_centred_at_the_remaining_mean(game):
    rows, mu_n, mu_o = coordinates(game)
    centred = rows - mu_n
    close(game.geometry.gram, centred @ centred.T)
    pull, square = game.geometry.original
    close(pull, centred @ (mu_o - mu_n))
    close(square, np.sum((mu_o - mu_n) ** 2))
    close(game.geometry.scale, max(np.sum((a - b) ** 2) for a in rows for b in rows))


def test_scale_of_very_many_clients_is_the_largest_distance_to_the_mean():
    rows = np.random.default_rng(0).normal(size=(2001, 2))
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(rows), np.ones(2001))
    assert game.geometry.scale == pytest.approx(np.sum((rows - rows.mean(axis=0)) ** 2, axis=1).max())


@given(testing.plays())
def test_lopsided_profiles_lose_no_digits(play):
    """One client brings a billion times as much as the others: its drift is made of their small contributions."""
    game, _, _ = play
    squared = game.geometry.pairwise.astype(np.longdouble)
    for k in range(game.count):
        x = np.full(game.count, 1e-9)
        x[k] = 1.0
        profile = game.profile(x)
        others = np.delete(profile.y.astype(np.longdouble), k)
        assert profile.others[k] == pytest.approx(float(others.sum()), rel=1e-12, abs=0.0)
        v = others / (others.sum() + np.longdouble(profile.y[k]))
        apart = np.delete(np.delete(squared, k, axis=0), k, axis=1)
        exact = float(v.sum() * (v @ np.delete(squared[k], k)) - (v @ apart @ v) / 2)
        assert profile.to_clients[k] == pytest.approx(
            exact, rel=1e-9, abs=1e-9 * float(v.sum() ** 2) * game.geometry.scale
        )


@given(testing.plays())
def test_passes_of_large_games_agree_with_those_of_small_ones(play):
    game, _, x = play
    geometry = game.geometry
    if not isinstance(geometry, module.FeatureGeometry):
        return
    z = game.profile(x).mixture
    small, limit = geometry.mixture(z), module.LARGE_PASS
    try:
        module.LARGE_PASS = 0
        large = geometry.mixture(z)
    finally:
        module.LARGE_PASS = limit
    tolerance = 1e-12 * max(geometry.scale, float(np.abs(geometry.features).max()) ** 2)
    np.testing.assert_allclose(large.to_clients, small.to_clients, atol=tolerance)
    assert large.to_remaining == pytest.approx(small.to_remaining, abs=tolerance)
    assert large.to_original == pytest.approx(small.to_original, abs=tolerance)


@given(testing.games())
def test_rounding_of_inner_products_is_relative_to_distances(game):
    if game.embeddings.features is not None:
        return
    kept = np.abs(game.embeddings.gram[np.ix_(game.remaining, game.remaining)]).max()
    if game.geometry.scale > 0:
        assert game.rounding == pytest.approx(np.finfo(float).eps * kept / game.geometry.scale, abs=0.0)
