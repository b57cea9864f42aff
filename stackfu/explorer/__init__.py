"""One self-contained HTML page to explore a game: a budget slider over certified solutions.

The page holds its data as JSON, its style and its script; it needs no network and no server. Every number on
it was computed by the library: the script only chooses, compares, formats and draws. Above
:data:`MOST_CLIENTS` clients it shows groups of clients with quantiles instead (:mod:`.groups`).
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import __version__
from ..atomic import write_atomically
from ..errors import InputError
from ..followers.cascade import RELUCTANT
from ..followers.homogeneous import all_alike
from ..followers.level import level_curve
from ..html import NOTHING
from ..io import record_of
from ..model import Array, GameModel
from ..model.offers import check_outside
from ..plot.scales import outliers
from ..results import Equilibria, Equilibrium, Frontier, Solution, Uniqueness
from ..results.facade import facade
from ..sensitivity.marginal import round_step
from ..values.server_loss import MOST_EXACT
from .comparisons import COMPARED, comparison_lines
from .groups import Groups

__all__ = [
    "COMPARED",
    "MOST_CLIENTS",
    "even_budgets",
    "explorer_data",
    "explorer_page",
    "knee",
    "write_explorer",
]

#: Points of the level function t(s) that are drawn.
CURVE_POINTS = 60
#: Above this many clients people see groups and quantiles, and equilibria are not enumerated for every stop.
MOST_CLIENTS = 200
#: Characters of saved solutions that a page holds at most, so that it can check their proofs.
MOST_PROOF = 4_000_000


def even_budgets(top: float, points: int) -> list[float]:
    """At most ``points`` equal steps of a round length that reach ``top``: stops that people can name.

    >>> even_budgets(0.287, 8)
    [0.05, 0.1, 0.15, 0.2, 0.25, 0.3]
    """
    power = 10.0 ** np.floor(np.log10(top / points))
    step = next(m * power for m in (1.0, 1.5, 2.0, 2.5, 5.0, 10.0) if m * power * points >= top * (1 - 1e-12))
    count = int(np.ceil(top / step * (1 - 1e-12)))
    return [float(f"{i * step:.12g}") for i in range(1, count + 1)]


def knee(points: Sequence[tuple[float, float]]) -> int:
    """Return the place of the point that lies furthest below the line from the first to the last, in units of their spans.

    Without such a point the last is returned.

    >>> knee([(0.0, 1.0), (1.0, 0.3), (2.0, 0.2), (3.0, 0.1)])
    1
    >>> knee([(0.0, 1.0), (1.0, 1.0)])
    1
    """
    budgets, values = np.array(points).T
    fall = values[0] - values[-1]
    if len(points) < 3 or not fall > 0:
        return len(points) - 1
    saved = (values[0] - values) / fall - (budgets - budgets[0]) / (budgets[-1] - budgets[0])
    best = int(np.argmax(saved))
    return best if best > 0 else len(points) - 1


def explorer_data(
    frontier: Frontier,
    title: str,
    *,
    compare: Sequence[str] | None = None,
    outside: npt.ArrayLike | None = None,
    budget: float | None = None,
) -> dict[str, Any]:
    """Return the data of the page: the clients, a slider stop for no payments and for every budget, and lines to compare with.

    ``compare`` names the lines (see :data:`COMPARED`; by default all of them up to :data:`MOST_CLIENTS` clients, none above).
    ``outside`` is what each client has outside the federation: the page then marks who would leave. The page opens at the largest
    budget of the frontier within ``budget``, by default at the knee of the frontier, where more money begins to buy less.
    """
    game = frontier.game
    kind = frontier.solutions[0].offers.kind
    if kind != "linear":
        raise InputError(
            "frontier",
            "must hold prices per unit; other offers are drawn as lines to compare with",
            value=kind,
        )
    apart = None if outside is None else check_outside(game, outside)
    unpaid: Equilibrium = facade(game).equilibrium()
    solutions = [solution for solution in frontier if solution.budget > 0]
    bounds = dict(zip(frontier.budgets.tolist(), frontier.lower_bounds.tolist(), strict=True))
    distance = _distances(game)
    groups = Groups(game, distance, apart) if game.count > MOST_CLIENTS else None
    stops = [_unpaid_stop(unpaid, frontier, groups)]
    stops += [_paid_stop(s, bounds[s.budget], groups) for s in solutions]
    opening = knee([(stop["budget"], stop["objective"]) for stop in stops])
    if budget is not None:
        opening = max(i for i, stop in enumerate(stops) if i == 0 or stop["budget"] <= budget * (1 + 1e-12))
    chosen = (() if groups else COMPARED) if compare is None else compare
    return {
        "title": title,
        "proves": frontier.solutions[0].proves,
        "version": __version__,
        "game": {
            "clients": len(game.all_sizes),
            "remaining": game.count,
            "removed": [game.called(k) for k in game.removed],
            "samples": float(game.all_sizes.sum()),
            "remaining_samples": float(game.sizes.sum()),
            "lambda_v": game.lambda_v,
            "lambda_s": game.lambda_s,
            "lambda_q": game.lambda_q,
            "loss_constant": game.loss_constant,
            "calibrated": game.calibrated,
            "currency": game.currency,
            "full_participation_price": game.full_participation_price,
            "distance_to": "the forgotten data" if game.removed else "the mean of all data",
            "reluctant": RELUCTANT,
            "nothing": NOTHING,
            "step": round_step(game.costs),
        },
        "clients": None
        if groups
        else {
            "name": list(game.names),
            "samples": game.sizes.tolist(),
            "share": game.alpha.tolist(),
            "cost": game.costs.tolist(),
            "distance": distance.tolist(),
            "far": [outliers(distance).tolist(), outliers(game.alpha).tolist()],
        },
        "groups": groups.described() if groups else None,
        # outside utilities may be minus infinity (a client that has nowhere to go), which JSON has no number for
        "outside": None
        if apart is None or groups
        else [o if np.isfinite(o) else None for o in apart.tolist()],
        "forgotten": _forgotten(game),
        "stops": stops,
        "opening": opening,
        "lines": comparison_lines(frontier, chosen),
    }


def explorer_page(
    frontier: Frontier,
    title: str = "stackfu",
    *,
    compare: Sequence[str] | None = None,
    outside: npt.ArrayLike | None = None,
    budget: float | None = None,
) -> str:
    """Return the page as text."""
    parts = files("stackfu.explorer")
    record = explorer_data(frontier, title, compare=compare, outside=outside, budget=budget)
    page = (parts / "page.html").read_text(encoding="utf-8")
    pieces = {
        "{{title}}": html.escape(title),
        "{{style}}": (parts / "page.css").read_text(encoding="utf-8"),
        "{{script}}": (parts / "page.js").read_text(encoding="utf-8"),
        "{{data}}": _as_json(record),
        "{{proofs}}": _as_json(_proofs(frontier)),
        "{{checker}}": _as_json(_worker((parts / "check.mjs").read_text(encoding="utf-8"))),
    }
    for place, content in pieces.items():
        page = page.replace(place, content)
    return page


def _as_json(value: object) -> str:
    """Return JSON for a script element, which a title such as "</script>" must not end."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _worker(module: str) -> str:
    """Return the checker as a classic script without its command line: pages without a server may not start modules as workers."""
    return module.partition(
        "// ------------------------------------------------------------------ on the command line"
    )[0].replace("\nexport ", "\n")


def _proofs(frontier: Frontier) -> list[dict[str, Any] | None]:
    """Return the saved record of each stop, for the checker in the page; None without payments and where they are too large."""
    solutions = [solution for solution in frontier if solution.budget > 0]
    if frontier.game.count > MOST_CLIENTS:
        return [None] * (len(solutions) + 1)
    records = [record_of(solution) for solution in solutions]
    if sum(len(_as_json(record)) for record in records) > MOST_PROOF:
        return [None] * (len(solutions) + 1)
    return [None, *records]


def write_explorer(
    frontier: Frontier,
    path: str | os.PathLike[str],
    title: str = "stackfu",
    *,
    compare: Sequence[str] | None = None,
    outside: npt.ArrayLike | None = None,
    budget: float | None = None,
) -> None:
    """Write the page; the file appears under its name only when it is complete."""
    write_atomically(
        Path(path), explorer_page(frontier, title, compare=compare, outside=outside, budget=budget).encode()
    )


def _distances(game: GameModel) -> Array:
    """Of every remaining client to the forgotten data; to the mean of all data if nothing is forgotten."""
    return game.heterogeneity if game.removed else np.sqrt(game.profile(np.ones(game.count)).to_clients)


def _forgotten(game: GameModel) -> list[dict[str, Any]]:
    """Return the clients that asked to be forgotten, by their distance to what they own together."""
    if len(game.removed) > MOST_CLIENTS:
        return []
    together = np.zeros(len(game.all_sizes))
    together[list(game.removed)] = game.all_sizes[list(game.removed)]
    return [
        {
            "name": game.called(k),
            "samples": float(game.all_sizes[k]),
            "share": float(game.all_sizes[k] / game.sizes.sum()),
            "distance": game.embeddings.mixture_distance(np.eye(1, len(together), k)[0], together),
        }
        for k in game.removed
    ]


def _unpaid_stop(unpaid: Equilibrium, frontier: Frontier, groups: Groups | None) -> dict[str, Any]:
    goal = frontier.solutions[0].goal
    found = None if groups else facade(unpaid.game).equilibria()
    return {
        **_stop(unpaid, found, groups),
        "objective": goal.value(unpaid.game.loss_of(unpaid.profile, goal.finite_sample), 0.0),
        "budget": 0.0,
        "lower_bound": None,
        "gap": None,
        "status": unpaid.status.name,
        "settled": True,
        "telling": False,
        "outcomes": _outcomes(found),
        "certificate": ["No payments are offered, so there was nothing to optimise.", *_about(unpaid, found)],
    }


def _outcomes(found: Equilibria | None) -> str:
    """Return how many ways the clients can settle in without payments, as far as that is known."""
    if found is None or found.uniqueness is Uniqueness.UNKNOWN:
        return "not all known"
    if found.uniqueness is Uniqueness.CONTINUUM:
        return "infinitely many"
    return "1, proved" if len(found) == 1 else f"{len(found)}, all shown"


def _paid_stop(solution: Solution, bound: float, groups: Groups | None) -> dict[str, Any]:
    eq, found = solution.equilibrium, None if groups else solution.equilibria
    telling = _telling(solution, bound)
    limit = f"no payments within the budget of {solution.budget:.6g} bring the {solution.proves} below {bound:.6g}"
    if not telling:
        limit = "no payments do better than these by more than the gap that was asked for"
    reached = f"these reach {solution.objective:.6g}"
    if solution.status.proved:
        first = f"Proved: {limit}, and {reached}."
    elif telling:
        first = f"Proved: {limit}; {reached}. The gap is wider than was asked for ({solution.status.value})."
    else:
        first = f"Of these payments nothing is proved but what they do: {reached} ({solution.status.value})."
    words = [first, *_about(eq, found)]
    if found is not None and len(found) > 1:
        words.append(
            f"Over all equilibria of these payments the server loss lies between {solution.optimistic:.6g} "
            f"and {solution.pessimistic:.6g}."
        )
    return {
        **_stop(eq, found, groups),
        "objective": solution.objective,
        "budget": solution.budget,
        "lower_bound": bound if np.isfinite(bound) else None,
        "gap": max(solution.objective - bound, 0.0) if np.isfinite(bound) else None,
        "status": solution.status.name,
        "settled": solution.status.success,
        "telling": telling,
        "certificate": words,
    }


def _telling(solution: Solution, bound: float) -> bool:
    """Return True if a bound is informative: the paper's loss and a spend are never below 0."""
    return bool(np.isfinite(bound)) and (bound > 0 or not solution.game.has_paper_loss)


def _about(eq: Equilibrium, found: Equilibria | None) -> list[str]:
    """Return the facts about the displayed participation."""
    gains = "gains anything" if eq.regret == 0 else f"gains more than {eq.regret:.1e}"
    shown = f"The participation shown is an equilibrium: recomputed from the game, no client {gains} by deviating."
    if found is None:
        return [
            shown,
            "Whether there are others was not asked for so many clients.",
        ]
    return [shown, f"It is {found.uniqueness.value}: {found.reason}."]


def _stop(eq: Equilibrium, found: Equilibria | None, groups: Groups | None) -> dict[str, Any]:
    game = eq.game
    used = game.sizes * eq.participation
    stated = {
        "spend": eq.spend, "server_loss": eq.server_loss, "total": eq.total, "used_samples": float(used.sum()),
    }  # fmt: skip
    if groups is not None:
        return {**stated, "groups": groups.at(eq), "equilibria": [], "curve": []}
    low, high = game.thresholds(eq.participation)
    return {
        **stated,
        "payments": eq.payments.tolist(),
        "participation": eq.participation.tolist(),
        "used": used.tolist(),
        "receives": (eq.payments * eq.participation).tolist(),
        "utilities": eq.utilities.tolist(),
        "change": game.impacts(eq.participation).clients.tolist(),
        "out_below": np.maximum(low, 0.0).tolist(),
        "full_above": np.maximum(high, 0.0).tolist(),
        **_contributions(eq),
        "equilibria": [{"total": e.total, "server_loss": e.server_loss} for e in found or ()],
        "curve": [] if found is None else _curve(eq, found),
    }


def _contributions(eq: Equilibrium) -> dict[str, Any]:
    """Return the samples that a little more money for each client brings, and values of clients; None where not known."""
    effects = eq.marginal_effects()
    values = eq.values() if eq.participation.any() and eq.game.count <= MOST_EXACT else None
    return {
        "rates": None if effects.reason else effects.together.tolist(),
        "values": None if values is None else values.shapley.tolist(),
        "leave_one_out": None if values is None else values.leave_one_out.tolist(),
    }


def _curve(eq: Equilibrium, found: Equilibria) -> list[list[float]]:
    """t(s) as [s, t] pairs, from 0 to a little beyond the last equilibrium."""
    game = eq.game
    if all_alike(game, eq.caps):
        return []
    last = max([eq.total, *(e.total for e in found)])
    s, t = level_curve(game, eq.payments, CURVE_POINTS, min(1.0, 1.8 * last), eq.caps)
    return [[float(a), float(b)] for a, b in zip(s, t, strict=True)]
