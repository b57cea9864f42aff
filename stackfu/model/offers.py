"""Kinds of offers: a price, a quantity, a retainer; and the cost of a plan under each of them.

A *plan* is a profile with total S, mixture m and distances d_k. With ``a`` the game's sampling loss
(:attr:`~stackfu.model.data.GameData.sampling`), a client sees ``lam (d_k^2 + a / S)`` and its utility has slope

    d U_k / d y_k = (2 lam / S) g_k,     g_k = D_k - S w_k,     D_k = d_k^2 + a / (2 S).

============  =====================================================================================================
linear        ``p_k`` per unit, any participation: the paper's offer; only some plans can be induced
capped        ``p_k`` per unit, at most ``cap_k``: every plan, as the only equilibrium, for
              ``p_k = (c_k - 2 lam alpha_k D_k / S)_+``
contract      ``T_k`` for exactly ``cap_k``, nothing otherwise: cheaper, and acceptance is one equilibrium among others
============  =====================================================================================================

Proofs are in ``docs/theory/offers.md``. Nothing here iterates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..embedding.names import PerClient, by_name, refuse_names
from ..errors import InputError
from .arguments import numbers
from .content import Content
from .data import GameData
from .game_model import GameModel
from .geometry import Array, frozen
from .price import brackets
from .profile import Profile
from .responses import best_responses

__all__ = [
    "KINDS",
    "Kind",
    "Offers",
    "capped_offers",
    "capped_prices",
    "check_offers",
    "check_outside",
    "contract_offers",
    "contract_transfers",
    "firmness",
    "least_keeping",
    "plan_price",
    "stakes",
    "utilities_of",
]

Kind = Literal["linear", "capped", "contract"]
KINDS: tuple[Kind, ...] = ("linear", "capped", "contract")

#: Prices below this share of the cost are rounding errors of 0.
ROUNDING = 1e-13
#: Largest outside utility that a finite payment can match.
MOST_OUTSIDE = 1e290
#: Roundings allowed for in a proof that no client is indifferent: per client in sums over clients, and in everything else.
PER_CLIENT, APART = 200, 10_000


@dataclass(frozen=True, eq=False)
class Offers(Content):
    """Posted offers to every client: a price per unit, a cap on participation, and a retainer for staying.

    Under a contract the price is paid for the whole quantity or not at all.

    >>> offers = Offers("capped", frozen([2.0, 1.0]), frozen([0.5, 0.0]), frozen([0.0, 0.1]))
    >>> offers.payouts([1.0, 1.0]), offers.most
    (array([1. , 0.1]), 1.1)
    """

    kind: Kind
    prices: Array
    caps: Array
    retainers: Array

    @classmethod
    def linear(cls, prices: Array) -> Offers:
        """Return a price per unit for any participation."""
        return cls("linear", frozen(prices), frozen(np.ones(len(prices))), frozen(np.zeros(len(prices))))

    def payouts(self, participation: npt.ArrayLike) -> Array:
        """Return each client's payment for a participation; amounts above the cap are neither used nor paid."""
        refuse_names(participation, "participation", "one number per client in their order")
        brought = numbers(participation, "participation")
        if brought.shape != self.caps.shape:
            raise InputError("participation", f"needs {len(self.caps)} numbers", value=brought.shape)
        x = np.minimum(brought, self.caps)
        if self.kind == "contract":
            return np.asarray(np.where(x >= self.caps, self.prices * self.caps, 0.0) + self.retainers)
        return np.asarray(self.prices * x + self.retainers)

    def to(self, clients: npt.NDArray[np.intp]) -> Offers:
        """Return the offers to some of the clients, by their positions."""
        parts = (frozen(each[clients]) for each in (self.prices, self.caps, self.retainers))
        return Offers(self.kind, *parts)

    @property
    def most(self) -> float:
        """The largest spend that any behaviour of the clients can cause."""
        return float(self.prices @ self.caps + self.retainers.sum())

    def summary(self) -> dict[str, Any]:
        """Return the offers as plain values."""
        return {
            "kind": self.kind,
            "prices": self.prices,
            "caps": self.caps,
            "retainers": self.retainers,
            "most": self.most,
        }


# -------------------------------------------------------------------- what a client sees


def stakes(game: GameData, profile: Profile) -> Array:
    """``D_k = d_k^2 + a / (2 S)``: what a client loses by bringing less, in units of squared distance."""
    return np.asarray(profile.to_clients + 0.5 * game.sampling / profile.total)


def utilities_of(game: GameData, payouts: Array, profile: Profile) -> Array:
    """``U_k = payout_k - c_k x_k - lam (d_k^2 + a / S)``."""
    drift = profile.to_clients + game.sampling / profile.total
    return np.asarray(payouts - game.costs * profile.x - game.lam * drift)


# -------------------------------------------------------------------- what a plan costs


def capped_prices(game: GameData, profile: Profile, outside: Array | None = None) -> tuple[Array, Array]:
    """Return the cheapest prices and retainers under which the plan is the only equilibrium and no client prefers ``outside``.

        p_k = max(0, c_k - 2 lam alpha_k D_k / S)     where x_k > 0

    With outside utilities ``o_k`` the payout is at least ``c_k x_k + lam (d_k^2 + a / S) + o_k``: by a higher price where the
    client takes part (which changes nothing else), by a retainer where it does not.
    """
    bracket = brackets(game, profile)
    prices = np.where((profile.x > 0) & (bracket > ROUNDING * game.costs), bracket, 0.0)
    prices, retainers = _kept(game, profile, prices, outside)
    return frozen(prices), frozen(retainers)


def _kept(game: GameData, plan: Profile, prices: Array, outside: Array | None) -> tuple[Array, Array]:
    """Return prices and retainers under which no client is better off outside."""
    retainers = np.zeros(game.count)
    if outside is None:
        return prices, retainers
    needed = -utilities_of(game, prices * plan.x, plan) + outside  # beyond the payout so far
    missing = np.where(np.isfinite(outside), np.maximum(needed, 0.0), 0.0)
    takes_part = plan.x > 0
    prices = prices + np.where(takes_part, missing / np.where(takes_part, plan.x, 1.0), 0.0)
    return prices, np.where(takes_part, 0.0, missing)


def least_keeping(game: GameData, outside: Array) -> Array:
    """Return the least cost of keeping each client under any plan: ``(lam a + o_k)_+``.

    Participation is not negative, no mixture is nearer to a client than its own data, and S is at most 1.
    """
    return np.asarray(np.maximum(game.lam * game.sampling + outside, 0.0))


def plan_price(game: GameData, profile: Profile, outside: Array | None = None) -> float:
    """Return the cost of a plan under capped offers: ``sum_k z_k (kappa_k S - 2 lam D_k)_+``, and the retainers."""
    prices, retainers = capped_prices(game, profile, outside)
    return float(prices @ profile.x + retainers.sum())


def contract_transfers(game: GameData, profile: Profile) -> Array:
    """Return the cheapest ``T_k`` for which accepting is a best response to acceptance by all others.

        T_k = kappa_k y_k + lam (q_k / S^2 + a / S) - min_{0 <= y' <= y_k} [kappa_k y' + lam (q_k / R^2 + a / R)],   R = S0_k + y'

    The minimum is where ``R`` solves ``2 w R^3 - a R - 2 q = 0`` with the unpaid reluctance w, clipped. It is never negative,
    and never more than the capped payout.
    """
    a, lam, rest = game.sampling, game.lam, profile.others
    w = game.costs / game.drift_weight
    away = best_responses(profile.y, w, profile, a)
    q = np.where(rest > 0, profile.total**2 * profile.to_clients, 0.0)
    staying, leaving = profile.total, rest + away
    delta = profile.y - away
    # lam q (1/leaving^2 - 1/staying^2) + lam a (1/leaving - 1/staying), without subtracting large numbers
    safe = np.where(leaving > 0, leaving, 1.0)
    spared = np.where(
        leaving > 0,
        delta * (q * (staying + leaving) / (staying * safe) ** 2 + a / (staying * safe)),
        np.inf if a > 0 else 0.0,
    )
    transfer = game.kappa * delta - lam * spared
    return frozen(np.where((profile.x > 0) & (transfer > ROUNDING * game.costs), transfer, 0.0))


def firmness(count: int) -> float:
    """Return the part of its cost that a client is paid beyond the least price, so that it is not indifferent.

    At the least price a client at its cap is indifferent, one that sits at the mixture even about everything: the plan is
    then the only equilibrium only up to rounding, or not at all (Theorem 1). A hair above the rounding of a sum settles it.
    """
    return (PER_CLIENT * count + APART) * 2.0**-53


def capped_offers(game: GameData, plan: Profile, outside: Array | None = None) -> Offers:
    """Return the cheapest capped offers for a plan that leave no client indifferent."""
    hair = firmness(game.count) * game.costs
    prices = np.where(plan.x > 0, np.maximum(brackets(game, plan) + hair, 0.0), 0.0)
    prices, retainers = _kept(game, plan, prices, outside)
    return Offers("capped", frozen(prices), frozen(plan.x), frozen(retainers))


def contract_offers(game: GameData, plan: Profile, outside: Array | None = None) -> Offers:
    """Return the cheapest contracts for a plan that leave no client indifferent, if all others accept."""
    takes_part = plan.x > 0
    least = contract_transfers(game, plan)
    transfers = least + np.where(least > 0, firmness(game.count) * game.costs * plan.x, 0.0)
    retainers = np.zeros(game.count)
    if outside is not None:
        short = np.where(np.isfinite(outside), outside - utilities_of(game, transfers, plan), 0.0)
        missing = np.maximum(short, 0.0)
        transfers = transfers + np.where(takes_part, missing, 0.0)
        retainers = np.where(takes_part, 0.0, missing)
    prices = np.where(takes_part, transfers / np.where(takes_part, plan.x, 1.0), 0.0)
    return Offers("contract", frozen(prices), frozen(plan.x), frozen(retainers))


# -------------------------------------------------------------------- arguments


def check_offers(game: GameModel, offers: object) -> Offers:
    """Return offers for the remaining clients of a game, or an error naming the client."""
    if not isinstance(offers, Offers):
        raise InputError("offers", "must be Offers, such as those of a solution", value=repr(offers))
    if offers.kind not in KINDS:
        raise InputError("offers", f"must be of a kind among {', '.join(KINDS)}", value=repr(offers.kind))
    return Offers(
        offers.kind,
        game.check_payments(offers.prices),
        game.check_caps(offers.caps),
        game.check_amounts(offers.retainers, "retainers"),
    )


def check_outside(game: GameData, outside: PerClient | None) -> Array | None:
    """Return outside utilities, one per remaining client or a single number for all; ``-inf`` for clients that cannot leave."""
    if outside is None:
        return None
    ordered = by_name(outside, "outside", game.client_names, others=-np.inf)
    values = numbers(ordered, "outside", "must be numbers, one per client", game.label)
    if values.ndim == 0:
        values = np.full(game.count, float(values))
    if values.shape != (game.count,):
        raise InputError(
            "outside", f"needs {game.count} numbers ({game.count} clients remain)", value=values.shape
        )
    beyond = np.flatnonzero(np.isfinite(values) & (values > MOST_OUTSIDE))
    if len(beyond):
        k = int(beyond[0])
        raise InputError("outside", "is more than any budget can meet", client=game.label(k), value=values[k])
    bad = np.flatnonzero(np.isnan(values) | (values == np.inf))
    if len(bad):
        k = int(bad[0])
        raise InputError(
            "outside", "must be a number, or -inf for who cannot leave", client=game.label(k), value=values[k]
        )
    return frozen(values)
