"""Effects of a sampling constant on the clients' game: theorems of this library, executable like the paper's statements.

With A > 0 a client loses ``lam a / S`` more, ``a = A / (C n_N)``, and every inclination is ``a / (2 S)`` larger. Of the paper's
statements existence then holds as worded, because no client falls to the origin any more; payment and cost alone no longer
decide for clients with the same data; and the condition for uniqueness no longer keeps every client below its cap.
"""

from __future__ import annotations

import numpy as np

from ..embedding import MeanEmbeddings
from ..game import StackelbergGame
from ..judging.stakes import check_stakes
from ..model.geometry import frozen
from .client_statements import paper_margin
from .statement import Case, Counterexample, Form, Statement, Verdict

__all__ = ["SAMPLING"]


def _samples_matter(case: Case) -> dict[str, float]:
    return {"A > 0": case.game.sampling}


def _exists(case: Case) -> float:
    regrets = [float(check_stakes(case.game, case.payments, e.participation).max()) for e in case.equilibria]
    return -min(regrets) if regrets else -1.0


def _stays(case: Case) -> float:
    """Return the slack of: every equilibrium has at least the data that one client alone would bring."""
    game = case.game
    with np.errstate(divide="ignore"):
        alone = np.sqrt(game.sampling / (2.0 * np.maximum(game.reluctance(case.payments), 0.0)))
    least = float(np.minimum(alone, game.alpha).max())
    totals = [e.total for e in case.equilibria]
    return min(totals) / least - 1.0 if totals else -1.0


def _alike(case: Case) -> dict[str, float]:
    return {**_samples_matter(case), "all embeddings coincide": 1.0 if case.game.is_homogeneous else -1.0}


def _threshold(case: Case) -> float:
    expected = (case.payments > case.game.costs).astype(float)
    return -max((float(np.abs(e.participation - expected).max()) for e in case.equilibria), default=1.0)


def _fills_up(case: Case) -> float:
    """``a / (2 S) - S w_k`` vanishes inside and has the right sign at the bounds, so the least reluctant come first."""
    game = case.game
    w = game.reluctance(case.payments)
    worst = 0.0
    for e in case.equilibria:
        level = game.sampling / (2.0 * e.total)
        wrong = np.where(e.participation < 1, level - e.total * w, 0.0)
        wrong = np.maximum(wrong, np.where(e.participation > 0, e.total * w - level, 0.0))
        worst = max(worst, float((wrong / np.maximum(level, e.total * np.abs(w))).max()))
    return -worst


def _two_alike() -> StackelbergGame:
    return StackelbergGame(
        MeanEmbeddings.from_features(np.zeros((2, 1))), sizes=[1, 1], costs=[1.0, 2.0], sampling_constant=0.25
    )


def _paid_less_and_there() -> Counterexample:
    game, p = _two_alike(), frozen([0.0, 0.0])
    found = game.equilibrium(p)
    return Counterexample(
        game,
        p,
        found.participation,
        "x_1 = 0, because p_1 < c_1",
        float(found.participation[0]),
        0.0,
        "Two clients with the same data, neither paid its cost. Samples matter, so the cheaper one brings sqrt(a / (2 w_1)).",
        {
            "regret": found.regret,
            "sqrt(a / (2 w_1))": float(np.sqrt(game.sampling / (2.0 * game.reluctance(p)[0]))),
        },
    )


def _below_cap(case: Case) -> float:
    return 1.0 - max((float(e.participation.max()) for e in case.equilibria), default=0.0)


def _paper_condition(case: Case) -> dict[str, float]:
    net = float(((case.game.costs - case.payments) / case.game.costs).min())
    return {
        "D < (3/4) alpha_k (1 - alpha_k)^2 sqrt(3 (c_k - p_k) / lam)": paper_margin(case),
        "p_k < c_k": net,
    }


def _no_cap_with_samples(case: Case) -> dict[str, float]:
    from .client_statements import no_cap_margin

    return {"w_k > a / (2 alpha_k^2) + what drift can ask for": no_cap_margin(case)}


def _full_all_the_same() -> Counterexample:
    game = StackelbergGame(
        MeanEmbeddings.from_features(np.array([[0.0], [0.01]])),
        [1, 1],
        costs=[1.0, 1.0],
        sampling_constant=10.0,
    )
    p = frozen([0.0, 0.0])
    found = game.equilibrium(p)
    return Counterexample(
        game,
        p,
        found.participation,
        "x_1 < 1: the paper's condition keeps everybody below its cap",
        float(found.participation[0]),
        1.0 - 1e-6,
        "Two clients almost alike: the condition holds, and without a sampling term they would hardly take part. "
        "But few samples cost both so much that they bring all they have.",
        {"paper's margin (condition: > 0)": paper_margin(Case.of(game, p, found.participation))},
    )


#: Statements about games with a sampling constant by name.
SAMPLING = {
    statement.name: statement
    for statement in (
        Statement(
            "existence-with-samples",
            "Existence of an equilibrium with A > 0",
            "docs/theory/followers.md",
            Verdict.TRUE,
            "t(s) + a / (2 s) tends to infinity as s tends to 0, and where everybody takes part it may be any negative number.",
            Form("an equilibrium exists for every payment vector", _samples_matter, _exists),
            with_samples=True,
        ),
        Statement(
            "nobody-falls",
            "No fall to the origin with A > 0",
            "docs/theory/followers.md",
            Verdict.TRUE,
            "whoever has S w_k < a / (2 S) wants more, whatever the mixture.",
            Form(
                "every equilibrium has S >= min(sqrt(a / (2 w_k)), alpha_k) for all k",
                _samples_matter,
                _stays,
            ),
            with_samples=True,
        ),
        Statement(
            "homogeneous-with-samples",
            "Clients with the same data and A > 0",
            "docs/theory/followers.md",
            Verdict.CORRECTED,
            "drift is no reason to take part, but thin data is one for everybody.",
            Form("x_k = 1 if p_k > c_k, else 0", _alike, _threshold),
            Form("the least reluctant take part first, while S < sqrt(a / (2 w_k))", _alike, _fills_up),
            _paid_less_and_there,
            with_samples=True,
        ),
        Statement(
            "below-caps-with-samples",
            "What keeps everybody below its cap with A > 0",
            "docs/theory/followers.md",
            Verdict.CORRECTED,
            "at its cap a client needs d_k^2 + a / (2 S) >= S w_k with S >= alpha_k.",
            Form(
                "nobody is at its cap if the paper's condition holds and p < c",
                _paper_condition,
                _below_cap,
                True,
            ),
            Form(
                "nobody is at its cap if w_k exceeds what drift and samples can ask for",
                _no_cap_with_samples,
                _below_cap,
                True,
            ),
            _full_all_the_same,
            with_samples=True,
        ),
    )
}
