import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from stackfu.embedding import MeanEmbeddings, bandwidth, median_bandwidth
from stackfu.errors import InputError
from tests.embedding.references import clouds


def direct_median(samples):
    stacked = np.concatenate([np.asarray(s, dtype=float) for s in samples])
    return np.sqrt(np.median(pdist(stacked, "sqeuclidean")))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=2, max_size=5), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_exact_is_the_median_over_all_pairs(sizes, d, seed):
    samples = clouds(seed, sizes, d)
    found = median_bandwidth(samples)
    assert found == pytest.approx(direct_median(samples), rel=1e-14)
    assert (found.method, found.confidence) == ("exact", 1.0)
    assert found.pairs == sum(sizes) * (sum(sizes) - 1) // 2


@pytest.mark.parametrize(
    "samples",
    [
        [np.random.default_rng(0).integers(0, 3, size=(1500, 2))],  # many ties
        [np.arange(1501)[:, None] % 2, [[7.0]]],
        clouds(1, [900, 700], 3, np.float32, offset=1e5),
        [np.concatenate([1e-5 * clouds(2, [800], 2)[0], 1e6 + clouds(3, [40], 2)[0]])],  # far outliers
        [[[0.0], [3.0]]],
    ],
    ids=["ties", "two values", "far from the origin", "outliers", "one pair"],
)
def test_exact_on_awkward_data(samples):
    assert median_bandwidth(samples, "exact") == pytest.approx(direct_median(samples), rel=1e-13)


def test_exact_recovers_when_the_random_pairs_mislead(monkeypatch):
    samples = clouds(4, [300], 2)
    monkeypatch.setattr(bandwidth, "_likely_bracket", lambda samples: (1e-9, 2e-9))
    assert median_bandwidth(samples, "exact") == pytest.approx(direct_median(samples), rel=1e-14)


def test_exact_narrows_when_too_many_values_to_list(monkeypatch):
    monkeypatch.setattr(bandwidth, "_LISTED_BY_A_TILE", 2)
    monkeypatch.setattr(bandwidth, "_BINS", 8)
    samples = clouds(5, [500], 2)
    assert median_bandwidth(samples, "exact") == pytest.approx(direct_median(samples), rel=1e-14)


def test_the_interval_covers_the_exact_value_as_often_as_it_says():
    samples = [
        np.random.default_rng(6).standard_cauchy(size=(60, 2))
    ]  # no moments: distribution-free or bust
    exact = float(median_bandwidth(samples, "exact"))
    runs = 400
    covered = 0
    for seed in range(runs):
        low, high = median_bandwidth(samples, "sampled", pairs=99, confidence=0.9, seed=seed).interval
        covered += low <= exact <= high
    # at least 0.9; three standard deviations of a binomial below it are allowed
    assert covered / runs > 0.9 - 3 * np.sqrt(0.09 / runs)
    assert covered < runs  # an interval that never misses is too wide


def test_sampled_is_near_the_exact_value_and_says_what_it_is():
    samples = clouds(7, [400, 300], 5, np.float32)
    found = median_bandwidth(samples, "sampled")
    assert found.method == "sampled"
    assert found.interval[0] <= found <= found.interval[1]
    assert found == pytest.approx(direct_median(samples), rel=0.02)
    assert "sampled from 200000 pairs" in repr(found)


def test_very_few_pairs_give_an_honest_interval():
    found = median_bandwidth(clouds(8, [10], 2), "sampled", pairs=3, confidence=0.99)
    assert found.interval == (0.0, float("inf"))


def test_auto_turns_to_sampling(monkeypatch):
    monkeypatch.setattr(bandwidth, "EXACT_LIMIT", 100)
    assert median_bandwidth(clouds(9, [50], 2)).method == "sampled"


def test_a_bandwidth_survives_pickling_and_embeddings_keep_it():
    samples = clouds(10, [20, 20], 2)
    found = median_bandwidth(samples, "sampled", pairs=50)
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert again.interval == found.interval
    assert MeanEmbeddings.from_samples(samples, bandwidth=found).bandwidth.method == "sampled"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"samples": [np.ones((9, 2))]}, "median distance between samples is 0.*bandwidth="),
        ({"samples": [np.ones((1, 2))]}, "single sample"),
        ({"samples": clouds(0, [9], 1), "method": "guess"}, "method"),
        ({"samples": clouds(0, [9], 1), "pairs": 0}, "pairs"),
        ({"samples": clouds(0, [9], 1), "confidence": 1.0}, "confidence"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(InputError, match=message):
        median_bandwidth(**arguments)
