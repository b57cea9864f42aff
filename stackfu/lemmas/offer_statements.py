"""Statements about offers with a price and a quantity: theorems of this library, executable like the paper's statements.

Proofs are in ``docs/theory/offers.md``. The participation of a case is the plan; its offers are computed from it. Where the
plan is said to be the only equilibrium, all equilibria below its caps are enumerated.
"""

from __future__ import annotations

import numpy as np

from ..judging.stakes import check_stakes
from ..leader.contract import worst_equilibrium
from ..model.geometry import Array
from ..model.offers import capped_offers, contract_offers
from .statement import Case, Form, Statement, Verdict, always

__all__ = ["OFFERS"]

#: Equilibria count as the plan within this.
_BACK = 1e-6


def _paid_a_hair_more(case: Case) -> tuple[Array, Array]:
    offers = capped_offers(case.game, case.profile)
    return np.asarray(
        offers.prices * (1.0 + 1e-6) + 1e-7 * case.game.costs * (case.participation > 0)
    ), offers.caps


def _is_equilibrium(case: Case) -> float:
    # relative to own stakes: a price close to the cost leaves a reluctance that consists of rounding errors
    offers = capped_offers(case.game, case.profile)
    return -float(check_stakes(case.game, offers.prices, case.participation, offers.caps).max())


def _nobody_sits_at_the_mixture(case: Case) -> dict[str, float]:
    away = case.profile.to_clients[case.participation > 0].min() / (case.game.geometry.scale or 1.0)
    return {
        "a > 0, or no participant sits at the mixture": 1.0 if case.game.sampling > 0 else float(away) - 1e-9,
        "two clients take part": float(np.count_nonzero(case.participation)) - 1.5,
    }


def _enumerated(case: Case) -> float:
    """Return the largest distance of an equilibrium from the plan; -1 if the plan is not among them."""
    prices, caps = _paid_a_hair_more(case)
    found = case.game.equilibria(prices, caps=caps)
    apart = [float(np.abs(e.participation - case.participation).max()) for e in found]
    return _BACK - max(apart) if apart and min(apart) <= _BACK else -1.0


def _never_above(case: Case) -> float:
    offers = capped_offers(case.game, case.profile)
    everything = offers.payouts(np.ones(case.game.count)).sum()
    return float(offers.most - everything) / (float(case.game.costs.sum()) or 1.0)


def _cheaper_contracts(case: Case) -> float:
    capped, contract = capped_offers(case.game, case.profile), contract_offers(case.game, case.profile)
    saved = capped.prices * capped.caps - contract.prices * contract.caps
    return float((saved / case.game.costs).min())


def _accepted(case: Case) -> float:
    other, _ = worst_equilibrium(case.game, case.participation, premium=1.0)
    return 0.0 if other is None else _BACK - float(np.abs(other - case.participation).max())


#: Statements about offers by name.
OFFERS = {
    statement.name: statement
    for statement in (
        Statement(
            "any-plan",
            "Theorem 1 (any plan)",
            "docs/theory/offers.md",
            Verdict.TRUE,
            "at the caps g_k = D_k - S w_k >= 0, which is all that a client at its cap needs.",
            Form("every plan is an equilibrium of its capped offers", always, _is_equilibrium),
            with_samples=True,
        ),
        Statement(
            "only-plan",
            "Theorem 1 (uniquely)",
            "docs/theory/offers.md",
            Verdict.TRUE,
            "whoever holds back would have to be nearer to a mixture that lost exactly what it holds back.",
            Form(
                "no other profile is an equilibrium below the caps", _nobody_sits_at_the_mixture, _enumerated
            ),
            with_samples=True,
        ),
        Statement(
            "budget-whatever-happens",
            "Theorem 2 (budget whatever happens)",
            "docs/theory/offers.md",
            Verdict.TRUE,
            "nobody is paid for more than its cap.",
            Form("the spend is at most sum_k p_k cap_k for every behaviour", always, _never_above),
            with_samples=True,
        ),
        Statement(
            "cheaper-contracts",
            "Contracts cost no more than capped offers",
            "docs/theory/offers.md",
            Verdict.TRUE,
            "the cost of bringing less is convex, so its chord to the plan is below its slope there.",
            Form("T_k <= p_k x_k for every client", always, _cheaper_contracts),
            with_samples=True,
        ),
        Statement(
            "accepted-contracts",
            "Theorem 3 (what makes acceptance the only equilibrium)",
            "docs/theory/offers.md",
            Verdict.TRUE,
            "a polynomial inequality with positive coefficients.",
            Form(
                "contracts that pay the capped payouts have no other equilibrium",
                _nobody_sits_at_the_mixture,
                _accepted,
            ),
            expensive=True,
            with_samples=True,
        ),
    )
}
