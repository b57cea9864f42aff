"""Values of clients: the axioms, the formula by its definition, and how often intervals hold."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import stackfu as sf
from stackfu import testing
from stackfu.values import values_of_clients, values_of_measure
from stackfu.values.coalitions import coalition_loss
from stackfu.values.sampling import _bounds, _exact_part, distances_to_mean
from stackfu.values.shapley import coalition_sizes, leave_one_out, shapley_values

tables = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.floats(-10, 10), min_size=2**n, max_size=2**n).map(
        lambda v: np.array([0.0, *v[1:]])
    )
)


def by_permutations(values):
    """The definition: the average of what a client adds over all orders."""
    n = len(values).bit_length() - 1
    found = np.zeros(n)
    for order in itertools.permutations(range(n)):
        coalition = 0
        for k in order:
            found[k] += values[coalition | 1 << k] - values[coalition]
            coalition |= 1 << k
    return found / math.factorial(n)


def game_of(rng, n, **options):
    rows = rng.uniform(-0.5, 0.5, size=(n, 4))
    emb = sf.MeanEmbeddings.from_features(rows)
    return sf.StackelbergGame(emb, rng.uniform(1, 5, n), costs=np.ones(n), **options)


# -------------------------------------------------------------------- the axioms


@given(tables)
def test_shapley_values_are_averages_over_all_orders(values):
    assert np.allclose(shapley_values(values), by_permutations(values), atol=1e-10)


@given(tables)
def test_values_add_up_to_that_of_all_clients(values):
    assert shapley_values(values).sum() == pytest.approx(values[-1], abs=1e-10)


@given(tables, st.data())
def test_clients_that_add_the_same_have_the_same_value(values, data):
    n = len(values).bit_length() - 1
    assume(n >= 2)
    j, k = data.draw(st.lists(st.integers(0, n - 1), min_size=2, max_size=2, unique=True))
    codes = np.arange(2**n)
    swapped = codes & ~(1 << j | 1 << k) | (codes >> j & 1) << k | (codes >> k & 1) << j
    found = shapley_values(0.5 * (values + values[swapped]))
    assert found[j] == pytest.approx(found[k], abs=1e-10)


@given(tables, st.data())
def test_a_client_that_adds_nothing_has_the_value_zero(values, data):
    n = len(values).bit_length() - 1
    k = data.draw(st.integers(0, n - 1))
    without = values[np.arange(2**n) & ~(1 << k)]
    assert shapley_values(without)[k] == 0.0
    assert leave_one_out(without)[k] == 0.0


@given(tables, st.floats(-3, 3), st.integers(0, 10**6))
def test_values_are_linear_in_the_game(values, factor, seed):
    other = np.random.default_rng(seed).normal(size=len(values))
    together = shapley_values(values + factor * other)
    assert np.allclose(together, shapley_values(values) + factor * shapley_values(other), atol=1e-9)


def test_sizes_of_coalitions_are_the_bits_of_their_indices():
    assert coalition_sizes(10).tolist() == [code.bit_count() for code in range(1024)]


# -------------------------------------------------------------------- the server's loss


@given(testing.games(max_clients=5, sampling="any"), st.data())
def test_every_coalition_has_the_loss_of_its_mixture(game, data):
    x = data.draw(testing.participations(game))
    loss, places = coalition_loss(game, x)
    table = loss.all_losses(np.nan)
    scale = game.loss.weight * (float(game.geometry.scale) + game.sampling / loss.amounts.min())
    for code in range(1, len(table)):
        members = np.zeros(game.count, dtype=bool)
        members[places] = code >> np.arange(len(places)) & 1
        wanted = game.server_loss(np.where(members, x, 0.0))
        assert table[code] == pytest.approx(wanted, abs=1e-11 * max(scale, wanted))
        assert loss.of_members(members[places]) == pytest.approx(wanted, abs=1e-11 * max(scale, wanted))
    n = loss.count
    if n == 1 or loss.amounts.max() > 1e3 * loss.amounts.min():
        return  # differences of sums lose the smallest to rounding; estimates are refused at a ratio of 1e5
    one, two = loss.without
    pairs = loss.pairs
    for j in range(n if n > 1 else 0):
        assert one[j] == pytest.approx(table[2**n - 1 ^ 1 << j], rel=1e-7, abs=1e-9 * scale)
        for k in range(j):
            assert pairs[j, k] == pytest.approx(table[1 << j | 1 << k], rel=1e-7, abs=1e-9 * scale)
            if n > 2:
                rest = 2**n - 1 ^ 1 << j ^ 1 << k
                assert two[j, k] == pytest.approx(table[rest], rel=1e-6, abs=1e-8 * scale)


def test_the_sampling_term_is_part_of_the_loss_of_a_coalition():
    rng = np.random.default_rng(1)
    loss = sf.ServerLoss.of_paper(1.0, 2.0).with_sampling()
    game = game_of(rng, 4, server_loss=loss, sampling_constant=0.3)
    x = rng.uniform(0.2, 1.0, 4)
    table = coalition_loss(game, x)[0].all_losses(np.nan)
    for code in range(1, 16):
        members = (code >> np.arange(4) & 1).astype(bool)
        assert table[code] == pytest.approx(game.server_loss(np.where(members, x, 0.0)), rel=1e-12)


def test_no_coalition_is_worse_than_the_worst_client_alone():
    """The default for the empty coalition: the loss is convex in the mixture, so all values are at least zero."""
    rng = np.random.default_rng(2)
    for options in (
        {},
        {"sampling_constant": 2.0},
        {"server_loss": sf.ServerLoss.of_paper(1.0, 1.0).with_sampling()},
    ):
        loss, _ = coalition_loss(game_of(rng, 8, **options), np.ones(8))
        assert np.all(loss.all_losses(float(loss.alone.max())) <= loss.alone.max() * (1 + 1e-12))


def test_clients_that_bring_nothing_have_the_value_zero_and_twins_the_same():
    rows = np.array([[0.0, 0.0], [0.3, 0.1], [0.3, 0.1], [0.9, 0.2]])
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(rows), [1, 2, 2, 3], names=["a", "b", "c", "d"])
    found = game.values({"a": 0.0, "b": 0.5, "c": 0.5, "d": 1.0})
    assert found["a"] == 0.0
    assert found["b"] == pytest.approx(found["c"], rel=1e-12)
    assert found.shapley.sum() == pytest.approx(found.whole, rel=1e-12)
    assert found.exact


def test_another_loss_of_the_empty_coalition_moves_all_values_equally():
    game = game_of(np.random.default_rng(3), 5)
    one, other = game.values(), game.values(empty=10.0)
    moved = other.shapley - one.shapley
    assert moved == pytest.approx(np.full(5, (10.0 - one.empty) / 5), rel=1e-10)
    assert other.leave_one_out == pytest.approx(one.leave_one_out)


def test_fifteen_clients_are_exact():
    game = game_of(np.random.default_rng(4), 15)
    found = game.values()
    table = found.empty - coalition_loss(game, np.ones(15))[0].all_losses(found.empty)
    rng, n = np.random.default_rng(0), 15
    sizes = coalition_sizes(n)
    k = int(rng.integers(n))
    without = np.flatnonzero((np.arange(2**n) >> k & 1) == 0)
    weights = [math.factorial(s) * math.factorial(n - 1 - s) / math.factorial(n) for s in range(n)]
    naive = math.fsum(weights[sizes[c]] * (table[c | 1 << k] - table[c]) for c in without)
    assert found.shapley[k] == pytest.approx(naive, rel=1e-12)


# -------------------------------------------------------------------- sampling


def test_marginals_along_an_order_are_those_of_the_coalitions():
    rng = np.random.default_rng(6)
    loss, _ = coalition_loss(game_of(rng, 6, sampling_constant=0.5), rng.uniform(0.1, 1.0, 6))
    order = rng.permutation(6)
    found = loss.marginals(order)
    for k in range(6):
        others = [j for j in order if j != k]
        for s in range(1, 6):
            members = np.isin(np.arange(6), others[:s])
            with_k = members | (np.arange(6) == k)
            assert found[s, k] == pytest.approx(loss.of_members(members) - loss.of_members(with_k), abs=1e-12)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 9])
def test_estimates_from_very_many_orders_are_the_values(n):
    game = game_of(np.random.default_rng(n), n, sampling_constant=0.2)
    exact, found = game.values(), game.values(orders=3000)
    assert found.shapley == pytest.approx(exact.shapley, abs=0.01 * exact.whole)
    assert found.shapley.sum() == pytest.approx(exact.whole)
    assert np.all(found.low <= exact.shapley + 1e-12)
    assert np.all(exact.shapley <= found.high + 1e-12)


@given(st.integers(0, 10**6), st.integers(5, 9), st.sampled_from(["plain", "thin", "noise"]))
def test_every_sample_lies_within_the_bounds_that_intervals_rest_on(seed, n, kind):
    rng = np.random.default_rng(seed)
    options = {
        "plain": {},
        "thin": {"sampling_constant": 1.0},
        "noise": {"server_loss": sf.ServerLoss.of_paper(1.0, 1.0).with_sampling()},
    }[kind]
    loss, _ = coalition_loss(game_of(rng, n, **options), rng.uniform(0.01, 1.0, n))
    _, sizes = _exact_part(loss, 1.0)
    low, high = _bounds(loss, sizes)
    for _ in range(20):
        sample = loss.marginals(rng.permutation(n))[sizes].sum(axis=0) / n
        assert np.all(low - 1e-12 <= sample)
        assert np.all(sample <= high + 1e-12)


def test_intervals_hold_as_often_as_they_say():
    game = game_of(np.random.default_rng(7), 7)
    exact = game.values().shapley
    missed = 0
    for seed in range(200):
        found = values_of_clients(game, orders=20, confidence=0.9, seed=seed)
        missed += not np.all((found.low <= exact + 1e-12) & (exact <= found.high + 1e-12))
    assert missed <= 20


@pytest.mark.parametrize("n", [16, 18])
def test_intervals_hold_the_exact_values_of_games_of_more_than_fifteen_clients(n):
    """Of many games with a confidence of 80%; the exact values of up to 20 clients are known."""
    missed = 0
    for seed in range(25):
        rng = np.random.default_rng([n, seed])
        options = {"sampling_constant": float(rng.choice([0.0, 0.5]))}
        game = game_of(rng, n, **options)
        x = rng.uniform(0.05, 1.0, n)
        exact, found = game.values(x), game.values(x, orders=30, confidence=0.8, seed=seed)
        inside = (found.low <= exact.shapley + 1e-12) & (exact.shapley <= found.high + 1e-12)
        missed += not inside.all()
        assert np.abs(found.shapley - exact.shapley).max() <= 0.02 * exact.whole
    assert missed <= 5


def test_intervals_of_a_measure_hold_values_that_are_known():
    """Sums of games in which a coalition of a few clients is worth something: its members share it equally."""
    n, missed = 17, 0
    names = [str(k) for k in range(n)]
    for seed in range(40):
        rng = np.random.default_rng(seed)
        needed = [set(map(str, rng.choice(n, int(rng.integers(1, 5)), replace=False))) for _ in range(8)]
        exact = sum(np.array([(name in group) / len(group) for name in names]) for group in needed) / 8

        def share(coalition, needed=needed):
            return sum(group <= set(coalition) for group in needed) / 8

        found = values_of_measure(share, names, bounds=(0, 1), orders=60, confidence=0.8, seed=seed)
        missed += not np.all((found.low <= exact + 1e-12) & (exact <= found.high + 1e-12))
        assert found.leave_one_out == pytest.approx([sum(name in g for g in needed) / 8 for name in names])
    assert missed <= 8


def test_what_rounding_left_of_nothing_is_nothing():
    game = game_of(np.random.default_rng(1), 4, sampling_constant=1.0)
    without, rounded = game.values([0, 1, 1, 1]), game.values([1e-14, 1, 1, 1])
    assert rounded.shapley == pytest.approx(without.shapley)
    assert rounded.empty == pytest.approx(without.empty)


def test_a_client_far_larger_than_the_others_leaves_exact_values():
    """Differences of the sums of all clients would lose the small ones to rounding."""
    rows = np.random.default_rng(2).normal(size=(4, 3))
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(rows), [1e9, 1.0, 2.0, 3.0])
    found = game.values()
    without = game.server_loss(np.array([0.0, 1.0, 1.0, 1.0])) - game.server_loss(np.ones(4))
    assert found.leave_one_out[0] == pytest.approx(without, rel=1e-9)


def test_both_bounds_hold_for_the_worst_distribution_and_one_of_small_variance():
    rng = np.random.default_rng(8)
    for share in (0.5, 0.001):
        missed = 0
        for _ in range(1000):
            samples = (rng.random((50, 1)) < share).astype(float)
            away = distances_to_mean(samples, np.ones(1), 0.8)
            missed += abs(samples.mean() - share) > away[0]
        assert missed <= 200
    calm = distances_to_mean(np.full((500, 1), 0.3), np.ones(1), 0.95)
    wild = distances_to_mean((rng.random((500, 1)) < 0.5).astype(float), np.ones(1), 0.95)
    assert calm < 0.6 * wild


# -------------------------------------------------------------------- other measures


def test_a_measure_is_asked_once_per_coalition():
    asked = []

    def accuracy(coalition):
        asked.append(coalition)
        return min(1.0, 0.3 * len(coalition) + 0.1 * ("York" in coalition))

    found = values_of_measure(accuracy, ["York", "Hull", "Bath"], name="accuracy")
    assert len(asked) == len(set(asked)) == 8
    assert found.shapley == pytest.approx(by_permutations(_table(accuracy, ("York", "Hull", "Bath"))))
    assert found.whole == pytest.approx(found.shapley.sum())


def _table(measure, names):
    return np.array(
        [
            measure(tuple(name for i, name in enumerate(names) if code >> i & 1))
            for code in range(2 ** len(names))
        ]
    )


def test_a_measure_of_many_clients_is_enclosed():
    names = [str(k) for k in range(18)]
    worth = np.linspace(0.0, 1.0, 18)

    def accuracy(coalition):
        return 1.0 - math.exp(-sum(worth[int(name)] for name in coalition) / 9.0)

    found = values_of_measure(accuracy, names, bounds=(0.0, 1.0), orders=150)
    assert not found.exact
    assert found.shapley.sum() == pytest.approx(found.whole)
    assert found.low.sum() <= found.whole <= found.high.sum()
    assert found.shapley[0] == pytest.approx(0.0, abs=0.01)
    assert np.all(found.low <= found.shapley)
    assert np.all(found.shapley <= found.high)
    assert found.shapley[17] > found.shapley[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: values_of_measure(3, ["a"]), "measure = 3: must be a function"),
        (lambda: values_of_measure(len, ["a", "a"]), "each of one client"),
        (lambda: values_of_measure(len, ["a"], confidence=2), "confidence = 2: must lie between 0 and 1"),
        (lambda: values_of_measure(len, ["a", "b"], orders=3), "bounds: are needed"),
        (lambda: values_of_measure(len, ["a", "b"], bounds=(0, 1)), "do not hold for the coalition"),
        (lambda: values_of_measure(lambda c: np.nan, ["a"]), "no finite number for the coalition"),
        (lambda: GAME.values([0, 0, 0]), "no client takes part"),
        (lambda: GAME.values(orders=0), "orders = 0: must be at least 1"),
        (lambda: GAME.values(empty=np.inf), "empty = inf: must be finite"),
        (lambda: GAME.values()["York"], "client = 'York'"),
        (lambda: GAME.values(orders=3, seed=-1), "seed = -1: must be a whole number"),
        (lambda: GAME.values(seed="x"), "seed = 'x': must be a whole number"),
        (
            lambda: GAME.values([1e-6, 1, 1], orders=3),
            "participation.client 0. = 1e-06: brings less than 1e-05 of what client",
        ),
        (lambda: values_of_measure(len, "York"), "clients = 'York': must be a list of names"),
        (lambda: values_of_measure(len, ["a"], seed=-1), "seed = -1"),
        (
            lambda: values_of_measure(len, ["a"], bounds=5),
            "bounds = 5: must be a smaller and a larger number",
        ),
        (lambda: values_of_measure(len, ["a"], bounds=("x", 1)), "bounds = 'x': must be a number"),
        (lambda: values_of_measure(len, ["a"], bounds=(0, np.inf)), "both finite"),
        (lambda: values_of_measure(len, ["a"], bounds=(0, np.nan)), "both finite"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(sf.InputError, match=message):
        call()


GAME = game_of(np.random.default_rng(0), 3)


# -------------------------------------------------------------------- results and payments


def test_values_are_shown_and_saved(tmp_path):
    found = game_of(np.random.default_rng(9), 4, names=["York", "Hull", "Bath", "<b>"]).values()
    assert "&lt;b&gt;" in found._repr_html_()
    assert "All coalitions were evaluated" in found._repr_html_()
    assert found.split(10.0).sum() == pytest.approx(10.0)
    assert found.shares.sum() == pytest.approx(1.0)
    assert found.to_dict()["clients"] == ["York", "Hull", "Bath", "<b>"]
    found.to_csv(tmp_path / "values.csv")
    assert (
        (tmp_path / "values.csv").read_text().startswith("client,shapley,low,high,share,leave_one_out,alone")
    )


@given(testing.games(max_clients=5))
def test_payments_by_value_are_in_proportion_and_within_the_budget(game):
    assume(not game.is_homogeneous)
    budget = 0.2 * game.full_participation_price
    try:
        solution = game.solve(budget, "shapley")
    except sf.NoEquilibriumError:
        return
    assert solution.spend <= budget * (1 + 1e-9)
    wanted = np.maximum(game.values().shapley, 0.0)
    if wanted.any():
        assert np.allclose(solution.payments * wanted.sum(), wanted * solution.payments.sum())


def test_payments_by_value_are_those_of_the_clients_data():
    from stackfu.demo import digits_game

    game = digits_game()
    shapley, last = game.solve(0.05, "shapley"), game.solve(0.05, "leave-one-out")
    best, found = game.solve(0.05), game.values()
    assert best.lower_bound <= min(shapley.server_loss, last.server_loss)
    assert shapley.payments / shapley.payments.sum() == pytest.approx(found.shares)
    assert last.payments / last.payments.sum() == pytest.approx(
        found.leave_one_out / found.leave_one_out.sum()
    )
