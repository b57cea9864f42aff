"""Followers: what the clients do under given payments.

:mod:`.path` finds every equilibrium of a game of moderate size, :mod:`.sweeps` one equilibrium of a large
one, :mod:`.solve` chooses between them; :mod:`.verification`, :mod:`.diagnostics` and :mod:`.proof` judge
the result; :mod:`.dynamics` plays best responses round by round.
"""

from .solve import enumerate_equilibria, find_equilibrium

__all__ = ["enumerate_equilibria", "find_equilibrium"]
