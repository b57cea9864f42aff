"""The leader's problem solved with proof.

==========  =====================================================================================================
problem     what is minimised, in normalised units
bound       the one bound: multipliers in, lower bound out, for boxes of total participation
search      branch and bound over total participation and volunteers
==========  =====================================================================================================
"""

from .search_old import Candidate, Objective, Run, certified

__all__ = ["Candidate", "Objective", "Run", "certified"]
