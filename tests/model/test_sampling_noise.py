"""The variance of one sample's embedding: without bias, at most what the kernel allows, the same for solver and checker."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stackfu as sf
from stackfu.judging.numbers import BallArithmetic, IntervalArithmetic
from stackfu.judging.space import Space
from stackfu.model import Objective

ATOMS = st.lists(st.floats(-3, 3), min_size=1, max_size=3, unique=True)


def game_of(rows, others=((5.0,), (6.0,), (7.0,)), **options):
    """A game with these rows at its first remaining client, another client, and one that leaves."""
    data = [np.array([[9.0], [9.5]]), np.asarray(rows, dtype=float).reshape(-1, 1), np.array(others)]
    emb = sf.MeanEmbeddings.from_samples(data, bandwidth=1.0)
    return sf.StackelbergGame(emb, removed=[0], **options)


@settings(max_examples=30, deadline=None)
@given(ATOMS, st.data(), st.integers(2, 3))
def test_the_expected_estimate_is_the_variance_of_the_distribution(atoms, data, count):
    """Over all samples of a small distribution, weighted by their probability."""
    weights = np.array([data.draw(st.floats(0.05, 1)) for _ in atoms])
    chances = weights / weights.sum()
    kernel = np.exp(-0.5 * np.subtract.outer(atoms, atoms) ** 2)
    variance = 1.0 - float(chances @ kernel @ chances)
    expected = 0.0
    for drawn in itertools.product(range(len(atoms)), repeat=count):
        estimate = game_of([atoms[i] for i in drawn]).sampling_noise[0]
        expected += float(np.prod(chances[list(drawn)])) * estimate
    assert expected == pytest.approx(variance, rel=1e-9, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=2, max_size=6))
def test_the_estimate_is_one_minus_the_mean_over_pairs_of_different_samples(rows):
    pairs = [np.exp(-0.5 * (a - b) ** 2) for a, b in itertools.permutations(rows, 2)]
    assert game_of(rows).sampling_noise[0] == pytest.approx(1.0 - np.mean(pairs), abs=1e-9)


def test_a_single_sample_counts_with_the_largest_variance_there_is():
    game = game_of([0.3])
    assert game.embeddings.squared_norms[1] == pytest.approx(1.0)
    assert game.sampling_noise[0] == 1.0


def test_the_number_of_samples_is_that_of_those_embedded_and_else_the_size():
    game = game_of([0.0, 1.0], sizes=[10, 1000, 10])
    assert game.noise_counts.tolist() == [2.0, 3.0]
    bare = sf.StackelbergGame(
        sf.MeanEmbeddings.from_gram(game.embeddings.gram), sizes=[10, 1000, 10], removed=[0]
    )
    assert bare.noise_counts.tolist() == [1000.0, 10.0]


def test_samples_of_clients_that_are_all_alike_are_pooled():
    same = np.array([[0.0], [1.0]])
    emb = sf.MeanEmbeddings.from_samples([same, same, same], bandwidth=1.0)
    game = sf.StackelbergGame(emb, removed=[0])
    assert game.is_homogeneous
    assert game.sampling_noise == pytest.approx(4 / 3 * (1 - emb.squared_norms[1:]))
    solution = game.solve(0.3 * game.costs.sum(), finite_sample=True, progress=False)
    assert solution.status is sf.Status.CERTIFIED
    assert solution.verify(), solution.verify().message


@pytest.mark.parametrize("numbers", [IntervalArithmetic(), BallArithmetic()], ids=["intervals", "balls"])
@pytest.mark.parametrize("rows", [[0.3], [0.3, 0.3], [0.0, 1.0, 2.5]], ids=["one", "twice the same", "three"])
def test_the_checker_encloses_the_same_variance(numbers, rows):
    game = game_of(rows)
    with numbers.context():
        space = Space(game, Objective(finite_sample=True), numbers)
        low, high = numbers.low(space.noise), numbers.high(space.noise)
    stated = game.loss.weight * game.sampling_noise / game.sizes.sum()
    assert np.all(low <= stated * (1 + 1e-12))
    assert np.all(stated <= high * (1 + 1e-12) + 1e-15)
    assert np.all(high - low <= 1e-9)


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_files_keep_how_many_samples_were_embedded(tmp_path, suffix):
    game = game_of([0.0, 1.0], sizes=[10, 1000, 10])
    game.save(tmp_path / f"game.{suffix}")
    loaded = sf.load(tmp_path / f"game.{suffix}")
    assert loaded.embeddings.sample_counts == (2, 2, 3)
    assert np.array_equal(loaded.sampling_noise, game.sampling_noise)


@pytest.mark.parametrize("offers", ["linear", "capped"])
def test_the_certificate_closes_with_a_client_of_a_single_sample(offers):
    rng = np.random.default_rng(3)
    data = [rng.normal(size=(n, 2)) + shift for n, shift in ((20, 2.0), (1, 0.0), (30, 0.5), (40, -0.5))]
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_samples(data, bandwidth=1.0), removed=[0], cost_scale=3.0
    )
    budget = 0.2 * game.costs.sum()
    with pytest.warns(sf.StackfuWarning, match=r"client 1 has a single sample"):
        found = game.solve(budget, offers=offers, finite_sample=True, gap=1e-3, progress=False)
    assert found.status is sf.Status.CERTIFIED, found.message
    assert found.lower_bound >= (1 - 1e-3) * found.objective > 0
    assert found.verify(), found.verify().message
