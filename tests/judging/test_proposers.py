"""Judges ask a solver to propose, and use of its answer only what was judged: no class and no solver talks them into a claim."""

from dataclasses import replace

import numpy as np
import pytest

import stackfu as sf
from stackfu.catalog import three_equilibria
from stackfu.demo import digits_game
from stackfu.judging.plan import gaps_are_relative_to
from stackfu.judging.solution_check import SMALLEST_LOSS, promised_gap
from stackfu.results.facade import facade


class Worst(sf.StackelbergGame):
    """Says that without payments only the client with the largest loss takes part, by which every gap is narrow."""

    def equilibrium(self, payments=None, **options):
        found = super().equilibrium(payments, **options)
        if payments is not None:
            return found
        each = np.eye(self.count)
        return replace(found, participation=each[np.argmax([self.server_loss(x) for x in each])])


class Sure(sf.StackelbergGame):
    """Says of everything that it is unique, and of every result that it is true."""

    def equilibria(self, payments=None, *, caps=None):
        found = super().equilibria(payments, caps=caps)
        return replace(found, uniqueness=sf.Uniqueness.UNIQUE, complete=True)

    def verify(self, result, tolerance=1e-9):
        return sf.Verification(True, 0.0, 0.0, tolerance, "true")


def of_class(cls, game):
    return cls(**game.arguments())


@pytest.mark.parametrize("offers", ["linear", "capped"])
def test_gaps_are_measured_against_the_library_s_own_equilibrium(offers):
    game = digits_game(sampling_constant=30.0)
    open_gap = game.solve(0.06, offers=offers, max_nodes=2, gap=1e-9, progress=False)
    assert open_gap.status is not sf.Status.CERTIFIED
    wide = sf.Limits(gap=1.5 * open_gap.gap / game.equilibrium().server_loss)
    narrow = replace(wide, gap=0.9 * open_gap.gap / game.equilibrium().server_loss)
    for other in (game, of_class(Worst, game)):
        claimed = replace(
            open_gap,
            game=other,
            equilibrium=replace(open_gap.equilibrium, game=other),
            status=sf.Status.CERTIFIED,
            message="",
        )
        assert replace(claimed, limits=wide).verify(), replace(claimed, limits=wide).verify().message
        check = replace(claimed, limits=narrow).verify()
        assert not check
        assert "CERTIFIED promises" in check.message


def several():
    """A game and its equilibria, of which there are several."""
    known = three_equilibria()
    game, every = known.game, known.game.equilibria(known.payments)
    assert every.uniqueness is sf.Uniqueness.MULTIPLE
    return game, every


def test_a_class_cannot_judge_its_own_results():
    game, every = several()
    other = of_class(Sure, game)
    claimed = replace(every[0], game=other, uniqueness=sf.Uniqueness.UNIQUE, reason="")
    assert other.verify(claimed)
    assert not claimed.verify()
    assert facade(other).equilibria(every.payments).uniqueness is sf.Uniqueness.MULTIPLE


def test_what_a_solver_proposes_without_proof_is_not_used(monkeypatch):
    game = digits_game(sampling_constant=30.0)
    best = game.solve(0.06, gap=1e-3, progress=False)
    plan = game.solve(0.06, offers="capped", gap=1e-2, progress=False)
    least = SMALLEST_LOSS * game.loss.weight * game.geometry.scale
    everybody = replace(game.equilibrium(), participation=np.ones(game.count))  # and says CERTIFIED
    monkeypatch.setattr(sf.StackelbergGame, "equilibrium", lambda self, *a, **k: everybody)
    assert promised_gap(best) == 1e-3 * least
    assert gaps_are_relative_to(game, plan.goal) == least


@pytest.mark.parametrize(
    "unproved", [{"complete": False}, {"items": "unproved"}], ids=["some may be missing", "some may be none"]
)
def test_how_many_there_are_is_not_what_a_solver_says(monkeypatch, unproved):
    _, every = several()
    assert every[0].verify()
    if "items" in unproved:
        unproved = {"items": tuple(replace(eq, status=sf.Status.CONVERGED) for eq in every)}
    monkeypatch.setattr(sf.StackelbergGame, "equilibria", lambda self, *a, **k: replace(every, **unproved))
    assert not every[0].verify()


class Deaf(sf.StackelbergGame):
    """Does not change lambda_q when it is asked to."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **{**named, "lambda_q": 1.0})


def test_a_constructor_cannot_change_the_game_of_which_bounds_are_proved():
    game = digits_game(sampling_constant=30.0)
    asked = {"offers": "contract", "max_nodes": 5, "progress": False}
    plain, deaf = game.solve(0.06, **asked), of_class(Deaf, game).solve(0.06, **asked)
    assert plain.certificate is not None
    assert deaf.certificate is None
