"""Posted prices that do not depend on what a client itself reports about its cost.

Client k is offered a cap and a price that follow from public data (sizes, embeddings, the budget) and from the costs per
share that the *others* report,
as if ``kappa_k`` were their largest, and as if all clients brought the same share t of their data. Its part of the budget is
``alpha_k B``:

    p_k(t) = alpha_k (max_{j != k} kappa_j - 2 lam (||mu_N - mu_k||^2 + a / (2 t)) / t)_+,      cap_k = the largest t
    with p_k(t) t <= alpha_k B

So misreporting its own cost changes nothing about a client's own offer, and no behaviour raises the spend above B. It
does change the others' offers, unless another client reports a larger cost: so a client can still gain. With ``public_cost``, a
cost per share that is known without asking, no offer depends on any report, and there is nothing to gain at all.
"""

from __future__ import annotations

import numpy as np

from ..errors import InputError, NoEquilibriumError
from ..followers.below_caps import settle
from ..model import Array, GameModel, Objective, frozen
from ..model.arguments import number
from ..model.offers import Offers
from ..results import Equilibrium, Solution, Status, Uniqueness

__all__ = ["posted"]

#: Caps are found on a grid of this many shares, then by bisection.
SHARES_COMPARED = 200


def posted_offers(game: GameModel, budget: float, public_cost: float | None = None) -> Offers:
    """Return caps and prices that do not depend on a client's own cost; with a public cost per share, on no reported cost."""
    if public_cost is not None:
        if not 0.0 < number(public_cost, "public_cost") < np.inf:
            raise InputError("public_cost", "must be positive and finite", value=public_cost)
        others = np.full(game.count, float(public_cost))
    else:
        kappa = game.kappa
        order = np.argsort(kappa)
        largest, second = kappa[order[-1]], kappa[order[-2]]
        others = np.where(np.arange(game.count) == order[-1], second, largest)
    d2 = game.profile(np.ones(game.count)).to_clients
    caps, prices = np.zeros(game.count), np.zeros(game.count)
    shares = np.linspace(0.0, 1.0, SHARES_COMPARED + 1)[1:]

    def price(k: int, t: Array) -> Array:
        drawn = 2.0 * game.lam * (d2[k] + 0.5 * game.sampling / t) / t
        return np.asarray(game.alpha[k] * np.maximum(others[k] - drawn, 0.0))

    for k in range(game.count):
        fits = shares[price(k, shares) * shares <= game.alpha[k] * budget]
        if not len(fits):
            continue
        low, high = float(fits.max()), min(float(fits.max()) + 1.0 / SHARES_COMPARED, 1.0)
        for _ in range(50):
            middle = 0.5 * (low + high)
            if float(price(k, np.array([middle]))[0]) * middle <= game.alpha[k] * budget:
                low = middle
            else:
                high = middle
        caps[k], prices[k] = low, float(price(k, np.array([low]))[0])
    return Offers("capped", frozen(prices), frozen(caps), frozen(np.zeros(game.count)))


def posted(game: GameModel, budget: float, *, public_cost: float | None = None) -> Solution:
    """Posted prices: what a client is offered does not depend on the cost it reports."""
    offers = posted_offers(game, budget, public_cost)
    if not offers.caps.any():
        raise NoEquilibriumError(f"a budget of {budget:g} posts nothing to anybody")
    x = settle(game, offers.prices, offers.caps)
    goal = Objective(budget=budget)
    residual, regret = game.judge(offers.prices, x, offers.caps)
    equilibrium = Equilibrium(
        game=game,
        payments=offers.prices,
        participation=x,
        status=Status.CONVERGED,
        uniqueness=Uniqueness.UNKNOWN,
        reason="reached by best responses from the caps",
        method="best responses",
        regret=regret,
        residual=residual,
        caps=offers.caps,
    )
    return Solution(
        game=game,
        budget=budget,
        payments=offers.prices,
        equilibrium=equilibrium,
        status=Status.CONVERGED,
        method="posted",
        objective=game.loss_of(equilibrium.profile),
        lower_bound=-np.inf,
        goal=goal,
        message="prices follow from public data"
        + (" and from what the others report" if public_cost is None else " alone"),
        posted=offers,
        own_options={} if public_cost is None else {"public_cost": float(public_cost)},
    )
