"""The widest gap of a certificate: relative to the objective that was reached too, and never met by a bound that says nothing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stackfu as sf
from stackfu.demo import digits_game
from stackfu.judging.gaps import GapRule, known_bound
from stackfu.judging.plan import plan_gap_rule
from stackfu.judging.solution_check import promised_gap

POSITIVE = st.floats(1e-9, 1e9)


@given(st.floats(0, 10), POSITIVE, POSITIVE, st.floats(0, 1))
def test_no_bound_that_is_known_beforehand_closes_a_gap(relative, reference, objective, share):
    known = share * objective
    widest = GapRule(relative, reference, 0.0, known)(objective)
    assert widest <= relative * reference
    assert widest <= relative * objective
    assert widest < objective - known or widest <= 1e-6 * objective


@given(st.floats(0, 10), POSITIVE, POSITIVE, POSITIVE)
def test_what_has_to_be_proved_falls_as_the_objective_falls(relative, reference, one, other):
    """So a region that was closed stays closed when something better is found."""
    rule = GapRule(relative, reference, 1e-12)
    low, high = sorted((one, other))
    assert low - rule(low) <= (high - rule(high)) * (1 + 1e-12) + 1e-12


def test_objectives_within_the_resolution_are_equal():
    rule = GapRule(1e-3, 1.0, 1e-12)
    assert rule(0.0) == rule(1e-12) == 1e-12
    assert GapRule(1e-12, 1e-3, 1e-12)(0.0) == 1e-15


@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.3, 2.0), (1.0, 0.0)])
def test_the_known_bound_is_the_least_loss_of_any_embedding(weights):
    game = digits_game().replace(lambda_v=weights[0], lambda_s=weights[1])
    bound = known_bound(game, sf.Objective())
    gram, sizes = game.embeddings.gram, game.all_sizes
    original = sizes / sizes.sum()
    remaining = np.where(np.isin(np.arange(len(sizes)), game.remaining), sizes, 0.0)
    remaining = remaining / remaining.sum()
    between = (game.lam_v * remaining + game.lam_s * original) / (game.lam_v + game.lam_s)
    loss = sum(
        w * float((between - t) @ gram @ (between - t))
        for w, t in ((game.lam_v, remaining), (game.lam_s, original))
    )
    assert bound == pytest.approx(loss, rel=1e-6, abs=1e-15)
    assert known_bound(game, sf.Objective(loss_weight=0.0, payment_weight=1.0)) == 0.0


def test_files_that_claim_more_than_the_rule_are_refused(tmp_path):
    """Earlier versions compared the gap with the unpaid loss only."""
    game = digits_game()
    found = game.solve(5.0 * game.full_participation_price, max_nodes=1, gap=1e-2, progress=False)
    best = game.solve(0.9 * game.full_participation_price, gap=1e-3, progress=False)
    assert found.status is sf.Status.CERTIFIED
    reference = game.equilibrium().server_loss
    # just closed relative to the loss without payments, not to the smaller one that is reached
    wide = 0.9 * best.limits.gap * reference
    assert wide > promised_gap(best)
    claimed = replace(best, lower_bound=best.objective - wide)
    claimed.save(tmp_path / "old.json")
    check = sf.load(tmp_path / "old.json").verify()
    assert not check
    assert "CERTIFIED promises" in check.message
    honest = replace(claimed, status=sf.Status.GAP_OPEN)
    assert honest.verify(), honest.verify().message


@pytest.mark.parametrize("offers", ["linear", "capped"])
def test_certified_objectives_far_below_the_unpaid_one_have_a_bound_beside_them(offers):
    """Noise makes the unpaid objective enormous where hardly any data is used without payments."""
    game = digits_game().replace(cost_scale=50.0)
    unpaid = game.equilibrium()
    price = game.full_participation_price
    found = game.solve(
        0.8 * price, offers=offers, finite_sample=True, gap=1e-2, max_nodes=3000, progress=False
    )
    reference = game.loss_of(unpaid.profile, True)
    assert found.objective < 0.3 * reference
    if found.status is sf.Status.CERTIFIED:
        assert found.lower_bound >= 0.99 * found.objective
    assert found.verify(), found.verify().message
    empty = replace(found, status=sf.Status.CERTIFIED, lower_bound=0.0, limits=replace(found.limits, gap=0.5))
    assert not empty.verify()


def test_the_rule_of_plans_is_the_one_of_payments():
    game = digits_game(sampling_constant=30.0)
    goal = sf.Objective(budget=0.06)
    found = game.solve(0.06, gap=1e-3, progress=False)
    assert plan_gap_rule(game, goal, 1e-3)(found.objective) == pytest.approx(promised_gap(found))


def test_an_answer_without_the_proof_that_was_asked_for_is_no_success():
    game = digits_game(sampling_constant=30.0)
    for offers in ("capped", "contract"):
        found = game.solve(0.06, offers=offers, min_total=0.2, gap=1e-9, max_nodes=2, progress=False)
        assert not found.status.proved
        assert not found.status.success
        assert found.status is not sf.Status.CONVERGED
        with pytest.raises(sf.ConvergenceError):
            found.raise_for_status()
