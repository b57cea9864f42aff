"""Results of the solvers: frozen values that hold their game and verify themselves with it."""

from .departures import Cascade
from .equilibrium import Equilibria, Equilibrium, Face
from .frontier import Frontier
from .manipulation import Manipulation, Manipulations
from .solution import Solution
from .status import Status, Uniqueness
from .verification import Verification
from .whole_plan import WholePlan

__all__ = [
    "Cascade",
    "Equilibria",
    "Equilibrium",
    "Face",
    "Frontier",
    "Manipulation",
    "Manipulations",
    "Solution",
    "Status",
    "Uniqueness",
    "Verification",
    "WholePlan",
]
