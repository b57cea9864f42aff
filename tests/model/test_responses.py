"""Best responses, regrets and prices with a sampling constant and with caps, against the definition of the utility."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stackfu as sf
from stackfu.model.responses import positive_root


def play(seed, sampling=None, count=5, **options):
    """A random game with coordinates, payments, caps and a profile below the caps."""
    rng = np.random.default_rng(seed)
    points, sizes = rng.normal(size=(count + 1, 3)), rng.integers(5, 90, size=count + 1)
    constant = float(rng.choice([0.0, 1.0, 30.0, 1000.0])) if sampling is None else sampling
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points)
        if seed % 2
        else sf.MeanEmbeddings.from_gram(points @ points.T),
        sizes,
        (0,),
        costs=rng.uniform(0.05, 5.0, count),
        lambda_q=rng.uniform(0.2, 3.0),
        loss_constant=rng.uniform(0.2, 3.0),
        sampling_constant=constant,
        **options,
    )
    payments = rng.uniform(0.0, 1.2, count) * game.costs
    caps = np.where(rng.random(count) < 0.3, 1.0, rng.uniform(0.1, 1.0, count))
    return points[1:], game, payments, caps, caps * rng.uniform(0.05, 1.0, count)


def utility(points, game, payments, x, k):
    """Client k's utility by its definition."""
    used = game.sizes * x
    drift = ((used @ points / used.sum() - points[k]) ** 2).sum()
    loss = game.loss_constant * drift + game.sampling_constant / used.sum()
    return (payments[k] - game.costs[k]) * x[k] - game.lambda_q * loss


@given(st.integers(0, 500))
def test_utilities_and_loss_are_the_definition(seed):
    points, game, payments, _, x = play(seed)
    expected = [utility(points, game, payments, x, k) for k in range(game.count)]
    np.testing.assert_allclose(game.client_utilities(payments, x), expected, rtol=1e-9, atol=1e-9)
    n_used = game.sizes @ x
    weight = game.lambda_v + game.lambda_s
    paper = game.replace(sampling_constant=0.0)
    added = weight * game.sampling_constant / n_used
    assert game.server_loss(x) == pytest.approx(paper.server_loss(x) + added, rel=1e-12)


@given(st.integers(0, 500))
def test_best_response_beats_a_grid_of_what_is_taken(seed):
    points, game, payments, caps, x = play(seed)
    response = game.best_response(payments, x, caps)
    gains = game.regrets(payments, x, caps)
    assert np.all(response <= caps * (1 + 1e-12))
    for k in range(game.count):
        now = utility(points, game, payments, x, k)

        def at(share, k=k):
            return utility(points, game, payments, np.where(np.arange(game.count) == k, share, x), k)

        best = max(at(share) for share in np.linspace(0.0, caps[k], 60))
        assert at(response[k]) >= best - 1e-9 * (abs(best) + 1)
        assert gains[k] == pytest.approx(at(response[k]) - now, rel=1e-6, abs=1e-9 * (abs(now) + 1))


@given(st.integers(0, 500))
def test_no_residual_iff_no_regret(seed):
    _, game, payments, caps, x = play(seed)
    for _ in range(400):  # damped best responses settle in most games
        x = 0.7 * x + 0.3 * game.best_response(payments, x, caps)
        x = np.where(x < 1e-13, 0.0, np.where(x > caps * (1 - 1e-13), caps, x))
    residual, regret = game.judge(payments, x, caps)
    assert residual == pytest.approx(game.residual(payments, x, caps), rel=1e-5, abs=1e-10)
    assert regret == pytest.approx(game.regret(payments, x, caps), rel=1e-5, abs=1e-10)
    if residual < 1e-12:
        assert regret < 1e-8
    if regret > 1e-6:
        assert residual > 1e-12


@given(st.integers(0, 300))
def test_cheapest_payments_induce_the_profile(seed):
    _, game, _, _, x = play(seed)
    try:
        payments = game.payments_for(x)
    except sf.NotInducibleError as error:
        bare = game.inclination(None, x)
        assert bare.max() > 0
        assert error.clients
        return
    assert game.residual(payments, x) < 1e-9


@given(st.integers(0, 300))
def test_thresholds_are_where_the_best_response_leaves_its_bounds(seed):
    _, game, payments, caps, x = play(seed)
    low, high = game.thresholds(x, caps)
    for k in range(game.count):
        for price, expected in ((low[k], 0.0), (high[k], caps[k])):
            if np.isfinite(price) and price > 1e-6:
                paid = np.where(np.arange(game.count) == k, price, payments)
                step = 1e-7 * game.costs[k]
                below = game.best_response(
                    np.maximum(paid - step * (np.arange(game.count) == k), 0.0), x, caps
                )[k]
                above = game.best_response(paid + step * (np.arange(game.count) == k), x, caps)[k]
                assert below <= expected + 1e-4
                assert above >= expected - 1e-4


def test_a_sole_participant_brings_data_where_samples_count():
    points = np.eye(3)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points), [10, 10, 10], costs=[1.0] * 3, sampling_constant=5.0
    )
    x = np.array([0.3, 0.0, 0.0])
    # 2 w y = a / y: the amount at which another sample is just worth its cost
    expected = np.sqrt(game.sampling / (2.0 * game.reluctance()[0])) / game.alpha[0]
    assert game.best_response(None, x)[0] == pytest.approx(min(expected, 1.0), rel=1e-12)


@given(st.floats(-8, 8), st.floats(-8, 8), st.floats(-8, 8))
def test_root_of_the_cubic_to_the_last_digits(u, v, t):
    w, q, a = 10.0**u, 10.0**v, 10.0**t
    found = float(positive_root(np.array([w]), np.array([q]), a)[0])
    with mpmath.workdps(40):
        w, q, a = map(mpmath.mpf, (w, q, a))
        low, high = mpmath.mpf(0), mpmath.cbrt(2 * q / w) + mpmath.sqrt(a / w)
        for _ in range(
            130
        ):  # the coefficients change their sign once: there is one positive root, between these
            middle = (low + high) / 2
            above = 2 * w * middle**3 - a * middle - 2 * q > 0
            low, high = (low, middle) if above else (middle, high)
    assert found == pytest.approx(float(high), rel=1e-13)


def test_without_a_sampling_constant_it_is_the_paper_bit_for_bit():
    for seed in range(20):
        _, game, payments, _, x = play(seed, sampling=0.0)
        w, profile = game.reluctance(payments), game.profile(x)
        q, rest = profile.total**2 * profile.to_clients, profile.others
        for k in range(game.count):
            if w[k] > 0:
                paper = min(max(np.cbrt(q[k] / w[k]) - rest[k], 0.0), game.alpha[k]) / game.alpha[k]
                assert game.best_response(payments, x)[k] == paper
        np.testing.assert_array_equal(
            game.client_utilities(payments, x), (payments - game.costs) * x - game.lam * profile.to_clients
        )


@pytest.mark.parametrize(
    ("caps", "message"),
    [
        ([1.0, 0.5, 1.5, 1.0, 1.0], r"caps\[client 3\] = 1.5: must lie in \[0, 1\]"),
        ([1.0, -0.5, 0.5, 1.0, 1.0], r"caps\[client 2\] = -0.5"),
        ([0.0] * 5, "nothing is taken"),
        ([1.0], "needs 5 numbers"),
        ([np.nan] * 5, "must be finite"),
    ],
)
def test_caps_that_make_no_sense_name_the_client(caps, message):
    _, game, payments, _, x = play(0)
    with pytest.raises(sf.InputError, match=message):
        game.best_response(payments, x, caps)


def test_the_finite_sample_term_is_refused_for_kernels_that_see_labels():
    counts = np.array([[10, 2, 3], [1, 20, 4], [5, 5, 30], [9, 9, 9]])
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_counts(counts), counts.sum(1), (0,), cost_scale=1.0)
    with pytest.raises(sf.InputError, match="use sampling_constant instead"):
        game.finite_sample_penalty([1.0, 1.0, 1.0])
