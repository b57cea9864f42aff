"""Status of a solver and number of equilibria: two enums with a sentence as value.

A method that sets out to prove something (the certified mechanism for every kind of offer) ends with ``CERTIFIED``, or with the
status that says why it did not; ``CONVERGED`` is how methods end that prove nothing.
"""

from __future__ import annotations

import enum

__all__ = ["Status", "Uniqueness"]


class Status(enum.Enum):
    """Outcome of a solver; the value is a sentence."""

    CERTIFIED = "proved at the returned point, within the stated gap"
    CONVERGED = "the residual at the returned point is small; nothing more is proved"
    GAP_OPEN = "feasible, but not proved to be within the gap that was asked for"
    TIME_LIMIT = "stopped by the time limit; the best point so far is returned"
    INTERRUPTED = "stopped by the user; the best point so far is returned"
    MAX_ITERATIONS = "stopped by the iteration limit; the best point so far is returned"
    CYCLED = "the iteration came back to an earlier point; the best feasible point is returned"
    NO_EQUILIBRIUM = "no equilibrium but the collapse to nobody taking part"
    FAILED = "no point that could be verified"

    @property
    def proved(self) -> bool:
        """Return True if the claim was proved at the returned point, by data that a checker accepted."""
        return self is Status.CERTIFIED

    @property
    def success(self) -> bool:
        """Return True if the method reached all that it promises: a proof, or convergence where it proves nothing.

        False does not mean that there is no answer: a solution with ``GAP_OPEN`` or ``TIME_LIMIT`` keeps every constraint, and its
        lower bound, if it has one, is valid. It is not proved to be as good as was asked for.
        """
        return self in (Status.CERTIFIED, Status.CONVERGED)


class Uniqueness(enum.Enum):
    """Number of equilibria of the clients' game under the given payments."""

    UNIQUE = "the only equilibrium"
    MULTIPLE = "one of several isolated equilibria"
    CONTINUUM = "one of infinitely many equilibria, which lie side by side here or elsewhere"
    UNKNOWN = "not settled"
