"""Lower a solver's claim until the checker accepts it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...judging.bound_check import BoundVerdict
from ...results.certificate import LeaderCertificate

__all__ = ["accepted"]

#: Limit on the reductions of a claim that the checker finds too high.
CLAIMS = 8
#: A claim is lowered by this much more than what was missing, so that rounding does not call for another time.
GENEROSITY = 1.5
#: Least step down, relative to the claim.
STEP = 1e-15


def accepted(
    check: Callable[[LeaderCertificate], BoundVerdict], claim: LeaderCertificate, reserve: float = 0.0
) -> tuple[LeaderCertificate, BoundVerdict] | None:
    """The certificate, its bound lowered by what the judge finds missing, and what the judge says about it then; None if it is
    refused for other reasons.

    ``reserve`` is how much lower the bound may be at no loss. It is given up first, before a larger margin is: what is missing
    is mostly rounding, but where a conclusion about one client hangs on it, the judge who does not draw it misses far more.
    """
    free = claim.lower - reserve
    for _ in range(CLAIMS):
        verdict = check(claim)
        if verdict:
            return claim, verdict
        if not np.isfinite(verdict.margin):
            return None
        lower = claim.lower + GENEROSITY * min(verdict.margin, -STEP * abs(claim.lower))
        claim = replace(claim, lower=free if lower < free < claim.lower else lower)
    return None
