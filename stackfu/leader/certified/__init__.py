"""Payments with a certificate.

=================  ======================================================================================
search             branch and bound with general cone programs, for tens of clients
interior_point     the leader's problem at one total participation, by its structure
=================  ======================================================================================
"""

from .search import Candidate, Objective, Run, certified

__all__ = ["Candidate", "Objective", "Run", "certified"]
