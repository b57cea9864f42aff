import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackfu.embedding import MeanEmbeddings, client_features
from stackfu.embedding.features import dealt_out, frequencies
from stackfu.errors import InputError
from tests.embedding.references import clouds, reference_gram

SAMPLES = clouds(0, [60, 40, 50], 6)
SIGMA = 3.0


def test_the_error_shrinks_like_one_over_root_d():
    exact = reference_gram(SAMPLES, SIGMA).astype(float)
    counts = np.array([32, 128, 512, 2048])
    errors = []
    for count in counts:
        grams = [MeanEmbeddings.from_samples(SAMPLES, SIGMA, count, seed=s).gram for s in range(20)]
        errors.append(np.sqrt(np.mean([(g - exact) ** 2 for g in grams])))
    assert all(error < 1 / np.sqrt(count) for error, count in zip(errors, counts, strict=True))
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert -0.65 < slope < -0.35


def test_the_estimate_is_unbiased():
    exact = reference_gram(SAMPLES, SIGMA).astype(float)
    grams = np.array([MeanEmbeddings.from_samples(SAMPLES, SIGMA, 24, seed=s).gram for s in range(400)])
    standard_error = grams.std(axis=0) / np.sqrt(len(grams))
    assert (np.abs(grams.mean(axis=0) - exact) < 5 * standard_error + 1e-12).all()


def test_clients_on_their_own_give_the_same_embeddings():
    together = MeanEmbeddings.from_samples(SAMPLES, SIGMA, 256, seed=7)
    apart = np.stack([client_features(s, SIGMA, 256, seed=7) for s in SAMPLES])
    assert np.array_equal(apart, together.features)
    assert MeanEmbeddings.from_features(apart, bandwidth=SIGMA) == together


def test_the_frequencies_are_the_same_for_ever():
    """Pinned: a change here would make old clients disagree with new ones."""
    w = frequencies(3, 8, 42)
    expected = [
        [0.8095646520496139, -0.5992916937225997, -0.10183525759859087, 0.7945425861404455],
        [-0.23629616457290648, -0.11760729344301557, -1.8256825555750658, -1.6379586080724422],
        [-0.7608024922111501, -0.6011747119927114, 0.4586729989693769, -0.2845031228177406],
    ]
    np.testing.assert_allclose(w, expected, rtol=0, atol=1e-12)


def test_frequencies_are_orthogonal_within_a_block_and_normal_in_length():
    w = frequencies(5, 10, 0)
    products = w.T @ w
    assert np.abs(products - np.diag(np.diag(products))).max() < 1e-12
    many = frequencies(4, 40_000, 1)
    assert np.mean((many**2).sum(axis=0)) == pytest.approx(4.0, rel=0.03)
    assert np.abs(np.cov(many) - np.eye(4)).max() < 0.05


@given(st.integers(1, 60), st.integers(0, 200))
def test_features_are_dealt_out_to_the_last_pair(classes, more):
    total = 2 * (classes + more)
    parts = dealt_out(total, classes)
    assert np.array_equal(np.concatenate([np.arange(total)[part] for part in parts]), np.arange(total))
    sizes = [part.stop - part.start for part in parts]
    assert max(sizes) - min(sizes) in (0, 2)
    assert all(size % 2 == 0 for size in sizes)


def test_norms_never_exceed_one():
    for seed in range(5):
        assert np.linalg.norm(client_features(SAMPLES[0][:1] * 1e6, 0.1, 50, seed)) <= 1 + 1e-14
        assert np.linalg.norm(client_features(SAMPLES[0], SIGMA, 50, seed)) < 1


def test_seeds_differ():
    assert not np.allclose(
        client_features(SAMPLES[0], SIGMA, 16, 0), client_features(SAMPLES[0], SIGMA, 16, 1)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
def test_other_types_are_accepted(dtype):
    x = np.arange(12).reshape(4, 3)
    assert np.allclose(client_features(x.astype(dtype), 2.0, 8), client_features(x.astype(float), 2.0, 8))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SAMPLES[0], 1.0, 7), "features = 7"),
        ((SAMPLES[0], 1.0, 0), "features = 0"),
        ((SAMPLES[0], 1.0, 8.0), "features = 8.0"),
        ((SAMPLES[0], -1.0, 8), "bandwidth = -1.0"),
        ((SAMPLES[0], float("nan"), 8), "bandwidth = nan"),
        ((SAMPLES[0], "wide", 8), "bandwidth = 'wide'"),
        ((SAMPLES[0], 1.0, 8, -1), "seed = -1"),
        ((np.empty((0, 3)), 1.0, 8), "empty"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(InputError, match=message):
        client_features(*arguments)
