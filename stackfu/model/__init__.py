"""The model: a game's data, its geometry and its formulas. Nothing here searches or iterates.

==============  =================================================================================
data            what a game is made of, checked: sizes, costs, weights, who is removed
geometry        squared distances between mixtures of the clients' embeddings
profile         a participation profile in the variables y, S, z, m
losses          the server's loss as a value
responses       what a client wants: best response, violation, regret
price           cheapest payments that induce a profile
objective       what the server asks for, and for how long
game_model      all of it behind one object, with arguments checked
==============  =================================================================================
"""

from .game_model import GameModel
from .geometry import Array, FeatureGeometry, Geometry, GramGeometry, MixtureDistances, frozen
from .losses import ServerLoss, Target
from .objective import Limits, Objective
from .profile import Profile

__all__ = [
    "Array",
    "FeatureGeometry",
    "GameModel",
    "Geometry",
    "GramGeometry",
    "Limits",
    "MixtureDistances",
    "Objective",
    "Profile",
    "ServerLoss",
    "Target",
    "frozen",
]
