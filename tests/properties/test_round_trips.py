"""Written results can be read back; priced profiles can be played; proofs can be checked."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from effort import share
from hypothesis import given
from hypothesis import strategies as st

import stackfu as sf
from stackfu import testing
from stackfu.judging.proof import Certificate, check_certificate
from stackfu.judging.stakes import check_stakes


@pytest.mark.parametrize("ending", [".json", ".npz"])
@given(play=testing.plays())
def test_games_survive_a_file(ending, play):
    game, p, x = play
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"game{ending}"
        game.save(path)
        back = sf.load(path)
    assert back == game
    assert hash(back) == hash(game)
    np.testing.assert_array_equal(back.best_response(p, x), game.best_response(p, x))
    assert back.server_loss(x) == game.server_loss(x)


@share(0.5)
@given(testing.plays(max_clients=4))
def test_equilibria_survive_a_file(play):
    game, p, _ = play
    eq = game.equilibrium(p)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "eq.json"
        eq.save(path)
        back = sf.load(path)
    np.testing.assert_array_equal(back.participation, eq.participation)
    assert (back.status, back.uniqueness, back.residual) == (eq.status, eq.uniqueness, eq.residual)
    assert back.game == game


@share(0.5)
@given(testing.plays(max_clients=4))
def test_an_equilibrium_is_among_those_of_its_own_cheapest_payments(play):
    """equilibrium -> price -> equilibria: never dearer, and the profile comes back."""
    game, p, _ = play
    eq = game.equilibrium(p)
    try:
        cheapest = game.payments_for(eq.participation)
    except sf.NotInducibleError:
        pytest.fail("an equilibrium of some payments is inducible")
    assert np.all(cheapest <= p + 1e-7 * game.costs)
    assert check_stakes(game, cheapest, eq.participation).max() <= 1e-9
    again = game.equilibria(cheapest)
    if again.complete:
        nearest = min(np.abs(e.profile.total - eq.total) for e in again)
        assert nearest <= 1e-4 * eq.total


@share(0.5)
@given(testing.plays(max_clients=5), st.integers(0, 10_000))
def test_a_proof_can_be_checked_and_a_moved_point_is_refused(play, seed):
    game, p, _ = play
    eq = game.equilibrium(p)
    try:
        certificate = eq.prove()
    except sf.VerificationError:
        # only ever where the numbers themselves are too coarse for participation to be known to 1e-7
        assert (
            game.alpha.min() / eq.total < 1e-4
            or game.geometry.pairwise[game.geometry.pairwise > 0].min() < 1e-6
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proof.json"
        certificate.save(path)
        assert check_certificate(path) == certificate == Certificate.load(path)
    if certificate.kind == "box":
        x = np.array(eq.participation)
        k = seed % game.count
        x[k] += 1e-6 if x[k] < 0.5 else -1e-6
        moved = sf.results.Equilibrium(game, eq.payments, x, eq.status, eq.uniqueness, "", "moved", 0.0, 0.0)
        with pytest.raises(sf.VerificationError):
            moved.prove()
