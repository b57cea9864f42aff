"""Examples as code: what a failing test prints can be pasted into a new one.

numpy prints eight digits, and a counterexample at a threshold lives in the last; the code holds every bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import currently_in_test_context, note

from ..errors import InputError
from ..game import StackelbergGame

__all__ = ["as_code", "tell"]

_DEFAULTS = {
    "lambda_v": 1.0,
    "lambda_s": 1.0,
    "lambda_q": 1.0,
    "loss_constant": 1.0,
    "sampling_constant": 0.0,
    "calibrated": False,
}


def as_code(thing: Any) -> str:
    """Python that rebuilds a game, an array or a number, to the last bit; ``np`` is numpy and ``sf`` stackfu.

    >>> import numpy as np, stackfu as sf
    >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [1, 3], costs=[0.1, 0.2])
    >>> print(as_code(game))
    sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(np.array([[1.0, 0.0], [0.0, 1.0]])),
        [1.0, 3.0],
        removed=[],
        costs=[0.1, 0.2],
    )
    >>> eval(as_code(game)) == game
    True
    """
    if isinstance(thing, StackelbergGame):
        return _game(thing)
    if isinstance(thing, np.ndarray):
        dtype = "" if thing.dtype in (np.float64, np.int64, bool) else f", dtype=np.{thing.dtype}"
        return f"np.array({thing.tolist()!r}{dtype})"
    if isinstance(thing, np.generic):
        return repr(thing.item())
    return repr(thing)


def tell(**things: Any) -> None:
    """Have a failing test print its example as code; hypothesis keeps the words for the smallest one."""
    if currently_in_test_context():
        for name, thing in things.items():
            note(f"{name} = {as_code(thing)}")


def _game(game: StackelbergGame) -> str:
    if not game.has_paper_loss:
        raise InputError("game", "an objective of one's own has no code to rebuild it")
    emb = game.embeddings
    if emb.features is not None:
        made = f"sf.MeanEmbeddings.from_features({as_code(np.asarray(emb.features))})"
    else:
        made = f"sf.MeanEmbeddings.from_gram({as_code(np.asarray(emb.gram))})"
    lines = [
        made,
        repr(game.all_sizes.tolist()),
        f"removed={list(game.removed_names) if game.has_names else [int(k) for k in game.removed]!r}",
        *([f"names={list(game.all_names)!r}"] if game.has_names else []),
        f"costs={game.costs.tolist()!r}",
        *(
            f"{name}={getattr(game, name)!r}"
            for name, default in _DEFAULTS.items()
            if getattr(game, name) != default
        ),
    ]
    return "sf.StackelbergGame(\n" + "".join(f"    {line},\n" for line in lines) + ")"
