"""The game is solved among the clients that are there, and prices are posted."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from stackfu.errors import NoEquilibriumError
from stackfu.results import Solution
from stackfu_integration.flower.events import GameFounded, GameSolved, PriceOffered
from stackfu_integration.flower.phases.session import Removal, StuckError
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
    "objective",
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
        raise StuckError(f"{attempt} rounds of offers ended without commitments")
    if limit is None:
        limit = ledger.need(removal.name, GameFounded).budget
    board = removal.board()
    began = time.perf_counter()
    try:
        solution = board.game.solve(limit, terms.method, **_options(terms))
    except NoEquilibriumError as error:
        raise StuckError(f"no offers within the budget make anybody take part: {error}") from error
    seconds = time.perf_counter() - began
    summary, impacts = solution_summary(solution), board.game.impacts(solution.participation)
    solved = GameSolved(
        attempt=attempt,
        limit=limit,
        participation={
            client: float(x) for client, x in zip(board.remaining, solution.participation, strict=True)
        },
        method=terms.method,
        seconds=seconds,
        proves=solution.proves,
        solution=_file_of(solution),
        predicted={client: float(q) for client, q in zip(board.remaining, impacts.clients, strict=True)},
        calibrated=impacts.calibrated,
        **{name: summary[name] for name in _CERTIFICATE},
    )
    with ledger.transaction():
        ledger.add(removal.name, solved)
        for client, price, cap in zip(board.remaining, solution.payments, solution.caps, strict=True):
            ledger.add(removal.name, PriceOffered(client, attempt, float(price), float(cap)))


def _file_of(solution: Solution) -> bytes:
    """Return the solution with its game and its certificate as stackfu writes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "solution.npz"
        solution.save(path)
        return path.read_bytes()


def _options(terms: Terms) -> dict[str, Any]:
    """Return the terms for the solution, as far as the mechanism has an option for them."""
    stated: dict[str, Any] = {"time_limit": terms.time_limit}
    if terms.finite_sample:
        stated["finite_sample"] = True
    if terms.offers != "linear":
        stated["offers"] = terms.offers
    if terms.min_total > 0:
        stated["min_total"] = terms.min_total
    known = {*known_options(terms.method), "offers"}
    return {name: value for name, value in stated.items() if name in known}
