"""The game is solved among the clients that are there, and prices are posted."""

from __future__ import annotations

import time
from typing import Any

from stackfu.errors import StackfuError
from stackfu_integration.flower.events import GameFounded, GameSolved, PriceOffered
from stackfu_integration.flower.phases.session import Removal
from stackfu_integration.flower.terms import Terms
from stackfu_integration.lab.mechanisms import known_options
from stackfu_integration.summary import solution_summary

__all__ = ["ATTEMPTS", "PHASE", "make_offers", "run"]

PHASE = "offers"
ATTEMPTS = 20  # offers are made anew at most that often

_CERTIFICATE = (
    "status",
    "meaning",
    "server_loss",
    "lower_bound",
    "gap",
    "spend",
    "regret",
    "residual",
    "uniqueness",
    "total",
)


def run(removal: Removal) -> None:
    """Make the first offers."""
    make_offers(removal)


def make_offers(removal: Removal, limit: float | None = None) -> None:
    """Solve the game within ``limit``, the whole budget by default, and post prices."""
    ledger, terms = removal.ledger, removal.terms
    last = ledger.last(removal.name, GameSolved)
    attempt = 0 if last is None else last.attempt + 1
    if attempt >= ATTEMPTS:
        raise StackfuError(f"{removal.name}: {attempt} rounds of offers ended without commitments")
    if limit is None:
        limit = ledger.need(removal.name, GameFounded).budget
    board = removal.board()
    began = time.perf_counter()
    solution = board.game.solve(limit, terms.method, **_options(terms))
    seconds = time.perf_counter() - began
    summary = solution_summary(solution)
    solved = GameSolved(
        attempt=attempt,
        limit=limit,
        participation={
            client: float(x) for client, x in zip(board.remaining, solution.participation, strict=True)
        },
        method=terms.method,
        seconds=seconds,
        **{name: summary[name] for name in _CERTIFICATE},
    )
    with ledger.transaction():
        ledger.add(removal.name, solved)
        for client, price in zip(board.remaining, solution.payments, strict=True):
            ledger.add(removal.name, PriceOffered(client, attempt, float(price)))


def _options(terms: Terms) -> dict[str, Any]:
    """What the terms say about the solution, as far as the mechanism has an option for it."""
    stated: dict[str, Any] = {"time_limit": terms.time_limit}
    if terms.finite_sample:
        stated["finite_sample"] = True
    if terms.min_total > 0:
        stated["min_total"] = terms.min_total
    known = known_options(terms.method)
    return {name: value for name, value in stated.items() if name in known}
