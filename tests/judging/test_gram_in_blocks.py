"""Inner products are read block by block and factored in place: against balls, whatever the blocks are."""

import numpy as np
import pytest

import stackfu as sf
from stackfu.judging import inner_products, space, stakes
from stackfu.judging.numbers import BallArithmetic, IntervalArithmetic
from stackfu.judging.space import Space
from stackfu.model import Objective


def gram_game(count, gone, width, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(count, width)) + 3.0  # far from the origin, so that centring cancels digits
    embeddings = sf.MeanEmbeddings.from_gram(points @ points.T)
    removed = sorted(rng.permutation(count)[:gone].tolist())
    costs = rng.uniform(0.1, 1.0, count - gone)
    return sf.StackelbergGame(embeddings, rng.uniform(1.0, 3.0, count), removed, costs=costs), rng


@pytest.mark.parametrize(("block", "pairs"), [(512, 1500), (16, 10), (5, 4), (1, 1)])
@pytest.mark.parametrize(("count", "gone", "width"), [(20, 3, 4), (33, 0, 40), (30, 25, 6)])
def test_what_is_read_in_blocks_encloses_what_balls_say(count, gone, width, block, pairs, monkeypatch):
    monkeypatch.setattr(inner_products, "BLOCK", block)
    for module in (inner_products, space):
        monkeypatch.setattr(module, "ALL_PAIRS", pairs)
    game, rng = gram_game(count, gone, width)
    goal = Objective(0.1, finite_sample=True)
    intervals, balls = IntervalArithmetic(), BallArithmetic()
    blocks = Space(game, goal, intervals)
    some = np.sort(rng.permutation(game.count)[: max(game.count // 2, 1)])
    weights = rng.normal(size=len(some))
    with balls.context():
        exact = Space(game, goal, balls)
        found = [(getattr(blocks, name), getattr(exact, name)) for name in ("diagonal", "target_pull")]
        found.append((blocks.loss_constant, exact.loss_constant))
        found.append((blocks.mixed(some, weights), exact.mixed(some, weights)))
        for wide, narrow in found:
            low, high = np.asarray(balls.low(narrow)), np.asarray(balls.high(narrow))
            assert np.all(wide.low <= low)
            assert np.all(high <= wide.high)
            assert np.max(wide.high - wide.low) <= 1e-10
    assert blocks.defect == pytest.approx(exact.defect, rel=0.5)
    kept = blocks._read.middle
    assert np.array_equal(kept, kept.T)  # nothing is left of the factor that was written over it
    assert np.all(np.linalg.eigvalsh(kept) >= -blocks.defect)


@pytest.mark.parametrize("pairs", [1500, 1])
def test_a_matrix_that_is_indefinite_beyond_its_shift_is_not_factored_and_comes_back_unchanged(
    pairs, monkeypatch
):
    monkeypatch.setattr(inner_products, "ALL_PAIRS", pairs)
    monkeypatch.setattr(inner_products, "BLOCK", 3)
    rng = np.random.default_rng(1)
    half = rng.normal(size=(11, 11))
    matrix = half + half.T
    before = matrix.copy()
    least = float(np.linalg.eigvalsh(matrix)[0])
    assert not inner_products._factors(matrix, -least - 1e-6)
    assert np.array_equal(matrix, before)
    assert inner_products._factors(matrix, -least + 1e-6)
    assert np.array_equal(matrix, before)


def test_stakes_of_many_clients_are_those_of_all_pairs(monkeypatch):
    game, rng = gram_game(600, 7, 12)
    x = rng.uniform(size=game.count)
    monkeypatch.setattr(stakes, "LARGEST_BALLS", 0)
    pairs = stakes.check_stakes(game, None, x)
    monkeypatch.setattr(stakes, "ALL_PAIRS", 1)
    monkeypatch.delattr(stakes, "distances_of")
    blocks = stakes.check_stakes(game, None, x)
    assert np.allclose(pairs, blocks, rtol=1e-9)


def test_products_are_read_once_while_somebody_holds_them_and_worked_out_once_per_knot(monkeypatch):
    monkeypatch.setattr(space, "ALL_PAIRS", 1)
    game, budget = gram_game(12, 2, 5)[0], 0.3
    found = game.solve(budget, gap=1e-2)
    numbers = IntervalArithmetic()
    held = Space(game, found.goal, numbers)
    other = Space(game, Objective(0.5 * budget, finite_sample=True), numbers)
    assert other._read is held._read
    knots = found.certificate.knots
    first = held.products(knots[:2])
    again = held.products((*knots[1::-1], *knots[1:3]))
    assert again[0] is first[1]
    assert again[1] is first[0]
    plain = held._products(knots[1:2])[0]
    assert np.allclose(first[1][0].inner.low, plain[0].inner.low, rtol=1e-12)
    read = held._read
    del held, other, first, again, plain
    assert Space(game, found.goal, numbers)._read is read
    del read
    assert id(game) not in inner_products._held
