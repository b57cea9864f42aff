"""Executable statements: hypotheses, a conclusion, a verdict, a counterexample."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import InputError, NoEquilibriumError
from ..game import StackelbergGame
from ..model.geometry import Array
from ..model.profile import Profile
from ..results import Equilibria, Uniqueness

__all__ = ["Applicability", "Case", "Conclusion", "Counterexample", "Form", "Statement", "Verdict"]

#: Slack above minus this counts as holding; a strict conclusion needs slack above this.
TOLERANCE = 1e-9
#: Statements are evaluated for games of up to this many remaining clients.
LARGEST = 500


class Verdict(enum.Enum):
    """Verdict on a statement, for all games."""

    DEFINITION = "a definition"
    TRUE = "true as stated"
    CORRECTED = "true after correction"
    REFUTED = "refuted"


@dataclass(frozen=True, eq=False)
class Case:
    """A game, payments and a participation profile: what a statement is evaluated at."""

    game: StackelbergGame
    payments: Array
    participation: Array

    @classmethod
    def of(
        cls,
        game: StackelbergGame,
        payments: npt.ArrayLike | None = None,
        participation: npt.ArrayLike | None = None,
    ) -> Case:
        """Complete a case: no payments by default, and the clients' equilibrium under the payments.

        If no client takes part at any equilibrium, full participation is used instead.
        """
        if game.count > LARGEST:
            raise InputError(
                "game", f"statements are evaluated for up to {LARGEST} clients", value=game.count
            )
        paid = game.check_payments(payments)
        if participation is None:
            try:
                x = game.equilibrium(paid).participation
            except NoEquilibriumError:
                x = game.check_participation(np.ones(game.count))
        else:
            x = game.profile(participation).x
        return cls(game, paid, x)

    @cached_property
    def profile(self) -> Profile:
        """The participation in the variables y, S, z, m."""
        return self.game.profile(self.participation)

    @cached_property
    def equilibria(self) -> Equilibria:
        """Every equilibrium of the clients under these payments."""
        return self.game.equilibria(self.payments)

    @cached_property
    def points(self) -> Array:
        """Coordinates of the remaining clients' embeddings (N, r), from the inner products."""
        return factor(self.game.geometry.gram)

    @cached_property
    def unit(self) -> float:
        """``lam`` times the largest squared distance: what drift can be worth."""
        return self.game.lam * (self.game.geometry.scale or 1.0)

    def embedding(self, participation: Array, points: Array | None = None) -> Array:
        """``mu(x) = sum alpha_i x_i mu_i / sum alpha_i x_i``, from the definition."""
        weights = self.game.alpha * participation
        return np.asarray(weights @ (self.points if points is None else points) / weights.sum())

    def impacts(self, participation: Array, points: Array | None = None) -> Array:
        """``u_i = lam ||mu(x) - mu_i||^2`` for every client, from the definition."""
        where = self.points if points is None else points
        gaps = where - self.embedding(participation, where)
        return np.asarray(self.game.lam * np.einsum("ij,ij->i", gaps, gaps))

    def with_share(self, k: int, share: float) -> Array:
        """Return the participation with client k's entry replaced."""
        x = np.array(self.participation)
        x[k] = share
        return x

    def rest(self, k: int) -> float:
        """Return ``S0_k``: the participation of all clients but k."""
        y = self.game.alpha * self.participation
        return float(np.delete(y, k).sum())

    def mean_of_others(self, k: int) -> Array:
        """Return the mean embedding of all clients' data but k's."""
        return self.embedding(self.with_share(k, 0.0))

    @property
    def facing_somebody(self) -> list[int]:
        """Return the clients that are not sole participants, so that their utility is continuous."""
        return [k for k in range(self.game.count) if self.rest(k) > 0]


def factor(gram: Array) -> Array:
    """Return rows with the given inner products."""
    values, vectors = np.linalg.eigh(gram)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


@dataclass(frozen=True)
class Form:
    """One wording of a statement: its text, the margins of its hypotheses, and the slack of its conclusion.

    A hypothesis holds where its margin is positive. The conclusion holds where its slack is not negative
    (beyond rounding), or, if ``strict``, positive. Slack is relative to the natural size of what is
    compared.
    """

    text: str
    hypotheses: Callable[[Case], dict[str, float]]
    slack: Callable[[Case], float]
    strict: bool = False


@dataclass(frozen=True)
class Applicability:
    """Margins of the hypotheses; true if all are positive."""

    margins: Mapping[str, float]

    def __bool__(self) -> bool:
        return all(margin > 0 for margin in self.margins.values())

    @property
    def tightest(self) -> tuple[str, float]:
        """The hypothesis with the smallest margin."""
        if not self.margins:
            return "no hypothesis", np.inf
        return min(self.margins.items(), key=lambda item: item[1])


@dataclass(frozen=True)
class Conclusion:
    """Slack of the conclusion; true if it holds."""

    slack: float
    strict: bool

    def __bool__(self) -> bool:
        return self.slack > TOLERANCE if self.strict else self.slack >= -TOLERANCE


@dataclass(frozen=True, eq=False)
class Counterexample:
    """A game that meets a statement's hypotheses and violates its conclusion, everything recomputed.

    The claim is ``left <= right`` (``left < right`` if strict); here ``left`` exceeds ``right``.
    """

    game: StackelbergGame
    payments: Array
    participation: Array
    claim: str
    left: float
    right: float
    story: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def violation(self) -> float:
        """By how much the claim fails."""
        return self.left - self.right

    def __str__(self) -> str:
        game = self.game
        points = game.embeddings.features
        shown = {
            "embeddings (one row per client)": np.asarray(
                points if points is not None else game.embeddings.gram
            ).tolist(),
            "sizes": game.all_sizes.tolist(),
            "removed": list(game.removed),
            "costs": game.costs.tolist(),
            "payments": np.asarray(self.payments).tolist(),
            "participation": np.asarray(self.participation).tolist(),
            "lambda_v, lambda_s, lambda_q, C": [
                game.lambda_v,
                game.lambda_s,
                game.lambda_q,
                game.loss_constant,
            ],
            **self.facts,
        }
        width = max(len(name) for name in shown)
        lines = [f"  {name:<{width}}  {value}" for name, value in shown.items()]
        return "\n".join(
            [
                self.story,
                "",
                *lines,
                "",
                f"  claimed:     {self.claim}",
                f"  recomputed:  left {self.left:.12g}, right {self.right:.12g}: violated by "
                f"{self.violation:.6g}",
            ]
        )


@dataclass(frozen=True)
class Statement:
    """A statement of the paper: as stated, as it holds, and what is known about it.

    ``stated`` is the paper's wording; ``corrected`` what holds instead (None where nothing needs
    correcting). Both can be evaluated for any game; with a sampling constant, which the paper does not have, only those
    ``with_samples`` apply.
    """

    name: str
    title: str
    label: str
    verdict: Verdict
    why: str
    stated: Form
    corrected: Form | None = None
    counterexample: Callable[[], Counterexample] | None = None
    more: tuple[Callable[[], Counterexample], ...] = ()
    meaning: Callable[[Case, Applicability, Conclusion | None], str] | None = None
    expensive: bool = False
    #: True if it also concerns games with a sampling constant, which the paper does not have.
    with_samples: bool = False

    def form(self, which: Literal["stated", "corrected"] | None = None) -> Form:
        """Return the wording asked for; by default the one that is true."""
        if which not in (None, "stated", "corrected"):
            raise InputError("form", 'must be "stated" or "corrected"', value=repr(which))
        if which == "stated" or self.corrected is None:
            return self.stated
        return self.corrected

    def applies(
        self,
        game: StackelbergGame | Case,
        payments: npt.ArrayLike | None = None,
        participation: npt.ArrayLike | None = None,
        *,
        form: Literal["stated", "corrected"] | None = None,
    ) -> Applicability:
        """Return whether the hypotheses hold for a game, with their margins."""
        case = _case(game, payments, participation)
        margins = self.form(form).hypotheses(case)
        if case.game.sampling > 0 and not self.with_samples:
            margins = {**margins, "no sampling term (A = 0)": -case.game.sampling}
        return Applicability(margins)

    def holds(
        self,
        game: StackelbergGame | Case,
        payments: npt.ArrayLike | None = None,
        participation: npt.ArrayLike | None = None,
        *,
        form: Literal["stated", "corrected"] | None = None,
    ) -> Conclusion:
        """Return whether the conclusion holds for a game, with its slack."""
        wording = self.form(form)
        return Conclusion(float(wording.slack(_case(game, payments, participation))), wording.strict)

    def refute(self) -> Counterexample:
        """Return the smallest counterexample known to the statement as the paper words it, recomputed."""
        if self.counterexample is None:
            raise InputError("name", f"{self.name} is {self.verdict.value}: there is nothing to refute")
        return self.counterexample()

    @property
    def counterexamples(self) -> list[Counterexample]:
        """All counterexamples known, the smallest first, recomputed."""
        return [build() for build in (self.counterexample, *self.more) if build is not None]

    def __str__(self) -> str:
        lines = [f"{self.title}: {self.verdict.value}.", f"  stated:  {self.stated.text}"]
        if self.corrected is not None:
            lines.append(f"  holds:   {self.corrected.text}")
        return "\n".join([*lines, f"  why:     {self.why}"])


def _case(
    game: StackelbergGame | Case, payments: npt.ArrayLike | None, participation: npt.ArrayLike | None
) -> Case:
    return game if isinstance(game, Case) else Case.of(game, payments, participation)


def always(_: Case) -> dict[str, float]:
    """No hypotheses beyond the model itself."""
    return {}


def settled(case: Case) -> float:
    """1 if the equilibrium under the payments is known to be the only one, else -1."""
    return 1.0 if case.equilibria.uniqueness is Uniqueness.UNIQUE else -1.0
