"""Statements about a client's performance impact ``u_k = lam ||mu(x) - mu_k||^2``."""

from __future__ import annotations

import numpy as np

from ..embedding import MeanEmbeddings
from ..game import StackelbergGame
from ..model.geometry import Array, frozen
from .statement import Applicability, Case, Conclusion, Counterexample, Form, Statement, Verdict

__all__ = ["STATEMENTS"]

_GRID = np.linspace(0.0, 1.0, 9)


def _others_take_part(case: Case) -> dict[str, float]:
    """S0_k > 0 for a client: the total of all others, at its largest."""
    return {"S0_k > 0": max(case.rest(k) for k in range(case.game.count))}


def _drops(case: Case, k: int) -> Array:
    """Decrease of u_k from each point of the grid to the next."""
    values = np.array([case.impacts(case.with_share(k, share))[k] for share in _GRID])
    return np.asarray(values[:-1] - values[1:]) / case.unit


def _least_drop(case: Case) -> float:
    return min((float(_drops(case, k).min()) for k in case.facing_somebody), default=0.0)


def _drop_and_slope(case: Case) -> float:
    """Non-increasing for all clients, and by the exact amount ``-2 alpha_k u_k / S`` to first order."""
    worst = _least_drop(case)
    game, step = case.game, 1e-6
    for k in case.facing_somebody:
        x = float(np.clip(case.participation[k], step, 1.0 - step))
        up, down = (case.impacts(case.with_share(k, x + s))[k] for s in (step, -step))
        at = case.with_share(k, x)
        total = float(game.alpha @ at)
        expected = -2.0 * game.alpha[k] * case.impacts(at)[k] / total
        # central differences are exact to the third derivative, -24 u (alpha / S)^3
        error = abs((up - down) / (2 * step) - expected)
        allowed = 8.0 * step**2 * (game.alpha[k] / total) ** 3 * case.impacts(at)[k] + 1e-9 * case.unit
        worst = min(worst, (allowed - error) / case.unit)
    return worst


def _same_data() -> Counterexample:
    game = StackelbergGame(MeanEmbeddings.from_features(np.zeros((2, 1))), sizes=[1, 1], costs=[1.0, 1.0])
    case = Case.of(game, None, [0.5, 0.5])
    before, after = (float(case.impacts(case.with_share(0, s))[0]) for s in (0.25, 0.75))
    return Counterexample(
        game,
        case.payments,
        case.participation,
        "u_1(x_1 = 0.75) < u_1(x_1 = 0.25), strictly",
        after,
        before,
        "Two clients with the same data: whatever either brings, the mixture is the same and nobody's "
        "impact changes. "
        "(The paper's own remark after the lemma says so.)",
    )


def _formula_error(case: Case, factor: float) -> float:
    worst = 0.0
    game = case.game
    for k in case.facing_somebody:
        gap = case.mean_of_others(k) - case.points[k]
        apart, beta = float(gap @ gap), game.alpha[k] / case.rest(k)
        for high, low in ((1.0, 0.0), (0.75, 0.25), (float(case.participation[k]), 0.0)):
            change = float(
                case.impacts(case.with_share(k, high))[k] - case.impacts(case.with_share(k, low))[k]
            )
            formula = factor * apart * (1.0 / (1.0 + beta * high) ** 2 - 1.0 / (1.0 + beta * low) ** 2)
            worst = max(worst, abs(change - formula), formula)
    return -worst / case.unit


def _without_factor() -> Counterexample:
    game = StackelbergGame(
        MeanEmbeddings.from_features(np.array([[0.0], [1.0]])), sizes=[1, 1], costs=[1.0, 1.0], lambda_q=2.0
    )
    case = Case.of(game, None, [1.0, 1.0])
    change = float(case.impacts(frozen([1.0, 1.0]))[0] - case.impacts(frozen([0.0, 1.0]))[0])
    formula = 1.0 * (1.0 / 4.0 - 1.0)
    return Counterexample(
        game,
        case.payments,
        case.participation,
        "u_1(1) - u_1(0) = A (1 / (1 + beta)^2 - 1), so the two differ by at most 0",
        abs(change - formula),
        0.0,
        "Two equal clients at distance 1 with lambda_q C = 2: joining changes the first one's impact by "
        "-3/2, the formula "
        "without the factor lambda_q C says -3/4.",
        {"change": change, "formula": formula},
    )


def _marginal(case: Case, start: float) -> float:
    """Least increase of the benefit of going from ``start`` times x to x, per relative growth of alpha_k."""
    worst = np.inf
    for k in case.facing_somebody:
        x = float(case.participation[k]) or 1.0
        beta = case.game.alpha[k] / case.rest(k)
        low = start * x
        # d/d beta of 1/(1 + beta low)^2 - 1/(1 + beta x)^2, halved, times beta
        worst = min(worst, beta * (x / (1.0 + beta * x) ** 3 - low / (1.0 + beta * low) ** 3))
    return float(worst)


def _larger_not_keener() -> Counterexample:
    points = MeanEmbeddings.from_features(np.array([[0.0], [1.0]]))
    benefits = []
    for size in (4.0, 8.0):
        # the other client brings the same amount of data in both games
        game = StackelbergGame(points, sizes=[size, 1.0], costs=[1.0, 1.0])
        case = Case.of(game, None, [1.0, 1.0])
        benefits.append(float(case.impacts(frozen([0.5, 1.0]))[0] - case.impacts(frozen([1.0, 1.0]))[0]))
    return Counterexample(
        game,
        case.payments,
        case.participation,
        "benefit of going from x = 1/2 to 1 with 4 units of data <= the same with 8 units",
        benefits[0],
        benefits[1],
        "A client that already dominates the mixture gains less from bringing more, the larger it is: the "
        "benefit of "
        "raising participation is 1/(1 + beta x')^2 - 1/(1 + beta x)^2, which falls in beta once beta x' "
        "is large. The "
        "benefit of joining (x' = 0) does increase with the amount of data.",
        {"benefits with 4 and 8 units": benefits},
    )


def _moved(case: Case, k: int, share: float) -> Array:
    """Return the embeddings with mu_k moved towards the others' mean, to a share of its distance."""
    points = case.points.copy()
    centre = case.mean_of_others(k)
    points[k] = centre + share * (points[k] - centre)
    return np.asarray(points)


def _gain_comparison(case: Case, whose: str) -> float:
    """``[u(x; far) - u(x'; far)] <= [u(x; near) - u(x'; near)]`` for k itself or for all clients."""
    worst = np.inf
    for k in case.facing_somebody:
        x, x_prime = case.with_share(k, 1.0), case.with_share(k, 0.25)
        far = case.impacts(x) - case.impacts(x_prime)
        for share in (0.0, 0.5, -0.75, 1.0):
            near_points = _moved(case, k, share)
            near = case.impacts(x, near_points) - case.impacts(x_prime, near_points)
            difference = (near - far) / case.unit
            worst = min(worst, float(difference[k] if whose == "own" else difference.min()))
    return worst


def _other_clients_lose() -> Counterexample:
    points = np.array([[0.0], [1.0]])
    game = StackelbergGame(MeanEmbeddings.from_features(points), sizes=[1, 1], costs=[1.0, 1.0])
    case = Case.of(game, None, [1.0, 1.0])
    x, x_prime = frozen([1.0, 1.0]), frozen([1.0, 0.0])
    near = np.array([[0.0], [0.5]])
    far_change = float(case.impacts(x, points)[0] - case.impacts(x_prime, points)[0])
    near_change = float(case.impacts(x, near)[0] - case.impacts(x_prime, near)[0])
    return Counterexample(
        game,
        case.payments,
        case.participation,
        "u_i(x; far) - u_i(x'; far) <= u_i(x; near) - u_i(x'; near) for another client i != k",
        far_change,
        near_change,
        "Client k = 2 joins, once with its data at 1 and once at 1/2. The more different its data, the "
        "more it drags the "
        "mixture away from client 1: the statement is about client k's own impact only, not about u_i for "
        "any i.",
    )


def _says_keen(case: Case, _: Applicability, held: Conclusion | None) -> str:
    game = case.game
    gains = [
        float(case.impacts(case.with_share(k, 0.0))[k] - case.impacts(case.with_share(k, 1.0))[k])
        for k in case.facing_somebody
    ]
    if not gains:
        return "nobody faces anybody else here"
    k = case.facing_somebody[int(np.argmax(gains))]
    name = int(game.remaining[k])
    return f"client {name} has most to gain from taking part: its drift falls by {max(gains):.4g}"


STATEMENTS = (
    Statement(
        "non-increasing-impact",
        "Lemma (Non-increasing Performance Impact)",
        "lemma:monotonic_Q",
        Verdict.CORRECTED,
        "u_k = lam q_k / S^2 with q_k >= 0 independent of x_k; strictly decreasing iff q_k > 0, that is, "
        "unless the others' "
        "mean is mu_k or nobody else takes part.",
        Form("u_k is strictly decreasing in x_k", _others_take_part, _least_drop, strict=True),
        Form(
            "u_k is non-increasing in x_k with slope -2 alpha_k u_k / S, strictly where the others' mean "
            "differs from mu_k",
            _others_take_part,
            _drop_and_slope,
        ),
        _same_data,
    ),
    Statement(
        "participation-impact",
        "Corollary (Participation Impact)",
        "corollary:full_impact",
        Verdict.CORRECTED,
        "u_k carries the factor lam = lambda_q C, which the formula drops; it is right for lam = 1.",
        Form(
            "Delta u_k = A (1/(1 + beta x)^2 - 1/(1 + beta x')^2) <= 0",
            _others_take_part,
            lambda c: _formula_error(c, 1.0),
        ),
        Form(
            "Delta u_k = lam A (1/(1 + beta x)^2 - 1/(1 + beta x')^2) <= 0",
            _others_take_part,
            lambda c: _formula_error(c, c.game.lam),
        ),
        _without_factor,
        meaning=_says_keen,
    ),
    Statement(
        "larger-data-sets",
        "Remark (benefit of participation and amount of data)",
        "remark:large_datasets",
        Verdict.CORRECTED,
        "the benefit of joining, 1 - 1/(1 + beta x)^2, increases with beta; the benefit of raising a "
        "participation x' > 0 "
        "falls once x/(1 + beta x)^3 < x'/(1 + beta x')^3, in particular for beta x' >= 1/2.",
        Form(
            "the benefit of raising x_k increases with alpha_k",
            _others_take_part,
            lambda c: _marginal(c, 0.5),
        ),
        Form(
            "the benefit of joining (from x_k = 0) increases with alpha_k",
            _others_take_part,
            lambda c: _marginal(c, 0.0),
        ),
        _larger_not_keener,
    ),
    Statement(
        "performance-change",
        "Proposition (Performance Change Metric Properties)",
        "prop:fairness_metric_formal",
        Verdict.CORRECTED,
        "it is client k's own impact u_k that the proof treats; for another client i the inequality can "
        "reverse.",
        Form(
            "if mu_k is further from the others' mean than mu_k', u_i falls more when k raises x_k, for "
            "every i",
            _others_take_part,
            lambda c: _gain_comparison(c, "any"),
        ),
        Form(
            "if mu_k is further from the others' mean than mu_k', u_k falls more when k raises x_k",
            _others_take_part,
            lambda c: _gain_comparison(c, "own"),
        ),
        _other_clients_lose,
    ),
)
