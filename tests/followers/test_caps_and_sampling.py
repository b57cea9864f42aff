"""Equilibria where not everything is taken (caps) and where the number of samples matters (a sampling constant)."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest
from follower_games import enumerate_supports, game_from, random_batch
from hypothesis import given
from hypothesis import strategies as st

import stackfu as sf
from stackfu import testing
from stackfu.followers import SearchOptions, find_equilibrium
from stackfu.judging.stakes import check_at_caps, check_stakes
from stackfu.model.offers import capped_offers

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"


def some_caps(rng, shape):
    """Caps that bind, caps that do not, and a few that are tiny."""
    return np.where(rng.random(shape) < 0.3, 1.0, rng.uniform(0.05, 1.0, shape) ** 2)


# ------------------------------------------------------------------ all of them


@pytest.mark.parametrize("clients", [2, 3, 4])
@pytest.mark.parametrize("sampling", [0.0, 1e-3, 0.3, 30.0])
@pytest.mark.parametrize("capped", [False, True])
def test_agrees_with_support_enumeration(clients, sampling, capped):
    rng = np.random.default_rng([71, clients, int(1000 * sampling), capped])
    for dimension in (1, clients + 1):
        points, alpha, w = random_batch(rng, 1500 if DEEP else 60, clients, dimension)
        caps = some_caps(rng, alpha.shape) if capped else None
        for b, expected in enumerate(enumerate_supports(points, alpha, w, caps, sampling)):
            game = game_from(points[b], alpha[b], w[b], sampling_constant=sampling)
            assert game.sampling == pytest.approx(sampling, rel=1e-12)
            found = game.equilibria(caps=None if caps is None else caps[b])
            assert found.complete, b
            assert len(found) == len(expected), b
            for equilibrium, y in zip(found, expected, strict=True):
                np.testing.assert_allclose(game.alpha * equilibrium.participation, y, atol=2e-7)
                assert equilibrium.status is sf.Status.CERTIFIED


def test_caps_can_bring_about_several_equilibria_and_take_them_away():
    """Two clients that exclude each other and one that is overpaid: two isolated equilibria and one between."""
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(np.array([[0.0], [1.0], [2.0]])),
        [1, 1000, 1000],
        costs=[1.0, 250.0, 1000.0 * 64.0 / 27.0],
    )
    payments = [10.0, 0.0, 0.0]
    assert len(game.equilibria(payments)) == 3
    same = game.equilibria(
        payments, caps=[1.0, 0.5, 0.25]
    )  # where they take part at all they bring a thousandth
    assert len(same) == 3
    assert same.uniqueness is sf.Uniqueness.MULTIPLE
    only = game.equilibria(payments, caps=[1.0, 0.5, 0.0])
    assert only.uniqueness is sf.Uniqueness.UNIQUE
    np.testing.assert_allclose(only[0].participation, [1.0, 1e-3, 0.0], rtol=1e-9)
    # samples matter so much that all clients join
    thick = game.replace(sampling_constant=1e6).equilibria(payments)
    assert thick.uniqueness is sf.Uniqueness.UNIQUE
    assert thick[0].total > 0.1


def test_caps_of_one_change_nothing():
    rng = np.random.default_rng(8)
    for _ in range(20):
        points, alpha, w = (v[0] for v in random_batch(rng, 1, 5, 4))
        game = game_from(points, alpha, w)
        plain, capped = game.equilibria(), game.equilibria(caps=np.ones(5))
        assert [e.participation.tolist() for e in plain] == [e.participation.tolist() for e in capped]
        assert all(e.caps is None for e in capped)


def test_those_of_whom_nothing_is_taken_only_look_on():
    """The game without them has the same equilibria: shares of the data that is left, costs per share, caps."""
    rng = np.random.default_rng(21)
    for sampling in (0.0, 2.0):
        for _ in range(15):
            points, alpha, w = (v[0] for v in random_batch(rng, 1, 6, 4))
            caps = some_caps(rng, 6)
            caps[[1, 4]] = 0.0
            game = sf.StackelbergGame(
                sf.MeanEmbeddings.from_features(points),
                alpha,
                costs=2 * alpha * w,
                sampling_constant=sampling,
            )
            keep = np.flatnonzero(caps > 0)
            # y and S are in units of all remaining data: a smaller federation makes them larger by the same factor
            share = alpha[keep].sum()
            fewer = sf.StackelbergGame(
                sf.MeanEmbeddings.from_features(points[keep]),
                alpha[keep],
                costs=(2 * alpha * w)[keep],
                sampling_constant=sampling,
            )
            found, known = game.equilibria(caps=caps), fewer.equilibria(caps=caps[keep])
            assert found.complete
            assert known.complete
            assert len(found) == len(known)
            for here, there in zip(found, known, strict=True):
                np.testing.assert_allclose(here.participation[keep], there.participation, atol=1e-9)
                assert not here.participation[[1, 4]].any()
                assert here.total == pytest.approx(share * there.total, rel=1e-9)


# ------------------------------------------------------------------ one of them, by every method


@pytest.mark.parametrize("sampling", [0.0, 0.5])
def test_all_methods_agree(sampling):
    rng = np.random.default_rng([3, int(sampling)])
    for i in range(12):
        N = int(rng.integers(3, 12))
        points, alpha, w = (v[0] for v in random_batch(rng, 1, N, 4 if i % 2 else N + 1))
        caps = some_caps(rng, N)
        caps[0] = 0.0
        make = sf.MeanEmbeddings.from_features if i % 3 else lambda p: sf.MeanEmbeddings.from_gram(p @ p.T)
        game = sf.StackelbergGame(
            make(points), alpha, costs=2 * alpha * w / alpha.sum(), sampling_constant=sampling
        )
        known = game.equilibria(caps=caps)
        if known.uniqueness is not sf.Uniqueness.UNIQUE:
            continue
        for method in ("path", "sweeps", "qp"):
            found = game.equilibrium(caps=caps, method=method)
            assert found.method == method
            assert found.status is sf.Status.CERTIFIED
            assert np.all(found.participation <= caps)
            np.testing.assert_allclose(found.participation, known[0].participation, atol=1e-8)
            np.testing.assert_array_equal(found.caps, caps)
            assert found.verify()
        *_, last = islice(game.dynamics(caps=caps, kind="sequential"), 300)
        assert game.residual(None, last, caps) < 1e-6


@pytest.mark.parametrize("sampling", [0.0, 1000.0])
def test_large_games_settle_below_their_caps(sampling):
    rng = np.random.default_rng(17)
    N = 4000
    points = rng.normal(size=(N, 6))
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points),
        rng.uniform(1, 9, N),
        costs=rng.exponential(size=N) * 20.0 / N,
        sampling_constant=sampling,
    )
    caps = some_caps(rng, N)
    caps[:100] = 0.0
    found = game.equilibrium(caps=caps)
    assert found.method == "sweeps"
    assert found.status is sf.Status.CERTIFIED
    assert np.all(found.participation <= caps)
    assert np.any(found.participation == caps)
    assert np.any((found.participation == 0) & (caps > 0))
    assert found.verify()


def test_everybody_at_its_cap_and_wanting_more_is_the_only_equilibrium_at_any_size():
    rng = np.random.default_rng(4)
    N = 3000
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(rng.normal(size=(N, 5))), np.ones(N), costs=np.full(N, 1.0 / N)
    )
    plan = rng.uniform(0.01, 0.05, N)
    offers = capped_offers(game, game.profile(plan))
    found = game.equilibrium(offers.prices + 1e-3 * game.costs, caps=offers.caps)
    np.testing.assert_array_equal(found.participation, plan)
    assert found.uniqueness is sf.Uniqueness.UNIQUE
    assert not check_at_caps(game, offers.prices * 0.99, np.ones(N))


# ------------------------------------------------------------------ the theorem, by enumeration


@given(testing.plays(interior=True, sampling="any"))
def test_a_plan_is_the_only_equilibrium_of_its_capped_offers(play):
    """Theorem 1: the plan is among the equilibria, and where it is the only one the enumeration says so.

    With a hair more than the brackets there is no exception, for whatever plan.
    """
    game, _, plan = play
    if game.is_homogeneous:
        return
    offers = capped_offers(game, game.profile(plan))
    assert float(check_stakes(game, offers.prices, plan, offers.caps).max()) < 1e-9
    more = offers.prices + 1e-6 * game.costs
    found = game.equilibria(more, caps=offers.caps)
    for equilibrium in found:
        np.testing.assert_allclose(equilibrium.participation, plan, atol=1e-6)
    if check_at_caps(game, more, offers.caps):
        assert found.uniqueness is sf.Uniqueness.UNIQUE
        assert found.complete
        np.testing.assert_array_equal(found[0].participation, plan)


@given(st.data())
def test_every_equilibrium_below_drawn_caps_is_one(data):
    """Edges on purpose: caps of nothing, everything and next to either, payments at thresholds, samples that matter or not."""
    game = data.draw(testing.games(max_clients=4, sampling="any"))
    payments, caps = data.draw(testing.payments(game)), data.draw(testing.caps(game))
    assert caps.min() >= 0
    assert 0 < caps.max() <= 1
    found = game.equilibria(payments, caps=caps)
    for equilibrium in found:
        assert equilibrium.status is sf.Status.CERTIFIED
        assert np.all(equilibrium.participation <= caps)
        assert equilibrium.verify()
    if game.sampling > 0:
        assert len(found) >= 1


# ------------------------------------------------------------------ a sampling constant


def test_with_a_sampling_constant_there_is_always_an_equilibrium():
    """All data alike and nobody paid its cost: without one nobody stays, with one the least reluctant bring sqrt(a / 2w)."""
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(np.zeros((3, 2))), [1, 1, 2], costs=[1.0, 3.0, 8.0]
    )
    with pytest.raises(sf.NoEquilibriumError):
        game.equilibrium()
    thick = game.replace(sampling_constant=0.25)
    found = thick.equilibria()
    assert found.uniqueness is sf.Uniqueness.UNIQUE
    assert found[0].status is sf.Status.CERTIFIED
    w = thick.reluctance()
    assert found[0].total == pytest.approx(np.sqrt(thick.sampling / (2 * w[0])), rel=1e-12)
    assert not found[0].participation[1:].any()
    full = thick.equilibrium(caps=[0.1, 0.2, 0.3])  # the first brings what it may, then the second
    assert full.participation[0] == 0.1
    assert full.verify()
    assert full.prove().check().exact


def test_equally_reluctant_clients_with_the_same_data_trade():
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(np.zeros((3, 2))),
        [1, 1, 2],
        costs=[1.0, 1.0, 9.0],
        sampling_constant=0.5,
    )
    found = game.equilibria()
    assert found.uniqueness is sf.Uniqueness.CONTINUUM
    face = found[0].face
    assert face.clients == (0, 1)
    assert face.dimension == 1
    for x in face.points:
        assert game.profile(x).total == pytest.approx(found[0].total, rel=1e-12)
        assert game.residual(None, x) < 1e-12


def test_only_one_client_may_take_part():
    game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(3)), [1, 1, 1], costs=[1.0, 1.0, 1.0])
    alone = [1.0, 0.0, 0.0]
    with pytest.raises(sf.NoEquilibriumError):
        game.equilibrium(caps=alone)
    paid = game.equilibrium([2.0, 0.0, 0.0], caps=alone)
    np.testing.assert_array_equal(paid.participation, alone)
    thick = game.replace(sampling_constant=0.5).equilibrium(caps=alone)
    assert thick.total == pytest.approx(np.sqrt(0.5 / 3 / (2 * 1.5)), rel=1e-12)


def test_more_weight_on_samples_brings_more_data():
    """t(s) + a / (2 s) rises with a at every s, so its largest zero and its smallest one move up, or stay on a vertical part."""
    rng = np.random.default_rng(2)
    for _ in range(8):
        points, alpha, w = (v[0] for v in random_batch(rng, 1, 6, 3))
        found = [
            game_from(points, alpha, 20 * w, sampling_constant=a).equilibria()
            for a in (0.0, 0.01, 0.1, 1.0, 10.0, 1e4)
        ]
        for end in (0, -1):
            totals = [each[end].total for each in found]
            assert all(b >= a * (1 - 1e-9) for a, b in pairwise(totals))
            assert totals[-1] > totals[0]


# ------------------------------------------------------------------ judges


def test_proofs_know_caps_and_the_sampling_constant():
    rng = np.random.default_rng(6)
    refused = 0
    for sampling in (0.0, 0.2):
        for _ in range(6):
            points, alpha, w = (v[0] for v in random_batch(rng, 1, 4, 5))
            game = game_from(points, alpha, w, sampling_constant=sampling)
            caps = some_caps(rng, 4)
            found = game.equilibrium(caps=caps)
            certificate = found.prove()
            assert certificate.exact
            certificate.check()
            for forged in (
                replace(certificate, sampling_constant=(sampling + 0.01).hex()),
                replace(certificate, caps=tuple((0.9 * c).hex() for c in caps)),
            ):
                if "*" in certificate.places or forged.caps != certificate.caps:
                    with pytest.raises(sf.VerificationError):
                        forged.check()
                    refused += 1
    assert refused > 6


def test_a_certificate_with_caps_survives_a_file(tmp_path):
    game = game_from(np.eye(3), [1, 2, 3], [3.0, 2.0, 4.0], sampling_constant=0.1)
    certificate = game.equilibrium(caps=[0.1, 1.0, 0.5]).prove()
    certificate.save(tmp_path / "c.json")
    assert type(certificate).load(tmp_path / "c.json") == certificate
    plain = game_from(np.eye(3), [1, 2, 3], [3.0, 2.0, 4.0]).equilibrium().prove()
    plain.save(tmp_path / "p.json")
    assert "caps" not in (tmp_path / "p.json").read_text()
    assert type(plain).load(tmp_path / "p.json") == plain


def test_a_client_above_its_cap_is_no_profile():
    game = game_from(np.eye(3), [1, 2, 3], [3.0, 2.0, 4.0])
    found = game.equilibrium(caps=[0.05, 1.0, 1.0])
    assert found.participation[0] == 0.05
    assert found.verify()
    assert not replace(found, participation=np.minimum(found.participation + 0.01, 1.0)).verify()
    # without its cap the first client would bring more
    assert "violated" in replace(found, caps=None).verify().message


def test_diagnostics_know_caps_and_the_sampling_constant():
    """The Jacobian is that of the best responses, by differences."""
    rng = np.random.default_rng(12)
    for _ in range(5):
        points, alpha, w = (v[0] for v in random_batch(rng, 1, 4, 5))
        game = game_from(points, alpha, 3 * w, sampling_constant=0.05)
        caps = np.array([0.02, 1.0, 1.0, 1.0])
        found = game.equilibrium(caps=caps)
        shown = found.diagnostics
        assert not shown.as_in_paper
        assert "nothing follows" in shown.conclusion
        x, step = found.participation, 1e-6
        for j in range(4):
            if not step < x[j] < 1 - step:
                continue
            up, down = np.array(x), np.array(x)
            up[j] += step
            down[j] -= step
            slope = (game.best_response(None, up, caps) - game.best_response(None, down, caps)) / (2 * step)
            others = np.arange(4) != j
            np.testing.assert_allclose(shown.jacobian[others, j], slope[others], rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(("value", "k"), [(1.5, 1), (-0.1, 2)])
def test_caps_outside_the_unit_interval_are_refused_by_name(value, k):
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(np.eye(3)),
        [1, 1, 1],
        costs=[1.0, 1.0, 1.0],
        names=["ann", "bob", "eve"],
    )
    caps = np.array([0.5, 0.5, 0.5])
    caps[k] = value
    for call in (game.equilibrium, game.equilibria, game.dynamics):
        with pytest.raises(sf.InputError, match="caps") as error:
            call(caps=caps)
        assert ["ann", "bob", "eve"][k] in str(error.value)
    with pytest.raises(sf.InputError, match="caps"):
        game.equilibrium(caps=[0.5, 0.5])
    with pytest.raises(sf.InputError, match="caps"):
        game.equilibria(caps=[0.0, 0.0, 0.0])


def test_a_start_above_the_caps_is_cut_off():
    game = game_from(np.eye(3), [1, 2, 3], [3.0, 2.0, 4.0])
    caps = np.array([0.05, 0.5, 1.0])
    found = find_equilibrium(game, np.zeros(3), SearchOptions(start=np.ones(3), method="sweeps"), caps=caps)
    assert np.all(found.participation <= caps)
    assert found.status is sf.Status.CERTIFIED


@pytest.mark.parametrize("caps", [None, [1.0, 0.20353569149274886]])
def test_numbers_near_the_end_of_floats_do_not_turn_into_nobody(caps):
    points = np.array([[-7.432885081731039, 10.367515826911455], [-0.5029127914015126, 13.461845616678758]])
    costs, payments = (
        np.array([2.194015190513544e4, 39.614275202694865]),
        np.array([1392.9173993, 17.2969370]),
    )
    x = []
    for scale in (1.0, 1e99):
        embeddings = sf.MeanEmbeddings.from_features(scale * points)
        game = sf.StackelbergGame(embeddings, [0.4452253847, 8.3829744011], costs=scale**2 * 100 * costs)
        found = game.equilibria(scale**2 * 100 * payments, caps=caps)
        assert len(found) == 1
        x.append(found[0].participation)
    assert x[1] == pytest.approx(x[0], rel=1e-9)
