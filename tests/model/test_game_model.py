"""The game's formulas against naive references, and what it refuses."""

import numpy as np
import pytest

import stackfu as sf


def small_game(seed=0, count=5, removed=(0,), **options):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, 3)) * 0.4
    sizes = rng.integers(10, 200, size=count)
    return (
        sf.StackelbergGame(sf.MeanEmbeddings.from_features(features), sizes, removed, **options),
        features,
        sizes,
    )


def naive_embedding(features, sizes, removed, x):
    """The mixture's embedding, from its definition."""
    keep = [k for k in range(len(features)) if k not in removed]
    weights = np.array([sizes[k] * x_k for k, x_k in zip(keep, x, strict=True)], dtype=float)
    return weights @ features[keep] / weights.sum()


class TestFormulas:
    def test_impacts_utilities_and_server_loss_follow_their_definitions(self):
        game, features, sizes = small_game(lambda_v=0.7, lambda_s=1.9, lambda_q=1.3, loss_constant=2.0)
        x, p = np.array([0.3, 1.0, 0.0, 0.6]), np.array([0.1, 0.0, 2.0, 0.5])
        m = naive_embedding(features, sizes, {0}, x)
        keep = [1, 2, 3, 4]
        d2 = ((features[keep] - m) ** 2).sum(axis=1)
        alpha = sizes[keep] / sizes[keep].sum()
        mu_n = alpha @ features[keep]
        mu_o = sizes @ features / sizes.sum()
        np.testing.assert_allclose(game.client_impacts(x), 2.6 * d2, rtol=1e-12)
        np.testing.assert_allclose(game.client_utilities(p, x), (p - game.costs) * x - 2.6 * d2, rtol=1e-12)
        loss = 1.4 * ((m - mu_n) ** 2).sum() + 3.8 * ((m - mu_o) ** 2).sum()
        assert game.server_loss(x) == pytest.approx(loss, rel=1e-12)
        assert game.server_utility(p, x) == pytest.approx(-loss - p @ x, rel=1e-12)
        assert game.effectiveness_bound(x) == pytest.approx(2 * ((m - mu_n) ** 2).sum(), rel=1e-12)
        assert game.stability_bound(x) == pytest.approx(2 * ((m - mu_o) ** 2).sum(), rel=1e-12)
        np.testing.assert_allclose(
            game.change_bounds(x, gaps=[1, 2, 3, 4]), 2 * d2 + [1, 2, 3, 4], rtol=1e-12
        )
        np.testing.assert_allclose(game.profile(x).variance, game.profile(x).mixture @ d2, rtol=1e-12)

    def test_default_costs_are_proportional_to_data(self):
        game, _, sizes = small_game(cost_scale=7.0)
        np.testing.assert_allclose(game.costs, 7.0 * sizes[1:] / sizes.sum())
        np.testing.assert_allclose(game.kappa, game.kappa[0])

    @pytest.mark.parametrize("seed", range(20))
    def test_best_response_beats_every_other_share_on_a_fine_grid(self, seed):
        rng = np.random.default_rng(seed)
        game, _, _ = small_game(seed, cost_scale=rng.choice([0.05, 0.5, 5.0]))
        p = rng.uniform(0, 1.2) * game.costs
        x = rng.uniform(size=game.count)
        response = game.best_response(p, x)
        regrets = game.regrets(p, x)
        for k in range(game.count):
            grid = np.linspace(0, 1, 2001)
            utilities = []
            for share in grid:
                y = x.copy()
                y[k] = share
                utilities.append(game.client_utilities(p, y)[k])
            best = x.copy()
            best[k] = response[k]
            top = game.client_utilities(p, best)[k]
            assert top >= max(utilities) - 1e-12
            assert regrets[k] == pytest.approx(top - game.client_utilities(p, x)[k], abs=1e-12)

    @pytest.mark.parametrize("seed", range(10))
    def test_thresholds_are_where_the_best_response_leaves_the_bounds(self, seed):
        game, _, _ = small_game(seed, cost_scale=0.5)
        x = np.random.default_rng(seed).uniform(0.1, 1, size=game.count)
        low, high = game.thresholds(x)
        for k in range(game.count):
            for price, expected in ((low[k] - 1e-6, 0.0), (high[k] + 1e-6, 1.0)):
                if price < 0:
                    continue
                p = np.zeros(game.count)
                p[k] = price
                assert game.best_response(p, x)[k] == pytest.approx(expected, abs=1e-12)
            middle = 0.5 * (low[k] + high[k])
            if middle >= 0:
                p = np.zeros(game.count)
                p[k] = middle
                assert 0 < game.best_response(p, x)[k] < 1

    def test_slope_of_utility_has_the_sign_of_the_inclination(self):
        game, _, _ = small_game(3, cost_scale=0.4)
        x = np.array([0.4, 0.7, 0.2, 0.9])
        g = game.inclination(None, x)
        for k in range(4):
            up = x.copy()
            up[k] += 1e-6
            slope = (game.client_utilities(None, up)[k] - game.client_utilities(None, x)[k]) / 1e-6
            expected = 2 * game.lam / game.profile(x).total * g[k] * game.alpha[k]
            assert slope == pytest.approx(expected, rel=1e-3, abs=1e-6)

    def test_gram_and_features_give_the_same_game(self):
        rng = np.random.default_rng(1)
        features = rng.normal(size=(12, 3)) * 0.3
        sizes = rng.integers(10, 100, 12)
        by_features = sf.StackelbergGame(sf.MeanEmbeddings.from_features(features), sizes, (0, 3))
        by_gram = sf.StackelbergGame(sf.MeanEmbeddings.from_gram(features @ features.T), sizes, (0, 3))
        x = rng.uniform(size=10)
        np.testing.assert_allclose(by_features.client_impacts(x), by_gram.client_impacts(x), atol=1e-14)
        assert by_features.server_loss(x) == pytest.approx(by_gram.server_loss(x), abs=1e-14)
        np.testing.assert_allclose(by_features.heterogeneity, by_gram.heterogeneity, atol=1e-12)
        np.testing.assert_allclose(by_features.geometry.gram, by_gram.geometry.gram, atol=1e-14)
        np.testing.assert_allclose(by_features.geometry.original[0], by_gram.geometry.original[0], atol=1e-14)

    def test_heterogeneity_is_the_distance_to_the_removed_data(self):
        game, features, sizes = small_game(removed=(0, 2))
        mu_r = (sizes[0] * features[0] + sizes[2] * features[2]) / (sizes[0] + sizes[2])
        expected = np.linalg.norm(features[[1, 3, 4]] - mu_r, axis=1)
        np.testing.assert_allclose(game.heterogeneity, expected, rtol=1e-10)

    def test_sole_participant_would_rather_shrink(self):
        game, _, _ = small_game()
        x = np.array([0.0, 0.5, 0.0, 0.0])
        assert game.best_response(None, x)[1] == 0.0
        assert game.regrets(None, x)[1] == pytest.approx(game.costs[1] * 0.5)

    def test_finite_sample_penalty_shrinks_with_the_data_used(self):
        rng = np.random.default_rng(0)
        samples = [rng.normal(size=(n, 2)) + i for i, n in enumerate((30, 40, 50))]
        game = sf.StackelbergGame(sf.MeanEmbeddings.from_samples(samples, bandwidth=1.0), [30, 40, 50])
        half, full = game.finite_sample_penalty([0.5] * 3), game.finite_sample_penalty([1.0] * 3)
        assert half == pytest.approx(2 * full)
        counts = np.array([30, 40, 50])
        noise = counts / (counts - 1) * (1 - np.diag(game.embeddings.gram))
        assert full == pytest.approx(2 * (game.alpha @ noise) / 120)


class TestIdentity:
    def test_equal_games_are_equal_and_hash_alike(self):
        one, other = small_game()[0], small_game()[0]
        assert one == other
        assert hash(one) == hash(other)
        assert one != small_game(lambda_v=2.0)[0]
        assert one != small_game(removed=(1,))[0]
        assert one != "game"

    def test_immutable(self):
        game = small_game()[0]
        with pytest.raises(AttributeError, match="immutable"):
            game.lambda_v = 3.0
        with pytest.raises(ValueError, match="read-only"):
            game.alpha[0] = 0.5

    def test_replace_keeps_the_rest(self):
        game = small_game(cost_scale=3.0)[0]
        heavier = game.replace(lambda_q=5.0)
        assert heavier.lambda_q == 5.0
        np.testing.assert_array_equal(heavier.costs, game.costs)
        assert len(game.replace(removed=(0, 1)).remaining) == 3


EMB = sf.MeanEmbeddings.from_features(np.eye(4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sizes": [1, 2, 3]}, r"sizes: needs 4 numbers"),
        ({"sizes": [1, 2, -3, 4]}, r"sizes\[client 2\] = -3"),
        ({"sizes": [1, 2, 0, 4]}, r"sizes\[client 2\] = 0"),
        ({"sizes": [1, 2, np.nan, 4]}, r"sizes\[client 2\] = nan: must be finite"),
        ({"sizes": "abcd"}, r"sizes = 'abcd'"),
        ({"removed": [7]}, r"removed = 7: there is no such client"),
        ({"removed": [-1]}, r"removed = -1"),
        ({"removed": [1, 1]}, r"twice"),
        ({"removed": [0.5]}, r"removed = 0.5"),
        ({"removed": [0, 1, 2, 3]}, r"nobody is left"),
        ({"removed": [0, 1, 3]}, r"only client 2 is left"),
        ({"costs": [1, 2, 3, 0]}, r"costs\[client 3\] = 0"),
        ({"costs": [1, 2, 3]}, r"costs: needs 4 numbers"),
        ({"cost_scale": -1}, r"cost_scale = -1"),
        ({"lambda_v": -0.1}, r"lambda_v = -0.1"),
        ({"lambda_q": 0}, r"lambda_q = 0.0: must be positive"),
        ({"loss_constant": np.inf}, r"loss_constant = inf"),
        ({"lambda_s": "much"}, r"lambda_s = 'much'"),
    ],
)
def test_bad_games_are_refused_by_name(arguments, message):
    with pytest.raises(sf.InputError, match=message):
        sf.StackelbergGame(**{"embeddings": EMB, "sizes": [1, 2, 3, 4], **arguments})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: g.profile([0, 0, 0]), r"nobody takes part"),
        (lambda g: g.profile([0.5, 1.5, 0]), r"participation\[client 2\] = 1.5"),
        (lambda g: g.profile([0.5, np.nan, 0]), r"participation\[client 2\] = nan"),
        (lambda g: g.equilibrium([1, 2]), r"payments: needs 3 numbers"),
        (lambda g: g.equilibrium([1, -2, 0]), r"payments\[client 2\] = -2"),
        (lambda g: g.solve(-1), r"budget = -1"),
        (lambda g: g.solve(np.nan), r"budget = nan"),
        (lambda g: g.solve("all"), r"budget = 'all'"),
        (lambda g: g.solve(1, method="magic"), r"method = 'magic'"),
        (lambda g: g.solve(1, flor=0.3), r"flor: is not an option"),
        (lambda g: g.solve(None, method="haipo"), r"needs a budget"),
        (lambda g: g.solve(1, min_total=-1), r"min_total = -1"),
        (lambda g: g.frontier([]), r"budgets"),
        (lambda g: g.frontier([1, -1]), r"budgets = -1"),
    ],
)
def test_bad_calls_are_refused_by_name(call, message):
    with pytest.raises(sf.InputError, match=message):
        call(sf.StackelbergGame(EMB, [1, 2, 3, 4], removed=[0]))


@pytest.mark.parametrize("embeddings", [None, np.eye(3)])
def test_embeddings_of_the_wrong_kind_are_refused(embeddings):
    with pytest.raises(sf.errors.InputError, match="embeddings"):
        sf.StackelbergGame(embeddings, [1, 2, 3])


def test_removed_none_is_refused_by_name():
    with pytest.raises(sf.errors.InputError, match="removed"):
        sf.StackelbergGame(EMB, [1, 2, 3, 4], removed=None)


def test_a_tolerance_that_is_no_number_is_refused():
    with pytest.raises(sf.errors.InputError, match="tolerance"):
        sf.StackelbergGame(EMB, [1, 2, 3, 4]).equilibrium(tolerance="tight")


@pytest.mark.parametrize(
    ("argument", "broken"),
    [
        ("path", lambda game: game.save(None)),
        ("path", lambda game: sf.load(3)),
        ("colour", lambda game: game.replace(colour=1)),
        ("callback", lambda game: game.solve(0.05, callback=3)),
        ("callback", lambda game: game.equilibrium(callback="often")),
        ("sizes", lambda game: game.replace(sizes=[1e308] * 4)),
        ("costs", lambda game: game.replace(lambda_q=1e-320)),
        ("costs", lambda game: game.replace(costs=[1e308] * 3, lambda_q=1e-5)),
    ],
)
def test_what_cannot_be_computed_is_named(argument, broken):
    points = [[0.0, 0.6], [0.0, 0.0], [0.8, 0.0], [0.1, 0.9]]
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), [1, 1, 2, 1], [0])
    with pytest.raises(sf.InputError) as caught:
        broken(game)
    assert caught.value.argument == argument


def test_participation_too_small_to_be_squared_is_no_defect():
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_gram(np.diag([0.0, 1.0])), [1, 1])
    residual, regret = game.judge(None, [1e-200, 1e-200])
    assert residual == regret == np.inf
