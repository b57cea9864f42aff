"""Predicted impacts, and the two constants behind them."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stackfu as sf
from stackfu.calibration import calibrate, pilot_counts, pilot_profiles


def federation(seed=0, count=7, width=4, removed=(0, 1), **options):
    rng = np.random.default_rng(seed)
    points, sizes = rng.normal(size=(count, width)), rng.integers(20, 200, size=count)
    return points, sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), sizes, removed, **options)


@given(st.integers(0, 200), st.floats(0.05, 5.0), st.floats(0.0, 100.0))
def test_impacts_are_changes_against_the_original_federation(seed, constant, sampling):
    points, game = federation(seed, loss_constant=constant, sampling_constant=sampling)
    x = np.random.default_rng(seed).uniform(0.05, 1.0, game.count)
    used = game.sizes * x
    m, mu_o = used @ points[2:] / used.sum(), game.all_sizes @ points / game.all_sizes.sum()
    mu_n = game.sizes @ points[2:] / game.sizes.sum()
    found = game.impacts(x)
    thin = 1 / used.sum() - 1 / game.all_sizes.sum()
    expected = (
        constant * (((m - points[2:]) ** 2).sum(1) - ((mu_o - points[2:]) ** 2).sum(1)) + sampling * thin
    )
    np.testing.assert_allclose(found.clients, expected, rtol=1e-9, atol=1e-11)
    assert found.stability == pytest.approx(constant * ((m - mu_o) ** 2).sum() + sampling * thin, abs=1e-11)
    against = 1 / used.sum() - 1 / game.sizes.sum()
    assert found.effectiveness == pytest.approx(
        constant * ((m - mu_n) ** 2).sum() + sampling * against, abs=1e-11
    )


@pytest.mark.parametrize("removed", [(), (0,)])
def test_nobody_is_hurt_by_the_original_mixture(removed):
    points, game = federation(3, removed=removed, sampling_constant=5.0)
    if not removed:
        np.testing.assert_allclose(game.impacts(np.ones(game.count)).clients, 0.0, atol=1e-12)
    assert not game.impacts(np.ones(game.count)).calibrated
    assert game.impacts(np.ones(game.count)).summary()["worst"] == game.impacts(np.ones(game.count)).worst
    assert len(points) == 7


@given(st.integers(0, 100), st.floats(0.05, 3.0), st.floats(0.0, 500.0))
def test_exact_observations_give_the_constants_back(seed, constant, sampling):
    _, game = federation(seed, loss_constant=constant, sampling_constant=sampling)
    rows = pilot_profiles(game, 4, seed)
    changes = np.array([game.impacts(x).clients for x in rows])
    _, blank = federation(seed)
    fit = blank.calibrate(rows, changes)
    assert fit.loss_constant == pytest.approx(constant, rel=1e-6)
    assert fit.sampling_constant == pytest.approx(sampling, rel=1e-6, abs=1e-6)
    assert fit.r2 > 1 - 1e-9
    assert fit.identified
    fitted = blank.recalibrated(fit)
    assert fitted.calibrated
    assert fitted.impacts(rows[0]).calibrated
    np.testing.assert_allclose(fitted.impacts(rows[1]).clients, changes[1], atol=1e-6)


def test_intervals_cover_as_often_as_they_say():
    """Noise shared within a pilot and of each client: the intervals hold the truth about as often as stated."""
    covered, rng = 0, np.random.default_rng(1)
    for seed in range(150):
        _, game = federation(seed, loss_constant=0.5, sampling_constant=30.0)
        rows = pilot_profiles(game, 8, seed)
        truth = np.array([game.impacts(x).clients for x in rows])
        noise = rng.normal(size=(8, 1)) * 0.02 + rng.normal(size=truth.shape) * 0.05
        fit = calibrate(game, rows, truth + noise, level=0.9)
        covered += fit.loss_interval[0] <= 0.5 <= fit.loss_interval[1]
    assert 0.82 * 150 <= covered <= 0.99 * 150


def test_constants_are_never_negative_and_noise_alone_is_not_identified():
    rng = np.random.default_rng(0)
    _, game = federation(1)
    rows = pilot_profiles(game, 6)
    fit = game.calibrate(rows, rng.normal(size=rows.shape) * 0.1 - 5.0)
    assert fit.loss_constant >= 0
    assert fit.sampling_constant >= 0
    unsure = game.calibrate(rows, rng.normal(size=rows.shape) * 10.0)
    if not unsure.identified:
        with pytest.raises(sf.InputError, match="do not tell C from zero"):
            game.recalibrated(unsure)


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        (np.ones((2, 5)), np.zeros((2, 5)), "same amount of data"),
        (np.ones((1, 5)), np.zeros((1, 5)), "two pilots at least"),
        (np.ones((2, 4)), np.zeros((2, 4)), "needs 5 columns"),
        (np.ones((2, 5)), np.zeros((3, 5)), "needs the shape"),
        (np.ones((2, 5)), np.full((2, 5), np.nan), r"client 2\] = nan: pilot 0 must be finite"),
        ("pilots", np.zeros((2, 5)), "must be arrays of numbers"),
    ],
)
def test_what_does_not_identify_the_constants_is_refused(rows, changes, message):
    _, game = federation(0)
    with pytest.raises(sf.InputError, match=message):
        game.calibrate(rows, changes)


def test_one_number_for_all_changes_calibrates_nothing():
    _, game = federation(0)
    rows = pilot_profiles(game, 6)
    with pytest.raises(
        sf.InputError, match="changes = 0.01: are the same number for every client in every pilot"
    ):
        game.calibrate(rows, np.full(rows.shape, 0.01))


def test_constants_that_miss_the_pilots_are_said_to_predict_nothing():
    """Changes that hardly differ, of the sign of C: an interval above zero, and predictions that are worse than the mean."""
    _, game = federation(19)
    rows = pilot_profiles(game, 6)
    fit = game.calibrate(rows, 0.01 + 1e-4 * np.random.default_rng(0).normal(size=rows.shape))
    assert fit.identified
    assert not fit.predicts
    with pytest.warns(sf.StackfuWarning, match="the constants do not predict"):
        assert game.recalibrated(fit).calibrated
    _, exact = federation(19, loss_constant=2.0, sampling_constant=5.0)
    fit = game.calibrate(rows, np.array([exact.impacts(x).clients for x in rows]))
    assert fit.predicts
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        game.recalibrated(fit)


def test_a_federation_that_nobody_left_and_mixed_alike_says_nothing_about_drift():
    _, game = federation(0, removed=())
    rows = np.array([np.ones(7), np.full(7, 0.5)])
    with pytest.raises(sf.InputError, match="C is not identified|move together"):
        game.calibrate(rows, np.zeros((2, 7)))


# -------------------------------------------------------------------- plans in whole samples


@given(st.lists(st.integers(1, 300), min_size=4, max_size=9), st.integers(2, 9), st.integers(0, 50))
def test_pilots_use_whole_samples_that_clients_have(sizes, count, seed):
    points = np.random.default_rng(len(sizes)).normal(size=(len(sizes), 3))
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), sizes, removed=[0])
    try:
        plan = pilot_counts(game, count, seed)
    except sf.InputError as error:
        assert "no such plan was found" in str(error)
        assert max(sizes[1:]) < 20
        return
    assert plan.dtype.kind == "i"
    assert (plan >= 0).all()
    assert (plan <= game.sizes).all()
    assert (plan.sum(axis=1) >= 1).all()
    for first, second in zip(plan[::2], plan[1::2], strict=False):
        assert ((first > 0) == (second > 0)).all()
        assert (second <= first).all()
    rows = pilot_profiles(game, count, seed)
    assert (np.rint(rows * game.sizes) == plan).all()
    truth = game.replace(loss_constant=2.0, sampling_constant=3.0)
    fit = game.calibrate(rows, np.array([truth.impacts(row).clients for row in rows]))
    assert fit.loss_constant == pytest.approx(2.0, rel=1e-5)
    assert fit.sampling_constant == pytest.approx(3.0, rel=1e-5)


@pytest.mark.parametrize(
    ("sizes", "points", "said"),
    [
        ([1, 0.25, 0.5, 0.25], np.eye(4), "sizes = 0.5: are all below one sample, and a pilot uses whole samples"),
        ([5, 50, 50, 50], np.ones((4, 2)), "embeddings: all remaining clients have the same data.*: C is not identified"),
        ([5, 1, 0.5, 0.5], np.eye(4), "count = 4: no such plan was found .* .1 in all.: .*A is not identified"),
    ],
)  # fmt: skip
def test_a_plan_that_is_impossible_is_refused_with_the_reason(sizes, points, said):
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(points), sizes, removed=[0])
    with pytest.raises(sf.InputError, match=said):
        pilot_counts(game, 4)
