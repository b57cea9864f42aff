"""Kernels of the user's own, and sums of kernels."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackfu.embedding import MeanEmbeddings, own_kernel
from stackfu.errors import InputError
from tests.embedding.references import clouds, reference_gram


def laplace(a, b):
    return np.exp(-np.abs(a[:, None, :] - b[None, :, :]).sum(axis=2) / 2)


def linear(a, b):
    return a @ b.T


def naive(samples, kernel):
    return np.array([[kernel(a, b).mean() for b in samples] for a in samples])


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(1, 30),
    st.integers(0, 2**32 - 1),
)
def test_any_kernel_in_tiles_of_any_size(sizes, d, rows, seed):
    samples = clouds(seed, sizes, d)
    for kernel in (laplace, linear):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(own_kernel, "_TILE_ROWS", rows)
            emb = MeanEmbeddings.from_samples(samples, kernel=kernel)
        expected = naive(samples, kernel)
        np.testing.assert_allclose(emb.gram, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
        own = [np.diagonal(kernel(x, x)).mean() for x in samples]
        np.testing.assert_allclose(emb.mean_self_similarity, own, rtol=1e-12)
        assert emb.kernel == kernel.__name__


def test_the_rbf_kernel_by_hand():
    samples = clouds(0, [1500, 900, 3], 2)

    def rbf(a, b):
        return np.exp(-((a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T) / (2 * 1.5**2))

    calls = []
    emb = MeanEmbeddings.from_samples(samples, kernel=rbf, progress=lambda *call: calls.append(call))
    np.testing.assert_allclose(emb.gram, MeanEmbeddings.from_samples(samples, 1.5).gram, atol=1e-12)
    np.testing.assert_allclose(emb.mean_self_similarity, 1.0)
    assert calls == [(k, 6) for k in range(1, 7)]


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (lambda a, b: np.ones(3), r"kernel = \(3,\): must return k\(X, Y\) of shape \(9, 9\)"),
        (lambda a, b: np.ones((len(a), len(b) + 1)), "shape"),
        (lambda a, b: None, "matrix of numbers"),
        (lambda a, b: np.full((len(a), len(b)), "x"), "matrix of numbers"),
        (lambda a, b: np.where(np.arange(len(b)) == 6, np.nan, np.ones((len(a), len(b)))),
         r"kernel\[client 0\] = nan: is not a finite number for a sample of client 1"),
        (lambda a, b: a[:, :1] - b[:, :1].T, "not symmetric"),
        (lambda a, b: -(a @ b.T), "not positive semidefinite"),
    ],
)  # fmt: skip
def test_what_is_no_kernel(kernel, message):
    with pytest.raises(InputError, match=message):
        MeanEmbeddings.from_samples(clouds(0, [5, 4], 2), kernel=kernel)


def test_tensors_are_handed_over_as_they_are():
    torch = pytest.importorskip("torch")
    samples = clouds(1, [7, 5], 2, np.float32)
    seen = []

    def kernel(a, b):
        seen.append((type(a), a.dtype, a.device.type))
        return a @ b.T

    tensors = [torch.tensor(x, requires_grad=True) for x in samples]
    emb = MeanEmbeddings.from_samples(tensors, kernel=kernel, backend="torch")
    MeanEmbeddings.from_samples(tensors, kernel=kernel)
    MeanEmbeddings.from_samples({"York": tensors[0], "Hull": tensors[1]}, kernel=kernel)
    assert set(seen) == {(torch.Tensor, torch.float32, "cpu")}
    given = []
    MeanEmbeddings.from_samples(
        tensors, kernel=lambda a, b: given.append(type(a)) or a @ b.T, backend="numpy"
    )
    assert set(given) == {np.ndarray}
    np.testing.assert_allclose(emb.gram, naive(samples, linear), atol=1e-5)


# -------------------------------------------------------------------- sums


def parts(seed=0):
    samples = clouds(seed, [6, 5, 4], 3)
    labels = [["b", "a"] * 3, ["b"] * 5, ["c", "a", "a", "a"]]
    return {
        "exact": MeanEmbeddings.from_samples(samples, 2.0),
        "joint": MeanEmbeddings.from_samples(samples, 2.0, labels=labels, kernel="joint"),
        "labels": MeanEmbeddings.from_samples(None, labels=labels, kernel="labels"),
        "features": MeanEmbeddings.from_samples(samples, 2.0, 16),
        "gram": MeanEmbeddings.from_gram(reference_gram(samples, 1.0).astype(float)),
    }


@given(
    st.lists(st.sampled_from(["exact", "joint", "labels", "features", "gram"]), min_size=1, max_size=4),
    st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=4),
    st.integers(0, 100),
)
def test_a_sum_of_kernels_adds_inner_products_and_squared_distances(kinds, weights, seed):
    known = parts(seed)
    chosen, weights = [known[kind] for kind in kinds], weights[: len(kinds)]
    emb = MeanEmbeddings.combined(chosen, weights)
    gram = sum(w * part.gram for w, part in zip(weights, chosen, strict=True))
    np.testing.assert_allclose(emb.gram, gram, rtol=1e-12)
    squared = sum(w * part.distances() ** 2 for w, part in zip(weights, chosen, strict=True))
    np.testing.assert_allclose(emb.distances() ** 2, squared, rtol=1e-9, atol=1e-14 * gram.max())
    mixed = [part.mixture_distance([1, 2, 3], [3, 1, 0]) ** 2 for part in chosen]
    assert emb.mixture_distance([1, 2, 3], [3, 1, 0]) ** 2 == pytest.approx(np.dot(weights, mixed), rel=1e-9)
    if "gram" in kinds:
        assert emb.mean_self_similarity is None
    else:
        own = sum(w * part.mean_self_similarity for w, part in zip(weights, chosen, strict=True))
        np.testing.assert_allclose(emb.mean_self_similarity, own)
    assert (emb.features is None) == (not set(kinds) <= {"labels", "features"})
    assert pickle.loads(pickle.dumps(emb)) == emb


def test_features_far_from_the_origin_keep_their_distances_in_a_sum():
    rows = 1e7 / 3 + np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    far = MeanEmbeddings.from_features(rows)
    emb = MeanEmbeddings.combined([far, MeanEmbeddings.from_gram(np.eye(3))], [1.0, 0.5])
    np.testing.assert_allclose(emb.distances() ** 2, [[0, 2, 5], [2, 0, 6], [5, 6, 0]], atol=1e-7)


def test_a_sum_says_what_it_is_made_of():
    known = parts()
    emb = MeanEmbeddings.combined([known["labels"], known["exact"]], [1, 0.25])
    assert emb.kernel == "labels + 0.25 rbf"
    assert MeanEmbeddings.combined([emb, known["gram"]], [2, 1]).kernel == "2 (labels + 0.25 rbf) + gram"
    named = MeanEmbeddings.from_features(np.eye(3), names=["a", "b", "c"])
    assert MeanEmbeddings.combined([known["labels"], named]).names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("embeddings", "weights", "message"),
    [
        ([], None, "sequence of MeanEmbeddings"),
        ([np.eye(3)], None, "sequence of MeanEmbeddings"),
        (3, None, "sequence of MeanEmbeddings"),
        ([parts()["labels"], MeanEmbeddings.from_features(np.eye(2))], None, "must all have 3 clients"),
        ([parts()["labels"]] * 2, [1], "weights = 1: must be one number per kernel"),
        ([parts()["labels"]] * 2, [1, -1], "weights = -1.0"),
        ([parts()["labels"]] * 2, [1, np.nan], "weights = nan"),
        ([MeanEmbeddings.from_features(np.eye(2), names=n) for n in (["a", "b"], ["b", "a"])], None, "differently"),
    ],
)  # fmt: skip
def test_sums_that_are_none(embeddings, weights, message):
    with pytest.raises(InputError, match=message):
        MeanEmbeddings.combined(embeddings, weights)


def test_the_self_similarity_that_is_declared():
    emb = MeanEmbeddings.from_features(np.eye(2), self_similarity=[2, 3])
    assert emb.mean_self_similarity.tolist() == [2, 3]
    assert emb != MeanEmbeddings.from_features(np.eye(2))
    assert MeanEmbeddings.from_features(np.eye(2)).mean_self_similarity is None
    assert MeanEmbeddings.from_features(np.eye(2), 1.0).mean_self_similarity.tolist() == [1, 1]
    assert MeanEmbeddings.from_gram(np.eye(2), self_similarity=[2, 3]).mean_self_similarity.tolist() == [2, 3]
    for values, message in (
        ([1], "one number per client"),
        ([1, -1], r"client 1\] = -1"),
        (["a", 1], "number"),
    ):
        with pytest.raises(InputError, match=message):
            MeanEmbeddings.from_features(np.eye(2), self_similarity=values)
    with pytest.raises(InputError, match="is 1 for the RBF kernel"):
        MeanEmbeddings.from_features(np.eye(2), 1.0, self_similarity=[1, 1])
