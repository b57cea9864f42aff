"""The server's loss as a value: any weighted sum of squared distances, through the whole certified path."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leader_games import random_game

import stackfu as sf
from stackfu.model.losses import Target


def test_a_subclass_cannot_get_a_certificate_for_another_problem():
    with pytest.raises(TypeError, match="server_loss"):

        class Other(sf.StackelbergGame):
            def server_loss(self, participation):
                return 0.0

    with pytest.raises(TypeError, match="alpha"):

        class Another(sf.StackelbergGame):
            alpha = None

    class Beside:
        def server_loss(self, participation):
            return 0.0

    with pytest.raises(TypeError, match="server_loss"):

        class Mixed(Beside, sf.StackelbergGame):
            pass

    with pytest.raises(TypeError, match="getattribute"):

        class Sly(sf.StackelbergGame):
            def __getattribute__(self, name):
                return 0.0

    class Named(sf.StackelbergGame):  # what is not a formula may be added
        owner = "somebody"

    game, _ = random_game(0, 4)
    assert Named(game.embeddings, game.all_sizes, game.removed).owner == "somebody"
    with pytest.raises(AttributeError, match="immutable"):
        game.server_loss = lambda x: 0.0


def another_game(cls=sf.StackelbergGame, seed=0):
    game, _ = random_game(seed, 4)
    return cls(game.embeddings, game.all_sizes, game.removed, costs=game.costs)


def test_private_formulas_and_comparisons_belong_to_the_library_too():
    for name in ("_suffered", "_sampling_penalty", "_prices", "_alpha", "__eq__", "__setattr__"):
        with pytest.raises(TypeError, match=name):
            type("Other", (sf.StackelbergGame,), {name: lambda self, *rest: 0.0})


def test_a_class_that_is_changed_behind_the_library_s_back_gets_no_game():
    class Silent(sf.StackelbergGame):
        def __init_subclass__(cls):
            pass

    class Other(Silent):
        def loss_of(self, profile, sampling=False):
            return 0.0

    with pytest.raises(TypeError, match="loss_of"):
        another_game(Other)

    class Later(sf.StackelbergGame):
        pass

    Later.loss_of = lambda self, profile, sampling=False: 0.0
    with pytest.raises(TypeError, match="loss_of"):
        another_game(Later)


def test_a_game_that_is_changed_afterwards_is_neither_solved_nor_verified():
    class Later(sf.StackelbergGame):
        pass

    game = another_game(Later)
    best, plan = game.solve(0.1, progress=False), game.solve(0.1, "uniform", offers="contract")
    assert best.verify()
    Later.loss_of = lambda self, profile, sampling=False: 0.0
    for call in (lambda: game.solve(0.1), best.verify, best.equilibrium.verify, plan.verify):
        with pytest.raises(TypeError, match="loss_of"):
            call()
    del Later.loss_of
    game.__dict__["server_loss"] = lambda x: 0.0
    for call in (lambda: game.solve(0.1), best.verify):
        with pytest.raises(TypeError, match="server_loss"):
            call()


class Loss(sf.ServerLoss):
    """Of which a file, and what is solved from it, would know nothing."""

    @property
    def weight(self):
        return 100.0


class Nearby(Target):
    """The same."""


def points_and_game(seed, count=6, width=3, **options):
    rng = np.random.default_rng(seed)
    points, sizes = rng.normal(size=(count, width)), rng.integers(1, 9, size=count)
    emb = sf.MeanEmbeddings.from_features(points)
    return points, sf.StackelbergGame(emb, sizes, (0,), costs=rng.uniform(0.2, 3.0, count - 1), **options)


@pytest.mark.parametrize("width", [2, 9])  # rows kept as rows, rows turned into inner products
@pytest.mark.parametrize("seed", range(5))
def test_value_is_the_sum_of_squared_distances(seed, width):
    rng = np.random.default_rng(100 + seed)
    mixtures = rng.dirichlet(np.ones(6), size=2)
    rows = rng.normal(size=(2, width))
    targets = (
        *sf.ServerLoss.to_mixtures(mixtures, [1.0, 1.0]).targets,
        *sf.ServerLoss.to_points(rows, [1.0, 1.0]).targets,
        Target("remaining"),
    )
    weights = tuple(rng.uniform(0.0, 2.0, 5))
    points, game = points_and_game(seed, width=width, server_loss=sf.ServerLoss(targets, weights))
    for x in rng.uniform(size=(5, 5)):
        m = (game.alpha * x) @ points[1:] / (game.alpha @ x)
        places = [*(mixtures @ points), *rows, game.alpha @ points[1:]]
        expected = sum(w * ((m - t) ** 2).sum() for w, t in zip(weights, places, strict=True))
        assert game.server_loss(x) == pytest.approx(expected, rel=1e-12)
        weight, pull, square = game.loss_centre
        z, square_m = game.profile(x).mixture, game.profile(x).distances.to_remaining
        assert weight * (square_m - 2.0 * pull @ z + square) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("seed", range(4))
def test_inner_products_know_mixtures_too(seed):
    rng = np.random.default_rng(seed)
    loss = sf.ServerLoss.to_mixtures(rng.dirichlet(np.ones(6), size=2), [0.4, 1.3])
    _, game = points_and_game(seed, server_loss=loss)
    other = sf.StackelbergGame(
        sf.MeanEmbeddings.from_gram(game.embeddings.gram),
        game.all_sizes,
        (0,),
        costs=game.costs,
        server_loss=loss,
    )
    x = rng.uniform(size=5)
    assert game.server_loss(x) == pytest.approx(other.server_loss(x), rel=1e-9)


@given(st.floats(0.0, 3.0), st.floats(0.0, 3.0), st.integers(0, 50))
def test_the_paper_in_other_words_is_the_paper(lam_v, lam_s, seed):
    _, paper = points_and_game(seed, lambda_v=lam_v, lambda_s=lam_s)
    remaining = np.where(np.arange(6) == 0, 0.0, paper.all_sizes)
    same = sf.ServerLoss.to_mixtures(
        [remaining / remaining.sum(), paper.all_sizes / paper.all_sizes.sum()], [lam_v, lam_s]
    )
    own = paper.replace(server_loss=same, lambda_v=1.0, lambda_s=1.0)
    x = np.random.default_rng(seed).uniform(0.01, 1.0, 5)
    assert own.server_loss(x) == pytest.approx(paper.server_loss(x), rel=1e-9, abs=1e-12)
    assert own.has_paper_loss is False


@pytest.mark.parametrize("seed", range(6))
def test_own_objective_is_certified_and_nothing_beats_it(seed):
    """The whole certified path with targets of one's own, against random search through the price formula."""
    rng = np.random.default_rng(seed)
    loss = sf.ServerLoss.to_points(rng.normal(size=(2, 3)), [1.0, 0.5])
    _, game = points_and_game(seed, server_loss=loss)
    budget = 0.2 * game.full_participation_price
    best = game.solve(budget)
    assert best.verify(), best.verify().message
    for method in ("haipo", "uniform"):
        assert game.solve(budget, method=method).server_loss >= best.lower_bound * (1 - 1e-9)
    found = np.inf
    for x in rng.uniform(size=(2000, 5)) ** rng.choice([0.2, 1.0, 4.0], size=(2000, 1)):
        try:
            payments = game.payments_for(x)
        except sf.NotInducibleError:
            continue
        if payments @ x <= budget:
            found = min(found, game.server_loss(x))
    assert found >= best.lower_bound * (1 - 1e-9)


def test_own_objective_survives_files_and_editing(tmp_path):
    loss = sf.ServerLoss.to_mixtures([[0.1, 0.2, 0.3, 0.2, 0.1, 0.1]], [2.0])
    _, game = points_and_game(3, server_loss=loss)
    for name in ("game.json", "game.npz"):
        game.save(tmp_path / name)
        back = sf.load(tmp_path / name)
        assert back == game
        assert back.loss == loss
    assert game.replace(lambda_q=2.0).loss == loss
    assert game != game.replace(server_loss=sf.ServerLoss.to_mixtures(loss.targets[0].values, [1.0]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sf.ServerLoss.to_mixtures([[0.5, 0.4]], [1.0]), "of a mixture must sum to 1"),
        (lambda: Target("mixture", (0.0, 0.6, 0.6)), "of a mixture must sum to 1"),
        (lambda: Target("mixture", (np.nan, 1.0)), "values = nan: must be finite"),
        (lambda: Target("mixture", (np.inf, 1.0)), "values = inf: must be finite"),
        (lambda: Target("point", ("0.5",)), "must be a sequence of numbers"),
        (lambda: Target("point", (1j,)), "must be a sequence of numbers"),
        (lambda: Target("point"), "must be one number per feature"),
        (lambda: Target("remaining", (5.0,)), 'left out where the kind is "remaining"'),
        (lambda: Target("original", (5.0,)), 'left out where the kind is "original"'),
        (lambda: Target(["mixture"]), "kind = .* is none of remaining"),
        (lambda: sf.ServerLoss((Nearby("remaining"),), (1.0,)), "targets = Nearby: entry 0 must be a Target"),
        (lambda: sf.ServerLoss(Target("remaining"), (1.0,)), "targets = .* must be a sequence"),
        (lambda: sf.ServerLoss((Target("remaining"),), (True,)), "weights = True: entry 0 must be a number"),
        (lambda: sf.ServerLoss((Target("remaining"),), (1.0 + 1j,)), "entry 0 must be a number"),
        (lambda: sf.ServerLoss((Target("remaining"),), (np.complex128(1.0),)), "entry 0 must be a number"),
        (lambda: sf.ServerLoss((Target("remaining"),), (np.nan,)), "entry 0 must be finite"),
        (
            lambda: sf.ServerLoss((Target("remaining"),), (1.0,), "no"),
            "sampling = 'no': must be True or False",
        ),
        (lambda: sf.ServerLoss.to_mixtures([[0.5, 0.5]], [1.0, 2.0]), "one number per target"),
        (lambda: sf.ServerLoss.to_mixtures([[0.5, 0.5]], [-1.0]), "entry 0 must be finite and not negative"),
        (lambda: sf.ServerLoss.to_points([[np.nan]], [1.0]), "must be finite"),
        (lambda: points_and_game(0, server_loss="paper"), "must be a ServerLoss"),
        (lambda: points_and_game(0, server_loss=Loss.of_paper(1.0, 1.0)), "not a class of your own"),
        (lambda: sf.ServerLoss((Target("median"),), (1.0,)), "is none of remaining, original"),
        (lambda: sf.ServerLoss((Target("remaining"),), ("1",)), "entry 0 must be a number"),
        (
            lambda: points_and_game(0, server_loss=sf.ServerLoss.to_mixtures([[0.5, 0.5]], [1.0])),
            "needs 6 shares",
        ),
        (
            lambda: points_and_game(0, server_loss=sf.ServerLoss.to_points([[0.5, 0.5]], [1.0])),
            "does not fit",
        ),
        (
            lambda: points_and_game(0, lambda_v=2.0, server_loss=sf.ServerLoss.of_paper(1.0, 1.0)),
            "has its own weights",
        ),
    ],
)
def test_losses_that_make_no_sense_are_refused(make, message):
    with pytest.raises(sf.InputError, match=message):
        make()


def test_losses_are_values_whatever_they_were_made_from():
    """Lists and arrays are copied: nothing that is changed later changes the loss, and equal ones are one key."""
    shares, weights = np.array([0.25, 0.75]), [np.float32(1.0)]
    loss = sf.ServerLoss([Target("mixture", shares)], weights)
    same = sf.ServerLoss((Target("mixture", (0.25, 0.75)),), (1.0,))
    shares[0], weights[0] = 9.0, 9.0
    assert loss == same
    assert hash(loss) == hash(same)


@given(st.lists(st.floats(-3.0, 3.0), min_size=1, max_size=9).filter(lambda v: abs(sum(v)) > 0.1))
def test_shares_are_made_whole_once(values):
    shares = np.array(values) / sum(values)
    once = Target("mixture", shares * (1.0 + 1e-10))
    assert Target("mixture", once.values) == once
    assert abs(math.fsum(once.values) - 1.0) <= 1e-15 * np.abs(once.values).sum()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("values", [0.0, 0.6, 0.6, 0.6, 0.0, 0.0], "sum to 1"),
        ("sampling", "no", "sampling"),
        ("weights", ["1"], "weights"),
    ],
)
def test_a_file_cannot_bring_a_loss_that_the_constructor_refuses(tmp_path, field, value, message):
    _, game = points_and_game(
        3, server_loss=sf.ServerLoss.to_mixtures([[0.0, 0.3, 0.3, 0.4, 0.0, 0.0]], [1.0])
    )
    game.save(tmp_path / "game.json")
    record = json.loads((tmp_path / "game.json").read_text())
    loss = record["server_loss"]
    (loss["targets"][0] if field == "values" else loss)[field] = value
    (tmp_path / "game.json").write_text(json.dumps(record))
    with pytest.raises(sf.StackfuError, match=message):
        sf.load(tmp_path / "game.json")


@given(seed=st.integers(0, 10**6), constant=st.floats(0.1, 10.0))
def test_the_finite_sample_term_is_the_servers_side_of_a_sampling_constant_only_where_samples_vary_alike(
    seed, constant
):
    rng = np.random.default_rng(seed)
    angles, radius, count = rng.uniform(0, 2 * np.pi, 4), rng.uniform(0.1, 1.0), int(rng.integers(1, 9))
    rows = radius * np.column_stack([np.cos(angles), np.sin(angles)])
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(rows, bandwidth=1.0),
        np.full(4, count),
        removed=[0],
        loss_constant=constant,
    )
    x = rng.uniform(0.1, 1.0, 3)
    variance = 1.0 if count == 1 else min(count / (count - 1) * (1 - radius**2), 1.0)
    thin = game.replace(sampling_constant=constant * variance)
    both = game.server_loss(x) + game.finite_sample_penalty(x)
    assert thin.server_loss(x) == pytest.approx(both, rel=1e-9)
    # the clients' side is another game: thin data require more of all clients
    assert (thin.best_response(None, x) >= game.best_response(None, x) - 1e-12).all()
    # one client whose samples vary more: no constant fits both of these profiles, equal in samples
    rows[1] *= 0.5
    uneven = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(rows, bandwidth=1.0), np.full(4, 1000), removed=[0]
    )
    first, second = uneven.finite_sample_penalty([1, 0, 0]), uneven.finite_sample_penalty([0, 1, 0])
    assert first > second


@pytest.mark.parametrize("offers", ["linear", "capped"])
def test_a_loss_with_the_sampling_term_is_optimised_with_it(offers):
    loss = sf.ServerLoss.to_mixtures([np.full(5, 0.2)], [1.0])
    points = np.random.default_rng(0).normal(size=(5, 3)) * 0.3
    plain = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points),
        np.full(5, 50),
        (0,),
        costs=[1.0, 1.2, 0.8, 1.1],
        server_loss=loss,
    )
    whole = plain.replace(server_loss=loss.with_sampling())
    asked = plain.solve(0.1, finite_sample=True, offers=offers, gap=1e-3)
    found = whole.solve(0.1, offers=offers, gap=1e-3)
    assert found.status is sf.Status.CERTIFIED
    assert found.goal.finite_sample
    assert found.objective == pytest.approx(asked.objective, rel=1e-9)
    assert found.server_loss == pytest.approx(found.objective, rel=1e-9)
    assert found.verify(), found.verify().message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"server_loss": sf.ServerLoss.to_points([[1e160, 0.0, 0.0]], [1.0])},
            "server_loss = .* target 0 is too far",
        ),
        (
            {"server_loss": sf.ServerLoss.to_points([[1e154, 0.0, 0.0]], [1.0])},
            "server_loss = .* target 0 is too far",
        ),
        (
            {"server_loss": sf.ServerLoss.to_points([[1.0, 0.0, 0.0]], [1e308])},
            "server_loss = .* weighs too much",
        ),
        ({"lambda_v": 1e308}, "lambda_v = 1e\\+308: is too large"),
        ({"lambda_v": 0.0, "lambda_s": 1e308}, "lambda_s = 1e\\+308: is too large"),
        (
            {"lambda_v": 1e10, "loss_constant": 1e300, "lambda_q": 1e-300},
            "lambda_v = 10000000000.0: is too large",
        ),
    ],
)
def test_a_loss_that_overflows_is_refused(changes, message):
    with pytest.raises(sf.InputError, match=message):
        points_and_game(0, **changes)


def test_a_large_loss_is_certified_like_any_other():
    loss = sf.ServerLoss.to_points([[1e150, 0.0, 0.0]], [1.0])
    _, game = points_and_game(0, server_loss=loss)
    found = game.solve(0.02, progress=False)
    assert found.status is sf.Status.CERTIFIED
    assert found.verify(), found.verify().message
