"""Unknown costs: plans that are safe for a box of costs, and prices that learn the position in the box.

Capped offers for the upper ends of cost intervals are safe for the whole box: the plan is the only equilibrium for every lower
cost, at the same spend (Theorem 2 of the theory of offers). To pay less, the server probes: it posts offers as if costs were
lower. A client that still brings its cap costs at most what was assumed; one that holds back reveals its cost exactly, and
whatever happens the spend stays below the sum of price times cap.

>>> import stackfu as sf
>>> from stackfu.leader.posted_prices import PostedPrices
>>> from stackfu.demo import digits_game
>>> game = digits_game(sampling_constant=30.0)
>>> loop = PostedPrices(game, 0.5 * game.costs, 2.0 * game.costs, budget=0.1)
>>> offers = loop.post(gap=1e-2)
>>> intervals = loop.observe(loop.answer(game.costs))
>>> bool((intervals.low <= game.costs * (1 + 1e-6)).all() and (intervals.high >= game.costs * (1 - 1e-6)).all())
True
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConvergenceError, InfeasibleError, InputError
from ..followers.below_caps import settle
from ..model import Array, GameModel, Objective
from ..model.arguments import count, number, numbers
from ..model.offers import Offers
from ..model.revealed import CostIntervals, check_interval, revealed_costs
from ..results import Solution
from .capped import capped
from .mechanisms import read, refuse_unknown

__all__ = ["PostedPrices", "Regret", "regret_curve"]

#: A client with an interval this narrow, relative to its upper end, is no longer probed.
NARROW_ENOUGH = 1e-3
#: Gap of the linear payments that the posted offers are compared with: guessed costs are wrong by more.
GUESS_GAP = 1e-3
#: Constraints that linear payments share with the posted offers.
BY_LINEAR_PAYMENTS = frozenset(
    {
        *("payment_weight", "loss_weight", "max_loss", "min_total", "min_samples", "finite_sample"),
        *("gap", "time_limit", "max_nodes"),
    }
)


@dataclass(eq=False)
class PostedPrices:
    """A server that posts capped offers request after request and narrows an interval per client by the answers.

    ``probe`` in [0, 1] is how far below the upper end costs are assumed: 0 never learns and never fails, 0.5 halves the intervals.
    """

    game: GameModel
    low: npt.ArrayLike
    high: npt.ArrayLike
    budget: float
    probe: float = 0.5
    intervals: CostIntervals = field(init=False)
    posted: Solution | None = field(init=False, default=None)
    history: list[dict[str, Any]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        game: Any = self.game
        if not isinstance(game, GameModel):
            raise InputError("game", "must be a StackelbergGame", value=repr(game))
        self.intervals = check_interval(game, self.low, self.high, ("low", "high"))
        self.budget = Objective(budget=self.budget).budget
        if not 0.0 <= number(self.probe, "probe") <= 1.0:
            raise InputError("probe", "must lie in [0, 1]", value=self.probe)

    def post(self, **options: Any) -> Offers:
        """Return offers for the next request; ``options`` are those of capped offers."""
        refuse_unknown(read("capped offers", capped, False), options)
        if "costs_between" in options:
            raise InputError("costs_between", "are what the loop knows by now; begin it with low and high")
        low, high = self.intervals.low, self.intervals.high
        settled = high - low <= NARROW_ENOUGH * high
        assumed = np.where(settled, high, high - self.probe * (high - low))
        asked = {"progress": False, **options}
        self.posted = capped(self.game.replace(costs=assumed), self.budget, **asked)
        return self.posted.offers

    def answer(self, true_costs: npt.ArrayLike) -> Array:
        """Return the answer of clients with these costs to the offers posted last."""
        if self.posted is None:
            raise InputError("true_costs", "nothing has been posted yet")
        offers = self.posted.offers
        return settle(self.game.replace(costs=true_costs), offers.prices, offers.caps)

    def observe(self, participation: npt.ArrayLike) -> CostIntervals:
        """Learn from an answer to the offers posted last."""
        if self.posted is None:
            raise InputError("participation", "nothing has been posted yet")
        offers, game = self.posted.offers, self.game
        profile = game.profile(participation)
        told = revealed_costs(game, offers.prices, profile, offers.caps)
        self.intervals = self.intervals.meet(told, game)
        self.history.append(
            {
                "loss": game.loss_of(profile, self.posted.goal.finite_sample),
                "spend": float(offers.payouts(profile.x).sum()),
                "most": offers.most,
                "known": int(self.intervals.known.sum()),
                "width": float(((self.intervals.high - self.intervals.low) / self.intervals.high).mean()),
            }
        )
        return self.intervals


@dataclass(frozen=True, eq=False)
class Regret:
    """Losses of the posted prices, request by request, compared with the optimum for known costs and with linear payments.

    Losses are the server's, in its own units whatever their weight; not a number where no linear payments meet what was asked for.
    """

    losses: Array
    spends: Array
    informed: float
    informed_spend: float
    budget: float
    linear_losses: Array
    linear_spends: Array

    @property
    def regrets(self) -> Array:
        """Loss above that of a server who knows the costs."""
        return np.asarray(self.losses - self.informed)

    @property
    def spend_regrets(self) -> Array:
        """Spend above that of a server who knows the costs."""
        return np.asarray(self.spends - self.informed_spend)


def regret_curve(
    game: GameModel,
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    budget: float,
    *,
    requests: int = 8,
    probe: float = 0.5,
    linear_guesses: npt.ArrayLike = (1.0, 1.1, 1.25, 1.67),
    **options: Any,
) -> Regret:
    """Run the loop against clients with the game's costs as true ones, and compare.

    ``linear_guesses`` are factors by which linear payments overestimate costs: their outcome is shown too, for the same
    weights, floor and cap on the loss (linear payments keep no client with a better ``outside`` option).
    """
    from .certified import certified

    loop = PostedPrices(game, low, high, budget, probe)
    refuse_unknown(read("capped offers", capped, False), options)
    requests = count(requests, "requests", least=1)
    guesses = np.atleast_1d(numbers(linear_guesses, "linear_guesses"))
    for factor in guesses.flat:
        if not 0.0 < factor < np.inf:
            raise InputError("linear_guesses", "must be positive and finite", value=factor)
    for _ in range(requests):
        loop.post(**options)
        loop.observe(loop.answer(game.costs))
    informed = capped(game, budget, **{"progress": False, **options})
    alike = {name: value for name, value in options.items() if name in BY_LINEAR_PAYMENTS}
    linear = np.full((len(guesses), 2), np.nan)
    for row, factor in zip(linear, guesses.flat, strict=True):
        try:
            guess = certified(
                game.replace(costs=factor * game.costs),
                budget,
                **{"gap": GUESS_GAP, **alike, "progress": False},
            )
        except (InfeasibleError, ConvergenceError):
            continue
        x = settle(game, guess.payments, np.ones(game.count))
        row[:] = game.loss_of(game.profile(x), informed.goal.finite_sample), float(guess.payments @ x)
    return Regret(
        np.array([h["loss"] for h in loop.history]),
        np.array([h["spend"] for h in loop.history]),
        game.loss_of(informed.equilibrium.profile, informed.goal.finite_sample),
        informed.spend,
        budget,
        linear[:, 0],
        linear[:, 1],
    )
