"""The strategies: how games, payments, profiles and budgets are drawn; see :mod:`stackfu.testing`."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from hypothesis import strategies as st

from ..embedding import MeanEmbeddings
from ..embedding.names import Position, name_of, visible
from ..errors import InputError
from ..game import StackelbergGame
from ..model.geometry import Array, frozen
from .rebuilding import tell

__all__ = [
    "Play",
    "Report",
    "assert_own_report_does_not_matter",
    "budgets",
    "caps",
    "embeddings",
    "games",
    "gram_matrices",
    "misreports",
    "mixtures",
    "participations",
    "payments",
    "plays",
    "points",
]


class Play(NamedTuple):
    """A game, payments, and a participation profile with at least one participant."""

    game: StackelbergGame
    payments: Array
    participation: Array


class Report(NamedTuple):
    """A game, a client (its place among the remaining), and the game as that client misreports its cost."""

    game: StackelbergGame
    client: int
    reported: StackelbergGame


#: Offsets between clients that are nearly, but not quite, alike.
_CLOSE = (0.0, 1e-8, 1e-6, 1e-4, 1e-2)
_AWKWARD = ("0", "1", "2", "10", "-1", "a,b", 'say "hi"', "Übung", "ward 2", "ward 10", "nan", "None")
_SIZES = (1.0, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1000.0, 1e-2)


def _coordinates() -> st.SearchStrategy[float]:
    """Numbers in [-1/2, 1/2]: mostly a coarse grid, where ties and collinear points are common."""
    grid = st.integers(-8, 8).map(lambda i: i / 16.0)
    return st.one_of(grid, grid, st.floats(-0.5, 0.5, width=32))


@st.composite
def points(
    draw: st.DrawFn, count: int, *, max_dimension: int = 3, distinct: bool = True, twins: bool = True
) -> Array:
    """``count`` points of norm at most 1 in up to ``max_dimension`` (at most 4) dimensions.

    With ``distinct`` the first two points differ by at least 1/16; any of the others may coincide with or
    lie close to an earlier one (unless ``twins`` is false) or be a mixture of earlier ones.
    """
    dimension = draw(st.integers(1, min(max_dimension, 4)))
    rows: list[Array] = []
    for k in range(count):
        kinds = ["fresh", "fresh", "fresh"]
        if k >= 2 or (k == 1 and not distinct):
            kinds += ["twin", "mean"] if twins else ["mean"]
        kind = draw(st.sampled_from(kinds))
        if kind == "fresh":
            row = np.array(draw(st.lists(_coordinates(), min_size=dimension, max_size=dimension)))
        elif kind == "twin":
            row = rows[draw(st.integers(0, k - 1))].copy()
            row[draw(st.integers(0, dimension - 1))] += draw(st.sampled_from(_CLOSE))
        else:
            row = np.mean(rows, axis=0)
        if distinct and k == 1 and np.abs(row - rows[0]).max() < 1.0 / 16.0:
            row[0] = rows[0][0] + (1.0 / 16.0 if rows[0][0] <= 0 else -1.0 / 16.0)
        rows.append(row)
    order = draw(st.permutations(range(count)))
    return np.array(rows)[list(order)]


@st.composite
def gram_matrices(draw: st.DrawFn, count: int | None = None, *, max_dimension: int = 3) -> Array:
    """Inner products of drawn points: positive semidefinite up to rounding, often singular."""
    size = draw(st.integers(2, 6)) if count is None else count
    rows = draw(points(size, max_dimension=max_dimension))
    return np.asarray(rows @ rows.T)


@st.composite
def embeddings(
    draw: st.DrawFn,
    count: int | None = None,
    *,
    max_dimension: int = 3,
    distinct: bool = True,
    form: Literal["any", "gram", "features"] = "any",
) -> MeanEmbeddings:
    """Mean embeddings of ``count`` (by default 2 to 6) clients, as features or as a Gram matrix."""
    size = draw(st.integers(2, 6)) if count is None else count
    rows = draw(points(size, max_dimension=max_dimension, distinct=distinct))
    chosen = draw(st.sampled_from(["gram", "features"])) if form == "any" else form
    return (
        MeanEmbeddings.from_features(rows)
        if chosen == "features"
        else MeanEmbeddings.from_gram(rows @ rows.T)
    )


@st.composite
def games(
    draw: st.DrawFn,
    *,
    min_clients: int = 2,
    max_clients: int = 6,
    min_removed: int = 0,
    max_removed: int = 2,
    max_dimension: int = 3,
    costs: Literal["any", "proportional", "free"] = "any",
    distinct: bool = True,
    twins: bool = True,
    form: Literal["any", "gram", "features"] = "any",
    sampling: Literal["none", "some", "any"] = "none",
    names: bool = False,
) -> StackelbergGame:
    """Games with ``min_clients`` to ``max_clients`` remaining clients and ``min_removed`` to ``max_removed`` forgotten ones.

    With ``names`` the clients are called something, awkward things among them: numbers that are not their own, quotes,
    commas and letters of any script.

    ``costs="proportional"`` makes them proportional to data as in the paper (one ``kappa`` for everybody),
    ``"free"`` draws each client's own. Costs are drawn in units of what drift is worth, so that staying
    out, partial and full participation all occur. ``distinct`` keeps at least two remaining clients apart;
    without it all of them may own the same data. ``sampling`` says whether samples matter (A > 0): never, always or sometimes.
    """
    count = draw(st.integers(min_clients, max_clients))
    gone = draw(st.integers(min_removed, max(min_removed, max_removed)))
    stay = draw(points(count, max_dimension=max_dimension, distinct=distinct, twins=twins))
    left = draw(
        st.lists(
            st.lists(_coordinates(), min_size=stay.shape[1], max_size=stay.shape[1]),
            min_size=gone,
            max_size=gone,
        )
    )
    rows = np.vstack([np.array(left).reshape(gone, stay.shape[1]), stay])
    sizes = np.array(draw(st.lists(st.sampled_from(_SIZES), min_size=count + gone, max_size=count + gone)))
    chosen = draw(st.sampled_from(["gram", "features"])) if form == "any" else form
    emb = (
        MeanEmbeddings.from_features(rows)
        if chosen == "features"
        else MeanEmbeddings.from_gram(rows @ rows.T)
    )
    weights: dict[str, Any] = {
        "lambda_v": draw(st.sampled_from([1.0, 0.5, 3.0, 0.0])),
        "lambda_q": draw(st.sampled_from([1.0, 0.25, 2.0])),
        "loss_constant": draw(st.sampled_from([1.0, 0.5])),
    }
    weights["lambda_s"] = draw(st.sampled_from([1.0, 2.0] if weights["lambda_v"] == 0 else [1.0, 2.0, 0.0]))
    lam = weights["lambda_q"] * weights["loss_constant"]
    alpha = sizes[gone:] / sizes[gone:].sum()
    spread = max(float(np.ptp(stay, axis=0).max()) ** 2, 1.0 / 256.0)
    # w_k in units of the squared diameter: below 1 a client is easily drawn in fully, far above it hardly
    # takes part
    steps = st.one_of(st.integers(-6, 6).map(lambda i: i / 3.0), st.floats(-2.0, 2.0))
    shared = costs == "proportional" or (costs == "any" and draw(st.booleans()))
    if shared:
        exponents = np.full(count, draw(steps))
    else:
        exponents = np.array(draw(st.lists(steps, min_size=count, max_size=count)))
    cost = 2.0 * lam * alpha * spread * 10.0**exponents
    if sampling == "some" or (sampling == "any" and draw(st.booleans())):
        # a in units of the squared diameter: a hair, comparable, dominant
        unit = spread * weights["loss_constant"] * float(sizes[gone:].sum())
        weights["sampling_constant"] = unit * draw(st.sampled_from([1e-6, 1e-2, 0.3, 1.0, 30.0]))
    if names:
        entry = st.one_of(st.sampled_from(_AWKWARD), st.text(min_size=1, max_size=8)).filter(_is_name)
        everybody = draw(st.lists(entry, min_size=count + gone, max_size=count + gone, unique_by=visible))
        weights["names"] = everybody
    game = StackelbergGame(emb, sizes, removed=map(Position, range(gone)), costs=cost, **weights)
    tell(game=game)
    return game


@st.composite
def caps(draw: st.DrawFn, game: StackelbergGame) -> Array:
    """Draw caps on the clients' participation, often 0 or 1, with a positive one for at least one client."""
    entry = st.one_of(
        st.integers(1, 7).map(lambda i: i / 8.0),
        st.sampled_from([0.0, 1.0, 1e-9, 1.0 - 1e-9]),
        st.floats(0.01, 0.99),
    )
    most = np.array(draw(st.lists(entry, min_size=game.count, max_size=game.count)))
    most[draw(st.integers(0, game.count - 1))] = draw(st.sampled_from([0.25, 1.0]))
    tell(caps=most)
    return frozen(most)


@st.composite
def participations(draw: st.DrawFn, game: StackelbergGame, *, interior: bool = False) -> Array:
    """Draw participation profiles with at least one participant; ``interior`` keeps all clients inside (0, 1)."""
    x = draw(_profiles(game, interior=interior))
    tell(participation=x)
    return x


@st.composite
def _profiles(draw: st.DrawFn, game: StackelbergGame, *, interior: bool) -> Array:
    inside = st.one_of(st.integers(1, 7).map(lambda i: i / 8.0), st.floats(0.01, 0.99))
    ends = st.sampled_from([0.0, 1.0, 1e-9, 1.0 - 1e-9])
    entry = inside if interior else st.one_of(inside, ends)
    x = np.array(draw(st.lists(entry, min_size=game.count, max_size=game.count)))
    if not interior:
        x[draw(st.integers(0, game.count - 1))] = draw(st.one_of(inside, st.just(1.0)))
    return frozen(x)


@st.composite
def payments(draw: st.DrawFn, game: StackelbergGame, *, below_cost: bool = False) -> Array:
    """Payments, often exactly at a threshold; with ``below_cost`` every client is paid less than its cost."""
    at = draw(_profiles(game, interior=False))
    low, high = game.thresholds(at)
    kinds = ["none", "none", "share", "share", "low", "high", "beside"]
    if not below_cost:
        kinds += ["cost", "more"]
    out = np.zeros(game.count)
    for k, cost in enumerate(game.costs):
        kind = draw(st.sampled_from(kinds))
        if kind == "share":
            out[k] = cost * draw(st.integers(1, 15)) / 16.0
        elif kind == "low":
            out[k] = low[k]
        elif kind == "high":
            out[k] = high[k]
        elif kind == "beside":
            out[k] = np.nextafter(
                draw(st.sampled_from([low[k], high[k]])), draw(st.sampled_from([-np.inf, np.inf]))
            )
        elif kind == "cost":
            out[k] = cost
        elif kind == "more":
            out[k] = cost * (1.0 + draw(st.integers(1, 8)) / 8.0)
    ceiling = game.costs * (1.0 - 2.0**-10) if below_cost else np.inf
    out = np.clip(out, 0.0, ceiling)
    tell(payments=out)
    return frozen(out)


@st.composite
def mixtures(draw: st.DrawFn, game: StackelbergGame) -> Array:
    """Points of the simplex, often on its boundary."""
    raw = np.array(
        draw(st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0]), min_size=game.count, max_size=game.count))
    )
    raw[draw(st.integers(0, game.count - 1))] += 0.25
    return np.asarray(raw / raw.sum())


@st.composite
def budgets(draw: st.DrawFn, game: StackelbergGame) -> float:
    """Budgets between nothing and a little more than the price of full participation."""
    return game.full_participation_price * draw(st.sampled_from([0.0, 0.01, 0.1, 0.25, 0.5, 0.9, 1.0, 1.5]))


@st.composite
def plays(draw: st.DrawFn, /, *, below_cost: bool = False, interior: bool = False, **options: Any) -> Play:
    """A game (``options`` as for :func:`games`), payments and a participation profile."""
    game = draw(games(**options))
    return Play(
        game,
        draw(payments(game, below_cost=below_cost)),
        draw(participations(game, interior=interior)),
    )


@st.composite
def misreports(draw: st.DrawFn, /, **options: Any) -> Report:
    """A game (``options`` as for :func:`games`) and one client's misreport of its cost, from a tenth to ten times the truth."""
    game = draw(games(**options))
    client = draw(st.integers(0, game.count - 1))
    costs = np.array(game.costs)
    costs[client] *= draw(st.sampled_from([0.1, 0.5, 0.99, 1.01, 2.0, 10.0]))
    return Report(game, client, game.replace(costs=costs))


def assert_own_report_does_not_matter(mechanism: Any, report: Report, tolerance: float = 1e-9) -> None:
    """Fail if what a client is offered changes with the cost that it reports itself.

    ``mechanism`` maps a game to :class:`~stackfu.Offers` (or to a vector of payments per unit).

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=20, deadline=None, database=None)
    ... @given(misreports())
    ... def everybody_is_offered_the_same(report):
    ...     assert_own_report_does_not_matter(lambda game: np.full(game.count, 0.1), report)
    >>> everybody_is_offered_the_same()
    """
    game, k, reported = report
    truth, lie = mechanism(game), mechanism(reported)
    for name in ("prices", "caps", "retainers"):
        one, two = (np.asarray(getattr(offers, name, offers), dtype=np.float64)[k] for offers in (truth, lie))
        if abs(one - two) > tolerance * max(abs(one), abs(two), 1e-300):
            raise AssertionError(
                f"client {game.label(k)} is offered {name} {one:.6g}, and {two:.6g} when it reports a cost of "
                f"{reported.costs[k]:.6g} instead of {game.costs[k]:.6g}"
            )


def _is_name(text: str) -> bool:
    """Return True if a client may have this name."""
    try:
        name_of(text)
    except InputError:
        return False
    return True
