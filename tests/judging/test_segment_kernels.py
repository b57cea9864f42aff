"""The compiled steps of the checker of completeness: where segments are cut, and what may be said around an equilibrium."""

from math import comb

import numpy as np
import pytest

from stackfu.judging import _segment_kernels as kernels


def bernstein(coefficients, t):
    degree = len(coefficients) - 1
    weights = [comb(degree, i) * t**i * (1 - t) ** (degree - i) for i in range(degree + 1)]
    return np.tensordot(weights, coefficients, axes=1)


@pytest.mark.parametrize("t", [0.5, 1e-9, 0.3, 1 - 1e-7])
def test_the_parts_of_a_cut_segment_are_the_segment_and_share_their_end(t):
    rng = np.random.default_rng(3)
    stack, totals = np.zeros((2, 4, 3, 5)), np.zeros((2, 3))
    whole, sums = rng.uniform(size=(4, 3, 5)), rng.uniform(size=3)
    whole[0, :, 2] = 1.0  # somebody who takes part fully all the way
    stack[0], totals[0] = whole, sums
    kernels.cut(stack, totals, 0, t)
    for u in np.linspace(0, 1, 7):
        for i in range(4):
            before, after = bernstein(stack[1, i], u), bernstein(stack[0, i], u)
            np.testing.assert_allclose(before, bernstein(whole[i], t * u), rtol=1e-14)
            np.testing.assert_allclose(after, bernstein(whole[i], t + (1 - t) * u), rtol=1e-14)
        np.testing.assert_allclose(bernstein(totals[1], u), bernstein(sums, t * u), rtol=1e-14)
        np.testing.assert_allclose(bernstein(totals[0], u), bernstein(sums, t + (1 - t) * u), rtol=1e-14)
    assert np.array_equal(stack[1, :, 2], stack[0, :, 0])
    assert totals[1, 2] == totals[0, 0]
    assert np.array_equal(stack[:, 0, :, 2], np.ones((2, 3)))


@pytest.mark.parametrize("seed", range(20))
def test_the_level_vanishes_where_it_is_said_to(seed):
    rng = np.random.default_rng(seed)
    level = np.sort(rng.normal(size=7)) * (1 if seed % 2 else -1)
    level -= rng.uniform(level.min(), level.max())
    t, slope = kernels.vanishes(np.array([level, level]), np.empty(7))
    assert 0 < t < 1
    assert abs(bernstein(level, t)) < 1e-12 * np.abs(level).max()
    assert slope == pytest.approx(6 * bernstein(np.diff(level), t), rel=1e-6)
    assert kernels.vanishes(np.ones((2, 7)), np.empty(7))[0] < 0


def test_a_matrix_that_may_be_singular_is_not_called_regular():
    near = np.array([[1.0, 2.0], [2.0, 4.0 + 1e-6]])
    for matrix, doubt, verdict in (
        (near, 1e-12, True),
        (near, 1e-6, False),
        (np.array([[1.0, 2.0], [2.0, 4.0]]), 0.0, False),
        (np.array([[0.0, 3.0], [-2.0, 0.0]]), 0.5, True),
        (np.zeros((1, 1)), 0.0, False),
        (np.full((2, 2), np.nan), 0.0, False),
    ):
        assert kernels.regular(matrix, np.full(matrix.shape, doubt)) == verdict


@pytest.mark.parametrize(("radius", "verdict"), [(0.0, True), (0.3, True), (0.31, False), (np.inf, False)])
def test_clients_are_strictly_inside_if_no_mixture_within_the_radius_reaches_a_bound(radius, verdict):
    """The least eigenvalue across the trade is 1, so shares move by the radius; the second client brings 0.1 of 0.325."""
    alpha, caps = np.array([0.5, 0.4, 0.1]), np.ones(3)
    leaf = np.tile([0.25, 0.25, 1.0], (1, 3, 1))
    place, unsure = np.array([[0, 0, 1]], dtype=np.int8), np.array([0, 1])
    inner, error = np.array([[0.5, -0.5], [-0.5, 0.5]]), np.zeros((2, 2))

    def inside(x, radius):
        radii = np.array([radius])
        return kernels.strictly_inside(x, place, radii, unsure, inner, error, alpha, caps, alpha, 1e-15)

    assert inside(leaf, radius) == verdict
    moved = leaf.copy()
    moved[0, 1, 2] = 0.9  # it is not where it is sure to be
    assert not inside(moved, radius)
