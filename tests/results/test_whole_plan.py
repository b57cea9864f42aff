"""Plans in whole samples: as near as whole samples can be, within the budget, with the spend and the loss of exactly those."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stackfu as sf
from stackfu.demo import digits_game
from stackfu.leader.capped.capped_offers import plan_equilibrium
from stackfu.model.offers import Offers, capped_offers
from stackfu.results.whole_plan import whole_counts

SEEDS = st.integers(0, 2**32 - 1)


def posted(game, x, budget=np.inf, min_total=0.0, finite_sample=False):
    """Capped offers for a plan as a solution that claims nothing."""
    offers = capped_offers(game, game.profile(x))
    goal = sf.Objective(budget=budget, min_total=min_total, finite_sample=finite_sample)
    eq = plan_equilibrium(game, offers)
    loss = game.loss_of(game.profile(x), finite_sample)
    return sf.Solution(
        game, budget, offers.prices, eq, sf.Status.GAP_OPEN, "certified", loss, -np.inf, goal, posted=offers
    )


def random_plan(seed, count=3, **options):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count + 1, 2))
    rows = rows / (2.0 * np.linalg.norm(rows, axis=1).max())
    sizes = rng.integers(1, 6, size=count + 1) + rng.choice([0.0, 0.5], size=count + 1)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(rows), sizes, removed=[0], cost_scale=2.0, **options
    )
    x = rng.uniform(0, 1, size=count) * rng.choice([0.0, 1.0, 1.0], size=count)
    x[rng.integers(count)] = rng.choice([0.7, 1.0])
    return game, x


@settings(max_examples=80, deadline=None)
@given(SEEDS)
def test_no_whole_samples_of_the_same_total_are_nearer_to_the_plan(seed):
    game, x = random_plan(seed)
    counts, wanted = whole_counts(posted(game, x)), game.sizes * x
    assert np.all(np.abs(counts - wanted) < 1)
    assert np.all((counts >= 0) & (counts <= game.sizes))
    # sizes that are not whole may leave no room for the rounded total
    assert abs(counts.sum() - wanted.sum()) <= 0.5 + 1e-9 or np.any(game.sizes % 1)
    grid = itertools.product(*(range(int(np.floor(n)) + 1) for n in game.sizes))
    rivals = [np.array(c) for c in grid if sum(c) == counts.sum()]
    least = min(np.abs(c - wanted).sum() for c in rivals)
    assert np.abs(counts - wanted).sum() == pytest.approx(least, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.floats(0.0, 1.0))
def test_a_budget_that_the_plan_keeps_is_kept_in_whole_samples(seed, slack):
    game, x = random_plan(seed)
    spend = posted(game, x).spend
    whole = posted(game, x, budget=spend * (1 + slack)).whole_samples()
    assert whole.spend <= spend * (1 + slack) * (1 + 1e-12) + 1e-300
    assert not any("budget" in text for text in whole.broken)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.booleans())
def test_spend_and_loss_are_those_of_the_definitions(seed, finite_sample):
    game, x = random_plan(seed)
    s = posted(game, x, finite_sample=finite_sample)
    whole = s.whole_samples()
    if not whole.total:
        assert whole.broken == ("no client brings a whole sample",)
        assert np.isnan(whole.server_loss)
        assert whole.summary()["server_loss"] is None
        return
    gram, sizes, keep = game.embeddings.gram, game.all_sizes, list(game.remaining)
    used = np.zeros(len(sizes))
    used[keep] = whole.counts
    mixture = used / used.sum()
    remaining = np.zeros(len(sizes))
    remaining[keep] = sizes[keep] / sizes[keep].sum()
    loss = 0.0
    for weight, target in ((game.lam_v, remaining), (game.lam_s, sizes / sizes.sum())):
        loss += weight * float((mixture - target) @ gram @ (mixture - target))
    assert whole.server_loss == pytest.approx(loss, rel=1e-9, abs=1e-15)
    noise = (game.lam_v + game.lam_s) * float(mixture[keep] @ game.sampling_noise) / whole.total
    assert whole.objective == pytest.approx(loss + (noise if finite_sample else 0.0), rel=1e-9, abs=1e-15)
    assert whole.spend == pytest.approx(float(s.offers.prices @ (whole.counts / game.sizes)), rel=1e-12)
    assert whole.error < 1e-9


def test_a_floor_is_kept_where_a_sample_more_keeps_it():
    emb = sf.MeanEmbeddings.from_features(np.array([[0.5, 0.0], [0.0, 0.5], [0.4, 0.4]]))
    game = sf.StackelbergGame(emb, [3, 10, 10], removed=[0], sampling_constant=1.0)
    s = posted(game, np.array([0.52, 0.52]), min_total=0.51)
    assert s.whole_samples().total == 11  # 10.4 samples would be rounded to 10, and 10.2 are asked for
    assert s.whole_samples()


def test_what_is_broken_is_said():
    emb = sf.MeanEmbeddings.from_features(np.array([[0.5, 0.0], [0.0, 0.5], [0.4, 0.4]]))
    game = sf.StackelbergGame(emb, [3, 10, 10], removed=[0], sampling_constant=1.0)
    s = posted(game, np.array([0.52, 0.52]), min_total=0.51)
    whole = replace(s, goal=replace(s.goal, max_loss=1e-9), budget=np.inf).whole_samples()
    assert not whole
    assert "above the largest one allowed" in whole.broken[0]
    assert whole.broken[0] in repr(whole)
    assert whole.broken[0] in whole._repr_html_()


def test_retainers_are_part_of_the_spend():
    game = digits_game(sampling_constant=30.0)
    s = posted(game, np.full(7, 0.5))
    kept = np.full(7, 0.25)
    offers = Offers("capped", s.offers.prices, s.offers.caps, kept)
    with_retainers = replace(s, posted=offers, equilibrium=replace(s.equilibrium, retainers=kept))
    more = with_retainers.whole_samples().spend - s.whole_samples().spend
    assert more == pytest.approx(kept.sum())


def test_frames_and_pages_show_whole_numbers():
    whole = posted(digits_game(sampling_constant=30.0), np.full(7, 0.3)).whole_samples()
    frame = whole.to_pandas()
    assert frame["samples"].tolist() == whole.counts.tolist()
    assert frame["receives"].sum() == pytest.approx(whole.spend)
    assert f"{whole.total} whole samples" in whole._repr_html_()


# ---------------------------------------------------------------- cautions


def tiny(share):
    game = digits_game(sampling_constant=30.0)
    return posted(game, np.full(7, share))


def test_plans_of_less_than_a_sample_each_are_pointed_out_everywhere():
    s = tiny(1e-5)
    assert s.samples_used == pytest.approx(0.01228)
    (text,) = s.cautions
    assert "uses 0.0123 samples of 7 clients in all, less than one each" in text
    assert text in s.summary()["cautions"]
    assert "Caution: the plan uses 0.0123 samples" in s._repr_html_()
    assert "samples=0.0123" in repr(s)
    assert tiny(0.5).cautions == []
    assert "Caution" not in tiny(0.5)._repr_html_()


def test_solve_warns_of_tiny_plans_and_of_stated_floors(recwarn):
    game = digits_game().replace(cost_scale=1e6)  # costs in another unit than the budget
    with pytest.warns(sf.StackfuWarning, match=r"less than one each.*compare the units"):
        found = game.solve(0.06, progress=False)
    assert found.status is sf.Status.CERTIFIED
    game = digits_game()
    with pytest.warns(sf.StackfuWarning, match=r"fewer than 1e\+06|fewer than 1000000"):
        game.solve(0.06, "uniform", warn_below=1e6)
    with pytest.warns(sf.StackfuWarning, match="1 of 2 budgets buy too little"):
        game.frontier([0.0, 5.0], warn_below=300, gap=1e-2, progress=False)
    recwarn.clear()
    game.solve(0.06, "uniform")
    assert not [w for w in recwarn if issubclass(w.category, sf.StackfuWarning)]


@pytest.mark.parametrize("value", [-1.0, float("nan"), "many"])
def test_floors_that_are_no_numbers_are_refused_before_work_starts(value):
    with pytest.raises(sf.InputError, match="warn_below"):
        digits_game().solve(0.06, warn_below=value)


def test_clients_with_few_samples_are_pointed_out_where_their_noise_counts():
    rng = np.random.default_rng(0)
    data = {name: rng.normal(size=(n, 2)) for name, n in (("Ely", 9), ("York", 1), ("Hull", 3), ("Bath", 30))}
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_samples(data, 1.0), removed=["Ely"])
    s = posted(game, np.ones(3), finite_sample=True)
    alone, few = s.cautions
    assert alone.startswith("client York has a single sample")
    assert few.startswith("client Hull has fewer than 5 samples")
    assert posted(game, np.ones(3)).cautions == []
