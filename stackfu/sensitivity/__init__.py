"""Derivatives of equilibria and of certified optima with respect to every parameter of the game.

===============================  ============================================================================================
:mod:`.conditions`               equilibrium conditions at a profile, their derivatives, and which clients are at a threshold
:mod:`.outputs`                  what can be differentiated: participation, samples, total, server loss, spend, utilities
:mod:`.equilibrium_derivatives`  derivatives of an equilibrium by the implicit function theorem, one-sided ones at thresholds
:mod:`.optimum`                  derivatives of a certified optimum: prices of the constraints, and how the payments move
:mod:`.marginal`                 what one more unit of money for each client brings, for tables and pages
:mod:`.pytorch`                  equilibria as a differentiable function in torch, in batches
===============================  ============================================================================================

The proofs are in ``docs/theory/sensitivity.md``.
"""

from .equilibrium_derivatives import PARAMETERS, EquilibriumDerivatives, sensitivity_of_equilibrium
from .outputs import OUTPUTS

__all__ = ["OUTPUTS", "PARAMETERS", "EquilibriumDerivatives", "sensitivity_of_equilibrium"]
