"""Capped offers: the best plan within a budget, with its certificate.

===========  ==========================================================================================
problem      the server's problem in normalised units
bound        the bound for any multipliers on any region of plans
programme    cone programmes that propose multipliers and plans
columns      the same for any number of clients
plans        plans in the game itself, and local search
descent      local search in all amounts at once
search       branch and bound
mechanism    what was asked for, the search, and the offers
===========  ==========================================================================================
"""

from .capped_offers import capped

__all__ = ["capped"]
