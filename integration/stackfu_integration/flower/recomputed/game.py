"""Costs, budget and the price of full participation, from sizes, terms and embeddings."""

from __future__ import annotations

import numpy as np

from stackfu_integration.flower.board import Board
from stackfu_integration.flower.events import (
    ClientExcluded,
    GameFounded,
    GroupSumReceived,
    PayloadsErased,
    RemovalRequested,
)
from stackfu_integration.flower.ledger_error import need
from stackfu_integration.flower.recomputed.case import Case, same

__all__ = ["check"]


def check(case: Case) -> None:
    """Everything that the game was founded with."""
    sizes, group = case.sizes, case.last(GroupSumReceived)
    if group is not None:
        need(
            sum(sizes[client] for client in group.clients) == group.size,
            f"{case.request}: the sum of {case.naming.all(group.clients)} is of another size",
        )
    _check_sizes(case)
    if case.has(PayloadsErased) and sizes:
        case.limits.append(
            f"{case.request}: whether the inner products in the solution's file are those of the embeddings, which are "
            "erased; every client saw its own embedding quoted before it answered, and signed that"
        )
    for place, founded in case.placed(GameFounded):
        _check_founded(case, place, founded)


def _check_sizes(case: Case) -> None:
    """Sizes are those that the terms expect, and none is far above the others."""
    opened, group = case.needed(RemovalRequested), case.last(GroupSumReceived)
    if "size_factor" not in opened.terms:
        return  # terms from before it was stated
    summed = set() if group is None else set(group.clients)
    alone = [size for client, size in case.sizes.items() if client not in summed]
    median = float(np.median(alone)) if alone else None
    for client, size in case.sizes.items():
        problem = case.terms.refused_size(client, case.naming, size, None if client in summed else median)
        need(problem is None, f"{case.request}: client {case.naming(client)} {problem}, and was not left out")


def _check_founded(case: Case, place: int, founded: GameFounded) -> None:
    where, terms, sizes = f"row {place} (game)", case.terms_at(place), case.sizes
    total = sum(sizes.values())
    for client, size in sizes.items():
        cost = terms.cost_of(client, case.naming, size / total)
        need(
            same(founded.costs.get(client), cost),
            f"{where}: the cost of client {case.naming(client)} is {cost!r} by the terms",
        )
    budget = terms.budget_share * founded.full_price if terms.budget is None else terms.budget
    need(same(founded.budget, budget), f"{where}: the budget is {budget!r} by the terms")
    excluded_later = any(later > place for later, _ in case.placed(ClientExcluded))
    if not case.has(PayloadsErased) and not excluded_later:
        board = Board.from_ledger(case.ledger, case.request, terms, founded.costs)
        full = float(board.game.full_participation_price)
        need(
            same(founded.full_price, full),
            f"{where}: full participation costs {full!r} by the embeddings",
        )
