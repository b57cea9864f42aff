"""The checker of lower bounds: does this certificate prove that no payments have an objective below ``lower``?

Independent of every solver, and rigorous: the inequality of :mod:`.bound_formula` in every leaf of the certificate's tree
(:mod:`.cover`), on enclosures of the game's own numbers. Intervals come first; where they are too coarse for a leaf of a small
game, balls decide.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ..errors import VerificationError
from ..model import GameModel, Objective
from ..results.certificate import LeaderCertificate
from .bound_formula import Checker, verdict_on
from .bound_verdict import BoundVerdict
from .cover import Box, boxes_of
from .numbers import BallArithmetic, IntervalArithmetic
from .space import Space

__all__ = ["BoundVerdict", "check_bound", "is_large"]

#: Up to this many clients ``arithmetic="auto"`` asks balls about leaves that intervals do not close.
BALLS_UP_TO = 100
#: From this many clients on feature games are checked in fused passes that copy nothing.
AT_SCALE = 2_000
#: Leaves times clients that are looked at together: what fits in a processor's cache.
TOGETHER = 1 << 15


def is_large(game: GameModel) -> bool:
    """Return True if a game is large enough for :mod:`.bound_at_scale`."""
    return game.embeddings.features is not None and len(game.remaining) >= AT_SCALE


def check_bound(
    game: GameModel, goal: Objective, certificate: LeaderCertificate, arithmetic: str = "auto"
) -> BoundVerdict:
    """Check every leaf; ``arithmetic`` is "balls", "intervals" or "auto": intervals, and up to a hundred clients balls for the
    leaves that intervals do not close.

    Returns a verdict rather than raising: ``lower`` is ``certificate.lower`` if everything holds, else ``-inf``.
    """
    if arithmetic not in ("auto", "balls", "intervals"):
        raise VerificationError(f"unknown arithmetic {arithmetic!r}")
    if arithmetic != "balls" and is_large(game):
        from .bound_at_scale import ScaleChecker

        return ScaleChecker(game, goal).check(certificate)
    boxes: list[Box] = []
    try:
        boxes += boxes_of(len(game.remaining), goal.min_total, certificate)
        if arithmetic == "balls":
            results = _results(game, goal, certificate, boxes, BallArithmetic())
        else:
            results = _results(game, goal, certificate, boxes, IntervalArithmetic())
            failing = [i for i, (_, why) in enumerate(results) if why]
            if failing and arithmetic == "auto" and len(game.remaining) <= BALLS_UP_TO:
                for i in failing:
                    (results[i],) = _results(game, goal, certificate, [boxes[i]], BallArithmetic())
                    if results[i][1]:  # one leaf that fails is enough
                        break
    except VerificationError as error:
        return BoundVerdict(False, -math.inf, 0, -math.inf, str(error))
    verdict = verdict_on(certificate, zip(boxes, results, strict=True))
    return replace(verdict, margin=min(margin for margin, _ in results))


def _results(
    game: GameModel, goal: Objective, certificate: LeaderCertificate, boxes: list[Box], numbers: Any
) -> list[tuple[float, str]]:
    """Margin of every box, and what is wrong with it in words (nothing: it is closed)."""
    with numbers.context():
        checker = Checker(Space(game, goal, numbers), goal, certificate)
        together = max(TOGETHER // checker.clients, 1)
        out: list[tuple[float, str]] = []
        for start in range(0, len(boxes), together):
            out += checker.judge(boxes[start : start + together])
        return out
