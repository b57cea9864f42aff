"""Invariances: order, units, position of the origin, and the division of a client's data."""

import numpy as np
import pytest
from effort import share
from hypothesis import given
from hypothesis import strategies as st

import stackfu as sf
from stackfu import testing
from stackfu.judging.stakes import check_stakes

TOLERANCE = 1e-7


def totals(game, payments):
    return np.array([e.total for e in game.equilibria(payments)])


def rebuilt(game, features=None, sizes=None, costs=None, **weights):
    """The same game with some of its data replaced, given by features."""
    known = {
        "lambda_v": game.lambda_v,
        "lambda_s": game.lambda_s,
        "lambda_q": game.lambda_q,
        "loss_constant": game.loss_constant,
        **weights,
    }
    return sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(game.embeddings.features if features is None else features),
        game.all_sizes if sizes is None else sizes,
        removed=game.removed,
        costs=game.costs if costs is None else costs,
        **known,
    )


def same_play(first, p, second, q, x, y, money=1.0, loss=1.0):
    """Conditions, best responses, thresholds and losses agree up to the change of units."""
    np.testing.assert_allclose(second.best_response(q, y), first.best_response(p, x), atol=TOLERANCE)
    assert second.residual(q, y) == pytest.approx(first.residual(p, x), rel=1e-7, abs=1e-9)
    assert second.regret(q, y) == pytest.approx(money * first.regret(p, x), rel=1e-6, abs=1e-9 * money)
    assert second.server_loss(y) == pytest.approx(loss * first.server_loss(x), rel=1e-7, abs=1e-12 * loss)
    for a, b in zip(first.thresholds(x), second.thresholds(y), strict=True):
        np.testing.assert_allclose(b, money * a, rtol=1e-7, atol=1e-9 * money * first.costs.max())


@given(testing.plays(form="features"), st.randoms(use_true_random=False))
def test_order_of_clients(play, random):
    game, p, x = play
    count, gone = len(game.all_sizes), len(game.removed)
    order = list(range(count))
    random.shuffle(order)
    features = game.embeddings.features[order]
    where = [k for k in range(count) if order[k] >= gone]
    perm = np.array([order[k] - gone for k in where])
    shuffled = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(features),
        game.all_sizes[order],
        removed=[k for k in range(count) if order[k] < gone],
        costs=game.costs[perm],
        lambda_v=game.lambda_v,
        lambda_s=game.lambda_s,
        lambda_q=game.lambda_q,
        loss_constant=game.loss_constant,
    )
    np.testing.assert_allclose(
        shuffled.best_response(p[perm], x[perm]), game.best_response(p, x)[perm], atol=TOLERANCE
    )
    assert shuffled.server_loss(x[perm]) == pytest.approx(game.server_loss(x), rel=1e-9, abs=1e-14)
    assert shuffled.regret(p[perm], x[perm]) == pytest.approx(game.regret(p, x), rel=1e-7, abs=1e-12)


@given(testing.plays(form="features"), st.sampled_from([1e-3, 0.5, 7.0, 1e3]))
def test_unit_of_money(play, money):
    """Costs, payments and lambda_q in another currency."""
    game, p, x = play
    other = rebuilt(game, costs=money * game.costs, lambda_q=money * game.lambda_q)
    same_play(game, p, other, money * p, x, x, money=money)


@given(testing.plays(form="features"), st.sampled_from([0.1, 2.0, 30.0]))
def test_unit_of_distance(play, length):
    """Embeddings scaled, the loss constant scaled back."""
    game, p, x = play
    other = rebuilt(
        game, features=length * game.embeddings.features, loss_constant=game.loss_constant / length**2
    )
    same_play(game, p, other, p, x, x)


@given(testing.plays(form="features"), st.sampled_from([1e-3, 3.0, 1e4]))
def test_unit_of_data(play, amount):
    game, p, x = play
    same_play(game, p, rebuilt(game, sizes=amount * game.all_sizes), p, x, x)


@given(testing.plays(form="features"), st.sampled_from([-2.0, 0.25, 3.0]))
def test_origin_of_the_embeddings(play, shift):
    game, p, x = play
    same_play(game, p, rebuilt(game, features=game.embeddings.features + shift), p, x, x)


@given(testing.plays(form="features"))
def test_gram_and_features_are_the_same_game(play):
    game, p, x = play
    features = game.embeddings.features
    other = sf.StackelbergGame(
        sf.MeanEmbeddings.from_gram(features @ features.T),
        game.all_sizes,
        removed=game.removed,
        costs=game.costs,
        lambda_v=game.lambda_v,
        lambda_s=game.lambda_s,
        lambda_q=game.lambda_q,
        loss_constant=game.loss_constant,
    )
    same_play(game, p, other, p, x, x)


@share(0.5)
@given(testing.plays(form="features", max_clients=4, twins=False, max_removed=0))
def test_splitting_a_client_in_two(play):
    """Two halves of a client, paid and costed in proportion, play as the whole did; totals stay the same."""
    game, p, _ = play
    features = np.vstack([game.embeddings.features, game.embeddings.features[:1]])
    sizes = np.append(game.all_sizes, game.all_sizes[0] / 2)
    sizes[0] /= 2
    costs = np.append(game.costs, game.costs[0] / 2)
    costs[0] /= 2
    q = np.append(p, p[0] / 2)
    q[0] /= 2
    halves = rebuilt(game, features=features, sizes=sizes, costs=costs)
    whole = game.equilibria(p)
    for eq in whole:
        x = np.append(eq.participation, eq.participation[0])
        assert check_stakes(halves, q, x).max() <= 1e-9
        assert halves.profile(x).total == pytest.approx(eq.total, rel=1e-12)
        assert halves.server_loss(x) == pytest.approx(eq.server_loss, rel=1e-9, abs=1e-14)
    split = halves.equilibria(q)
    if whole.complete and split.complete:
        first, second = sorted(e.total for e in whole), sorted(e.total for e in split)
        assert all(min(abs(t - s) for s in second) <= 1e-6 * t for t in first)
        assert all(min(abs(t - s) for s in first) <= 1e-6 * t for t in second)


@share(0.5)
@given(testing.plays(form="features", max_clients=4), st.sampled_from([0.5, 4.0]))
def test_equilibria_do_not_depend_on_the_currency(play, money):
    game, p, _ = play
    other = rebuilt(game, costs=money * game.costs, lambda_q=money * game.lambda_q)
    first, second = totals(game, p), totals(other, money * p)
    assert len(first) == len(second)
    np.testing.assert_allclose(second, first, rtol=1e-6)


@given(testing.plays(), st.floats(1.0, 1e9))
def test_size_of_an_overpayment(play, more):
    """A client paid more than its cost takes part fully; the amount above the cost changes nothing."""
    game, p, _ = play
    over = p > game.costs * (1 + 1e-6)
    richer = np.where(over, p * more, p)
    np.testing.assert_allclose(totals(game, richer), totals(game, p), rtol=TOLERANCE, atol=TOLERANCE)
    for eq in game.equilibria(richer):
        assert np.all(eq.participation[over] == 1)
