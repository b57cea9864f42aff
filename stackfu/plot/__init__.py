"""Figures with matplotlib. Every function takes axes or makes them, draws, and returns them.

>>> import matplotlib; matplotlib.use("agg")
>>> import stackfu as sf
>>> from stackfu.demo import digits_game
>>> ax = sf.plot.participation(digits_game().equilibrium())
>>> ax.get_xlabel()
'distance to the forgotten data'

Names of clients never cover each other. ``labels=True`` writes as many as fit, those of the largest and most affected clients
first; ``labels=False`` writes none, ``labels=5`` the five most important, ``labels=["York", "Hull"]`` those. A client that is so
far off that it would squeeze all others stands at the edge of the axes as a triangle, always with its name and its value.

Install with ``pip install 'stackfu[plot]'``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..embedding.names import ClientNames, PerClient, by_name
from ..errors import InputError, StackfuError
from ..game import StackelbergGame
from ..html import NOTHING, in_currency, money
from ..model.geometry import Array
from ..model.offers import Offers, utilities_of
from ..results import Solution, Uniqueness
from .scales import outliers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..embedding import MeanEmbeddings
    from ..results import Cascade, Equilibria, Equilibrium, Frontier
    from .name_labels import Labels

__all__ = ["cascade", "distance_map", "dynamics", "frontier", "level", "participation", "retention"]

_ACCENT, _BOUND, _SOFT, _SECOND = "#0b6e8f", "#b3541e", "#8a93a3", "#7b3fa0"
#: Axes that are narrower than this many inches have smaller words and markers: a column of a paper is 3.4 inches wide.
_NARROW = 3.6
#: Names are shortened to this many letters, in narrow axes and in others.
_LETTERS = {True: 14, False: 24}
#: Lines with colours of their own, and most names at one round of departures.
_COLOURS, _LEAVING = 10, 3
#: Statements about other equilibria than those found.
_OTHERS = {
    Uniqueness.UNIQUE: "unique",
    Uniqueness.MULTIPLE: "multiple",
    Uniqueness.CONTINUUM: "of infinitely many",
    Uniqueness.UNKNOWN: "others are not excluded",
}
#: Marker of paid clients and words for the legend, by kind of offer.
_PAID = {
    "linear": ("o", "paid per unit"),
    "capped": ("s", "capped offer"),
    "contract": ("h", "contract"),
}


def participation(result: Equilibrium | Solution, ax: Axes | None = None, *, labels: Labels = True) -> Axes:
    """Draw the clients by their share of the data and their distance to the forgotten data.

    A marker's area is the client's payment per unit, its colour how much of its data takes part. Clients with a price per unit are
    circles, with a capped offer squares, with a contract hexagons, without payment small diamonds. The bar below a marker is the
    client's cap, the most data that is taken, on the same scale of shares.

    Parameters
    ----------
    result
        The solution or equilibrium to draw.
    ax
        The axes to draw in; by default new ones.
    labels
        Names to write: True for all that fit, False, a number, or names of clients.

    Returns
    -------
    Axes
        The axes.
    """
    offers = _offers_of(result)
    eq = result.equilibrium if isinstance(result, Solution) else result
    game, ax = eq.game, _axes(ax)
    narrow = _narrow(ax)
    distance = game.heterogeneity if game.removed else np.sqrt(game.profile(np.ones(game.count)).to_clients)
    paid = np.maximum(offers.prices, offers.retainers) > NOTHING * game.costs
    largest = max(float(offers.prices.max()), 1e-300)
    area = (30.0 + np.where(paid, 600.0 * offers.prices / largest, 0.0)) * _scale(ax, game.count)
    marker, words = _PAID[offers.kind]
    for mask, shape, said in (
        (paid, marker, words if narrow else f"{words} (area: price)"),
        (~paid, "D", "unpaid"),
    ):
        drawn = ax.scatter(
            distance[mask],
            game.alpha[mask],
            s=area[mask],
            c=eq.participation[mask],
            marker=shape,
            vmin=0.0,
            vmax=1.0,
            edgecolors="white",
            linewidths=0.8,
        )
        if mask.any():
            ax.plot([], [], shape, color=_SOFT, markersize=5, label=said)
    capped = (offers.caps < 1.0) & (paid | (eq.participation > 0))
    if capped.any():
        taken = game.alpha * offers.caps
        ax.vlines(distance[capped], taken[capped], game.alpha[capped], color=_BOUND, lw=0.5, alpha=0.35)
        said = "cap" if narrow else "cap: most that is taken"
        ax.plot(
            distance[capped],
            taken[capped],
            "_",
            color=_BOUND,
            markersize=9 * np.sqrt(_scale(ax, game.count)),
            label=said,
        )
    _legend(ax, below=narrow, ncols=3 if narrow else 1)
    _fit(ax, distance, game.alpha, zero=True)
    payouts = offers.payouts(eq.participation)
    ranks = [payouts, game.alpha, np.maximum(eq.impacts.clients, 0.0)]
    importance = np.max([rank / max(float(rank.max()), 1e-300) for rank in ranks], axis=0)
    _name(
        ax,
        game.names,
        np.column_stack([distance, game.alpha]),
        area,
        importance,
        labels,
        ("{:.3g}", "{:.1%}"),
    )
    _say(
        ax,
        f"distance to {'the forgotten data' if game.removed else 'the mean of all data'}",
        "share of the remaining data",
    )
    ax.yaxis.set_major_formatter(_percent())
    bar = ax.figure.colorbar(drawn, ax=ax, format=_percent(), aspect=28, pad=0.02)
    bar.set_label("takes part", fontsize=_small(narrow) if narrow else None)
    bar.ax.tick_params(labelsize=_small(narrow) if narrow else None)
    used = float(game.sizes @ eq.participation)
    kind = {"linear": "Prices per unit", "capped": "Capped offers", "contract": "Contracts"}[offers.kind]
    first = f"{kind}, spend {money(float(payouts.sum()), game.currency, 4)}" if paid.any() else "No payments"
    _head(ax, f"{first}:\n{eq.total:.1%} of the data takes part, {_samples(used)}")
    return ax


def frontier(traced: Frontier, ax: Axes | None = None, *, others: Iterable[Solution] = ()) -> Axes:
    """Draw the objective against the budget, with the certified lower bound; ``others`` are solutions to compare.

    The shaded region is exactly what is proved: up to each budget nothing below its bound, a step per budget. Capped offers and
    contracts have dashed lines and squares. Another frontier may be drawn into the same axes. Of ``others`` that lie far above, the
    legend says the value, and a triangle at the upper edge shows the budget.
    """
    ax = _axes(ax)
    narrow = _narrow(ax)
    budgets, bounds = traced.budgets, traced.lower_bounds
    kind = traced.solutions[0].offers.kind
    words = {"linear": "payments", "capped": "capped offers", "contract": "contracts"}[kind]
    low, high = ax.get_ylim()
    before = [
        y
        for line in ax.lines
        if line.get_transform() == ax.transData
        for y in np.asarray(line.get_ydata(), dtype=float).tolist()
        if low <= y <= high
    ]
    style: dict[str, Any] = {"color": _ACCENT} if not before else {"color": _SECOND}
    ax.plot(
        budgets,
        traced.objectives,
        "o-" if kind == "linear" else "s--",
        markersize=3 if narrow else 4,
        label=f"{traced.method} {words}",
        **style,
    )
    known = np.isfinite(bounds)
    others = list(others)
    own = [*before, *traced.objectives, *bounds[known]]
    spread = max(own) - min(own) or abs(max(own)) or 1.0
    far = [s.objective > max(own) + 2.0 * spread for s in others]
    points = [*own, *(s.objective for s, beyond in zip(others, far, strict=True) if not beyond)]
    spread = max(points) - min(points) or abs(max(points)) or 1.0
    floor, top = min(points) - 0.08 * spread, max(points) + (0.15 if any(far) else 0.05) * spread
    if known.any():
        steps = np.concatenate([[0.0], budgets[known]]), np.concatenate([bounds[known][:1], bounds[known]])
        ax.fill_between(
            steps[0],
            floor - 10.0 * spread,  # below what another frontier in the same axes may show
            steps[1],
            step="pre",
            color=_BOUND if not before else _SECOND,
            alpha=0.15,
            lw=0,
            label="proved out of reach" if kind == "linear" else f"the same of {words}",
        )
    for solution, marker, beyond in zip(others, "sD^vPX" * len(others), far, strict=False):
        said = f"{solution.method}, {money(solution.budget, solution.game.currency, 3)}"
        ax.plot(
            solution.budget,
            solution.objective,
            marker,
            color=_SOFT,
            label=f"{said}: {solution.objective:.3g}, above the axis" if beyond else said,
        )
        if beyond:
            ax.plot(solution.budget, 0.97, "^", color=_BOUND, transform=ax.get_xaxis_transform())
    ax.set_ylim(floor, top)
    _say(ax, in_currency("budget", traced.game.currency), traced.solutions[0].proves)
    _legend(
        ax,
        below=narrow,
        ncols=1 if not narrow or any("above" in said for said in ax.get_legend_handles_labels()[1]) else 2,
    )
    return ax


def level(found: Equilibria, ax: Axes | None = None, *, points: int = 120) -> Axes:
    """Draw the level function t(s) under given payments; its zeros, marked, are the equilibria."""
    from ..followers.homogeneous import all_alike
    from ..followers.level import level_curve

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
    _say(ax, "total participation s", "level t(s)")
    _head(ax, f"{len(found)} equilibri{'um' if len(found) == 1 else 'a'}, {_OTHERS[found.uniqueness]}")
    return ax


def dynamics(
    game: StackelbergGame,
    payments: PerClient | None = None,
    start: PerClient | None = None,
    ax: Axes | None = None,
    *,
    rounds: int = 30,
    labels: Labels = True,
    **options: Any,
) -> Axes:
    """Draw the participation of every client, round by round; ``options`` are those of ``game.dynamics``.

    The clients with the largest changes of participation have colours and names, at most ten unless ``labels`` selects others.
    """
    from .name_labels import chosen, shortened, verbatim

    if rounds < 1:
        raise InputError("rounds", "must be at least 1", value=rounds)
    ax = _axes(ax)
    narrow = _narrow(ax)
    played: Array = np.array(list(islice(game.dynamics(payments, start, **options), rounds + 1)))
    named, _ = chosen(labels, game.names, np.ptp(played, axis=0))
    named = named[:_COLOURS] if labels is True else named
    words = shortened(game.names, _LETTERS[narrow])
    for k in range(game.count):
        style = {"lw": 1.4, "zorder": 2.1} if k in named else {"lw": 0.6, "color": _SOFT, "alpha": 0.6}
        (line,) = ax.plot(played[:, k], **style)
        if k in named:
            line.set_color(f"C{named.index(k) % _COLOURS}")
            line.set_label(verbatim(words[k]))
    if named:
        rest = game.count - len(named)
        title = "client" + (f" (grey: {rest} others)" if rest else "")
        if narrow:
            _legend(ax, below=True, title=title)
        else:
            ax.legend(title=title, frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    ax.set_ylim(-0.03, 1.03)
    ax.yaxis.set_major_formatter(_percent())
    _say(ax, "round", "takes part")
    return ax


def cascade(found: Cascade, ax: Axes | None = None, *, labels: Labels = True) -> Axes:
    """Draw how many clients are still there, and how much of all data still takes part, round by round of departures.

    The names of those that leave stand at the round in which they do; a number as ``labels`` says how many at most, the largest
    clients first.
    """
    from .name_labels import NameLabels, chosen, shortened

    ax = _axes(ax)
    narrow = _narrow(ax)
    game = found.game
    count = game.count
    here = [len(r.clients) / count for r in found]
    if found.departed:
        here.append(len(found.stayed) / count)
    rounds = np.arange(1, len(here) + 1)
    ax.step(rounds, here, where="post", color=_ACCENT, label="clients that are still there")
    ax.plot(rounds[: len(found)], found.used, "o--", color=_BOUND, markersize=4, label="data that takes part")
    sizes = dict(zip(map(int, game.remaining), map(float, game.sizes), strict=True))
    named = {game.names[k] for k in chosen(labels, game.names, game.sizes)[0]}
    texts, places = [], []
    for i, r in enumerate(found):
        leaving = sorted(map(int, r.leaving), key=lambda k: -sizes[k])
        shown = [game.called(k) for k in leaving if game.called(k) in named][:_LEAVING]
        if shown:
            more = len(leaving) - len(shown)
            texts.append(
                "\n".join([*shortened(shown, _LETTERS[narrow]), *([f"and {more} more"] if more else [])])
            )
            places.append((rounds[i], here[i]))
    ax.yaxis.set_major_formatter(_percent())
    ax.set_ylim(0.0, 1.08)
    ax.set_xlim(0.8, rounds[-1] + 0.6)
    if texts:
        corners = np.column_stack([np.repeat(rounds, 2)[1:], np.repeat(here, 2)[:-1]])
        along = [_dense(corners), _dense(np.column_stack([rounds[: len(found)], found.used]))]
        lines = np.vstack(along)
        NameLabels(
            ax, texts, np.array(places), np.full(len(texts), 2.0), [False] * len(texts), markers=lines,
            marker_radii=np.full(len(lines), 2.0), forced=True, edge=_BOUND, fontsize=_small(narrow),
        )  # fmt: skip
    step = max(1, len(rounds) // 8)
    ax.set_xticks(rounds[::step])
    _say(ax, "round", "of the remaining clients and their data")
    _head(ax, f"{len(found.stayed)} of {count} stay")
    _legend(ax)
    return ax


def retention(solution: Solution, ax: Axes | None = None, *, labels: Labels = True) -> Axes:
    """Draw the payout and the utility of each client under the offers, and the utility it has outside.

    A value that would squeeze all others is cut at the edge and written there with the client's name.
    """
    from .name_labels import NameLabels, chosen, shortened, verbatim

    game, ax = solution.game, _axes(ax)
    narrow = _narrow(ax)
    if solution.outside is None:
        raise InputError("solution", "was not asked to keep anybody; solve with outside=...")
    profile = solution.equilibrium.profile
    utilities = utilities_of(game, solution.payouts, profile)
    places = np.arange(game.count)
    ax.bar(places, solution.payouts, width=0.6, color=_SOFT, alpha=0.5, label="receives")
    size = float(np.clip(0.35 * 72 * _width(ax) / game.count, 2.0, 14.0))
    ax.plot(places, utilities, "o", color=_ACCENT, markersize=min(6.0, size), label="utility inside")
    known = np.isfinite(solution.outside)
    ax.plot(
        places[known], solution.outside[known], "_", color=_BOUND, markersize=size, label="utility outside"
    )
    words = shortened(game.names, _LETTERS[narrow])
    named = chosen(labels, game.names, np.maximum(solution.payouts, np.abs(utilities)))[0]
    # upright names are as wide as a line of text is high
    apart = 11.0 * game.count / (72 * _width(ax))
    free: list[int] = []
    for k in named:
        if labels is not True or all(abs(k - other) >= apart for other in free):
            free.append(k)
    named = sorted(free)
    upright = sum(len(words[k]) for k in named) > 11 * _width(ax)
    ax.set_xticks(
        places[named],
        [verbatim(words[k]) for k in named],
        rotation=90 if upright else 0,
        fontsize=_small(narrow) if upright or narrow else None,
    )
    ax.axhline(0.0, color=_SOFT, lw=1)
    shown = np.concatenate([solution.payouts, utilities, solution.outside[known]])
    owners = np.concatenate([places, places, places[known]])
    far = outliers(shown)
    inner = np.append(shown[~far], 0.0)
    span = float(np.ptp(inner)) or 1.0
    ax.set_ylim(
        inner.min() - 0.08 * span, inner.max() + (0.5 if narrow else 0.25) * span
    )  # the legend is above the bars
    if far.any():
        at = np.column_stack([owners[far], shown[far]])
        NameLabels(
            ax, [f"{words[k]}: {v:.3g}" for k, v in zip(owners[far], shown[far], strict=True)], at,
            np.full(len(at), 4.0), [True] * len(at), markers=at, marker_radii=np.full(len(at), 2.0), forced=True,
            edge=_BOUND, fontsize=_small(narrow),
        )  # fmt: skip
    _say(ax, "client", game.currency or "")
    _head(
        ax,
        f"spend {money(solution.spend, game.currency, 4)}, of which "
        f"{money(float(solution.offers.retainers.sum()), game.currency, 4)} for staying",
    )
    _legend(ax, ncols=2 if narrow else 3)
    return ax


def distance_map(
    of: StackelbergGame | MeanEmbeddings,
    ax: Axes | None = None,
    *,
    sizes: PerClient | None = None,
    labels: Labels = True,
) -> Axes:
    """Draw clients on a plane where distances are, as nearly as two dimensions allow, those of their embeddings.

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
    area *= _scale(ax, len(place))
    gone = np.isin(np.arange(len(place)), removed)
    for mask, colour, marker, name in ((~gone, _ACCENT, "o", "remaining"), (gone, _BOUND, "X", "forgotten")):
        x, y = place[mask].T
        ax.scatter(
            x, y, s=area[mask], color=colour, marker=marker, alpha=0.75, edgecolors="white", label=name
        )
    if gone.any():
        _legend(ax, markerscale=0.6)
    ax.set_aspect("equal", adjustable="datalim")
    _fit(ax, *place.T)
    # the forgotten first, then the largest and those that stand apart
    away = np.hypot(*place.T)
    importance = 2.0 * gone + np.maximum(area / area.max(), away / max(float(away.max()), 1e-300))
    _name(ax, called, place, area, importance, labels, ("{:.3g}", "{:.3g}"))
    _say(ax, f"first direction, {shown[0]:.0%} of all squared distance", f"second, {shown[1]:.0%}")
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


def _offers_of(result: Equilibrium | Solution) -> Offers:
    """Return what is posted; an equilibrium knows prices and caps, and no retainers."""
    if isinstance(result, Solution):
        return result.offers
    if result.caps is None:
        return Offers.linear(result.payments)
    return Offers("capped", result.payments, result.caps, np.zeros_like(result.payments))


def _fit(ax: Any, x: Array, y: Array, *, zero: bool = False) -> None:
    """Set the limits of the axes to all clients but those that would squeeze the others; ``zero``: y begins at 0."""
    for values, limit in ((x, ax.set_xlim), (y, ax.set_ylim)):
        inner = values[~outliers(values)]
        low, high = float(inner.min()), float(inner.max())
        pad = 0.15 * (high - low) or 0.1 * abs(high) or 1.0
        bottom = -0.06 * high if zero and values is y else low - pad
        limit(bottom, high + pad, auto=True)  # equal scales may widen them


def _name(
    ax: Any,
    names: Sequence[str],
    places: Array,
    area: Array,
    importance: Array,
    labels: Labels,
    formats: tuple[str, str],
) -> None:
    """Write names next to the markers, and names with values for the markers beyond the axes."""
    from .name_labels import NameLabels, chosen, shortened

    narrow = _narrow(ax)
    far = np.column_stack([outliers(column) for column in places.T])
    order, forced = chosen(labels, names, importance)
    order = sorted({*order, *np.flatnonzero(far.any(axis=1)).tolist()}, key=lambda k: -importance[k])
    words = shortened(names, _LETTERS[narrow])
    said = [
        words[k] + "".join(f" ({f.format(v)})" for f, v, beyond in zip(formats, places[k], far[k], strict=True) if beyond)
        for k in order
    ]  # fmt: skip
    radii = 0.55 * np.sqrt(area)
    if order:
        NameLabels(
            ax, said, places[order], radii[order], [bool(far[k].any()) for k in order], markers=places, marker_radii=radii,
            forced=forced, edge=_BOUND, fontsize=_small(narrow),
        )  # fmt: skip


def _legend(ax: Any, *, below: bool = False, **options: Any) -> None:
    """Add a legend inside the axes where it covers least, or below them."""
    narrow = _narrow(ax)
    if below:
        height = float(ax.figure.get_size_inches()[1] * ax.get_position().height)
        options = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.5 / height), "ncols": 2, **options}
    look = {"frameon": True, "framealpha": 0.8, "edgecolor": "none", "columnspacing": 1.0}
    ax.legend(fontsize=_small(narrow), title_fontsize=_small(narrow), **look, **options)


def _dense(corners: Array) -> Array:
    """Return points along the line through the corners."""
    steps = np.linspace(0.0, 1.0, 40)[:, None]
    return np.vstack([corners, *(a + steps * (b - a) for a, b in pairwise(corners))])


def _width(ax: Any) -> float:
    """Return the width of the axes in inches."""
    return float(ax.figure.get_size_inches()[0] * ax.get_position().width)


def _narrow(ax: Any) -> bool:
    return _width(ax) < _NARROW


def _small(narrow: bool) -> str:
    return "x-small" if narrow else "small"


def _scale(ax: Any, count: int) -> float:
    """Return a factor for the areas of markers: smaller in narrow axes, and where there are many of them."""
    return (0.45 if _narrow(ax) else 1.0) * min(1.0, max(0.15, 40.0 / count))


def _say(ax: Any, x: str, y: str) -> None:
    """Write what the axes show."""
    size = "small" if _narrow(ax) else None
    ax.set_xlabel(x, fontsize=size)
    ax.set_ylabel(y, fontsize=size)
    if _narrow(ax):
        ax.tick_params(labelsize="small")


def _head(ax: Any, title: str) -> None:
    ax.set_title(title, fontsize="small" if _narrow(ax) else "medium")


def _samples(count: float) -> str:
    """Return a number of samples in words: whole numbers from ten up, two digits below."""
    return f"{count:,.0f} samples" if count >= 10 else f"{count:.2g} sample{'' if count == 1 else 's'}"


def _percent() -> Any:
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(1.0, decimals=None)
