"""The leader: payments within a budget.

===========  ==========================================================================================
certified    global optimum with a lower bound, by branch and bound (:mod:`stackfu.leader.certified`)
haipo        the published algorithm, as a baseline (:mod:`stackfu.leader.haipo`)
uniform      one price for everybody (:mod:`stackfu.leader.uniform`)
grouped      one price per sample for each group of clients (:mod:`stackfu.leader.grouped`)
shapley      prices in proportion to the clients' Shapley values (:mod:`stackfu.leader.by_value`); leave-one-out likewise
posted       prices that do not depend on a client's own report (:mod:`stackfu.leader.truthful`)
===========  ==========================================================================================

:mod:`.mechanisms` is where these and a user's own are known by name, :mod:`.dispatch` runs one of them, :mod:`.budget_sequence`
runs one along a list of budgets. What can be asked for is :class:`stackfu.Objective`.
"""

from .dispatch import solve
from .mechanisms import Mechanism, Proposal, announce, mechanism_names, register_mechanism

__all__ = ["Mechanism", "Proposal", "mechanism_names", "register_mechanism", "solve"]

announce("certified", "stackfu.leader.certified:certified", needs_budget=False)
announce("haipo", "stackfu.leader.haipo:haipo")
announce("uniform", "stackfu.leader.uniform:uniform")
announce("grouped", "stackfu.leader.grouped:grouped")
announce("shapley", "stackfu.leader.by_value:by_shapley_value")
announce("leave-one-out", "stackfu.leader.by_value:by_leave_one_out")
announce("posted", "stackfu.leader.truthful:posted")
