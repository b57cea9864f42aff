"""Kernels that see labels, against sums over pairs."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import stackfu as sf
from stackfu.embedding import MeanEmbeddings
from stackfu.embedding import gram as gram_module
from stackfu.errors import InputError
from tests.embedding.references import clouds, reference_gram, reference_joint_gram, squared_distances_of

#: Sizes of the clients, dimension, number of classes, seed.
federations = st.tuples(
    st.lists(st.integers(1, 30), min_size=1, max_size=5),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(0, 2**32 - 1),
)


def labelled(sizes, d, classes, seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    samples = clouds(seed, sizes, d, dtype)
    return samples, [rng.integers(classes, size=n).tolist() for n in sizes]


@given(federations)
@example(([1, 1], 1, 1, 0))
def test_labels_are_the_kernel_of_equal_classes(federation):
    samples, labels = labelled(*federation)
    emb = MeanEmbeddings.from_samples(samples, labels=labels, kernel="labels")
    expected = reference_joint_gram(samples, labels)
    assert np.abs(emb.gram - expected).max() < 1e-13 * float(expected.max())
    counts = np.array(
        [[client.count(y) for y in sorted({*list(chain.from_iterable(labels))})] for client in labels]
    )
    assert MeanEmbeddings.from_counts(counts) == emb
    assert MeanEmbeddings.from_samples(None, labels=labels, kernel="labels") == emb


@given(federations)
def test_the_distance_of_histograms_is_chi_square(federation):
    _, labels = labelled(*federation)
    emb = MeanEmbeddings.from_samples(None, labels=labels, kernel="labels")
    everybody = list(chain.from_iterable(labels))
    for i, mine in enumerate(labels):
        for j, theirs in enumerate(labels):
            chi = sum(
                (mine.count(y) / len(mine) - theirs.count(y) / len(theirs)) ** 2
                / (everybody.count(y) / len(everybody))
                for y in set(everybody)
            )
            assert emb.distance(i, j) ** 2 == pytest.approx(chi, rel=1e-12, abs=1e-15)
    sizes = np.array([len(y) for y in labels])
    # the mean of k(a, a) over all samples is the number of classes
    assert emb.mean_self_similarity @ sizes / sizes.sum() == pytest.approx(len(set(everybody)))


@settings(max_examples=30)
@given(federations, st.sampled_from([np.float32, np.float64]), st.floats(-2, 2))
@example(([32, 32, 8, 8, 1], 8, 3, 0), np.float32, 0.0)
def test_joint_is_the_product_of_both_kernels(federation, dtype, log_sigma):
    samples, labels = labelled(*federation, dtype)
    sigma = 10.0**log_sigma * np.sqrt(samples[0].shape[1])
    emb = MeanEmbeddings.from_samples(samples, sigma, labels=labels, kernel="joint")
    expected = reference_joint_gram(samples, labels, sigma)
    accuracy = 1e-6 if dtype == np.float32 else 1e-12
    assert (np.abs(emb.gram - expected) <= accuracy * np.maximum(expected, 1)).all()
    # distances come from the second form of the inner products: it must tell the same
    squared = squared_distances_of(expected)
    assert np.abs(emb.distances() ** 2 - squared).max() < accuracy * max(1.0, float(expected.max()))
    v = np.arange(len(samples)) + 1.0
    v /= v.sum()
    w = np.full(len(samples), 1 / len(samples))
    mixed = float(max((v - w) @ expected @ (v - w), 0))
    assert emb.mixture_distance(v, w) ** 2 == pytest.approx(
        mixed, abs=accuracy * max(1.0, float(expected.max()))
    )
    own = [
        np.mean([sum(map(len, labels)) / list(chain.from_iterable(labels)).count(y) for y in client])
        for client in labels
    ]
    np.testing.assert_allclose(emb.mean_self_similarity, own, rtol=1e-12)


def test_joint_with_one_class_is_rbf_and_with_a_wide_kernel_is_labels():
    samples, labels = labelled([40, 30, 20], 3, 4, 0)
    one = MeanEmbeddings.from_samples(samples, 1.5, labels=[[7] * 40, [7] * 30, [7] * 20], kernel="joint")
    np.testing.assert_allclose(one.gram, reference_gram(samples, 1.5).astype(float), atol=1e-14)
    wide = MeanEmbeddings.from_samples(samples, 1e9, labels=labels, kernel="joint")
    histogram = MeanEmbeddings.from_samples(None, labels=labels, kernel="labels")
    np.testing.assert_allclose(wide.distances(), histogram.distances(), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("sigma", [1.0, 1e3, 1e6])
def test_joint_distances_keep_their_digits_where_labels_do_not_differ(sigma):
    """As for the RBF kernel: squared distances shrink like 1 / sigma^2 while inner products stay where they are."""
    samples = clouds(7, [30, 60, 90], 3)
    labels = [np.repeat([0, 1, 2], n // 3).tolist() for n in (30, 60, 90)]
    emb = MeanEmbeddings.from_samples(samples, sigma, labels=labels, kernel="joint")
    squared = squared_distances_of(reference_joint_gram(samples, labels, sigma))
    error = np.abs(emb.distances() ** 2 - squared).max()
    assert error < 1e-13 * float(squared.max()) + 1e-17  # what is left of long double in the reference


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("distance", [30.0, 1e4, 1e12])
def test_a_class_of_two_tight_clusters_far_apart(dtype, distance):
    """Inner products would lose the distances within a cluster; every class is computed in the arithmetic that it needs."""
    rng = np.random.default_rng(2)
    step = max(1.0, distance * 2.0**-20)
    steps = rng.integers(0, 4, size=(2, 30, 3)) * step
    samples = [steps[0].astype(dtype), (steps[1] + distance).astype(dtype)]
    labels = [[0, 1] * 15, [0, 0, 1] * 10]
    got = MeanEmbeddings.from_samples(samples, 2.0 * step, labels=labels, kernel="joint").gram
    expected = reference_joint_gram(samples, labels, 2.0 * step)
    assert np.abs(got - expected).max() < (1e-6 if dtype == np.float32 else 1e-12) * float(expected.max())


@pytest.mark.parametrize("threads", ["1", "3"])
def test_joint_of_many_tiles_panels_and_small_classes(monkeypatch, threads):
    monkeypatch.setattr(gram_module, "_RIGHT_BYTES", 1 << 12)
    monkeypatch.setattr(gram_module, "_LEFT_ROWS", 64)
    monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
    sizes = [150, 3, 120, 64, 1, 1, 90]
    samples = clouds(5, sizes, 4)
    rng = np.random.default_rng(5)
    labels = [rng.choice(40, p=[0.61] + [0.01] * 39, size=n) for n in sizes]
    calls = []
    emb = MeanEmbeddings.from_samples(
        samples, 2.0, labels=labels, kernel="joint", progress=lambda *call: calls.append(call)
    )
    expected = np.zeros((7, 7))
    marks = np.concatenate(labels)
    x = np.concatenate(samples)
    k = np.exp(-((x[:, None] - x[None]) ** 2).sum(axis=2) / 8) * (marks[:, None] == marks)
    k /= np.bincount(marks, minlength=40)[marks] / len(marks)
    ends = np.cumsum([0, *sizes])
    for i in range(7):
        for j in range(7):
            expected[i, j] = k[ends[i] : ends[i + 1], ends[j] : ends[j + 1]].mean()
    np.testing.assert_allclose(emb.gram, expected, atol=1e-12)
    present = len(np.unique(marks))
    assert calls == [(done, present) for done in range(1, present + 1)]


def test_the_order_of_samples_and_of_classes_does_not_matter():
    samples, labels = labelled([20, 30], 3, 3, 1)
    rng = np.random.default_rng(0)
    orders = [rng.permutation(20), rng.permutation(30)]
    moved = [x[o] for x, o in zip(samples, orders, strict=True)]
    called = {0: "zebra", 1: "ape", 2: "newt"}
    strings = [[called[y[k]] for k in o] for y, o in zip(labels, orders, strict=True)]
    for options in ({}, {"features": 96}):
        a = MeanEmbeddings.from_samples(samples, 2.0, labels=labels, kernel="joint", **options)
        b = MeanEmbeddings.from_samples(moved, 2.0, labels=strings, kernel="joint", **options)
        if not options:  # features of a class depend on its number
            np.testing.assert_allclose(a.gram, b.gram, atol=1e-14)
        np.testing.assert_allclose(a.mean_self_similarity, b.mean_self_similarity)


# -------------------------------------------------------------------- random features


def test_features_of_the_joint_kernel_are_unbiased_and_as_accurate_as_promised():
    samples, labels = labelled([60, 40, 50], 4, 3, 2)
    exact = MeanEmbeddings.from_samples(samples, 3.0, labels=labels, kernel="joint").gram
    counts = np.array([[y.count(c) for c in range(3)] for y in labels])
    p, pi = counts / counts.sum(axis=1, keepdims=True), counts.sum(axis=0) / counts.sum()
    for total in (24, 240):
        grams = np.array(
            [
                MeanEmbeddings.from_samples(samples, 3.0, total, seed, labels=labels, kernel="joint").gram
                for seed in range(200)
            ]
        )
        promised = np.sqrt((np.einsum("ik,jk->ijk", p, p) ** 2 / pi**2 / (total / 3)).sum(axis=2))
        assert (grams.std(axis=0) < promised).all()
        standard_error = grams.std(axis=0) / np.sqrt(len(grams))
        assert (np.abs(grams.mean(axis=0) - exact) < 5 * standard_error + 1e-12).all()


@given(federations, st.integers(0, 40))
def test_clients_on_their_own_give_the_same_joint_embeddings(federation, more):
    samples, labels = labelled(*federation)
    classes = sorted({*list(chain.from_iterable(labels))})
    total = 2 * (len(classes) + more)
    sent = [
        sf.client_features(x, 2.0, total, 5, labels=y, classes=classes)
        for x, y in zip(samples, labels, strict=True)
    ]
    assert all(np.linalg.norm(row) <= 1 + 1e-12 for row in sent)  # a mean of unit vectors
    counts = [sf.client_counts(y, classes) for y in labels]
    together = MeanEmbeddings.from_samples(samples, 2.0, total, 5, labels=labels, kernel="joint")
    assert MeanEmbeddings.from_class_features(sent, counts, 2.0) == together


def test_a_class_that_a_client_lacks_takes_no_part():
    sent = sf.client_features([[0.0], [1.0]], 2.0, 6, labels=["b", "b"], classes=["a", "b", "c"])
    assert sent[:2].tolist() == [0, 0]
    assert sent[4:].tolist() == [0, 0]
    assert sent[2:4].any()


# -------------------------------------------------------------------- declared shares


def test_declared_shares_take_the_place_of_pooled_ones():
    samples, labels = labelled([20, 10], 2, 2, 3)
    shares = {1: 0.25, 0: 0.5, 9: 0.25}
    emb = MeanEmbeddings.from_samples(samples, 1.0, labels=labels, kernel="joint", shares=shares)
    expected = reference_joint_gram(samples, labels, 1.0, shares)
    np.testing.assert_allclose(emb.gram, expected.astype(float), rtol=1e-12)
    counts = np.array([[y.count(c) for c in (0, 1, 9)] for y in labels])
    by_counts = MeanEmbeddings.from_counts(counts, shares=[0.5, 0.25, 0.25])
    by_labels = MeanEmbeddings.from_samples(None, labels=labels, kernel="labels", shares=shares)
    np.testing.assert_allclose(by_counts.gram, by_labels.gram, rtol=1e-14)


# -------------------------------------------------------------------- refusals

X = clouds(0, [3, 2], 2)
Y = [[0, 1, 1], [0, 0]]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0, 1], [0, 0]], r"labels\[client 0\]: 2 labels for 3 samples"),
        ([[0, 1, 1]], "labels of every client"),
        ([[0, 1, None], [0, 0]], r"labels\[client 0\].*row 2 is missing"),
        ([Y[0], [0.0, np.nan]], r"labels\[client 1\].*row 1 is missing"),
        ([Y[0], ["a", "b"]], r"labels\[client 1\] = 'a'.*strings.*client 0 are whole numbers"),
        ([[0, "b", 1], Y[1]], r"labels\[client 0\] = 'b'.*mix.*row 1"),
        ([[0, 1.5, 1], Y[1]], r"labels\[client 0\] = 1.5.*whole numbers.*row 1"),
        ([[0, np.inf, 1], Y[1]], r"labels\[client 0\] = inf.*whole numbers"),
        ([[[0], [1], [1]], Y[1]], r"labels\[client 0\].*one dimension"),
        ([[[0], [1, 2], 1], Y[1]], r"labels\[client 0\]"),
        ([np.array([0, 1, 1j]), Y[1]], r"labels\[client 0\].*complex"),
        ([np.ma.masked_array([0, 1, 1], mask=[0, 0, 1]), Y[1]], r"labels\[client 0\].*masked"),
        ([np.array([0, 1, 2**64 - 1], dtype=np.uint64), Y[1]], r"labels\[client 0\].*below 2\^63"),
        ("y", "name a column"),
        ({"a": Y[0], "b": Y[1]}, "are a dictionary, but the samples are not"),
        (3, "sequence"),
        (None, "labels: are needed"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kernel", ["labels", "joint"])
def test_labels_that_are_none(labels, message, kernel):
    with pytest.raises(InputError, match=message):
        MeanEmbeddings.from_samples(X, labels=labels, kernel=kernel)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": Y}, 'labels: the kernel is "rbf", which does not look at labels'),
        ({"labels": Y, "kernel": lambda a, b: a @ b.T}, "a function, which does not look at labels"),
        ({"shares": [0.5, 0.5]}, "shares: the kernel"),
        ({"labels": Y, "kernel": "linear"}, "kernel = 'linear'"),
        ({"labels": Y, "kernel": "labels", "features": 8}, "features = 8.*RBF"),
        ({"labels": Y, "kernel": "labels", "bandwidth": 2.0}, "bandwidth = 2.0.*RBF"),
        ({"labels": Y, "kernel": "joint", "bandwidth": 1.0, "features": 2}, "features = 2: must be at least 2 per class"),
        ({"labels": Y, "kernel": "joint", "shares": {0: 0.5, 2: 0.5}}, r"labels\[client 0\] = 1.*row 1.*classes 0, 2"),
        ({"labels": Y, "kernel": "joint", "shares": [1.0]}, "shares.*one number per class"),
        ({"labels": Y, "kernel": "joint", "shares": [1.0, 0.0]}, "shares = 0.0: must be positive, see class 1"),
        ({"labels": Y, "kernel": "joint", "shares": [0.5, 0.4]}, "shares = 0.9: must sum to 1"),
        ({"labels": Y, "kernel": "joint", "shares": [0.5, "half"]}, "shares.*number"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_the_kernel(options, message):
    with pytest.raises(InputError, match=message):
        MeanEmbeddings.from_samples(X, **options)


def test_without_samples_there_must_be_a_kernel_of_labels():
    with pytest.raises(InputError, match="sequence with one"):
        MeanEmbeddings.from_samples(None, labels=Y, kernel="joint")
    with pytest.raises(InputError, match=r"labels\[client 1\].*empty"):
        MeanEmbeddings.from_samples(None, labels=[[1], []], kernel="labels")
    with pytest.raises(InputError, match="at least one client"):
        MeanEmbeddings.from_samples(None, labels=[], kernel="labels")


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([[1, np.nan], [1, 1]], r"counts\[client 0\] = nan.*class 1"),
        ([[1, 1], [-1, 1]], r"counts\[client 1\] = -1.0.*class 0"),
        ([[1, 1], [np.inf, 1]], r"counts\[client 1\] = inf"),
        ([[1, 1], [0, 0]], r"counts\[client 1\]: are all 0"),
        ([[1, 0], [2, 0]], r"counts = 1: nobody has a sample of this class"),
        ([[1e308, 1], [1e308, 1]], "too large"),
        ([1, 2], "row per client"),
        ([], "row per client"),
        ([[1, 2], [1]], "array of numbers"),
        ([["a", "b"]], "array of numbers"),
        ({"York": [1, 1], "Leeds": [0, 0]}, r"counts\[client Leeds\]: are all 0"),
        ({}, "at least one client"),
    ],
)
def test_counts_that_are_none(counts, message):
    with pytest.raises(InputError, match=message):
        MeanEmbeddings.from_counts(counts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": Y[0]}, "classes: are needed"),
        ({"classes": [0, 1]}, "labels: are needed"),
        ({"labels": Y[0], "classes": [0]}, r"labels\[client 0\] = 1.*not among the classes 0"),
        ({"labels": Y[0], "classes": [0, 1, 1]}, "classes = 1: hold a class twice"),
        ({"labels": Y[0], "classes": []}, "at least one class"),
        ({"labels": Y[0], "classes": "01"}, "sequence"),
        ({"labels": Y[0], "classes": [0, 1, 2, 3, 4]}, "features = 8: must be at least 2 per class"),
        ({"labels": Y[1], "classes": [0, 1]}, "2 labels for 3 samples"),
    ],
)
def test_what_a_client_alone_is_told(arguments, message):
    with pytest.raises(InputError, match=message):
        sf.client_features(X[0], 1.0, 8, **arguments)


@pytest.mark.parametrize(
    ("features", "counts", "message"),
    [
        (np.ones((2, 4)), np.ones((3, 2)), "counts = 3: must have a row per client"),
        (np.ones((2, 5)), np.ones((2, 2)), "features = 5: must be even"),
        (np.ones((2, 2)), np.ones((2, 2)), "features = 2: must be at least 2 per class"),
        ({"a": [1, 0]}, {"b": [1]}, "must name the clients"),
    ],
)
def test_class_features_that_do_not_fit_their_counts(features, counts, message):
    with pytest.raises(InputError, match=message):
        MeanEmbeddings.from_class_features(features, counts)


@pytest.mark.parametrize(
    "convert",
    [
        list,
        np.array,
        lambda y: np.array(y, dtype=np.uint8),
        lambda y: np.array(y, dtype=float),
        lambda y: np.array(y, dtype=object),
        lambda y: pytest.importorskip("torch").tensor(y),
        lambda y: pytest.importorskip("pandas").Series(y),
        lambda y: pytest.importorskip("pandas").Series(y, index=range(5, 5 + len(y))).astype("category"),
    ],
    ids=["list", "array", "bytes", "floats", "objects", "torch", "pandas", "categories"],
)
def test_labels_come_in_many_shapes(convert):
    expected = MeanEmbeddings.from_samples(X, 1.0, labels=Y, kernel="joint")
    assert MeanEmbeddings.from_samples(X, 1.0, labels=[convert(y) for y in Y], kernel="joint") == expected
