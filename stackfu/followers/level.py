"""The level function t(s) on a grid, for drawing it; its zeros are the equilibria (see :mod:`.path`)."""

from __future__ import annotations

import numpy as np

from ..model import Array, GameModel
from .path import Path, follow_path, relevant_reluctance
from .qp import level_profile

__all__ = ["level_curve"]

#: Points of the curve at one total with levels closer than this part of the largest are one point: two pieces meet there.
SAME_LEVEL = 1e-12


def level_curve(
    game: GameModel, payments: Array, points: int = 80, upto: float = 1.0, caps: Array | None = None
) -> tuple[Array, Array]:
    """Totals s in (0, upto] by ascending order, and t(s) (with the sampling term) at them in units of squared distance.

    The ends of all pieces are there, exactly; wider pieces are filled by a convex solver at about ``points``
    equidistant totals. Vertical stretches of the curve show as two points with the same s.

    >>> import numpy as np, stackfu as sf
    >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [1, 1], costs=[1.0, 1.0])
    >>> s, t = level_curve(game, np.zeros(2), points=4)
    >>> s.round(3), t.round(3)
    (array([0.  , 0.25, 0.5 , 0.75, 1.  ]), array([ 0.5 ,  0.25,  0.  , -0.25, -0.5 ]))
    """
    path: Path = follow_path(game, payments, caps)
    totals = np.concatenate([path.column("bottom"), path.column("top")])
    levels = np.concatenate([path.column("level_bottom"), path.column("level_top")])
    kept = np.isfinite(levels) & (totals <= upto)
    totals, levels = totals[kept], levels[kept]
    bound = game.alpha if caps is None else game.alpha * caps
    upto = upto if caps is None else min(upto, float(bound.sum()))
    who = np.flatnonzero(bound > 0)
    gram, w = game.geometry.gram[np.ix_(who, who)], relevant_reluctance(game, payments)[who]
    # a grid point next to the end of a piece would show nothing new
    step = upto / points
    grid = [s for s in np.linspace(0.0, upto, points + 1)[1:] if np.abs(totals - s).min() > step / 4]
    thin = 0.5 * game.sampling
    filled = [level_profile(gram, bound[who], w, float(s))[1] + thin / float(s) for s in grid]
    s = np.concatenate([totals, grid])
    t = np.concatenate([levels, filled])
    order = np.lexsort((-t, s))
    rounding = SAME_LEVEL * np.abs(t).max()
    distinct = np.concatenate([[True], (np.diff(s[order]) != 0) | (np.abs(np.diff(t[order])) > rounding)])
    return s[order][distinct], t[order][distinct]
