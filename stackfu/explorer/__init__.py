"""One self-contained HTML page to explore a game: a budget slider over certified solutions.

The page holds its data as JSON, its style and its script; it needs no network and no server. Every number on
it was computed by the library: the script only chooses, formats and draws.
"""

from __future__ import annotations

import html
import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..atomic import write_atomically
from ..followers.homogeneous import all_alike
from ..followers.level import level_curve
from ..results import Equilibria, Equilibrium, Frontier, Solution
from ..results.facade import facade

__all__ = ["explorer_data", "explorer_page", "write_explorer"]

#: Points of the level function t(s) that are drawn.
CURVE_POINTS = 60


def explorer_data(frontier: Frontier, title: str) -> dict[str, Any]:
    """What the page shows: the clients, and a stop of the slider for no payments and for every budget."""
    game = frontier.game
    unpaid: Equilibrium = facade(game).equilibrium()
    solutions = [solution for solution in frontier if solution.budget > 0]
    bounds = dict(zip(frontier.budgets.tolist(), frontier.lower_bounds.tolist(), strict=True))
    stops = [_unpaid_stop(unpaid, frontier)] + [_paid_stop(s, bounds[s.budget]) for s in solutions]
    forgotten = bool(game.removed)
    distance = game.heterogeneity if forgotten else np.sqrt(game.profile(np.ones(game.count)).to_clients)
    return {
        "title": title,
        "proves": frontier.solutions[0].proves,
        "version": __version__,
        "game": {
            "clients": len(game.all_sizes),
            "removed": [game.called(k) for k in game.removed],
            "samples": float(game.all_sizes.sum()),
            "remaining_samples": float(game.sizes.sum()),
            "lambda_v": game.lambda_v,
            "lambda_s": game.lambda_s,
            "lambda_q": game.lambda_q,
            "full_participation_price": game.full_participation_price,
            "distance_to": "the forgotten data" if forgotten else "the mean of all data",
        },
        "clients": {
            "name": list(game.names),
            "samples": game.sizes.tolist(),
            "share": game.alpha.tolist(),
            "cost": game.costs.tolist(),
            "distance": distance.tolist(),
        },
        "stops": stops,
    }


def explorer_page(frontier: Frontier, title: str = "stackfu") -> str:
    """The page as text."""
    parts = files("stackfu.explorer")
    data = json.dumps(explorer_data(frontier, title), allow_nan=False, separators=(",", ":"))
    page = (parts / "page.html").read_text(encoding="utf-8")
    pieces = {
        "{{title}}": html.escape(title),
        "{{style}}": (parts / "page.css").read_text(encoding="utf-8"),
        "{{script}}": (parts / "page.js").read_text(encoding="utf-8"),
        # a title such as "</script>" must not end the element that holds the data
        "{{data}}": data.replace("<", "\\u003c"),
    }
    for place, content in pieces.items():
        page = page.replace(place, content)
    return page


def write_explorer(frontier: Frontier, path: str | os.PathLike[str], title: str = "stackfu") -> None:
    """Write the page; the file appears under its name only when it is complete."""
    write_atomically(Path(path), explorer_page(frontier, title).encode())


def _unpaid_stop(unpaid: Equilibrium, frontier: Frontier) -> dict[str, Any]:
    goal = frontier.solutions[0].goal
    found: Equilibria = facade(unpaid.game).equilibria()
    return {
        **_stop(unpaid, found),
        "objective": goal.value(unpaid.game.loss_of(unpaid.profile, goal.finite_sample), 0.0),
        "budget": 0.0,
        "lower_bound": None,
        "gap": None,
        "status": unpaid.status.name,
        "certificate": ["No payments are offered, so there was nothing to optimise.", *_about(unpaid, found)],
    }


def _paid_stop(solution: Solution, bound: float) -> dict[str, Any]:
    eq, found = solution.equilibrium, solution.equilibria
    limit = f"no payments within the budget of {solution.budget:.6g} bring the {solution.proves} below {bound:.6g}"
    reached = f"these reach {solution.objective:.6g}"
    if solution.status.proved:
        first = f"Proved: {limit}, and {reached}."
    elif np.isfinite(bound):
        first = f"Proved: {limit}; {reached}. The gap is wider than was asked for ({solution.status.value})."
    else:
        first = f"Of these payments nothing is proved but what they do: {reached}."
    words = [first, *_about(eq, found)]
    if len(found) > 1:
        words.append(
            f"Over all equilibria of these payments the server loss lies between {solution.optimistic:.6g} "
            f"and {solution.pessimistic:.6g}."
        )
    return {
        **_stop(eq, found),
        "objective": solution.objective,
        "budget": solution.budget,
        "lower_bound": bound if np.isfinite(bound) else None,
        "gap": max(solution.objective - bound, 0.0) if np.isfinite(bound) else None,
        "status": solution.status.name,
        "certificate": words,
    }


def _about(eq: Equilibrium, found: Equilibria) -> list[str]:
    """What is known about the participation that is shown."""
    return [
        f"The participation shown is an equilibrium: recomputed from the game, no client gains more than "
        f"{eq.regret:.1e} by deviating.",
        f"It is {found.uniqueness.value}: {found.reason}.",
    ]


def _stop(eq: Equilibrium, found: Equilibria) -> dict[str, Any]:
    stated = eq.summary()
    low, high = stated["thresholds"].values()
    shown = ("spend", "server_loss", "total", "payments", "participation", "utilities")
    return {
        **{name: np.asarray(stated[name]).tolist() for name in shown},
        "out_below": np.maximum(low, 0.0).tolist(),
        "full_above": np.maximum(high, 0.0).tolist(),
        "equilibria": [{"total": e.total, "server_loss": e.server_loss} for e in found],
        "curve": _curve(eq, found),
    }


def _curve(eq: Equilibrium, found: Equilibria) -> list[list[float]]:
    """t(s) as [s, t] pairs, from 0 to a little beyond the last equilibrium."""
    game = eq.game
    if all_alike(game, eq.caps):
        return []
    last = max([eq.total, *(e.total for e in found)])
    s, t = level_curve(game, eq.payments, CURVE_POINTS, min(1.0, 1.8 * last), eq.caps)
    return [[float(a), float(b)] for a, b in zip(s, t, strict=True)]
