"""Statements that apply to a given game, with their margins and meaning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..game import StackelbergGame
from ..results import Uniqueness
from . import client_statements, impact, learning, server
from .client_statements import no_cap_margin, paper_margin
from .statement import Applicability, Case, Conclusion, Statement, Verdict

__all__ = ["ALL", "LemmaReport", "Row", "report"]

#: Every statement by name, in the order of the paper.
ALL: dict[str, Statement] = {
    statement.name: statement
    for statement in (
        *learning.STATEMENTS,
        *impact.STATEMENTS,
        *client_statements.STATEMENTS,
        *server.STATEMENTS,
    )
}


@dataclass(frozen=True)
class Row:
    """One statement, evaluated at one game: the true form, and the paper's own wording."""

    statement: Statement
    applies: Applicability
    holds: Conclusion | None
    stated_applies: Applicability
    stated_holds: Conclusion | None
    meaning: str

    @property
    def name(self) -> str:
        """Name of the statement."""
        return self.statement.name

    @property
    def verdict(self) -> Verdict:
        """Verdict on the statement for all games."""
        return self.statement.verdict

    @property
    def margins(self) -> dict[str, float]:
        """Margin of every hypothesis."""
        return dict(self.applies.margins)

    @property
    def slack(self) -> float:
        """Slack of the conclusion, NaN where the hypotheses fail or it was not evaluated."""
        return float("nan") if self.holds is None else self.holds.slack

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "name": self.name,
            "title": self.statement.title,
            "verdict": self.verdict.name,
            "text": self.statement.form().text,
            "applies": bool(self.applies),
            "margins": {name: float(value) for name, value in self.margins.items()},
            "holds": None if self.holds is None else bool(self.holds),
            "slack": None if np.isnan(self.slack) else self.slack,
            "stated": self.statement.stated.text,
            "stated_applies": bool(self.stated_applies),
            "stated_holds": None if self.stated_holds is None else bool(self.stated_holds),
            "meaning": self.meaning,
        }


@dataclass(frozen=True, eq=False)
class LemmaReport:
    """All statements evaluated at one game, with what follows for uniqueness, convergence and budgets."""

    case: Case
    rows: tuple[Row, ...]
    uniqueness: str
    convergence: str
    budgets: str

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "rows": [row.to_dict() for row in self.rows],
            "uniqueness": self.uniqueness,
            "convergence": self.convergence,
            "budgets": self.budgets,
        }

    def __str__(self) -> str:
        lines = [f"{'statement':<26} {'verdict':<22} {'applies':<8} {'margin':>9}  {'holds':<6} {'slack':>9}"]
        for row in self.rows:
            margin = row.applies.tightest[1]
            holds = "-" if row.holds is None else "yes" if row.holds else "NO"
            lines.append(
                f"{row.name:<26} {row.verdict.value:<22} {'yes' if row.applies else 'no':<8} "
                f"{'' if np.isinf(margin) else format(margin, '9.2g'):>9}  {holds:<6} "
                f"{'' if np.isnan(row.slack) else format(row.slack, '9.2g'):>9}"
            )
        return "\n".join(
            [
                *lines,
                "",
                f"uniqueness:   {self.uniqueness}",
                f"convergence:  {self.convergence}",
                f"budgets:      {self.budgets}",
            ]
        )


def report(
    game: StackelbergGame,
    payments: npt.ArrayLike | None = None,
    participation: npt.ArrayLike | None = None,
    *,
    thorough: bool = False,
) -> LemmaReport:
    """Evaluate every statement of the paper at a game.

    Without ``participation`` the clients' equilibrium under the payments is used. ``thorough`` also
    evaluates what needs a certified solution of the server's problem.

    >>> import numpy as np, stackfu as sf
    >>> emb = sf.MeanEmbeddings.from_features(np.array([[0.0, 0.0], [1.0, 0.0], [0.25, 1.0]]))
    >>> game = sf.StackelbergGame(emb, sizes=[1, 2, 1], cost_scale=10.0)
    >>> rows = sf.lemmas.report(game)
    >>> rows["uniqueness"].verdict.name, bool(rows["uniqueness"].applies), bool(rows["uniqueness"].holds)
    ('REFUTED', True, True)
    >>> print(rows.uniqueness)
    S and the mixture are unique: no client can reach its cap under these payments; enumeration: UNIQUE
    """
    case = Case.of(game, payments, participation)
    rows = tuple(_row(statement, case, thorough) for statement in ALL.values())
    return LemmaReport(case, rows, _uniqueness(case), _convergence(case), _budgets(case, rows))


def _row(statement: Statement, case: Case, thorough: bool) -> Row:
    applies = statement.applies(case)
    stated_applies = statement.applies(case, form="stated")
    evaluate = thorough or not statement.expensive
    holds = statement.holds(case) if applies and evaluate else None
    stated_holds = statement.holds(case, form="stated") if stated_applies and evaluate else None
    return Row(
        statement,
        applies,
        holds,
        stated_applies,
        stated_holds,
        _meaning(statement, case, applies, holds, stated_holds),
    )


def _meaning(
    statement: Statement,
    case: Case,
    applies: Applicability,
    holds: Conclusion | None,
    stated_holds: Conclusion | None,
) -> str:
    if statement.meaning is not None:
        return statement.meaning(case, applies, holds)
    if not applies:
        name, margin = applies.tightest
        return f"does not apply here: it needs {name} (margin {margin:.2g})"
    if holds is None:
        return "applies; not evaluated (needs a certified solution of the server's problem)"
    if stated_holds is not None and not stated_holds and statement.corrected is not None:
        return f"as the paper words it this fails here; what holds: {statement.corrected.text}"
    return f"holds here: {statement.form().text}"


def _uniqueness(case: Case) -> str:
    found = case.equilibria
    enumeration = f"enumeration: {found.uniqueness.name}"
    if case.game.is_homogeneous:
        return f"all remaining data are alike, payment against cost decides; {enumeration}"
    w = case.game.reluctance(case.payments)
    if no_cap_margin(case) > 0:
        return (
            f"S and the mixture are unique: no client can reach its cap under these payments; {enumeration}"
        )
    if w.min() >= 0 and np.ptp(w) <= 1e-12 * w.max():
        return (
            f"S and the mixture are unique: everybody is equally reluctant, a potential game; {enumeration}"
        )
    if found.uniqueness is Uniqueness.UNIQUE:
        return f"no general condition applies, but {found.reason}"
    return f"no general condition applies; {enumeration}: {found.reason}"


def _convergence(case: Case) -> str:
    """Spectral radius of the best responses at the participation, for the clients strictly inside."""
    game, x = case.game, case.participation
    inside = np.flatnonzero((x > 0) & (x < 1))
    paper = paper_margin(case)
    claim = f"the paper's contraction condition {'holds' if paper > 0 else 'fails'} (margin {paper:.2g})"
    if game.is_homogeneous or len(inside) == 0:
        return f"nobody is strictly inside here: best responses settle locally; {claim}"
    m = case.embedding(x)
    towards = m - case.points[inside]
    squares = np.einsum("ij,ij->i", towards, towards)
    if squares.min() <= 1e-14 * game.geometry.scale:
        return f"somebody is indifferent here; {claim}"
    # d BR_k / d y_j = 2 <mu_j - mu_k, m - mu_k> / (3 d_k^2 + a / S) - 1 at an equilibrium
    products = case.points[inside] @ towards.T
    own = np.einsum("ij,ij->i", case.points[inside], towards)
    curving = 3.0 * squares + game.sampling / case.profile.total
    jacobian = 2.0 * (products.T - own[:, None]) / curving[:, None] - 1.0
    np.fill_diagonal(jacobian, 0.0)
    radius = float(np.abs(np.linalg.eigvals(jacobian)).max())
    verdict = "contract" if radius < 1.0 else "do not contract"
    return f"simultaneous best responses {verdict} near this point (spectral radius {radius:.3g}); {claim}"


def _budgets(case: Case, rows: tuple[Row, ...]) -> str:
    price = case.game.full_participation_price
    row = next(r for r in rows if r.name == "budget-transformation")
    return f"full participation costs {price:.6g}, and no larger budget is ever needed; {row.meaning}"
