"""How a solver ended, and how many equilibria there are: two enums whose values say it in words."""

from __future__ import annotations

import enum

__all__ = ["Status", "Uniqueness"]


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
    CONTINUUM = "one of infinitely many equilibria, which lie side by side here or elsewhere"
    UNKNOWN = "not settled"
