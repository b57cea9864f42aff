"""Polytopes of equilibria: ranges and dimension against linear programmes in many directions."""

import numpy as np
import pytest

import stackfu as sf
from stackfu.followers import faces
from stackfu.followers.faces import _Polytope


def polytope(seed):
    """Groups that trade among themselves, some of them held by their bounds, in a basis that mixes all of them."""
    rng = np.random.default_rng(seed)
    blocks = [int(rng.integers(1, 5)) for _ in range(int(rng.integers(2, 5)))]
    count, start = sum(blocks), 0
    columns = []
    for size in blocks:
        for _ in range(int(rng.integers(0, size))):
            v = np.zeros(count)
            v[start : start + size] = rng.normal(size=size)
            v[start : start + size] -= v[start : start + size].mean()
            columns.append(v)
        start += size
    if not columns:
        return polytope(seed + 1000)
    basis = np.linalg.qr(np.array(columns).T)[0]
    mixed = basis @ np.linalg.qr(rng.normal(size=(basis.shape[1],) * 2))[0]
    most = rng.uniform(0.5, 2.0, count)
    return _Polytope(most, most * rng.choice([0.0, 0.3, 1.0], count), mixed), rng


@pytest.mark.parametrize("seed", range(12))
def test_ranges_and_dimension_are_those_of_many_vertices(seed):
    some, rng = polytope(seed)
    vertices = np.array(
        [some.furthest(some.directions @ rng.normal(size=some.directions.shape[1])) for _ in range(80)]
    )
    lower, upper, dimension = some.ranges()
    assert dimension == np.linalg.matrix_rank(vertices - vertices[0], tol=1e-7)
    shares = (some.y + vertices) / some.alpha
    assert np.all(shares >= lower - 1e-9)
    assert np.all(shares <= upper + 1e-9)
    np.testing.assert_allclose(shares.max(axis=0), upper, atol=1e-9)
    grouped = some.ranges_of_groups()
    np.testing.assert_allclose(grouped[0], lower, atol=1e-12)
    np.testing.assert_allclose(grouped[1], upper, atol=1e-12)
    assert grouped[2] == dimension


def test_where_trades_take_too_long_to_find_nothing_is_called_unique(monkeypatch):
    """Ranges of very many clients are not computed one by one, except for lists of equilibria."""
    half = np.random.default_rng(0).normal(size=(4, 3))
    twins = sf.MeanEmbeddings.from_features(np.concatenate([half, half]))
    game = sf.StackelbergGame(twins, np.full(8, 10.0), costs=np.full(8, 3.0))
    assert game.equilibrium(method="sweeps").uniqueness is sf.Uniqueness.CONTINUUM
    monkeypatch.setattr(faces, "FEW", 0)
    monkeypatch.setattr(faces, "MOST_MOVED", 0)
    monkeypatch.setattr(_Polytope, "interior", lambda self: None)
    assert game.equilibrium(method="sweeps").uniqueness is sf.Uniqueness.UNKNOWN
    assert game.equilibria().uniqueness is sf.Uniqueness.CONTINUUM
    monkeypatch.setattr(faces, "MOST_TIGHT", 0)
    assert game.equilibrium(method="sweeps").uniqueness is sf.Uniqueness.UNKNOWN
    assert game.equilibria().uniqueness is sf.Uniqueness.CONTINUUM
