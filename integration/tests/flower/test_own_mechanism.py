"""A mechanism of one's own, registered with stackfu, is played in Flower by its name, and what it claims is judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

import stackfu as sf
from stackfu.leader import mechanisms
from stackfu_integration.flower.events import GameSolved
from stackfu_integration.flower.verification import verify


@pytest.fixture
def at_cost():
    """Pay all clients a share of their costs; registered during one test."""

    def pay(game, budget):
        return game.costs * min(0.9, budget / game.costs.sum())

    sf.register_mechanism("at-cost", pay)
    yield "at-cost"
    mechanisms.forget("at-cost")


def test_a_request_is_settled_by_it(scene, at_cost):
    scene.terms = replace(scene.terms, method=at_cost)
    facts = scene.run()
    assert facts["aborted"] is None
    with scene.ledger() as ledger:
        solved = ledger.last("r1", GameSolved)
    assert (solved.method, solved.status) == (at_cost, "CONVERGED")
    assert sum(client["paid"] for client in facts["clients"]) > 0
    assert verify(scene.folder).misfit is None
