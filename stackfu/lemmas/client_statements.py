"""Statements about the clients' game: concavity, existence, characterisation, uniqueness."""

from __future__ import annotations

import numpy as np

from ..embedding import MeanEmbeddings
from ..game import StackelbergGame
from ..judging.stakes import check_stakes
from ..model.geometry import Array, frozen
from ..results import Uniqueness
from .statement import Applicability, Case, Conclusion, Counterexample, Form, Statement, Verdict, always

__all__ = ["STATEMENTS", "no_cap_margin", "paper_margin"]

_GRID = np.linspace(0.0, 1.0, 17)


def _regret(case: Case) -> float:
    return -case.game.regret(case.payments, case.participation) / case.unit


def _at_equilibrium(case: Case) -> dict[str, float]:
    return {"x is an equilibrium": 1e-9 - case.game.residual(case.payments, case.participation)}


# -------------------------------------------------------------------- concavity


def _utility(case: Case, k: int) -> Array:
    """Return client k's utility along the grid; at 0 of a sole participant, the model of all clients replaces the missing one."""
    game = case.game
    net = float(case.payments[k] - game.costs[k])
    out = []
    for share in _GRID:
        x = case.with_share(k, float(share))
        if x.any():
            drift = float(case.impacts(x)[k]) + game.lam * game.sampling / float(game.alpha @ x)
        elif game.sampling > 0:  # without data the loss is infinite
            drift = np.inf
        else:
            gap = game.alpha @ case.points - case.points[k]
            drift = game.lam * float(gap @ gap)
        out.append(net * share - drift)
    return np.array(out)


def _concave(case: Case) -> float:
    worst = np.inf
    for k in range(case.game.count):
        values = _utility(case, k)
        values = values[np.isfinite(values)]
        size = max(case.unit, float(np.abs(values).max()))
        worst = min(worst, float((-np.diff(values, 2)).min()) / size)
    return float(worst)


# -------------------------------------------------------------------- existence


def _not_collapsed(case: Case) -> dict[str, float]:
    game = case.game
    if game.sampling > 0:
        return {"a > 0": 1.0}
    if not game.is_homogeneous:
        return {"embeddings differ or somebody is paid its cost": game.diameter}
    paid = bool(np.any(case.payments >= game.costs))
    return {"embeddings differ or somebody is paid its cost": 1.0 if paid else -1.0}


def _exists(case: Case) -> float:
    regrets = [float(check_stakes(case.game, case.payments, e.participation).max()) for e in case.equilibria]
    return -min(regrets) if regrets else -1.0


def _nobody_stays() -> Counterexample:
    game = StackelbergGame(MeanEmbeddings.from_features(np.zeros((2, 1))), sizes=[1, 1], costs=[1.0, 1.0])
    x = frozen([0.5, 0.0])
    p = frozen([0.0, 0.0])
    gain = float(game.client_utilities(p, [0.25, 0.0])[0] - game.client_utilities(p, x)[0])
    return Counterexample(
        game,
        p,
        x,
        "some x is an equilibrium: no client gains by deviating, however little it already brings",
        gain,
        0.0,
        "Two clients with the same data, paid less than their cost. Whoever takes part gains by halving "
        "its participation, at "
        "every positive level, and loses its model at 0, where the mixture is undefined: the supremum is "
        "not attained. "
        "Continuity, which the proof by Debreu, Glicksberg and Fan needs, fails at the origin.",
        {"gain from halving x_1 = 1/2": gain, "equilibria found": len(game.equilibria(p))},
    )


# -------------------------------------------------------------------- characterisation


def _published_response(case: Case, k: int) -> float:
    """``x_k*`` by the three branches of the theorem; NaN where they divide by zero."""
    game = case.game
    rest, alpha = case.rest(k), float(game.alpha[k])
    pull = (game.alpha * case.with_share(k, 0.0)) @ (case.points - case.points[k])
    phi = 2.0 * game.lam * float(pull @ pull)
    cost, paid = float(game.costs[k]), float(case.payments[k])
    if rest == 0.0:
        return np.nan
    if paid < cost - alpha * phi / rest**3:
        return 0.0
    if paid > cost - alpha * phi / (rest + alpha) ** 3:
        return 1.0
    if paid == cost:
        return np.nan
    return float(np.clip(np.cbrt(phi / (alpha**2 * (cost - paid))) - rest / alpha, 0.0, 1.0))


def _characterised(case: Case) -> float:
    """Largest difference between x_k and the formula, in units of total participation."""
    game = case.game
    differences = [
        abs(_published_response(case, k) - case.participation[k]) * game.alpha[k] for k in range(game.count)
    ]
    worst = max(differences, key=lambda d: np.inf if np.isnan(d) else d)
    # coordinates recovered from inner products are good to half the digits only, and c - p loses what the two share
    rounding = 1e-7 if game.embeddings.features is None else 0.0
    net = np.abs(game.costs - case.payments)
    rounding += float(100.0 * np.finfo(float).eps * (game.costs[net > 0] / net[net > 0]).max(initial=0.0))
    return -1.0 if np.isnan(worst) else rounding - float(worst) / case.profile.total


def _responses_defined(case: Case) -> dict[str, float]:
    game = case.game
    scale = game.geometry.scale or 1.0
    decisive = []
    for k in range(game.count):
        if case.rest(k) > 1e-12 * case.profile.total:  # not merely a rounding error above 0
            gap = case.mean_of_others(k) - case.points[k]
            decisive.append(
                max(float(gap @ gap) / scale, abs(case.payments[k] - game.costs[k]) / game.costs[k])
            )
        else:
            decisive.append(-1.0)
    # within rounding of indifference the formula is not a function of floating-point data
    return {**_at_equilibrium(case), "S0_k > 0, and phi_k > 0 or p_k != c_k": min(decisive) - 1e-9}


def _indifferent() -> Counterexample:
    game = StackelbergGame(MeanEmbeddings.from_features(np.zeros((2, 1))), sizes=[1, 1], costs=[1.0, 1.0])
    p = frozen([1.0, 1.0])
    first, second = frozen([0.25, 0.5]), frozen([0.75, 0.5])
    regret = max(game.regret(p, first), game.regret(p, second))
    return Counterexample(
        game,
        p,
        first,
        "p_1 and the others' participation determine x_1*: two equilibria that share them are equally far "
        "along",
        float(second[0] - first[0]),
        0.0,
        "Two clients with the same data, paid exactly their cost: phi = 0 and c - p = 0, the cube root "
        "reads 0/0, and every "
        "participation is a best response.",
        {"two equilibria": [first.tolist(), second.tolist()], "regret at both": regret},
    )


# -------------------------------------------------------------------- uniqueness


def paper_margin(case: Case) -> float:
    """``min_k (3/4) alpha_k (1 - alpha_k)^2 sqrt(3 |c_k - p_k| / lam) - D``: positive by assumption."""
    game, a = case.game, case.game.alpha
    bound = 0.75 * a * (1.0 - a) ** 2 * np.sqrt(3.0 * np.abs(game.costs - case.payments) / game.lam)
    return float(bound.min()) - float(np.sqrt(game.geometry.pairwise.max()))


def no_cap_margin(case: Case) -> float:
    """Least ``w_k - D_k^2 max_S (1 - alpha_k / S)^2 / S``, relative; positive only if no cap can bind.

    A client at its cap with total S has ``d_k <= (1 - alpha_k / S) D_k`` and needs ``d_k^2 >= S w_k``; the
    maximum over ``alpha_k <= S <= 1`` is at ``S = 3 alpha_k``, or at 1 if that is beyond. A sampling term adds at most
    ``a / (2 alpha_k^2)`` to what it needs.
    """
    game, a = case.game, case.game.alpha
    reach = game.geometry.pairwise.max(axis=1)
    total = np.minimum(3.0 * a, 1.0)
    needed = reach * (1.0 - a / total) ** 2 / total + 0.5 * game.sampling / a**2
    w = game.reluctance(case.payments)
    return float(((w - needed) / np.maximum(np.abs(w), needed + 1e-300)).min())


def _one_reluctance(case: Case) -> float:
    """Positive if all w_k are equal (within rounding) and not negative."""
    w = case.game.reluctance(case.payments)
    if w.min() < 0:
        return -1.0
    return 1e-12 - float(np.ptp(w)) / max(float(w.max()), 1e-300)


def _stated_uniqueness(case: Case) -> dict[str, float]:
    return {"D < (3/4) alpha_k (1 - alpha_k)^2 sqrt(3 |c_k - p_k| / lam)": paper_margin(case)}


def _corrected_uniqueness(case: Case) -> dict[str, float]:
    return {
        "embeddings differ": -1.0 if case.game.is_homogeneous else case.game.diameter,
        "no cap can bind, or all w_k equal": max(no_cap_margin(case), _one_reluctance(case)),
        "t(s) can be told from 0": -1.0 if case.equilibria.uniqueness is Uniqueness.UNKNOWN else 1.0,
    }


def _one_profile(case: Case) -> float:
    found = case.equilibria
    if found.uniqueness is Uniqueness.UNIQUE:
        return 1.0
    return float("nan") if found.uniqueness is Uniqueness.UNKNOWN and len(found) == 1 else -1.0


def _one_mixture(case: Case) -> float:
    """Return the largest relative difference of S and m over all equilibria."""
    found = list(case.equilibria)
    if not found:
        return -1.0
    totals = [e.total for e in found]
    means = [case.embedding(e.participation) for e in found]
    apart = max(float(np.linalg.norm(m - means[0])) for m in means) / (case.game.diameter or 1.0)
    # the total is known to a few digits less than the residual where t(s) is flat
    return 1e-7 - max((max(totals) - min(totals)) / max(totals), apart)


def _three_isolated() -> Counterexample:
    """Return an overpaid client at 0 and two others at 1 and 2, either of which keeps the other away."""
    points = np.array([[0.0], [1.0], [2.0]])
    total = 2001.0
    game = StackelbergGame(
        MeanEmbeddings.from_features(points), sizes=[1, 1000, 1000], costs=[1.0, 250.0, 1000.0 * 64.0 / 27.0]
    )
    p = frozen([1e7, 0.0, 0.0])
    # S = 2 alpha_0 with clients 1 and 0, S = 1.5 alpha_0 with clients 2 and 0
    with_one, with_two = frozen([1.0, 1.0 / 1000.0, 0.0]), frozen([1.0, 0.0, 0.5 / 1000.0])
    case = Case.of(game, p, with_one)
    regrets = [game.regret(p, x) for x in (with_one, with_two)]
    return Counterexample(
        game,
        p,
        with_one,
        "all equilibria coincide: their totals S differ by at most 0 (in units of 1/2001)",
        abs(game.profile(with_one).total - game.profile(with_two).total) * total,
        0.0,
        "The condition holds with |c - p|, also where a client is paid more than its cost. Client 0 is, "
        "and takes part fully. "
        "With client 1 beside it S = 2/2001 and client 2 finds S too large to join; with client 2 beside "
        "it S = 1.5/2001 and "
        "client 1 finds the mixture close enough to stay out. Both are equilibria; a third lies between "
        "them.",
        {
            "paper's margin (condition: > 0)": paper_margin(case),
            "two equilibria": [with_one.tolist(), with_two.tolist()],
            "regret at both": regrets,
        },
    )


def _continuum() -> Counterexample:
    """Uniqueness fails with all payments below cost: two clients with the same data trade participation."""
    points = np.array([[0.0], [0.0], [1.0]])
    game = StackelbergGame(MeanEmbeddings.from_features(points), sizes=[1, 1, 1], costs=[100.0, 100.0, 100.0])
    share = 1.0 / (4.0 * 150.0) * 3.0 / 2.0  # S = 1/(4 w), w = 150, half of it on either side, alpha = 1/3
    first, second = frozen([share, 0.0, share]), frozen([0.0, share, share])
    p = frozen(np.zeros(3))
    case = Case.of(game, p, first)
    return Counterexample(
        game,
        p,
        first,
        "the equilibrium is unique: two equilibria differ by at most 0",
        float(np.abs(first - second).max()),
        0.0,
        "The condition holds with every payment below cost; then S and the mixture's mean are unique, but "
        "not x: clients 0 and 1 "
        "own the same data and may trade participation.",
        {
            "paper's margin (condition: > 0)": paper_margin(case),
            "two equilibria": [first.tolist(), second.tolist()],
            "regret at both": [game.regret(p, x) for x in (first, second)],
        },
    )


def _says_unique(case: Case, applies: Applicability, held: Conclusion | None) -> str:
    found = case.equilibria
    known = f"the enumeration finds {len(found)} ({found.uniqueness.name}: {found.reason})"
    condition = "holds" if paper_margin(case) > 0 else "does not hold"
    if applies:
        return f"one total S and one mixture for these payments; {known}; the paper's condition {condition}"
    return f"no general condition settles it; {known}; the paper's condition {condition}"


# -------------------------------------------------------------------- homogeneous clients


def _alike(case: Case) -> dict[str, float]:
    return {"all embeddings coincide": 1.0 if case.game.is_homogeneous else -case.game.diameter}


def _alike_and_paid(case: Case) -> dict[str, float]:
    net = (case.payments - case.game.costs) / case.game.costs
    return {
        **_alike(case),
        "p_k != c_k for all": float(np.abs(net).min()),
        "p_k > c_k for some": float(net.max()),
    }


def _threshold_profile(case: Case) -> float:
    """Return the slack of: the only equilibrium is full participation of the clients paid more than their cost."""
    if not case.game.is_homogeneous:
        return float("nan")
    found = case.equilibria
    if len(found) != 1 or found.uniqueness is not Uniqueness.UNIQUE:
        return -1.0
    expected = (case.payments > case.game.costs).astype(float)
    return -float(np.abs(found[0].participation - expected).max())


# -------------------------------------------------------------------- the list


STATEMENTS = (
    Statement(
        "nash-equilibrium",
        "Definition (Nash Equilibrium among Clients)",
        "(no label)",
        Verdict.DEFINITION,
        "evaluated at the given participation: the largest gain of any client from its best response is 0. "
        "Equivalent to three "
        "conditions on g_k = d_k^2 - S w_k, one for each place a client can be in.",
        Form("U_i(x_i*, x_-i*) >= U_i(x_i, x_-i*) for all x_i in [0, 1], all i", always, _regret),
        with_samples=True,
    ),
    Statement(
        "concavity",
        "Lemma (Concavity of Client Utility Function)",
        "lemma:concavity",
        Verdict.TRUE,
        "u_k has second derivative 6 alpha_k^2 u_k / S^2 >= 0 while somebody else takes part. Facing "
        "nobody, U_k is linear for "
        "x_k > 0 and drops (if anything) at 0 whatever embedding stands for nobody's data, which is still "
        "concave: what fails at "
        "the origin is continuity, not concavity.",
        Form("U_k is concave in x_k on [0, 1]", always, _concave),
        with_samples=True,
    ),
    Statement(
        "existence",
        "Proposition (Existence of Nash Equilibrium)",
        "theorem:nash_existence",
        Verdict.CORRECTED,
        "utilities are not continuous at x = 0, so the fixed-point theorem does not apply; following the "
        "level t(s) proves it unless "
        "all embeddings coincide and everybody is paid less than its cost.",
        Form("an equilibrium exists for every payment vector", always, _exists),
        Form(
            "an equilibrium exists unless all embeddings coincide and all p_k < c_k", _not_collapsed, _exists
        ),
        _nobody_stays,
        with_samples=True,
    ),
    Statement(
        "characterisation",
        "Theorem (Characterization of Nash Equilibrium)",
        "theorem:nash_characterization",
        Verdict.CORRECTED,
        "right wherever somebody else takes part, also for p_k > c_k (the third branch covers it since the "
        "upper threshold is below "
        "c_k); at phi_k = 0 and p_k = c_k the middle branch reads 0/0 and every participation is a best "
        "response.",
        Form("x_k* = 0, the cube root, or 1, by the two thresholds", _at_equilibrium, _characterised),
        Form("the same where S0_k > 0, and phi_k > 0 or p_k != c_k", _responses_defined, _characterised),
        _indifferent,
    ),
    Statement(
        "uniqueness",
        "Theorem (Sufficient Condition for Uniqueness of Nash Equilibrium)",
        "theorem:suff_uniqueness_nash",
        Verdict.REFUTED,
        "the proof drops a term of the best response's derivative and reverses two inequalities. If no cap "
        "can bind (which the paper's "
        "condition with p < c implies) the equilibrium is the weighted minimum enclosing ball: S and m are "
        "unique, x if the active "
        "embeddings are affinely independent. With all w_k equal the game has a concave potential, with "
        "the same conclusion.",
        Form(
            "if D < (3/4) alpha_k (1 - alpha_k)^2 sqrt(3 |c_k - p_k| / lam) for all k, the equilibrium is "
            "unique",
            _stated_uniqueness,
            _one_profile,
        ),
        Form(
            "if no cap can bind, or all w_k are equal, S and the mixture's mean m are unique",
            _corrected_uniqueness,
            _one_mixture,
        ),
        _three_isolated,
        (_continuum,),
        _says_unique,
        with_samples=True,
    ),
    Statement(
        "homogeneous-clients",
        "Corollary (Existence of Unique Nash Equilibrium for Homogeneous Clients)",
        "(no label)",
        Verdict.CORRECTED,
        "at p_k = c_k every participation is a best response; with all p_k < c_k nobody is left, which is "
        "no profile.",
        Form("x_k = 1 if p_k > c_k, else 0, is the unique equilibrium", _alike, _threshold_profile),
        Form("the same if no p_k equals c_k and some p_k exceeds it", _alike_and_paid, _threshold_profile),
        _indifferent,
        (_nobody_stays,),
    ),
)
