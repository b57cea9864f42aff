import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stackfu.embedding import MeanEmbeddings
from stackfu.embedding import gram as gram_module
from stackfu.embedding.samples import Samples
from tests.embedding.references import clouds, reference_gram, reference_squared_distances, tight_clusters

ACCURACY = {np.float32: 1e-6, np.float64: 1e-12}

shapes = st.tuples(st.lists(st.integers(1, 70), min_size=1, max_size=6), st.integers(1, 40))


@settings(max_examples=40, deadline=None)
@given(shapes, st.sampled_from([np.float32, np.float64]), st.floats(-3, 3), st.integers(0, 2**32 - 1))
@example(([1] * 40, 5), np.float32, 0.0, 0)
@example(([32, 32, 8, 8, 1], 64), np.float32, 0.0, 0)
@example(([33, 31, 9, 7], 65), np.float64, 0.0, 0)
def test_gram_has_the_promised_accuracy_at_any_shape_and_bandwidth(shape, dtype, log_sigma, seed):
    sizes, d = shape
    samples = clouds(seed, sizes, d, dtype)
    sigma = 10.0**log_sigma * np.sqrt(d)
    got = MeanEmbeddings.from_samples(samples, bandwidth=sigma).gram
    assert np.abs(got - reference_gram(samples, sigma)).max() < ACCURACY[dtype]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_data_far_from_the_origin(dtype, offset):
    samples = clouds(1, [40, 60, 1], 5, dtype, offset=offset)
    got = MeanEmbeddings.from_samples(samples, bandwidth=2.0).gram
    assert np.abs(got - reference_gram(samples, 2.0)).max() < ACCURACY[dtype]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("distance", [30.0, 1e4, 1e12])
def test_two_tight_clusters_far_apart(dtype, distance):
    """Inner products would lose the distances within a cluster; differences keep them."""
    samples, sigma = tight_clusters(dtype, distance)
    got = MeanEmbeddings.from_samples(samples, bandwidth=sigma).gram
    assert np.abs(got - reference_gram(samples, sigma)).max() < ACCURACY[dtype]


@pytest.mark.parametrize("d", [1, 16, 384, 2000])
def test_single_precision_holds_at_the_edge_of_its_use(d):
    """One-point clients and near copies of them, as spread out as float32 arithmetic is used for."""
    rng = np.random.default_rng(3)
    points = rng.normal(size=(40, 1, d))
    samples = [p.astype(np.float32) for p in (*points, *(points * 1.0001))]
    checked = Samples.check(samples)
    sigma = float(np.sqrt(checked.mean_squares(1.0).max() / gram_module.SPREAD_FOR_SINGLE)) * 1.0001
    assert gram_module.choose_arithmetic(checked, sigma, "auto") == (np.float32, False)
    got = MeanEmbeddings.from_samples(samples, bandwidth=sigma).gram
    x = np.concatenate(samples).astype(float)
    squared = np.array([((x - row) ** 2).sum(axis=1) for row in x])
    assert np.abs(got - np.exp(-squared / (2 * sigma**2))).max() < 1e-6


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_every_arithmetic_agrees_with_the_reference(real, direct):
    samples = clouds(4, [300, 1, 257, 31, 600], 7)
    sums = gram_module.sum_over_tiles(Samples.check(samples), 3.0, np.dtype(real), direct)
    sizes = np.array([len(s) for s in samples], dtype=float)
    complement = np.triu(sums) / np.outer(sizes, sizes)
    expected = np.triu(1 - reference_gram(samples, 3.0)).astype(float)
    assert np.abs(complement - expected).max() < (1e-6 if real == np.float32 else 1e-14)


def test_several_panels_and_tiles(monkeypatch):
    monkeypatch.setattr(gram_module, "_RIGHT_BYTES", 1 << 12)
    monkeypatch.setattr(gram_module, "_LEFT_ROWS", 128)
    samples = clouds(5, [100, 3, 150, 64, 1, 1, 90], 4)
    got = MeanEmbeddings.from_samples(samples, bandwidth=2.0).gram
    assert np.abs(got - reference_gram(samples, 2.0)).max() < 1e-14


def test_the_result_does_not_depend_on_the_number_of_threads(monkeypatch):
    samples = clouds(6, [700, 900], 3, np.float32)
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    one = MeanEmbeddings.from_samples(samples, bandwidth=2.0)
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    assert MeanEmbeddings.from_samples(samples, bandwidth=2.0) == one


@pytest.mark.parametrize("sigma", [1.0, 1e3, 1e6])
def test_squared_distances_keep_their_digits_when_the_bandwidth_is_large(sigma):
    """MMD^2 shrinks like 1 / sigma^2 while G tends to 1: the error follows 1 - G, not G."""
    samples = clouds(7, [30, 40, 50], 3)
    emb = MeanEmbeddings.from_samples(samples, bandwidth=sigma)
    error = np.abs(emb.distances() ** 2 - reference_squared_distances(samples, sigma)).max()
    assert error < 1e-14 * max(float((1 - emb.gram).max()), 1e-12) + 1e-18


@pytest.mark.parametrize(("dtype", "limit"), [(np.float32, 1e-7), (np.float64, 1e-15)])
def test_mmd_of_nearly_identical_clients(dtype, limit):
    (a,) = clouds(8, [400], 6)
    b = a.copy()
    b[:3] += 0.01
    samples = [a.astype(dtype), b.astype(dtype)]
    emb = MeanEmbeddings.from_samples(samples, bandwidth=2.0)
    exact = float(reference_squared_distances(samples, 2.0)[0, 1])
    assert 0 < exact < 1e-6
    assert abs(emb.distance(0, 1) ** 2 - exact) < limit
    double = MeanEmbeddings.from_samples(samples, bandwidth=2.0, arithmetic="double")
    assert abs(double.distance(0, 1) ** 2 - exact) < 1e-15


def test_identical_clients_have_distance_zero():
    (a,) = clouds(9, [123], 4)
    emb = MeanEmbeddings.from_samples([a, a.copy()], bandwidth=1.0)
    assert emb.distance(0, 1) < 1e-8
    assert MeanEmbeddings.from_samples([a[:1], a[:1]], bandwidth=1.0).distance(0, 1) == 0.0


def test_progress_reaches_the_end():
    calls = []
    MeanEmbeddings.from_samples(clouds(10, [600, 600], 2), bandwidth=1.0, progress=lambda *c: calls.append(c))
    assert [c[0] for c in calls] == list(range(1, len(calls) + 1))
    assert calls[-1][0] == calls[-1][1]


def test_extreme_values_neither_overflow_nor_warn():
    far = [np.array([[1e149], [-1e149]]), np.array([[0.0]])]
    assert np.allclose(MeanEmbeddings.from_samples(far, bandwidth=1e-3).gram, [[0.5, 0.0], [0.0, 1.0]])
    assert np.allclose(MeanEmbeddings.from_samples(far, bandwidth=1e149).gram[0, 1], np.exp(-0.5))


MEMORY = """
import numpy as np, resource
from stackfu.embedding import MeanEmbeddings
rng = np.random.default_rng(0)
MeanEmbeddings.from_samples([rng.normal(size=(50, {d})).astype(np.float32)] * 2, bandwidth=30.0)
samples = [rng.standard_normal((4000, {d}), dtype=np.float32) for _ in range(10)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
MeanEmbeddings.from_samples(samples, bandwidth=30.0)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is in kilobytes on Linux only")
@pytest.mark.parametrize("d", [16, 128])
def test_memory_beyond_the_input_is_tiles(d):
    done = subprocess.run(
        [sys.executable, "-c", MEMORY.format(d=d)], check=True, capture_output=True, text=True
    )
    assert float(done.stdout) < 64


def test_import_compiles_nothing_and_leaves_numba_alone():
    code = "import sys, stackfu.embedding; assert not {'numba', 'torch', 'scipy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
