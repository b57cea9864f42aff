import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stackfu.embedding import MeanEmbeddings, mean_embeddings
from stackfu.errors import InputError
from tests.embedding.references import clouds

X = clouds(0, [6, 5, 4], 3)


def embeddings(seed, m=4, d=5):
    return MeanEmbeddings.from_features(np.random.default_rng(seed).normal(size=(m, d)))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 8))
def test_features_and_gram_tell_the_same_story(seed, m, d):
    by_features = embeddings(seed, m, d)
    by_gram = MeanEmbeddings.from_gram(by_features.gram)
    weights = np.random.default_rng(seed).exponential(size=(2, m))
    assert np.allclose(by_features.distances(), by_gram.distances(), atol=1e-6)
    assert by_features.mixture_distance(*weights) == pytest.approx(
        by_gram.mixture_distance(*weights), abs=1e-6
    )
    assert np.allclose(by_features.squared_norms, by_gram.squared_norms)
    i, j = seed % m, seed // 7 % m
    assert by_features.distance(i, j) == pytest.approx(by_features.distances()[i, j], abs=1e-12)
    assert by_gram.distance(i, j) == pytest.approx(by_gram.distances()[i, j], abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_distances_are_a_metric(seed):
    emb = MeanEmbeddings.from_samples(clouds(seed, [5, 9, 3, 1], 2), bandwidth=1.5)
    D = emb.distances()
    assert np.array_equal(D, D.T)
    assert (np.diag(D) == 0).all()
    assert (D[:, None, :] <= D[:, :, None] + D[None, :, :] + 1e-12).all()


def test_a_mixture_of_clients_is_the_union_of_their_samples():
    emb = MeanEmbeddings.from_samples([*X, np.concatenate(X)], bandwidth=2.0)
    sizes = [len(x) for x in X]
    assert emb.mixture_distance([*sizes, 0], [0, 0, 0, 1]) < 1e-7
    assert emb.mixture_distance([1, 0, 0, 0], [0, 3, 0, 0]) == pytest.approx(emb.distance(0, 1), abs=1e-12)


def test_immutable_and_equal_by_value():
    emb, same, other = embeddings(0), embeddings(0), embeddings(1)
    assert emb == same
    assert hash(emb) == hash(same)
    assert emb != other
    assert emb != "something else"
    assert MeanEmbeddings.from_gram(emb.gram) != emb  # features are more than a gram
    assert pickle.loads(pickle.dumps(emb)) == emb
    with pytest.raises(ValueError, match="read-only"):
        emb.gram[0, 0] = 2
    with pytest.raises(ValueError, match="read-only"):
        emb.features[0, 0] = 2
    with pytest.raises(AttributeError, match="immutable"):
        emb.bandwidth = 3
    with pytest.raises(AttributeError, match="immutable"):
        del emb._gram
    with pytest.raises(TypeError, match="from_samples"):
        MeanEmbeddings()


def test_features_are_not_copied_and_many_clients_are_fine():
    features = np.zeros((200_000, 16), dtype=np.float32)
    features[:, 0] = 1
    emb = MeanEmbeddings.from_features(features, bandwidth=2.0)
    assert np.shares_memory(emb.features, features)
    assert features.flags.writeable
    assert repr(emb) == "MeanEmbeddings(200000 clients, 16 features, bandwidth=2)"
    assert emb.squared_norms.shape == (200_000,)
    assert emb.distance(3, 199_999) == 0
    for ask in (lambda: emb.gram, emb.distances):
        with pytest.raises(InputError, match=r"320\.0 GB"):
            ask()


def test_too_many_clients_for_a_gram(monkeypatch):
    monkeypatch.setattr(mean_embeddings, "LARGEST_GRAM", 2)
    with pytest.raises(InputError, match="features="):
        MeanEmbeddings.from_samples(X, bandwidth=1.0)
    with pytest.raises(InputError, match="from_features"):
        MeanEmbeddings.from_gram(np.eye(3))


def test_from_gram_accepts_rounding_and_refuses_the_rest():
    noisy = np.ones((3, 3)) + 1e-10 * np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0]])
    assert np.array_equal(MeanEmbeddings.from_gram(noisy).gram, MeanEmbeddings.from_gram(noisy).gram.T)
    with pytest.raises(InputError, match=r"not positive semidefinite.*-1"):
        MeanEmbeddings.from_gram([[1.0, 2.0], [2.0, 1.0]])
    assert MeanEmbeddings.from_gram([[1.0, 2.0], [2.0, 1.0]], tolerance=0.5).distance(0, 1) == 0
    with pytest.raises(InputError, match=r"not symmetric: entries \(0, 1\) and \(1, 0\)"):
        MeanEmbeddings.from_gram([[1.0, 0.5], [0.4, 1.0]])
    with pytest.raises(InputError, match=r"entry \(1, 0\)"):
        MeanEmbeddings.from_gram([[1.0, 0.5], [np.nan, 1.0]])
    with pytest.raises(InputError, match="square"):
        MeanEmbeddings.from_gram(np.ones((2, 3)))
    with pytest.raises(InputError, match="tolerance"):
        MeanEmbeddings.from_gram(np.eye(2), tolerance=-1)
    with pytest.raises(InputError, match="numbers"):
        MeanEmbeddings.from_gram([["a"]])


@pytest.mark.parametrize(
    ("weights", "message"),
    [([1, 1], "one number per client"), ([1, -1, 1, 1], "client 1"), ([0, 0, 0, 0], "all be zero"),
     ([1, np.nan, 1, 1], "client 1")],
)  # fmt: skip
def test_mixture_refusals(weights, message):
    with pytest.raises(InputError, match=message):
        embeddings(0).mixture_distance([1, 1, 1, 1], weights)


@pytest.mark.parametrize(("i", "j"), [(0, 4), (-1, 0), (0.5, 0)])
def test_client_numbers_are_checked(i, j):
    with pytest.raises(InputError, match="there is no such client; the clients are 0"):
        embeddings(0).distance(i, j)


@pytest.mark.parametrize("features", [np.ones(3), np.ones((0, 3)), [[np.inf]]])
def test_from_features_refusals(features):
    with pytest.raises(InputError, match="features"):
        MeanEmbeddings.from_features(features)


def test_features_of_unequal_length_are_refused():
    with pytest.raises(InputError, match="rows differ"):
        MeanEmbeddings.from_features([[1.0, 2.0], [1.0]])


@pytest.mark.parametrize("block", [2, 5, 1024])
@pytest.mark.parametrize("order", ["C", "F"])
def test_grams_of_many_clients_are_looked_at_in_blocks_and_factored_in_place(block, order, monkeypatch):
    """The code for thousands of clients, forced on a few: the same numbers, the same refusals."""
    rng = np.random.default_rng(3)
    points = rng.normal(size=(12, 4))
    gram = np.asarray(points @ points.T, order=order)
    plain = MeanEmbeddings.from_gram(gram).gram
    monkeypatch.setattr(mean_embeddings, "BLOCK", block)
    monkeypatch.setattr(mean_embeddings, "MANY", 0)
    before = gram.copy()
    assert np.array_equal(MeanEmbeddings.from_gram(gram).gram, plain)
    assert np.array_equal(gram, before)
    with pytest.raises(InputError, match="semidefinite"):
        MeanEmbeddings.from_gram(gram - 1e-3 * np.eye(12))
    skew = gram.copy()
    skew[7, 4] += 1e-3
    with pytest.raises(InputError, match=r"symmetric: entries \(\d+, \d+\)"):
        MeanEmbeddings.from_gram(skew)
