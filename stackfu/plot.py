"""Figures with matplotlib. Every function takes axes or makes them, draws, and returns them.

>>> import matplotlib; matplotlib.use("agg")
>>> import stackfu as sf
>>> from stackfu.demo import digits_game
>>> ax = sf.plot.participation(digits_game().equilibrium())
>>> ax.get_xlabel()
'distance to the forgotten data'

Install with ``pip install 'stackfu[plot]'``.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from .embedding.names import ClientNames, PerClient, by_name, listed
from .errors import InputError, StackfuError
from .game import StackelbergGame
from .model.geometry import Array
from .model.offers import utilities_of
from .results import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .embedding import MeanEmbeddings
    from .results import Cascade, Equilibria, Equilibrium, Frontier

__all__ = ["cascade", "distance_map", "dynamics", "frontier", "level", "participation", "retention"]

_ACCENT, _BOUND, _SOFT = "#0b6e8f", "#b3541e", "#8a93a3"
#: More clients than this are drawn without their numbers.
_LABELLED = 30


def participation(result: Equilibrium | Solution, ax: Axes | None = None) -> Axes:
    """Clients by their share of the data and their distance to the forgotten data.

    A marker's area is the client's payment per unit, its colour how much of its data takes part; unpaid
    clients are small diamonds.
    """
    eq = result.equilibrium if isinstance(result, Solution) else result
    game, ax = eq.game, _axes(ax)
    distance = game.heterogeneity if game.removed else np.sqrt(game.profile(np.ones(game.count)).to_clients)
    paid = eq.payments > 0
    area = 30.0 + 600.0 * eq.payments / max(float(eq.payments.max()), 1e-300)
    for mask, marker, words in ((paid, "o", "paid (area: per unit)"), (~paid, "D", "unpaid")):
        drawn = ax.scatter(
            distance[mask],
            game.alpha[mask],
            s=area[mask],
            c=eq.participation[mask],
            marker=marker,
            vmin=0.0,
            vmax=1.0,
            edgecolors="white",
            linewidths=0.8,
        )
        if mask.any():
            ax.plot([], [], marker, color=_SOFT, label=words)
    ax.legend(frameon=False, fontsize="small")
    if game.count <= _LABELLED:
        for k, name in enumerate(game.names):
            gap = 3.0 + 0.5 * float(np.sqrt(area[k]))
            ax.annotate(
                _verbatim(name),
                (distance[k], game.alpha[k]),
                (gap, 0),
                textcoords="offset points",
                va="center",
                fontsize="small",
            )
    ax.margins(0.15)
    ax.set_xlabel(f"distance to {'the forgotten data' if game.removed else 'the mean of all data'}")
    ax.set_ylabel("share of the remaining data")
    ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
    ax.yaxis.set_major_formatter(_percent())
    bar = ax.figure.colorbar(drawn, ax=ax, format=_percent())
    bar.set_label("takes part")
    ax.set_title(f"{eq.total:.1%} of the data takes part, spend {eq.spend:.4g}")
    return ax


def frontier(traced: Frontier, ax: Axes | None = None, *, others: Iterable[Solution] = ()) -> Axes:
    """What was minimised against the budget, with the certified lower bound; ``others`` are solutions to compare.

    The shaded region is exactly what is proved: up to each budget nothing below its bound, a step per budget.
    """
    ax = _axes(ax)
    budgets, bounds = traced.budgets, traced.lower_bounds
    label = f"{traced.method} payments"
    ax.plot(budgets, traced.objectives, "o-", color=_ACCENT, markersize=4, label=label)
    known = np.isfinite(bounds)
    others = list(others)
    points = [*traced.objectives, *bounds[known], *(s.objective for s in others)]
    spread = max(points) - min(points) or abs(max(points)) or 1.0
    floor = min(points) - 0.08 * spread
    if known.any():
        steps = np.concatenate([[0.0], budgets[known]]), np.concatenate([bounds[known][:1], bounds[known]])
        ax.fill_between(
            steps[0], floor, steps[1], step="pre", color=_BOUND, alpha=0.15, lw=0, label="proved out of reach"
        )
    for solution, marker in zip(others, "sD^vPX" * len(others), strict=False):
        ax.plot(
            solution.budget,
            solution.objective,
            marker,
            color=_SOFT,
            label=f"{solution.method}, {solution.budget:g}",
        )
    ax.set_ylim(floor, max(points) + 0.05 * spread)
    ax.set_xlabel("budget")
    ax.set_ylabel(traced.solutions[0].proves)
    ax.legend(frameon=False)
    return ax


def level(found: Equilibria, ax: Axes | None = None, *, points: int = 120) -> Axes:
    """The level function t(s) under given payments; its zeros, marked, are the equilibria."""
    from .followers.homogeneous import all_alike
    from .followers.level import level_curve

    if all_alike(found.game, found.caps):
        raise InputError(
            "found", "all clients that may take part own the same data: there is no level function"
        )
    ax = _axes(ax)
    totals = np.array([eq.total for eq in found])
    s, t = level_curve(found.game, found.payments, points, min(1.0, 1.8 * float(totals.max())), found.caps)
    if found.game.sampling > 0:  # towards s = 0 it rises without end
        s, t = s[s >= 0.4 * totals.min()], t[s >= 0.4 * totals.min()]
    ax.axhline(0.0, color=_SOFT, lw=1)
    ax.plot(s, t, color=_ACCENT)
    ax.plot(totals, np.zeros_like(totals), "o", color=_BOUND, label="equilibrium")
    reach = float(t.max())
    ax.set_ylim(max(-1.3 * reach, 1.1 * float(t.min())), 1.1 * reach)
    ax.xaxis.set_major_formatter(_percent())
    ax.set_xlabel("total participation s")
    ax.set_ylabel("level t(s)")
    ax.set_title(f"{len(found)} equilibri{'um' if len(found) == 1 else 'a'}, {found.uniqueness.name.lower()}")
    return ax


def dynamics(
    game: StackelbergGame,
    payments: PerClient | None = None,
    start: PerClient | None = None,
    ax: Axes | None = None,
    *,
    rounds: int = 30,
    **options: Any,
) -> Axes:
    """Participation of every client, round by round; ``options`` are those of ``game.dynamics``."""
    if rounds < 1:
        raise InputError("rounds", "must be at least 1", value=rounds)
    ax = _axes(ax)
    played: Array = np.array(list(islice(game.dynamics(payments, start, **options), rounds + 1)))
    lines = ax.plot(played, lw=1.4)
    if game.count <= 10:
        for line, name in zip(lines, game.names, strict=True):
            line.set_label(_verbatim(name))
        ax.legend(title="client", frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    ax.set_ylim(-0.03, 1.03)
    ax.yaxis.set_major_formatter(_percent())
    ax.set_xlabel("round")
    ax.set_ylabel("takes part")
    return ax


def cascade(found: Cascade, ax: Axes | None = None) -> Axes:
    """How many clients are still there, and how much of all data still takes part, round by round of departures."""
    ax = _axes(ax)
    count = found.game.count
    here = [len(r.clients) / count for r in found]
    if found.departed:
        here.append(len(found.stayed) / count)
    rounds = np.arange(1, len(here) + 1)
    ax.step(rounds, here, where="post", color=_ACCENT, label="clients that are still there")
    ax.plot(rounds[: len(found)], found.used, "o--", color=_BOUND, markersize=4, label="data that takes part")
    for i, r in enumerate(found):
        if r.leaving and count <= _LABELLED:
            names = listed([found.game.called(k) for k in r.leaving])
            place = (rounds[i], here[i])
            ax.annotate(_verbatim(names), place, (3, 4), textcoords="offset points", fontsize="small")
    ax.set_ylim(0.0, 1.08)
    ax.yaxis.set_major_formatter(_percent())
    ax.set_xticks(rounds)
    ax.set_xlabel("round")
    ax.set_ylabel("of the remaining clients and their data")
    ax.set_title(f"{len(found.stayed)} of {count} stay")
    ax.legend(frameon=False)
    return ax


def retention(solution: Solution, ax: Axes | None = None) -> Axes:
    """What each client gets under the offers beside what it has outside, and what keeping it costs."""
    game, ax = solution.game, _axes(ax)
    if solution.outside is None:
        raise InputError("solution", "was not asked to keep anybody; solve with outside=...")
    profile = solution.equilibrium.profile
    utilities = utilities_of(game, solution.payouts, profile)
    places = np.arange(game.count)
    ax.bar(places, solution.payouts, width=0.6, color=_SOFT, alpha=0.5, label="receives")
    ax.plot(places, utilities, "o", color=_ACCENT, label="utility inside")
    known = np.isfinite(solution.outside)
    ax.plot(places[known], solution.outside[known], "_", color=_BOUND, markersize=14, label="utility outside")
    if game.count <= _LABELLED:
        ax.set_xticks(places, [_verbatim(name) for name in game.names])
    ax.axhline(0.0, color=_SOFT, lw=1)
    ax.set_xlabel("client")
    ax.set_title(
        f"spend {solution.spend:.4g}, of which {float(solution.offers.retainers.sum()):.4g} for staying"
    )
    ax.legend(frameon=False)
    return ax


def distance_map(
    of: StackelbergGame | MeanEmbeddings, ax: Axes | None = None, *, sizes: PerClient | None = None
) -> Axes:
    """Clients on a plane where distances are, as nearly as two dimensions allow, those of their embeddings.

    Classical multidimensional scaling: the two leading eigenvectors of the centred Gram matrix. The axes tell
    what share of all squared distance they show. Forgotten clients of a game are crosses.
    """
    game = of if isinstance(of, StackelbergGame) else None
    embeddings: MeanEmbeddings = of.embeddings if isinstance(of, StackelbergGame) else of
    removed = game.removed if game is not None else ()
    called = (
        game.all_names if game is not None else embeddings.names or tuple(map(str, range(len(embeddings))))
    )
    weights = (
        None
        if sizes is None
        else np.asarray(by_name(sizes, "sizes", ClientNames.of(called, len(called))), dtype=np.float64)
    )
    if weights is None and game is not None:
        weights = game.all_sizes
    squared = embeddings.distances() ** 2
    centre = squared - squared.mean(0) - squared.mean(1)[:, None] + squared.mean()
    values, vectors = np.linalg.eigh(-0.5 * centre)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    place = vectors[:, :2] * np.sqrt(values[:2])
    if place.shape[1] < 2:
        raise InputError("of", "a map needs at least two clients")
    # eigenvectors have no sign of their own; this choice is the same on every machine
    place = place * np.where(np.take_along_axis(place, np.abs(place).argmax(0)[None], 0) < 0, -1.0, 1.0)
    shown = values[:2] / max(float(values.sum()), 1e-300)
    ax = _axes(ax)
    area = np.full(len(place), 60.0) if weights is None else 30.0 + 500.0 * weights / weights.max()
    gone = np.isin(np.arange(len(place)), removed)
    for who, colour, marker, name in ((~gone, _ACCENT, "o", "remaining"), (gone, _BOUND, "X", "forgotten")):
        x, y = place[who].T
        ax.scatter(x, y, s=area[who], color=colour, marker=marker, alpha=0.75, edgecolors="white", label=name)
    if gone.any():
        ax.legend(frameon=False, markerscale=0.6)
    if len(place) <= _LABELLED:
        for client, (a, b) in zip(called, place, strict=True):
            ax.annotate(_verbatim(client), (a, b), (7, 5), textcoords="offset points", fontsize="small")
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.15)
    ax.set_xlabel(f"first direction, {shown[0]:.0%} of all squared distance")
    ax.set_ylabel(f"second, {shown[1]:.0%}")
    return ax


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise StackfuError("plots need matplotlib; install it with: pip install 'stackfu[plot]'") from None
    fresh: Axes = pyplot.subplots(layout="constrained")[1]
    return fresh


def _verbatim(name: str) -> str:
    """A name as it is: between dollar signs matplotlib would read mathematics."""
    return name.replace("$", r"\$")


def _percent() -> Any:
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(1.0, decimals=None)
