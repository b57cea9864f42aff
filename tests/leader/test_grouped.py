"""One price per sample for each group: played by the real members, within the budget, and what is refused."""

import numpy as np
import pytest

import stackfu as sf
from stackfu.leader.grouped import check_groups, game_of_groups
from stackfu.leader.uniform import best_price


def typed_game(seed=0, members=12, types=3, gram=False, **options):
    """Clients of a few types with members that differ in data, size and cost."""
    rng = np.random.default_rng(seed)
    kinds = np.arange(members * types + 2) % types
    points = 0.6 * rng.normal(size=(types, 3))[kinds] + 0.2 * rng.normal(size=(len(kinds), 3))
    sizes = rng.uniform(1.0, 4.0, len(kinds))
    costs = sizes[2:] / sizes[2:].sum() * np.exp(rng.normal(size=len(kinds) - 2))
    embeddings = (
        sf.MeanEmbeddings.from_gram(points @ points.T) if gram else sf.MeanEmbeddings.from_features(points)
    )
    game = sf.StackelbergGame(embeddings, sizes, [0, 1], costs=costs, **options)
    return game, kinds[2:], 0.05 * game.full_participation_price


def per_sample(solution, groups):
    rates = solution.payments / solution.game.sizes
    return [rates[groups == g] for g in np.unique(groups)]


@pytest.mark.parametrize("gram", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_one_price_per_sample_within_the_budget_of_the_real_members(seed, gram):
    game, kinds, budget = typed_game(seed, gram=gram)
    found = game.solve(budget, method="grouped", groups=kinds)
    for rates in per_sample(found, kinds):
        np.testing.assert_allclose(rates, rates[0], rtol=1e-12)
    played = game.equilibrium(found.payments)
    assert float(found.payments @ played.participation) <= budget * (1 + 1e-12)
    assert found.spend <= budget * (1 + 1e-12)
    assert found.verify(), found.verify().message
    bound = game.solve(budget, gap=1e-2).lower_bound
    assert bound <= found.server_loss


@pytest.mark.parametrize("seed", range(3))
def test_it_is_no_worse_than_one_price_per_sample_for_all(seed):
    game, kinds, budget = typed_game(seed)
    found = game.solve(budget, method="grouped", groups=kinds)
    _, profile, _, _ = best_price(game, budget, shape=np.array(game.sizes))
    assert found.server_loss <= game.loss_of(profile) * (1 + 1e-3)


def test_prices_of_the_game_of_the_groups_alone_overspend_and_these_do_not():
    """Groups as single clients would answer differently from their members."""
    over = []
    for seed in range(6):
        game, kinds, budget = typed_game(seed)
        of = check_groups(game, kinds)
        few = game_of_groups(game, of)
        rates = few.solve(budget, gap=1e-3).payments / few.sizes
        eq = game.equilibrium(rates[of] * game.sizes)
        over.append(eq.spend / budget)
        assert game.solve(budget, method="grouped", groups=kinds).spend <= budget * (1 + 1e-12)
    assert max(over) > 1.05


def test_the_game_of_the_groups_keeps_what_groups_can_keep():
    game, kinds, _ = typed_game(1)
    other, _, _ = typed_game(1, gram=True)
    of = check_groups(game, kinds)
    few, same = game_of_groups(game, of), game_of_groups(other, of)
    assert few.count == 3
    assert few.costs.sum() == pytest.approx(game.costs.sum())
    assert few.all_sizes.sum() == pytest.approx(game.all_sizes.sum())
    # full participation is the same mixture either way
    assert few.server_loss(np.ones(3)) == pytest.approx(game.server_loss(np.ones(game.count)))
    assert same.server_loss([1.0, 0.2, 0.5]) == pytest.approx(few.server_loss([1.0, 0.2, 0.5]))
    aim = np.zeros(len(game.all_sizes))
    aim[2:6] = 0.25
    own = game.replace(server_loss=sf.ServerLoss.to_mixtures([aim], [1.0]))
    mine = game_of_groups(own, of).loss.targets[0].values
    np.testing.assert_allclose(mine, np.bincount(np.append([0, 0], of + 1), weights=aim))


def test_labels_may_be_words_and_one_group_is_one_price(tmp_path):
    game, kinds, budget = typed_game(2)
    words = ["phone" if k == 0 else "laptop" for k in kinds]
    found = game.solve(budget, method="grouped", groups=words)
    assert "2 groups" in found.message
    found.save(tmp_path / "grouped.json")
    back = sf.load(tmp_path / "grouped.json")
    assert list(back.options["groups"]) == words
    assert back.verify(), back.verify().message
    alone = game.solve(budget, method="grouped", groups=np.zeros(game.count, dtype=int))
    rates = alone.payments / game.sizes
    np.testing.assert_allclose(rates, rates[0])


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (None, "groups"),
        ("abc", "must be a list of labels"),
        ([1, 2], "needs 36 labels"),
        ([0] * 35 + [None], r"groups.*client 37"),
        ([0.0] * 35 + [float("nan")], r"groups.*client 37"),
        ([[1]] + [0] * 35, "groups"),
    ],
)
def test_what_is_refused_names_the_argument_and_the_client(groups, message):
    game, _, budget = typed_game()
    with pytest.raises(sf.InputError, match=message):
        game.solve(budget, method="grouped", groups=groups)


def test_groups_are_an_option_of_this_method_only():
    game, kinds, budget = typed_game()
    with pytest.raises(sf.InputError, match="groups: is not an option"):
        game.solve(budget, groups=kinds)
    with pytest.raises(sf.InputError, match="needs a budget"):
        game.solve(method="grouped", groups=kinds)
