"""Solver against solver: path, sweeps, brute force; the price; certified against a grid."""

import itertools

import numpy as np
import pytest
from effort import share
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import stackfu as sf
from stackfu import testing
from stackfu.judging.stakes import check_stakes
from stackfu.results import Uniqueness


def brute_force(game, payments):
    """Equilibria by trying every assignment of clients to out, inside and full, with Newton from many starts.

    Only isolated equilibria with a regular system are found; small games only.
    """
    gram, alpha, w = game.geometry.gram, game.alpha, game.reluctance(payments)
    found = []
    for places in itertools.product((0, 1, 2), repeat=game.count):
        inside = [k for k, place in enumerate(places) if place == 1]
        base = np.where(np.array(places) == 2, alpha, 0.0)
        if not inside:
            candidates = [base] if base.any() else []
        else:
            candidates = []
            for level in (0.02, 0.1, 0.3, 0.6, 0.9):
                y = base.copy()
                y[inside] = level * alpha[inside]
                for _ in range(60):
                    s = y.sum()
                    if not np.isfinite(s) or s <= 1e-12:
                        break
                    m = gram @ y / s
                    d2 = np.diag(gram) - 2 * m + y @ m / s
                    g = (d2 - s * w)[inside]
                    cross = gram - m[:, None] - m[None, :] + y @ m / s
                    jacobian = -2 * cross[np.ix_(inside, inside)] / s - w[inside][:, None]
                    try:
                        step = np.linalg.solve(jacobian, g)
                    except np.linalg.LinAlgError:
                        break
                    size = min(1.0, 0.5 * float(np.min(alpha[inside])) / max(np.abs(step).max(), 1e-300))
                    y[inside] -= max(size, 0.05) * step
                    if np.abs(step).max() < 1e-15:
                        break
                candidates.append(y)
        for y in candidates:
            x = y / alpha
            if np.isfinite(x).all() and (x >= -1e-12).all() and (x <= 1 + 1e-12).all() and x.sum() > 0:
                x = np.clip(x, 0, 1)
                if game.residual(payments, x) < 1e-10 and all(np.abs(x - f).max() > 1e-6 for f in found):
                    found.append(x)
    return found


@share(0.5)
@given(testing.plays(max_clients=3, max_removed=0, twins=False))
def test_path_misses_nothing_that_brute_force_finds(play):
    game, p, _ = play
    found = game.equilibria(p)
    assume(found.complete and found.uniqueness in (Uniqueness.UNIQUE, Uniqueness.MULTIPLE))
    for x in brute_force(game, p):
        nearest = min(np.abs(game.alpha * (e.participation - x)).sum() for e in found)
        assert nearest <= 1e-6 * max(game.alpha @ x, 1e-9), (x, [e.participation for e in found])


@given(testing.plays())
def test_path_finds_equilibria_that_survive_an_independent_check(play):
    game, p, _ = play
    found = game.equilibria(p)
    assert len(found) >= 1
    for eq in found:
        assert eq.verify(), eq.verify().message
    assert list(found) == sorted(found, key=lambda e: e.total)
    if found.complete and found.uniqueness is Uniqueness.UNIQUE:
        assert len(found) == 1


@given(testing.plays())
def test_sweeps_agree_with_the_path(play):
    game, p, x = play
    sweeps = game.equilibrium(p, method="sweeps", start=x)
    assume(sweeps.status.success)  # too many failures would fail the test as unsatisfiable
    assert sweeps.verify(1e-7)
    found = game.equilibria(p)
    if found.complete and found.uniqueness in (Uniqueness.UNIQUE, Uniqueness.MULTIPLE):
        nearest = min(abs(e.total - sweeps.total) for e in found)
        assert nearest <= 1e-5 * sweeps.total


@share(0.5)
@given(testing.plays(max_clients=5))
def test_qp_agrees_with_the_path(play):
    game, p, _ = play
    qp = game.equilibrium(p, method="qp")
    found = game.equilibria(p)
    assume(qp.status.success and found.complete and found.uniqueness is Uniqueness.UNIQUE)
    assert qp.total == pytest.approx(found[0].total, rel=1e-6)


@given(testing.plays())
def test_cheapest_payments_induce_the_profile_and_no_payment_can_be_lowered(play):
    """price -> equilibrium conditions; each paid client strictly needs its payment."""
    game, _, x = play
    try:
        p = game.payments_for(x)
    except sf.NotInducibleError as error:
        # the named clients would join for free
        g = game.inclination(None, x)
        for k in error.clients:
            place = int(np.flatnonzero(game.remaining == k)[0])
            assert x[place] < 1
            assert g[place] > 0
        return
    profile = game.profile(x)
    assert check_stakes(game, p, x).max() <= 1e-9
    assert np.all(p[x == 0] == 0)
    bracket = game.kappa - 2 * game.lam * profile.to_clients / profile.total
    assert p @ x == pytest.approx(profile.y @ np.maximum(bracket, 0), rel=1e-9, abs=1e-12)
    for k in np.flatnonzero(p > 1e-6 * game.costs):
        less = np.array(p)
        less[k] *= 0.9
        assert game.inclination(less, x)[k] < 0  # it would now rather take part less


@given(testing.plays())
def test_full_participation_price_is_what_it_takes(play):
    game, _, _ = play
    ones = np.ones(game.count)
    p = game.payments_for(ones)
    assert game.full_participation_price == pytest.approx(p.sum())
    assert check_stakes(game, p, ones).max() <= 1e-9
    d2 = game.geometry.mixture(game.alpha).to_clients
    assert p == pytest.approx(np.maximum(game.costs - 2 * game.lam * game.alpha * d2, 0), abs=1e-15)


@settings(max_examples=max(4, settings.default.max_examples // 10))
@given(st.data())
def test_certified_beats_every_profile_of_a_grid(data):
    game = data.draw(testing.games(min_clients=2, max_clients=3, max_removed=1, twins=False))
    budget = data.draw(testing.budgets(game))
    solution = game.solve(budget, gap=1e-5)
    assert solution.spend <= budget * (1 + 1e-9) + 1e-15
    unit = (game.lam_v + game.lam_s) * game.geometry.scale
    assert solution.lower_bound <= solution.objective + 1e-9 * unit
    steps = [0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
    for x in itertools.product(steps, repeat=game.count):
        if not any(x):
            continue
        try:
            p = game.payments_for(x)
        except sf.NotInducibleError:
            continue
        if p @ np.array(x) <= budget:
            assert game.server_loss(x) >= solution.lower_bound - 1e-9 * unit
            if solution.status.proved:
                assert game.server_loss(x) >= solution.server_loss - 2e-5 * unit - 1e-5 * solution.server_loss


@settings(max_examples=max(4, settings.default.max_examples // 10))
@given(testing.games(min_clients=2, max_clients=3, max_removed=1))
def test_baselines_stay_within_the_budget_and_above_the_bound(game):
    budget = 0.3 * game.full_participation_price
    assume(budget > 0)
    bound = game.solve(budget, gap=1e-4).lower_bound
    unit = (game.lam_v + game.lam_s) * game.geometry.scale
    for method in ("haipo", "uniform"):
        solution = game.solve(budget, method=method)
        assert solution.spend <= budget * (1 + 1e-9)
        assert solution.server_loss >= bound - 1e-9 * unit


@given(testing.plays(below_cost=True))
def test_no_equilibrium_lies_above_the_largest_total(play):
    """Every participant has S w_k <= d_k^2, and no mixture is further away than the furthest client."""
    game, payments, _ = play
    w = game.reluctance(payments)
    assume((w > 0).all() and not game.is_homogeneous)
    most = (game.geometry.pairwise.max(axis=1) / w).max()
    for eq in game.equilibria(payments):
        assert eq.total <= most * (1 + 1e-9)
