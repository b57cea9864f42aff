"""Good payments fast: the program at fixed S for guessed volunteers, the guess improved by its own prices, and a search over S.

With the volunteers decided the leader's problem at one S is convex and small (:mod:`stackfu.leader.certified.sifting`); its solution is
realised exactly through the price of its profile. Two moves improve the guess and never lose the point at hand:

- a client at full whose distance condition binds becomes a volunteer (its condition goes away, its payment is 0 anyway);
- a volunteer that would have to be paid after all is released from being at full.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...geometry import Array
from .bound import BoundProblem
from .candidates import Candidates
from .sifting import Prices, Restriction, SliceAnswer, solve_at

__all__ = ["Proposals"]

Mask = npt.NDArray[np.bool_]

#: Relative part of budget and thresholds held back, so that the realised profile stays within both.
SHRINKS = (1e-8, 1e-6, 1e-4)
GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)


class Proposals:
    """Feasible profiles at given totals; the best ones are kept by ``candidates``."""

    def __init__(self, problem: BoundProblem, candidates: Candidates, unit: float, gap: float) -> None:
        self.problem, self.candidates, self.unit, self.gap = problem, candidates, unit, gap
        self.solves = 0
        self._shrink = SHRINKS[0]

    @property
    def upper(self) -> float:
        """The incumbent's value in normalised units."""
        return self.candidates.value / self.unit

    def keen(self, total: float, prices: Prices, share: float = 1.0) -> Mask:
        """Who would take part fully, unpaid, at ``share`` of the way from the ideal mixture to the prices' centre."""
        p = self.problem
        distances = p.diagonal - 2.0 * share * prices.inner + share * share * prices.square
        return np.asarray(distances + 0.5 * p.client_sampling / total > p.theta * total)

    def at(self, total: float, volunteers: Mask, guess: Prices | None, rounds: int = 3) -> tuple[float, Prices | None]:
        """Best value found at S starting from a guess of the volunteers, and the prices there."""
        p = self.problem
        best, kept = np.inf, guess
        cap = p.alpha / total
        for _ in range(rounds):
            answer = self._solve(total, volunteers, guess)
            if answer is None:
                break
            guess = answer.prices
            keen = self.keen(total, guess)
            capped = answer.z >= cap * (1.0 - 1e-6)
            after = keen & (volunteers | capped) | (capped & (guess.rows > 0) & ~volunteers)
            if answer.broken > 1e-7:
                after = keen | after
            elif answer.value < best - 1e-2 * self.gap:
                best, kept = answer.value, guess
                if answer.value < self.upper:
                    self._realise(total, volunteers, answer)
            else:
                break
            if np.array_equal(after, volunteers):
                break
            volunteers = after
        return best, kept

    def _solve(self, total: float, volunteers: Mask, guess: Prices | None) -> SliceAnswer | None:
        p = self.problem
        if float(p.alpha[volunteers].sum()) >= total * (1.0 - 1e-9):
            return None
        assert p.reach is not None
        tight = replace(p, budget=p.budget * (1.0 - self._shrink), loss_cap=p.loss_cap * (1.0 - self._shrink))
        self.solves += 1
        return solve_at(
            tight,
            total,
            Restriction(~volunteers, volunteers, p.reach + 0.5 * p.client_sampling / total),
            guess=guess,
            enough=0.05 * self.gap,
            held_back=self._shrink,
        )

    def _realise(self, total: float, volunteers: Mask, answer: SliceAnswer) -> bool:
        """Offer the profile; hold more back where rounding does not let it pass."""
        for shrink in SHRINKS:
            if shrink > self._shrink:
                self._shrink = shrink
                again = self._solve(total, volunteers, answer.prices)
                if again is None:
                    return False
                answer = again
            if self.candidates.offer(_snapped(answer.z * (total / self.problem.alpha))):
                return True
        self._shrink = SHRINKS[0]
        return False

    def around(self, total: float, guess: Prices) -> tuple[float, Prices | None]:
        """The best at S among several guesses: as at a known point, as at the ideal mixture, as between."""
        seen: list[Mask] = []
        results = []
        for share in (1.0, 0.0):
            mask = self.keen(total, guess, share)
            if any(np.array_equal(mask, other) for other in seen):
                continue
            seen.append(mask)
            results.append(self.at(total, mask, guess))
        return min(results, key=lambda r: r[0])

    def search(self, start: float, low: float, guess: Prices, enough: Callable[[], bool]) -> None:
        """Scan S away from ``start``, then close in on the best by golden section."""
        found: dict[float, tuple[float, Prices]] = {start: (self.upper, guess)}

        def attempt(total: float) -> float:
            near = min(found, key=lambda s: (not np.isfinite(found[s][0]), abs(s - total)))
            value, prices = self.around(total, found[near][1])
            found[total] = (value, prices or found[near][1])
            return value

        for share in (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2):
            if enough():
                return
            if not np.isfinite(attempt(start + share * (1.0 - start))):
                break
        for share in (1 / 64, 1 / 16):
            if enough() or start * (1.0 - share) < low:
                break
            if not np.isfinite(attempt(start * (1.0 - share))):
                break
        for _ in range(12):
            if enough():
                return
            totals = sorted(found)
            best = min(totals, key=lambda s: found[s][0])
            i = totals.index(best)
            left, right = totals[max(i - 1, 0)], totals[min(i + 1, len(totals) - 1)]
            if right - left < 1e-3 * best:
                return
            side = right - best >= best - left
            attempt(best + (1.0 - GOLDEN) * (right - best) if side else best - (1.0 - GOLDEN) * (best - left))


def _snapped(x: Array) -> Array:
    """Shares that an interior-point method left a hair inside are at 0 or at full."""
    return np.where(x < 1e-7, 0.0, np.where(x > 1.0 - 1e-7, 1.0, x))
