"""Desired properties of a mechanism, each checked in one line: ``check_mechanism(mine)``.

A mechanism is a callable ``(game, budget) -> payments``; :class:`~stackfu.Offers` and a :class:`~stackfu.Solution` will do too.
With x the equilibrium it leads to (its own, if it names one) and U the clients' utilities there:

=============  ============================================================================================================
budget         ``sum_k payout_k(x) <= budget``; with ``every=True`` in every equilibrium of its payments
rationality    ``U_k(x) >= U_k(0, x_-k)``: nobody would rather do nothing, the others as they are
manipulation   no client gains more than ``gain`` times its cost by reporting another cost; reports are tried from a list, so
               this finds manipulable mechanisms but proves none of them truthful
retention      ``U_k(x) >= outside_k``: nobody is better off leaving
=============  ============================================================================================================

Each holds for a mechanism, not for a game, so it is tried on games that are drawn; a failure prints the smallest it found, as code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import InfeasibleError, InputError, NoEquilibriumError
from ..game import StackelbergGame
from ..leader.misreports import manipulation
from ..model import Array
from ..model.offers import Offers, check_outside, utilities_of
from ..results import Solution

__all__ = [
    "PROPERTIES",
    "assert_individually_rational",
    "assert_retains",
    "assert_unmanipulable",
    "assert_within_budget",
    "check_mechanism",
]

Mechanism = Callable[[StackelbergGame, float], Any]
PROPERTIES = ("budget", "rationality", "manipulation", "retention")
#: Slack of a comparison, relative to what is compared.
SLACK = 1e-7


class _Outcome(NamedTuple):
    offers: Offers
    participation: Array
    payouts: Array
    utilities: Array


def assert_within_budget(
    mechanism: Mechanism, game: StackelbergGame, budget: float, *, every: bool = False
) -> None:
    """Fail if the clients are paid more than the budget where they settle, with ``every`` in any equilibrium."""
    outcome = _outcome(mechanism, game, budget)
    spends = [float(outcome.payouts.sum())]
    if every:
        if outcome.offers.kind == "contract":
            raise InputError("every", "equilibria of contracts are not enumerated")
        found = game.equilibria(outcome.offers.prices, caps=outcome.offers.caps)
        spends += [eq.spend_range[1] + float(outcome.offers.retainers.sum()) for eq in found]
    if max(spends) > budget + SLACK * max(budget, float(game.costs.sum())):
        raise AssertionError(f"spends {max(spends):.6g} of a budget of {budget:.6g}")


def assert_individually_rational(mechanism: Mechanism, game: StackelbergGame, budget: float) -> None:
    """Fail if a client would rather do nothing than what it does, the others as they are."""
    offers, x, _, utilities = _outcome(mechanism, game, budget)
    for k in np.flatnonzero(x > 0):
        idle = np.array(x)
        idle[k] = 0.0
        if not idle.any():
            continue  # without this client there is no model to compare with
        alone = utilities_of(game, offers.payouts(idle), game.profile(idle))[k]
        if utilities[k] < alone - SLACK * (game.costs[k] + abs(alone)):
            raise AssertionError(
                f"client {game.label(int(k))} takes part with {x[k]:.6g} for a utility of {utilities[k]:.6g}; "
                f"doing nothing gives {alone:.6g}"
            )


def assert_unmanipulable(
    mechanism: Mechanism, game: StackelbergGame, budget: float, *, gain: float = 1e-6
) -> None:
    """Fail if a client gains more than ``gain`` times its cost by reporting another cost."""
    found = manipulation(
        game,
        lambda reported: _offers(mechanism(reported, budget)),  # type: ignore[arg-type]
        getattr(mechanism, "__name__", "mechanism"),
        kinds=("cost",),
    )
    worst = max(found.misreports, key=lambda m: m.relative)
    if worst.relative > gain:
        raise AssertionError(
            f"client {game.called(worst.client)} gains {worst.relative:.2%} of its cost by reporting {worst.report}"
        )


def assert_retains(
    mechanism: Mechanism, game: StackelbergGame, budget: float, outside: npt.ArrayLike
) -> None:
    """Fail if a client is better off outside the federation."""
    apart = check_outside(game, outside)
    if apart is None:
        raise InputError("outside", "must say what each client has outside the federation")
    utilities = _outcome(mechanism, game, budget).utilities
    short = np.where(np.isfinite(apart), apart - utilities, 0.0) / (
        game.costs + np.where(np.isfinite(apart), abs(apart), 0.0)
    )
    k = int(np.argmax(short))
    if short[k] > SLACK:
        raise AssertionError(
            f"client {game.label(k)} has a utility of {utilities[k]:.6g} inside and {apart[k]:.6g} outside"
        )


def check_mechanism(
    mechanism: Mechanism,
    properties: Sequence[str] | str = ("budget", "rationality"),
    *,
    outside: Callable[[StackelbergGame], npt.ArrayLike] | float | None = None,
    every: bool = False,
    gain: float = 1e-6,
    max_examples: int = 50,
    **options: Any,
) -> None:
    """Try a mechanism on drawn games and budgets (``options`` as for :func:`~stackfu.testing.games`).

    ``outside`` belongs to retention: a utility for all clients, or a function from a game to one per client.

    A request that the mechanism calls infeasible is no failure, nor is a game in which every client waits for another
    (:class:`~stackfu.InfeasibleError`, :class:`~stackfu.NoEquilibriumError`): there is nothing to compare.

    >>> def at_cost(game, budget):
    ...     "Pay all clients the same share of their costs, within the budget."
    ...     return game.costs * min(1.0, budget / game.costs.sum())
    >>> check_mechanism(at_cost, ["budget", "rationality"], max_examples=10)
    """
    from hypothesis import Phase, given, settings
    from hypothesis import strategies as st

    from .strategies import budgets, games

    properties = (properties,) if isinstance(properties, str) else tuple(properties)
    for name in properties:
        if name not in PROPERTIES:
            raise InputError("properties", f"must be among {', '.join(PROPERTIES)}", value=repr(name))
    if ("retention" in properties) != (outside is not None):
        raise InputError(
            "outside", "belongs to retention: a number, or a function from a game to outside utilities"
        )

    known = inspect.signature(games).parameters
    for name in options:
        if name not in known:
            drawn = "; caps are drawn by testing.caps(game)" if name == "caps" else ""
            raise InputError(name, f"is not an option of games: those are {', '.join(known)}{drawn}")

    # the explain phase tries a failure again and again; the code of the smallest example explains more
    phases = [phase for phase in settings.default.phases if phase is not Phase.explain]  # type: ignore[union-attr]

    @settings(max_examples=max_examples, deadline=None, database=None, phases=phases)
    @given(st.data())
    def hold(data: Any) -> None:
        game = data.draw(games(**options), label="game")
        budget = data.draw(budgets(game), label="budget")
        try:
            if "budget" in properties:
                assert_within_budget(mechanism, game, budget, every=every)
            if "rationality" in properties:
                assert_individually_rational(mechanism, game, budget)
            if "manipulation" in properties:
                assert_unmanipulable(mechanism, game, budget, gain=gain)
            if outside is not None:
                assert_retains(mechanism, game, budget, outside(game) if callable(outside) else outside)
        except (InfeasibleError, NoEquilibriumError):
            return

    hold()


def _offers(made: Any) -> Offers:
    if isinstance(made, Offers):
        return made
    if isinstance(made, Solution):
        return made.offers
    return Offers.linear(np.asarray(getattr(made, "payments", made), dtype=np.float64))


def _outcome(mechanism: Mechanism, game: StackelbergGame, budget: float) -> _Outcome:
    made = mechanism(game, budget)
    offers = _offers(made)
    if offers.prices.shape != (game.count,):
        raise AssertionError(
            f"returns payments of shape {offers.prices.shape} where {game.count} clients remain: one number per remaining client"
        )
    game.check_payments(offers.prices)
    known = getattr(getattr(made, "equilibrium", None), "participation", None)
    if known is not None:
        x = known
    elif offers.kind == "contract":
        x = offers.caps  # acceptance by everybody; whether it is rational is another property
    else:
        x = game.equilibrium(offers.prices, caps=offers.caps).participation
    payouts = offers.payouts(x)
    return _Outcome(offers, x, payouts, utilities_of(game, payouts, game.profile(x)))
