"""The clients' equilibrium under payments that are only tried: the profile, without the proofs that a result needs.

:func:`~stackfu.followers.find_equilibrium` proves that no client gains by deviating and whether other equilibria exist, which takes
far longer than following the path. Algorithms that try many payments follow it alone; what they return is found again, with proofs.
"""

from __future__ import annotations

from ..followers import find_equilibrium
from ..followers.path import follow_path
from ..followers.solve import LARGEST_PATH
from ..model import Array, GameModel, Profile, frozen

__all__ = ["play", "play_with_proofs", "same_play"]

#: Profiles with a larger residual, relative to the clients' own terms, are recomputed with all care.
ROUGH = 1e-9
#: Spend and loss of a profile that was tried agree with those of the equilibrium to this, relative to them.
AGREES = 1e-7


def play(game: GameModel, payments: Array) -> Profile:
    """Return the profile of ``find_equilibrium(game, payments)``: where there are several, the one with the largest total.

    >>> import numpy as np, stackfu as sf
    >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(3)), [1, 2, 1], costs=[1.0, 1.0, 1.0])
    >>> quick, proved = play(game, np.zeros(3)).x, game.equilibrium().participation
    >>> bool(np.allclose(quick, proved, rtol=1e-9))
    True
    """
    if not game.is_homogeneous and game.count <= LARGEST_PATH:
        path = follow_path(game, payments)
        if path.complete and path.roots:
            profile = game.profile(path.roots[-1].participation)
            if game.judge(payments, profile)[0] <= ROUGH:
                return profile
    return play_with_proofs(game, payments)


def play_with_proofs(game: GameModel, payments: Array) -> Profile:
    """Return the profile of an equilibrium that was judged."""
    return find_equilibrium(game, frozen(payments)).profile


def same_play(game: GameModel, payments: Array, tried: Profile, found: Profile) -> bool:
    """Return True if an equilibrium found with proofs agrees in spend and loss with the tried one."""
    for one, other in (
        (float(payments @ tried.x), float(payments @ found.x)),
        (game.loss_of(tried), game.loss_of(found)),
    ):
        if abs(one - other) > AGREES * max(abs(one), abs(other)):
            return False
    return True
