"""What the solvers return: frozen values that hold their game and judge themselves by asking it."""

from .equilibrium import Equilibria, Equilibrium, Face
from .frontier import Frontier
from .solution import Solution
from .status import Status, Uniqueness
from .verification import Verification

__all__ = [
    "Equilibria",
    "Equilibrium",
    "Face",
    "Frontier",
    "Solution",
    "Status",
    "Uniqueness",
    "Verification",
]
