"""The strategies build what they promise and reach the edges they seek."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import stackfu as sf
from stackfu import testing


@given(testing.plays())
def test_plays_are_valid(play):
    game, p, x = play
    assert game.count >= 2
    assert game.check_payments(p) is not None
    assert game.profile(x).total > 0
    assert game.diameter >= 1 / 16 - 1e-9
    assert not game.is_homogeneous


@given(testing.plays(below_cost=True, interior=True))
def test_below_cost_and_interior_mean_it(play):
    game, p, x = play
    assert np.all(p < game.costs)
    assert np.all((x > 0) & (x < 1))


@given(testing.gram_matrices())
def test_gram_matrices_are_positive_semidefinite(gram):
    np.testing.assert_array_equal(gram, gram.T)
    assert np.linalg.eigvalsh(gram)[0] >= -1e-12


@given(testing.embeddings())
def test_embeddings_have_norm_at_most_one(emb):
    assert isinstance(emb, sf.MeanEmbeddings)
    assert np.all(emb.squared_norms <= 1 + 1e-12)


@given(testing.games(costs="proportional"))
def test_proportional_costs_share_one_kappa(game):
    assert np.ptp(game.kappa) <= 1e-9 * game.kappa.max()


@given(st.data())
def test_mixtures_and_budgets(data):
    game = data.draw(testing.games())
    z = data.draw(testing.mixtures(game))
    assert z.sum() == pytest.approx(1)
    assert np.all(z >= 0)
    assert 0 <= data.draw(testing.budgets(game)) <= 1.5 * game.full_participation_price


EDGES = {
    "same data": lambda g, p, x: g.geometry.pairwise[~np.eye(g.count, dtype=bool)].min() == 0,
    "nearly the same data": lambda g, p, x: (
        0 < g.geometry.pairwise[~np.eye(g.count, dtype=bool)].min() < 1e-7
    ),
    "tiny share": lambda g, p, x: g.alpha.min() < 1e-3,
    "paid its cost": lambda g, p, x: bool(np.any(p == g.costs)),
    "paid more": lambda g, p, x: bool(np.any(p > g.costs)),
    "out and full": lambda g, p, x: bool(np.any(x == 0) and np.any(x == 1)),
    "hardly in": lambda g, p, x: bool(np.any((x > 0) & (x < 1e-6))),
    "removed": lambda g, p, x: bool(g.removed),
    "gram": lambda g, p, x: g.embeddings.features is None,
}


def test_edges_are_reached():
    reached = set()

    @settings(max_examples=400, deadline=None, database=None, derandomize=True)
    @given(testing.plays())
    def look(play):
        reached.update(name for name, edge in EDGES.items() if edge(*play))

    look()
    assert reached == set(EDGES)


@given(testing.games(distinct=False, max_clients=2, max_removed=0))
def test_all_data_may_be_alike_when_asked_for(game):
    assert game.count == 2


# -------------------------------------------------------------------- names, forgotten clients, examples as code


@given(testing.games(min_removed=1, max_removed=3, names=True))
def test_named_games_with_somebody_to_forget(game):
    assert 1 <= len(game.removed) <= 3
    assert game.has_names
    assert len(set(game.all_names)) == len(game.all_sizes)
    again = game.replace(removed=[game.called(k) for k in game.removed], costs=game.costs)
    assert again == game


@given(testing.plays(names=True, sampling="any"))
def test_the_code_of_an_example_rebuilds_it_to_the_last_bit(play):
    for thing in play:
        again = eval(testing.as_code(thing), {"np": np, "sf": sf})
        assert np.array_equal(again, thing) if isinstance(thing, np.ndarray) else again == thing


@pytest.fixture
def unshrunk():
    """Failures that are expected need not be made small."""
    before = (
        settings.get_current_profile_name()
        if hasattr(settings, "get_current_profile_name")
        else settings._current_profile  # of older versions
    )
    settings.register_profile("unshrunk", settings.get_profile(before), phases=[Phase.generate])
    settings.load_profile("unshrunk")
    yield
    settings.load_profile(before)


def test_a_failing_example_prints_its_code(unshrunk):
    @settings(max_examples=20, database=None, deadline=None)
    @given(testing.plays())
    def fails(play):
        raise AssertionError("no")

    with pytest.raises(AssertionError) as caught:
        fails()
    notes = "\n".join(caught.value.__notes__)
    scope = {"np": np, "sf": sf}
    code = notes[notes.index("game = ") :]
    exec(code[: code.index("\n)") + 2], scope)
    assert isinstance(scope["game"], sf.StackelbergGame)
    for name in ("payments", "participation"):
        exec(next(line for line in notes.splitlines() if line.startswith(f"{name} = ")), scope)
        assert len(scope[name]) == scope["game"].count


def test_an_objective_of_one_s_own_has_no_code():
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(3)), [1, 1, 1], removed=[0])
    loss = sf.ServerLoss.to_mixtures([[0.0, 1.0, 0.0]], [1.0])
    with pytest.raises(sf.InputError, match="no code"):
        testing.as_code(game.replace(server_loss=loss))


# -------------------------------------------------------------------- mechanisms


def shared_out(game, budget):
    return game.costs * min(1.0, budget / game.costs.sum())


def spendthrift(game, budget):
    return game.costs + 1.0


def blackmail(game, budget):
    """A contract that pays nothing for all data, or takes nothing: no client would accept it."""
    return sf.Offers("contract", np.zeros(game.count), np.ones(game.count), np.zeros(game.count))


def test_a_sound_mechanism_passes():
    testing.check_mechanism(shared_out, ["budget", "rationality"], every=True, max_examples=10)
    testing.check_mechanism(
        lambda game, budget: np.zeros(game.count), ["manipulation"], max_examples=3, max_clients=3
    )
    testing.check_mechanism(
        shared_out, ["retention"], outside=lambda game: np.full(game.count, -np.inf), max_examples=5
    )


@pytest.mark.parametrize(
    ("mechanism", "name", "words"),
    [
        (spendthrift, "budget", "spends"),
        (blackmail, "rationality", "doing nothing gives"),
        (shared_out, "manipulation", "of its cost by reporting"),
        (shared_out, "retention", "inside and"),
    ],
)
def test_an_unsound_mechanism_is_found_out(unshrunk, mechanism, name, words):
    options = {"outside": lambda game: game.costs} if name == "retention" else {}
    with pytest.raises(AssertionError, match=words) as caught:
        testing.check_mechanism(mechanism, [name], max_examples=30, max_clients=3, **options)
    assert "sf.StackelbergGame(" in "\n".join(caught.value.__notes__)


def test_what_a_mechanism_returns_may_be_a_solution():
    game = sf.catalog.three_equilibria().game

    def solve(game, budget):
        return game.solve(budget, method="haipo")

    budget = 0.1 * game.full_participation_price
    testing.assert_within_budget(solve, game, budget)
    testing.assert_individually_rational(solve, game, budget)
    with pytest.raises(sf.InputError, match="properties"):
        testing.check_mechanism(solve, ["thrift"])
    with pytest.raises(sf.InputError, match="outside"):
        testing.check_mechanism(solve, ["retention"])


def test_a_property_may_be_named_alone_and_an_outside_utility_be_a_number():
    def share(game, budget):
        return game.costs * min(1.0, budget / game.costs.sum())

    testing.check_mechanism(share, "budget", max_examples=3)
    testing.check_mechanism(share, "retention", outside=-1e6, max_examples=3)
    with pytest.raises(sf.InputError, match=r"caps: is not an option of games.*testing\.caps"):
        testing.check_mechanism(share, caps=True)


def test_payments_of_the_wrong_length_are_called_that():
    with pytest.raises(AssertionError, match="one number per remaining client"):
        testing.check_mechanism(lambda game, budget: np.ones(game.count + 1), "budget", max_examples=3)
