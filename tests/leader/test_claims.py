"""What a search says it has proved is lowered until the judge accepts it: by no more than is lost anyway, if that is enough."""

from __future__ import annotations

import numpy as np
import pytest
from test_large import federation

from stackfu.judging.bound_check import BoundVerdict
from stackfu.leader.certified import large
from stackfu.leader.certified.claims import accepted
from stackfu.results.certificate import LeaderCertificate, Leaf


def judge(at_most, missing):
    """A judge who accepts claims up to ``at_most`` and finds ``missing`` missing in all others."""
    seen = []

    def check(claim):
        seen.append(claim.lower)
        passed = claim.lower <= at_most
        return BoundVerdict(passed, claim.lower if passed else -np.inf, 1, 0.1 if passed else -missing, "")

    return check, seen


def claim(lower):
    return LeaderCertificate(lower, (), (Leaf(()),))


def test_a_claim_that_holds_is_not_touched():
    check, seen = judge(1.0, 0.5)
    held = accepted(check, claim(1.0), reserve=0.1)
    assert held is not None
    assert (held[0].lower, seen) == (1.0, [1.0])


def test_a_cliff_costs_what_may_be_lost_and_not_what_is_missing_beyond_it():
    check, seen = judge(0.999, 0.5)
    held = accepted(check, claim(1.0), reserve=0.01)
    assert held is not None
    assert held[0].lower == pytest.approx(0.99)
    assert len(seen) == 2


def test_what_is_really_missing_is_given_up_after_that():
    check, seen = judge(0.6, 0.2)
    held = accepted(check, claim(1.0), reserve=0.01)
    assert held is not None
    assert seen == pytest.approx([1.0, 0.99, 0.69, 0.39])


def test_rounding_alone_costs_less_than_the_reserve():
    check, _ = judge(1.0 - 1e-9, 1e-9)
    held = accepted(check, claim(1.0), reserve=0.01)
    assert held is not None
    assert held[0].lower == pytest.approx(1.0, abs=1e-8)


def test_what_is_refused_for_other_reasons_is_not_claimed():
    assert accepted(judge(-np.inf, np.inf)[0], claim(1.0)) is None


def test_a_client_on_the_edge_does_not_open_the_gap(monkeypatch):
    """Without local search after the first one the last leaf of this game holds only while one client is too far to be paid, by
    1e-9: inner products that the judge encloses leave that open."""
    monkeypatch.setattr(large._Search, "propose", lambda *_: False)
    game, budget = federation(1000, 64, seed=1, gram=True)
    solution = game.solve(budget, gap=1e-3, time_limit=np.inf)
    assert solution.status.name == "CERTIFIED"
    assert solution.verify()
