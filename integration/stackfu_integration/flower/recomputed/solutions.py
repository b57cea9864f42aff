"""Every solution: the prices offered are its own, it is one of the game, and its certificate holds."""

from __future__ import annotations

import math

import numpy as np

import stackfu as sf
from stackfu.errors import StackfuError
from stackfu.io import loads
from stackfu.model.game_model import GameModel
from stackfu_integration.flower.events import GameFounded, GameSolved
from stackfu_integration.flower.ledger_error import LedgerError, need
from stackfu_integration.flower.recomputed.case import TOLERANCE, Case, near, same
from stackfu_integration.flower.terms import Terms

__all__ = ["check"]


def check(case: Case) -> None:
    """Every solution of the request; the game of the last one is kept for what follows."""
    for place, solved in case.placed(GameSolved):
        where, terms = f"row {place} (solution {solved.attempt})", case.terms_at(place)
        solution = _load(solved.solution, where)
        _check_offers(case, where, solved, solution, terms)
        _check_game(case, where, place, solved, solution)
        _check_figures(where, solved, solution)
        found = solution.verify()
        need(found.passed, f"{where}: {found.message}")
        _check_predictions(where, solved, solution)
        _check_constants(where, solution.game, terms)
        case.last_game = solution.game


def _load(content: bytes, where: str) -> sf.Solution:
    try:
        found: sf.Solution = loads(content, "solution.npz")
    except StackfuError as error:
        raise LedgerError(f"{where}: the solution's file cannot be read ({error})") from error
    return found


def _check_offers(case: Case, where: str, solved: GameSolved, solution: sf.Solution, terms: Terms) -> None:
    """Check that the clients' offers are those of the solution."""
    clients, offers = sorted(solved.participation), case.offers(solved.attempt)
    need(sorted(offers) == clients, f"{where}: prices are offered to other clients than are in the game")
    need(
        len(solution.payments) == len(clients)
        and near(solution.payments, [offers[c].price for c in clients]),
        f"{where}: the prices offered are not those of the solution",
    )
    need(
        near(solution.caps, [offers[c].cap for c in clients]),
        f"{where}: the caps offered are not those of the solution",
    )
    need(
        solution.offers.kind == (terms.offers or "linear"),
        f"{where}: the offers are {solution.offers.kind}, the terms say {terms.offers}",
    )
    need(
        near(solution.participation, [solved.participation[c] for c in clients]),
        f"{where}: the participation is not that of the solution",
    )


def _check_game(case: Case, where: str, place: int, solved: GameSolved, solution: sf.Solution) -> None:
    """It is a solution of the game that was founded, within its budget."""
    clients, sizes = sorted(solved.participation), case.sizes
    founded = [event for earlier, event in case.placed(GameFounded) if earlier < place][-1]
    need(
        near(solution.game.costs, [founded.costs[c] for c in clients]),
        f"{where}: it is solved with other costs",
    )
    share = np.array([sizes[c] for c in clients], dtype=np.float64)
    need(near(solution.game.alpha, share / share.sum()), f"{where}: it is solved with other sizes")
    need(
        same(solution.budget, solved.limit) and solved.limit <= founded.budget * (1 + TOLERANCE),
        f"{where}: it is solved within another budget",
    )


def _check_figures(where: str, solved: GameSolved, solution: sf.Solution) -> None:
    """Check that the ledger's statements about the solution are the solution's own."""
    for name in ("server_loss", "objective", "spend"):
        need(
            same(getattr(solved, name), float(getattr(solution, name))),
            f"{where}: the ledger states another {name.replace('_', ' ')} than the solution has",
        )
    need(
        (solved.status, solved.proves) == (solution.status.name, solution.proves),
        f"{where}: the ledger states another status than the solution has",
    )
    bound = solution.lower_bound if math.isfinite(solution.lower_bound) else None
    need(
        same(solved.lower_bound, bound),
        f"{where}: the ledger states another lower bound than the solution has",
    )


def _check_predictions(where: str, solved: GameSolved, solution: sf.Solution) -> None:
    """Changes of the clients' losses are those that the game predicts."""
    if solved.predicted:
        clients = sorted(solved.participation)
        impacts = solution.game.impacts(solution.participation).clients
        need(
            sorted(solved.predicted) == clients and near(impacts, [solved.predicted[c] for c in clients]),
            f"{where}: the game predicts other changes of the clients' losses than the ledger states",
        )


def _check_constants(where: str, game: GameModel, terms: Terms) -> None:
    for name in ("lambda_v", "lambda_s", "lambda_q", "loss_constant"):
        stated = getattr(terms, name)
        need(
            same(getattr(game, name, stated), stated),
            f"{where}: it is solved with another {name} than the terms state",
        )
