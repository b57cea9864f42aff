"""Best-response dynamics, round by round: how clients might find an equilibrium, and how they may fail to.

*Sequential* rounds let one client after another answer what it sees, *simultaneous* rounds let all answer
the last round at once, *damped* rounds move only part of the way there. They may converge, cycle, or fall
to the origin: a sole participant's best response shrinks towards 0, and no
mixture remains. With a sampling term no client falls: alone, it answers ``sqrt(a / (2 w_k))``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from ..errors import InputError
from ..model import Array, GameModel, frozen
from ..model.arguments import number
from .running import running_mixture

__all__ = ["best_response_dynamics"]

#: Default step of damped rounds.
HALF_WAY = 0.5


def best_response_dynamics(
    game: GameModel,
    payments: Array,
    start: Array,
    *,
    caps: Array | None = None,
    kind: Literal["simultaneous", "sequential", "damped"] = "sequential",
    damping: float | None = None,
) -> Iterator[Array]:
    """The start (cut off at the caps), then the participation after every round, without end.

    ``damping`` is the part of the way that damped rounds go, one half by default.
    If all clients drop out, the all-zero vector is the last one.

    Examples
    --------
    >>> from itertools import islice
    >>> import numpy as np, stackfu as sf
    >>> emb = sf.MeanEmbeddings.from_features(np.eye(3))
    >>> game = sf.StackelbergGame(emb, sizes=[1, 1, 1], costs=[1.0, 1.0, 1.0])
    >>> for x in islice(game.dynamics(kind="simultaneous"), 3):
    ...     print(x.round(3))
    [1. 1. 1.]
    [0.289 0.289 0.289]
    [0.423 0.423 0.423]
    """
    if kind not in ("simultaneous", "sequential", "damped"):
        raise InputError("kind", 'must be "simultaneous", "sequential" or "damped"', value=repr(kind))
    if damping is not None and kind != "damped":
        raise InputError("damping", 'is for kind "damped"', value=damping)
    share = 1.0 if kind == "simultaneous" else HALF_WAY if damping is None else number(damping, "damping")
    if not 0.0 < share <= 1.0:
        raise InputError("damping", "must lie in (0, 1]", value=damping)
    start = start if caps is None else frozen(np.minimum(start, caps))
    if not np.any(start > 0):
        raise InputError("start", "nobody takes part; there is no best response to nobody", value="0")
    return (
        _sequential(game, payments, start, caps)
        if kind == "sequential"
        else _joint(game, payments, start, share, caps)
    )


def _joint(game: GameModel, payments: Array, x: Array, share: float, caps: Array | None) -> Iterator[Array]:
    yield x
    while np.any(x > 0):
        x = frozen((1.0 - share) * x + share * game.best_response(payments, x, caps))
        yield x


def _sequential(game: GameModel, payments: Array, x: Array, caps: Array | None) -> Iterator[Array]:
    alpha, everyone = game.alpha, np.arange(game.count)
    most = game.no_caps if caps is None else caps
    bound = alpha if caps is None else alpha * caps
    running = running_mixture(game, game.reluctance(payments), bound)
    y = alpha * x
    yield x
    while np.any(y > 0):
        running.refresh(y)
        running.sweep(y, everyone)
        yield frozen(np.where(y >= bound, most, np.minimum(y / alpha, most)))
