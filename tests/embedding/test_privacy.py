"""Noise on class counts: calibrated by what it promises, not by a formula copied from the code."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import integrate, stats

import stackfu as sf
from stackfu.embedding import privacy
from stackfu.errors import InputError

epsilons = st.floats(0.05, 5.0)


@given(epsilons)
def test_laplace_noise_spends_epsilon_and_no_more(epsilon):
    """Replacing a sample moves it from one class to another: the log-likelihood ratio is at most epsilon, and reaches it."""
    noise = stats.laplace(scale=privacy.laplace_scale(epsilon))
    seen = np.linspace(-40, 40, 401)
    one = noise.logpdf(seen - 7) - noise.logpdf(seen - 8)  # the class that loses a sample
    other = noise.logpdf(seen - 3) - noise.logpdf(seen - 2)  # the class that gains it
    worst = one.max() + other.max()
    assert worst == pytest.approx(epsilon, rel=1e-9)


@given(epsilons, st.floats(1e-8, 0.2))
def test_gaussian_noise_spends_delta_and_no_more(epsilon, delta):
    """delta = sup over events of P(event) - e^epsilon P'(event), integrated over the densities of two neighbours."""
    deviation = privacy.gaussian_deviation(epsilon, delta)
    # along the direction in which neighbours differ they lie sqrt(2) apart
    p, q = stats.norm(0.0, deviation), stats.norm(np.sqrt(2.0), deviation)
    edge = np.sqrt(2.0) / 2 - epsilon * deviation**2 / np.sqrt(2.0)  # where p = e^epsilon q
    spent, _ = integrate.quad(
        lambda x: p.pdf(x) - np.exp(epsilon) * q.pdf(x), edge - 12 * deviation, edge, epsabs=1e-13, limit=200
    )
    assert spent == pytest.approx(delta, rel=1e-5, abs=1e-12)
    assert privacy.gaussian_deviation(epsilon, delta, 0.02) == pytest.approx(deviation * 0.02 / np.sqrt(2))


def test_replacing_a_sample_changes_counts_as_much_as_is_claimed():
    before = np.array([4.0, 2.0, 0.0, 1.0])
    changes = [
        before + np.eye(4)[gained] - np.eye(4)[lost] - before
        for lost in range(4)
        for gained in range(4)
        if before[lost]
    ]
    assert max(np.abs(change).sum() for change in changes) == privacy.COUNT_SENSITIVITY_L1
    assert max(np.linalg.norm(change) for change in changes) == pytest.approx(privacy.COUNT_SENSITIVITY_L2)


def test_replacing_a_sample_changes_class_features_as_much_as_is_claimed():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 2)), rng.integers(3, size=40)
    limit = privacy.class_feature_sensitivity(40)
    agreed = {"bandwidth": 0.7, "features": 60, "classes": [0, 1, 2]}
    before = sf.client_features(x, labels=y, **agreed)
    moved = []
    for _ in range(200):
        a, b = x.copy(), y.copy()
        k = rng.integers(40)
        a[k], b[k] = 3 * rng.normal(size=2), rng.integers(3)
        moved.append(np.linalg.norm(sf.client_features(a, labels=b, **agreed) - before))
    assert max(moved) <= limit
    assert max(moved) > 0.7 * limit
    for size in (0, 1.5, True):
        with pytest.raises(InputError, match="size"):
            privacy.class_feature_sensitivity(size)


@pytest.mark.parametrize(("delta", "variance"), [(None, 2 * 4.0**2), (1e-3, None)])
def test_the_noise_that_is_drawn_has_the_variance_that_is_calibrated(delta, variance, monkeypatch):
    monkeypatch.setattr(privacy, "nearest_counts", lambda noisy, total: noisy)
    if variance is None:
        variance = privacy.gaussian_deviation(0.5, delta) ** 2
    noisy = privacy.noisy_counts(np.full(100_000, 50), 0.5, delta, np.random.default_rng(0))
    assert np.array_equal(noisy, np.rint(noisy))
    assert noisy.mean() == pytest.approx(50, abs=5 * np.sqrt(variance / 1e5))
    assert noisy.var() == pytest.approx(variance + 1 / 12, rel=0.03)
    kurtosis = stats.kurtosis(noisy)
    assert (kurtosis > 2) == (delta is None)  # 3 for Laplace, 0 for Gauss


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=8).filter(any),
    st.lists(st.floats(-50, 50), min_size=8, max_size=8),
)
@example([1, 1, 10], [-0.5, 0.25, 2.0] + [0.0] * 5)
def test_projected_counts_are_counts_and_nearer_to_the_truth(counts, noise):
    truth = np.array(counts, dtype=float)
    noisy = truth + noise[: len(truth)]
    projected = privacy.nearest_counts(noisy, truth.sum())
    assert (projected >= 0).all()
    assert projected.sum() == pytest.approx(truth.sum(), rel=1e-12)
    assert np.linalg.norm(projected - truth) <= np.linalg.norm(noisy - truth) * (1 + 1e-12) + 1e-9
    # nearest: the obtuse angle at the projection, against every vertex of the simplex
    for k in range(len(truth)):
        vertex = truth.sum() * np.eye(len(truth))[k]
        assert (noisy - projected) @ (vertex - projected) <= 1e-9 * (1 + truth.sum() ** 2)


def test_a_client_counts_with_and_without_noise():
    labels = ["a"] * 60 + ["b"] * 40
    exact = sf.client_counts(labels, ["a", "b", "c"])
    assert exact.tolist() == [60, 40, 0]
    for delta in (None, 1e-4):
        rng = np.random.default_rng(1)
        noisy = [
            sf.client_counts(labels, ["a", "b", "c"], epsilon=2.0, delta=delta, rng=rng) for _ in range(300)
        ]
        assert np.abs(np.mean(noisy, axis=0) - exact).max() < 2
        assert np.std(noisy, axis=0).max() > 0.3
        emb = sf.MeanEmbeddings.from_counts(noisy[:4])
        assert emb.features.shape == (4, 3)
    again = {tuple(sf.client_counts(labels, ["a", "b"], epsilon=0.1)) for _ in range(50)}
    assert len(again) > 1  # without a generator the noise comes from the operating system


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta"),
        ({"delta": 1e-5}, "delta = 1e-05: needs an epsilon"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(InputError, match=message):
        sf.client_counts([0, 1], [0, 1], **arguments)


def test_the_calibration_of_the_federation_is_the_same():
    """Mean features of n samples: sensitivity 2 / n, as the Flower application computes it."""
    assert privacy.gaussian_deviation(1.0, 1e-5, 2 / 100) == pytest.approx(0.0746, abs=5e-5)
