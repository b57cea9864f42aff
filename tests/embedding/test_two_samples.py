import numpy as np
import pytest

from stackfu.embedding import MeanEmbeddings, mmd
from stackfu.errors import InputError
from tests.embedding.references import clouds

A, B = clouds(0, [30, 50], 4)


def kernel(a, b, sigma):
    return np.exp(-((a[:, None] - b[None]) ** 2).sum(axis=2) / (2 * sigma**2))


def test_biased_is_the_distance_of_the_embeddings():
    assert mmd(A, B, 2.0) == MeanEmbeddings.from_samples([A, B], 2.0).distance(0, 1)
    assert mmd(A, B) == MeanEmbeddings.from_samples([A, B]).distance(0, 1)
    assert mmd(A, A, 2.0) == pytest.approx(0, abs=1e-7)


def test_unbiased_leaves_the_diagonal_out():
    aa, bb, ab = kernel(A, A, 2.0), kernel(B, B, 2.0), kernel(A, B, 2.0)
    off_a, off_b = ~np.eye(len(A), dtype=bool), ~np.eye(len(B), dtype=bool)
    squared = aa[off_a].mean() + bb[off_b].mean() - 2 * ab.mean()
    assert mmd(A, B, 2.0, unbiased=True) == pytest.approx(np.sqrt(squared), rel=1e-12)


def test_unbiased_averages_to_zero_on_equal_distributions_and_may_be_negative():
    rng = np.random.default_rng(1)
    values = [mmd(*rng.normal(size=(2, 12, 2)), 1.0, unbiased=True) for _ in range(400)]
    squared = np.sign(values) * np.square(values)
    assert min(values) < 0 < max(values)
    assert abs(squared.mean()) < 4 * squared.std() / np.sqrt(len(values))


def test_refusals():
    with pytest.raises(InputError, match="two samples on each side"):
        mmd(A, B[:1], 1.0, unbiased=True)
    with pytest.raises(InputError, match="bandwidth"):
        mmd(A, B, 0.0)
    with pytest.raises(InputError, match="bandwidth"):
        mmd(A, B, "mean")
    with pytest.raises(InputError, match="columns"):
        mmd(A, B[:, :2], 1.0)
