"""Payments with a certificate.

=================  ======================================================================================
search             branch and bound with general cone programs, for tens of clients
bound              the one bound that every certificate rests on, in plain floats
points             the clients' embeddings seen from the server's ideal, without an N x N matrix
interior_point     the leader's problem at one total participation, by its structure
sifting            the same for any number of clients: solve for those in doubt, price the others
large              best-first search over boxes of total participation and volunteers, for any number of clients
=================  ======================================================================================
"""

from .search import Candidate, Objective, Run, certified

__all__ = ["Candidate", "Objective", "Run", "certified"]
