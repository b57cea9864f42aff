"""Statements about the server: the linearised loss, the budget and its transformation."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..embedding import MeanEmbeddings
from ..errors import InfeasibleError, NoEquilibriumError
from ..game import StackelbergGame
from ..model.geometry import Array, frozen
from .statement import (
    Applicability,
    Case,
    Conclusion,
    Counterexample,
    Form,
    Statement,
    Verdict,
    always,
    factor,
    settled,
)

__all__ = ["STATEMENTS"]


class _Server:
    """The server's loss and its linearisation around a mixture, from coordinates."""

    def __init__(self, case: Case, around: Array) -> None:
        game = case.game
        everyone = factor(np.asarray(game.embeddings.gram))
        self.case = case
        self.points = everyone[game.remaining]
        self.mu_n = game.alpha @ self.points
        self.mu_o = game.all_sizes @ everyone / game.all_sizes.sum()
        self.mu_0 = case.embedding(around, self.points)

    def loss(self, mu: Array) -> float:
        game = self.case.game
        to_n, to_o = mu - self.mu_n, mu - self.mu_o
        return game.lam_v * float(to_n @ to_n) + game.lam_s * float(to_o @ to_o)

    def linear(self, mu: Array) -> float:
        """``u~``: the loss linearised around mu_0."""
        game = self.case.game
        slope = game.lam_v * (self.mu_0 - self.mu_n) + game.lam_s * (self.mu_0 - self.mu_o)
        return self.loss(self.mu_0) + 2.0 * float(slope @ (mu - self.mu_0))

    def at(self, participation: Array) -> Array:
        return self.case.embedding(participation, self.points)

    @property
    def unit(self) -> float:
        game = self.case.game
        return (game.lam_v + game.lam_s) * max(
            game.geometry.scale, 1e-12 * float(np.max(game.embeddings.squared_norms))
        )


# -------------------------------------------------------------------- Stackelberg equilibrium


def _stackelberg(case: Case) -> float:
    """Clients' regret, and how far the server's utility is below the best that was found."""
    game = case.game
    clients = game.regret(case.payments, case.participation) / case.unit
    try:
        best = game.solve(None, payment_weight=1.0, gap=1e-4, time_limit=20.0)
    except InfeasibleError:
        return -clients
    server = -game.server_utility(case.payments, case.participation) - best.objective
    return -max(clients, server / max(abs(best.objective), 1e-9 * case.unit))


# -------------------------------------------------------------------- linearisation


def _probes(case: Case) -> list[Array]:
    """Participation profiles spread over the box."""
    n = case.game.count
    rng = np.random.default_rng(n)
    return [
        np.ones(n),
        case.participation,
        *(np.maximum(row, 1e-3) for row in np.vstack([np.eye(n)[:4], rng.random((4, n))])),
    ]


def _linearisation_error(case: Case, constant: float | None) -> float:
    """``|u - u~ - constant ||mu - mu_0||^2|``, or with None the slack of ``|u - u~| <= ||mu - mu_0||^2``."""
    server = _Server(case, case.participation)
    worst = np.inf
    for x in _probes(case):
        mu = server.at(x)
        gap = mu - server.mu_0
        squared, error = float(gap @ gap), server.loss(mu) - server.linear(mu)
        worst = min(worst, squared - abs(error) if constant is None else -abs(error - constant * squared))
    return worst / (server.unit or 1.0)


def _not_epsilon() -> Counterexample:
    game = StackelbergGame(
        MeanEmbeddings.from_features(np.array([[0.0], [1.0]])), sizes=[1, 1], costs=[1.0, 1.0]
    )
    case = Case.of(game, None, [1.0, 1.0])
    server = _Server(case, frozen([1.0, 1.0]))
    mu = server.at(frozen([1.0, 0.0]))
    return Counterexample(
        game,
        case.payments,
        case.participation,
        "|u_server - u~| <= ||mu - mu_0||^2, so that u~ is eps-accurate where ||mu - mu_0||^2 <= eps",
        server.loss(mu) - server.linear(mu),
        float((mu - server.mu_0) @ (mu - server.mu_0)),
        "The error is exactly (lam_v + lam_s) ||mu - mu_0||^2, here twice the claimed bound. (It is of "
        "that order, and never "
        "negative, as the paper says.)",
    )


def _quasilinear_in_y(case: Case) -> float:
    """On segments of y, u~ lies between its ends' values."""
    server = _Server(case, case.participation)
    worst = np.inf
    probes = _probes(case)
    for first, second in pairwise(probes):
        a, b = server.linear(server.at(first)), server.linear(server.at(second))
        for share in (0.25, 0.5, 0.8):
            middle = server.linear(server.at(share * first + (1.0 - share) * second))
            worst = min(worst, max(a, b) - middle, middle - min(a, b))
    return worst / (server.unit or 1.0)


def _payment_probes(case: Case) -> list[Array]:
    game = case.game
    n = game.count
    pattern = np.arange(n) % 2 == 0
    return [
        np.array(case.payments),
        np.zeros(n),
        0.5 * game.costs,
        np.where(pattern, 0.9 * game.costs, 0.0),
        np.where(pattern, 0.0, 0.9 * game.costs),
        np.where(pattern, 1.5 * game.costs, 0.5 * game.costs),
    ]


def _quasiconvex_in_p(case: Case) -> float:
    """On segments of payments, u~ at the clients' equilibrium stays below the larger end."""
    server = _Server(case, case.participation)

    def value(p: Array) -> float:
        return server.linear(server.at(case.game.equilibrium(p).participation))

    worst = np.inf
    try:
        probes = _payment_probes(case)
        values = [value(p) for p in probes]
        for i, first in enumerate(probes):
            for j in range(i):
                worst = min(worst, max(values[i], values[j]) - value(0.5 * (first + probes[j])))
    except NoEquilibriumError:
        return float("nan")
    return worst / (server.unit or 1.0)


def _bent_level_set() -> Counterexample:
    game = StackelbergGame(
        MeanEmbeddings.from_features(np.array([[0.0], [1.0]])), sizes=[1, 1], costs=[4.0, 4.0]
    )
    # w = c - p: both inside at w = (8, 32)/27, client 1 at its cap at w = (0, 16)/27; both mix 2 to 1
    ends = [frozen(4.0 - np.array(w) / 27.0) for w in ([8.0, 32.0], [0.0, 16.0])]
    middle = frozen(0.5 * (ends[0] + ends[1]))
    case = Case.of(game, ends[0])
    server = _Server(case, case.participation)
    plays = [game.equilibrium(p).participation for p in (*ends, middle)]
    values = [server.linear(server.at(x)) for x in plays]
    return Counterexample(
        game,
        middle,
        plays[2],
        "u~ at the midpoint of two payment vectors <= the larger of its values at the two",
        values[2],
        max(values[:2]),
        "Two clients at distance 1. Both end points mix client 1 and client 2 at 2 to 1: at the first both "
        "take part partially, at the "
        "second client 1 is at its cap. The level set between them is bent, and half-way client 1 weighs "
        "more. The payments enter "
        "through x*(p), a function into several dimensions; composing with it does not keep quasiconvexity.",
        {
            "payments at the ends": [p.tolist() for p in ends],
            "participation there": [x.tolist() for x in plays[:2]],
            "u~ there": values[:2],
        },
    )


# -------------------------------------------------------------------- spending


def _answer(case: Case, k: int, price: float) -> float:
    """``x_k(p)`` with the others as in the case."""
    game, rest = case.game, case.rest(k)
    pull = (game.alpha * case.with_share(k, 0.0)) @ (case.points - case.points[k])
    q = float(pull @ pull)
    w = (float(game.costs[k]) - price) / (2.0 * game.lam * game.alpha[k])
    if w <= 0:
        return 1.0
    return float(np.clip((np.cbrt(q / w) - rest) / game.alpha[k], 0.0, 1.0))


def _partial_range(case: Case, k: int) -> tuple[float, float]:
    low, high = (float(v[k]) for v in case.game.thresholds(case.participation))
    return max(low, 0.0), max(high, 0.0)


def _spend_steps(case: Case, sign: float) -> float:
    """Least of ``sign`` times the steps of ``p x_k(p)`` along client k's range of partial participation."""
    worst = np.inf
    for k in case.facing_somebody:
        low, high = _partial_range(case, k)
        prices = np.linspace(low, max(high, low), 9)
        spend = np.array([p * _answer(case, k, float(p)) for p in prices])
        worst = min(worst, float((sign * np.diff(spend)).min()) / float(case.game.costs[k]))
    return worst if np.isfinite(worst) else 0.0


def _some_partial(case: Case) -> dict[str, float]:
    widths = [np.subtract(*_partial_range(case, k)[::-1]) / case.game.costs[k] for k in case.facing_somebody]
    return {"somebody's thresholds leave room for partial participation": max(widths, default=-1.0) - 1e-6}


def _spend_rises() -> Counterexample:
    game = StackelbergGame(
        MeanEmbeddings.from_features(np.array([[0.0], [1.0]])), sizes=[1, 1], costs=[1.0, 1.0]
    )
    x = frozen([0.5, 1.0])
    case = Case.of(game, None, x)
    low, high = _partial_range(case, 0)
    prices = low + np.array([0.25, 0.75]) * (high - low)
    spends = [float(p * _answer(case, 0, float(p))) for p in prices]
    both = StackelbergGame(
        MeanEmbeddings.from_features(np.array([[1.0], [0.0]])), sizes=[4, 1], costs=[0.75, 3.75]
    )
    totals = [both.equilibrium(p).spend for p in ([0.5625, 2.8125], [0.609375, 2.8125])]
    return Counterexample(
        game,
        frozen([prices[0], 0.0]),
        x,
        "p x_1(p) decreases in p between the thresholds: its value at the higher price <= at the lower one",
        spends[1],
        spends[0],
        "A higher price times a participation that does not fall is more, not less. Jointly, at the "
        "clients' equilibrium, the total is "
        "neither increasing nor decreasing: with two clients (sizes 4 and 1, costs 0.75 and 3.75), raising "
        "the first payment lowers "
        "the other's participation and the total.",
        {
            "prices": prices.tolist(),
            "thresholds": [low, high],
            "total at the equilibrium for p = (0.5625, 2.8125) and (0.609375, 2.8125)": totals,
        },
    )


def _budget(case: Case) -> float:
    return 0.1 * case.game.full_participation_price or 0.1 * float(case.game.costs.min())


def _budget_price(case: Case, k: int, share: float) -> float:
    """Return the price with ``p x_k(p) = share``, the others as in the case, by bisection."""
    low, high = 0.0, 2.0 * max(share, float(case.game.costs[k]))
    for _ in range(200):
        price = 0.5 * (low + high)
        if not low < price < high:
            break
        if price * _answer(case, k, price) < share:
            low = price
        else:
            high = price
    return high


def _root_slack(case: Case, stated: bool) -> float:
    worst = np.inf
    budget = _budget(case)
    for k in case.facing_somebody:
        share, cost = budget * float(case.game.alpha[k]), float(case.game.costs[k])
        root = _budget_price(case, k, share)
        size = max(share, cost)
        worst = min(worst, (share - root) / size if stated else min(root - share, size - root) / size)
    return worst if np.isfinite(worst) else 0.0


def _root_beyond() -> Counterexample:
    game = StackelbergGame(
        MeanEmbeddings.from_features(np.array([[0.0], [1.0]])), sizes=[1, 1], costs=[1.0, 1.0]
    )
    case = Case.of(game, None, [1.0, 1.0])
    share = 0.25
    root = _budget_price(case, 0, share)
    return Counterexample(
        game,
        frozen([root, 0.0]),
        case.participation,
        "the price with p x_1(p) = B_1 lies in [0, B_1]",
        root,
        share,
        "Nobody takes part with more than everything, so p x(p) <= p: the price that spends B_1 is at "
        "least B_1, and at most "
        "max(B_1, c_1).",
        {"B_1": share, "p_B x_1(p_B)": root * _answer(case, 0, root)},
    )


def _limits(case: Case) -> tuple[float, Array]:
    budget = _budget(case)
    return budget, np.array(
        [_budget_price(case, k, budget * float(a)) for k, a in enumerate(case.game.alpha)]
    )


def _limits_imply_budget(case: Case) -> float:
    """With the real equilibrium at the largest payments the limits allow: budget minus total, relative."""
    budget, limits = _limits(case)
    try:
        return (budget - case.game.equilibrium(limits).spend) / budget
    except NoEquilibriumError:
        return float("nan")


def _limits_imply_frozen(case: Case) -> float:
    """Return the slack if every client answers the case's participation instead of the others' answers."""
    budget, limits = _limits(case)
    limits = limits * (1.0 - 1e-11)  # answers can be so steep that the last digit of a root overspends
    spend: float = sum(
        limits[k] * share
        for k, share in ((k, _answer(case, k, float(limits[k]))) for k in range(len(limits)))
    )
    return (budget - spend) / budget


def _facing_everybody(case: Case) -> dict[str, float]:
    """Return the condition that every client faces another one with different data, so that answers are continuous in the price."""
    least = min(case.rest(k) for k in range(case.game.count))
    if least <= 0:
        return {"S0_k > 0 and mu_hat_k != mu_k for all": -1.0}
    gaps = [float(np.linalg.norm(case.mean_of_others(k) - case.points[k])) for k in range(case.game.count)]
    return {"S0_k > 0 and mu_hat_k != mu_k for all": min(gaps) / (case.game.diameter or 1.0) - 1e-5}


def _overspent() -> Counterexample:
    game = StackelbergGame(
        MeanEmbeddings.from_features(np.array([[0.0], [1.0]])), sizes=[5, 1], costs=[0.5, 4.25]
    )
    budget = 0.0625
    case = Case.of(game, None, [1.0, 1.0])
    limits = np.array([_budget_price(case, k, budget * float(a)) for k, a in enumerate(game.alpha)])
    eq = game.equilibrium(limits)
    other = game.equilibrium([1.5 * limits[0], 0.0])
    return Counterexample(
        game,
        frozen(limits),
        eq.participation,
        "p <= p_B implies p.x*(p) <= B",
        eq.spend,
        budget,
        "Payment limits for shares B_i = B alpha_i, with the others at full participation. At the limits "
        "the clients' equilibrium spends "
        "46 times the budget: the others bring less than was assumed, and a client that faces less brings "
        "more. Nor is p <= p_B "
        "necessary: 1.5 p_B,1 for client 1 alone spends less than B.",
        {
            "B": budget,
            "p_B": limits.tolist(),
            "1.5 p_B,1 alone": [1.5 * float(limits[0]), 0.0],
            "spends": other.spend,
        },
    )


def _says_budget(case: Case, _: Applicability, held: Conclusion | None) -> str:
    budget, limits = _limits(case)
    try:
        spend = case.game.equilibrium(limits).spend
    except NoEquilibriumError:
        return "nobody takes part at the payment limits"
    return (
        f"a budget of {budget:.4g} split by data allows payments up to {float(limits.max()):.4g}; at these "
        f"limits the clients' "
        f"equilibrium spends {spend:.4g} ({spend / budget:.0%}), so check the spend at the equilibrium itself"
    )


def _says_loss(case: Case, _: Applicability, held: Conclusion | None) -> str:
    return "minimise over participation and price the result: over payments there can be several local minima"


STATEMENTS = (
    Statement(
        "stackelberg-equilibrium",
        "Definition (Stackelberg Equilibrium)",
        "(no label)",
        Verdict.DEFINITION,
        "needs x*(p) to be a function, that is, a unique equilibrium; where there are several, the "
        "optimistic and the pessimistic "
        "reading differ.",
        Form(
            "p* maximises U_sr(x*(p), p), x* are mutual best responses",
            lambda case: {"x*(p) is unique": settled(case)},
            _stackelberg,
        ),
        expensive=True,
    ),
    Statement(
        "approximation-error",
        "Linearisation error of u~ (text after P2)",
        "eq:tilde_us",
        Verdict.CORRECTED,
        "u_server is quadratic in mu with Hessian 2 (lam_v + lam_s), so the error is (lam_v + lam_s) ||mu "
        "- mu_0||^2, not more and not less.",
        Form(
            "where ||mu - mu_0||^2 <= eps the linearised solution is eps-optimal",
            always,
            lambda c: _linearisation_error(c, None),
        ),
        Form(
            "u_server - u~ = (lam_v + lam_s) ||mu - mu_0||^2 >= 0",
            always,
            lambda c: _linearisation_error(c, c.game.lam_v + c.game.lam_s),
        ),
        _not_epsilon,
    ),
    Statement(
        "quasiconvexity",
        "Lemma (Quasiconvexity of u~_server)",
        "theorem:quasiconvex_Us",
        Verdict.REFUTED,
        "u~ is a ratio of linear functions of y, hence quasilinear in y; composing with x*(p), which maps "
        "payments to several "
        "participations at once, does not preserve that.",
        Form("u~(x*(p)) is quasiconvex in p", always, _quasiconvex_in_p),
        Form("u~ is quasilinear (quasiconvex and quasiconcave) in y = alpha x", always, _quasilinear_in_y),
        _bent_level_set,
        meaning=_says_loss,
    ),
    Statement(
        "spend-monotonicity",
        "Lemma (Monotonicity of p'x*(p))",
        "lemma:monotonicity_px",
        Verdict.REFUTED,
        "g(p) = p^3 phi / (alpha^2 (c - p)) increases in p. With the others fixed p_k x_k(p_k) is "
        "non-decreasing; at the clients' "
        "equilibrium the total can go either way when one payment rises.",
        Form("p'x*(p) is decreasing between the thresholds", _some_partial, lambda c: _spend_steps(c, -1.0)),
        Form(
            "with the others fixed, p_k x_k(p_k) is non-decreasing",
            _some_partial,
            lambda c: _spend_steps(c, 1.0),
        ),
        _spend_rises,
    ),
    Statement(
        "budget-price",
        "Bisection interval for p_B (text of the algorithm)",
        "alg:haipo",
        Verdict.REFUTED,
        "x <= 1 gives p x(p) <= p, so the root is at least B_i; at p = c_i the client takes part fully, so "
        "it is at most max(B_i, c_i).",
        Form(
            "the root of p x_i(p) = B_i lies in [0, B_i]", _facing_everybody, lambda c: _root_slack(c, True)
        ),
        Form("it lies in [B_i, max(B_i, c_i)]", _facing_everybody, lambda c: _root_slack(c, False)),
        _root_beyond,
    ),
    Statement(
        "budget-transformation",
        "Equivalence of P1's budget with payment limits (P2)",
        "p2:bounds_p",
        Verdict.REFUTED,
        "with the others frozen, p <= p_B implies the budget (not the converse); at the clients' real "
        "equilibrium neither direction holds.",
        Form("p'x*(p) <= B iff p_i <= p_B,i for all i", _facing_everybody, _limits_imply_budget),
        Form(
            "with the others frozen, p_i <= p_B,i for all i implies p'x <= B",
            _facing_everybody,
            _limits_imply_frozen,
        ),
        _overspent,
        meaning=_says_budget,
    ),
)
