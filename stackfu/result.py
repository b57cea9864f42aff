"""What the solvers return: frozen records that hold their game and judge themselves."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from .errors import ConvergenceError, VerificationError
from .geometry import Array
from .profile import Profile

if TYPE_CHECKING:
    from .followers.diagnostics import Diagnostics
    from .followers.proof import Certificate
    from .game import StackelbergGame

__all__ = ["Equilibria", "Equilibrium", "Face", "Solution", "Status", "Uniqueness", "Verification"]


class Status(enum.Enum):
    """How a solver ended; the value says it in words."""

    CERTIFIED = "proved at the returned point, within the stated gap"
    CONVERGED = "the residual at the returned point is small; nothing more is proved"
    GAP_OPEN = "feasible, with a valid bound, but the gap is wider than was asked for"
    TIME_LIMIT = "stopped by the time limit; the best point so far is returned"
    INTERRUPTED = "stopped by the user; the best point so far is returned"
    MAX_ITERATIONS = "stopped by the iteration limit; the best point so far is returned"
    CYCLED = "the iteration came back to an earlier point; the best feasible point is returned"
    NO_EQUILIBRIUM = "no equilibrium but the collapse to nobody taking part"
    FAILED = "no point that could be verified"

    @property
    def proved(self) -> bool:
        """Whether the claim was proved at the returned point."""
        return self is Status.CERTIFIED

    @property
    def success(self) -> bool:
        """Whether the returned point can be used as an answer."""
        return self in (Status.CERTIFIED, Status.CONVERGED)


class Uniqueness(enum.Enum):
    """How many equilibria the clients' game has under the given payments."""

    UNIQUE = "the only equilibrium"
    MULTIPLE = "one of several isolated equilibria"
    CONTINUUM = "one of infinitely many equilibria, or some other equilibrium is"
    UNKNOWN = "not settled"


@dataclass(frozen=True, eq=False)
class Face:
    """A polytope of equilibria that share total S and mean embedding m (or, rarely, only m as S varies).

    ``clients`` are the client numbers whose participation is not pinned down; each may lie anywhere in
    ``[lower, upper]`` as long as the others balance it; ``dimension`` is that of the polytope.
    """

    clients: tuple[int, ...]
    lower: Array
    upper: Array
    dimension: int

    def __str__(self) -> str:
        spans = ", ".join(
            f"x[{k}] in [{a:.4g}, {b:.4g}]"
            for k, a, b in zip(self.clients, self.lower, self.upper, strict=True)
        )
        return f"{self.dimension}-dimensional face: {spans}"


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of recomputing a result from its game by other means than the solver's."""

    passed: bool
    residual: float
    regret: float
    tolerance: float
    message: str

    def __bool__(self) -> bool:
        return self.passed


@dataclass(frozen=True, eq=False)
class Equilibrium:
    """A Nash equilibrium of the clients under given payments.

    ``regret`` (largest gain of a client from deviating) and ``residual`` (largest violation of the equilibrium
    conditions, relative to the largest squared distance between clients) are recomputed from the game at
    ``participation``; they are not what the solver believed.
    """

    game: StackelbergGame
    payments: Array
    participation: Array
    status: Status
    uniqueness: Uniqueness
    reason: str
    method: str
    regret: float
    residual: float
    iterations: int = 0
    seconds: float = 0.0
    face: Face | None = None
    history: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    @cached_property
    def profile(self) -> Profile:
        """The participation in the variables y, S, z, m."""
        return self.game.profile(self.participation)

    @property
    def total(self) -> float:
        """S, the share of the remaining data that takes part."""
        return self.profile.total

    @property
    def mixture(self) -> Array:
        """z, the mixture of clients in the data that takes part."""
        return self.profile.mixture

    @cached_property
    def spend(self) -> float:
        """What the server pays: ``p . x``."""
        return float(self.payments @ self.participation)

    @cached_property
    def server_loss(self) -> float:
        """``u_server`` at this equilibrium."""
        return self.game.server_loss(self.participation)

    @cached_property
    def utilities(self) -> Array:
        """Every client's utility ``U_k``."""
        return self.game.client_utilities(self.payments, self.participation)

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """Contraction diagnostics at this point, see :mod:`stackfu.followers.diagnostics`."""
        from .followers.diagnostics import diagnose

        return diagnose(self)

    def verify(self, tolerance: float = 1e-9) -> Verification:
        """Check independently that no client gains by deviating.

        Every client's utility is maximised numerically over [0, 1] from the definition (mixture embedding, payment,
        cost), without the closed form of the best response that the solvers use.
        """
        from .followers.verification import verify_equilibrium

        return verify_equilibrium(self, tolerance)

    def prove(self, precision: int = 256) -> Certificate:
        """Prove in ball arithmetic that an exact equilibrium lies in a tiny box around this point."""
        from .followers.proof import prove_equilibrium

        return prove_equilibrium(self, precision)

    def raise_for_status(self) -> Equilibrium:
        """Return self, or raise :class:`~stackfu.errors.ConvergenceError` if this is not an answer."""
        if not self.status.success:
            raise ConvergenceError(f"{self.method}: {self.status.value} (residual {self.residual:.2e})")
        return self

    def save(self, path: Any) -> None:
        """Write game, payments and point to a ``.json`` or ``.npz`` file, without loss."""
        from .io import save

        save(self, path)

    def __repr__(self) -> str:
        return (
            f"Equilibrium({self.status.name}, {self.uniqueness.name}, S={self.total:.6g}, "
            f"participants={int(np.count_nonzero(self.participation))}/{len(self.participation)}, "
            f"regret={self.regret:.1e}, residual={self.residual:.1e})"
        )


@dataclass(frozen=True, eq=False)
class Equilibria(Sequence[Equilibrium]):
    """All equilibria under given payments, ordered by total participation.

    ``complete`` says whether the argument that none is missing was checked along the whole path; ``pieces`` are the
    pieces of the level function ``t(s)`` (see :mod:`stackfu.followers.path`).
    """

    game: StackelbergGame
    payments: Array
    items: tuple[Equilibrium, ...]
    uniqueness: Uniqueness
    reason: str
    complete: bool
    pieces: Any = field(default=None, repr=False)
    seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Equilibrium: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Equilibrium]: ...
    def __getitem__(self, index: int | slice) -> Equilibrium | Sequence[Equilibrium]:
        return self.items[index]

    def __iter__(self) -> Iterator[Equilibrium]:
        return iter(self.items)

    def __repr__(self) -> str:
        totals = ", ".join(f"{e.total:.6g}" for e in self.items)
        return f"Equilibria({self.uniqueness.name}, S=[{totals}], complete={self.complete})"


@dataclass(frozen=True, eq=False)
class Solution:
    """Payments for a budget, what they lead to, and how good they provably are.

    ``lower_bound`` holds for every payment vector within the budget (and the floor, if one was set); ``gap`` is
    ``objective - lower_bound``. Methods that prove nothing have ``lower_bound = -inf``.
    """

    game: StackelbergGame
    budget: float
    payments: Array
    equilibrium: Equilibrium
    status: Status
    method: str
    objective: float
    lower_bound: float
    shadow_price: float = float("nan")
    options: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    nodes: int = 0
    seconds: float = 0.0
    history: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    @property
    def participation(self) -> Array:
        """x at the equilibrium these payments are meant to induce."""
        return self.equilibrium.participation

    @property
    def spend(self) -> float:
        """``p . x`` at that equilibrium."""
        return self.equilibrium.spend

    @property
    def server_loss(self) -> float:
        """``u_server`` at that equilibrium."""
        return self.equilibrium.server_loss

    @property
    def gap(self) -> float:
        """``objective - lower_bound``, never negative."""
        return max(self.objective - self.lower_bound, 0.0)

    @cached_property
    def equilibria(self) -> Equilibria:
        """Every equilibrium of these payments."""
        return self.game.equilibria(self.payments)

    @cached_property
    def optimistic(self) -> float:
        """Least server loss over all equilibria of these payments."""
        return min([self.server_loss, *(e.server_loss for e in self.equilibria)])

    @cached_property
    def pessimistic(self) -> float:
        """Largest server loss over all equilibria of these payments."""
        return max([self.server_loss, *(e.server_loss for e in self.equilibria)])

    @property
    def active(self) -> dict[str, tuple[int, ...]]:
        """Client numbers by what binds them: out, partial, full, and volunteers (full, paid nothing)."""
        x, who = self.participation, self.game.remaining
        groups = {
            "out": x == 0,
            "partial": (x > 0) & (x < 1),
            "full": (x == 1) & (self.payments > 0),
            "volunteers": (x == 1) & (self.payments == 0),
        }
        return {name: tuple(int(k) for k in np.asarray(who)[mask]) for name, mask in groups.items()}

    def raise_for_status(self) -> Solution:
        """Return self, or raise if the solver does not stand behind it."""
        if not self.status.success:
            raise ConvergenceError(f"{self.method}: {self.status.value}. {self.message}".strip())
        return self

    def verify(self, tolerance: float = 1e-9) -> Verification:
        """Recompute everything from the game: equilibrium, spend, loss, budget, and the certificate's arithmetic."""
        from .leader.verification import verify_solution

        return verify_solution(self, tolerance)

    def save(self, path: Any) -> None:
        """Write the solution with its game to a ``.json`` or ``.npz`` file, without loss."""
        from .io import save

        save(self, path)

    def __repr__(self) -> str:
        # the bound is one on the objective, which is the server loss only if nothing else counts
        stated = "" if self.objective == self.server_loss else f"objective={self.objective:.6g}, "
        return (
            f"Solution({self.method}, {self.status.name}, server_loss={self.server_loss:.6g}, {stated}"
            f"lower_bound={self.lower_bound:.6g}, gap={self.gap:.1e}, spend={self.spend:.6g} of {self.budget:.6g})"
        )


def require(condition: bool, message: str) -> None:
    """Raise :class:`VerificationError` unless the condition holds."""
    if not condition:
        raise VerificationError(message)
