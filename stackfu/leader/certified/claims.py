"""What a solver says it has proved becomes what the judge accepts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...judging.bound import BoundVerdict, check_bound
from ...model import GameModel, Objective
from ...results.certificate import LeaderCertificate

__all__ = ["accepted"]

#: How often a claim that the judge finds too high is lowered.
CLAIMS = 8
#: A claim is lowered by this much more than what was missing, so that rounding does not call for another time.
GENEROSITY = 1.5
#: Least step down, relative to the claim.
STEP = 1e-15


def accepted(
    game: GameModel, goal: Objective, claim: LeaderCertificate
) -> tuple[LeaderCertificate, BoundVerdict] | None:
    """The certificate, its bound lowered by what the judge finds missing (rounding), and what the judge says about it then; None if
    it is refused for other reasons."""
    for _ in range(CLAIMS):
        verdict = check_bound(game, goal, claim, "intervals")
        if verdict:
            return claim, verdict
        if not np.isfinite(verdict.margin):
            return None
        claim = replace(claim, lower=claim.lower + GENEROSITY * min(verdict.margin, -STEP * abs(claim.lower)))
    return None
