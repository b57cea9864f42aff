"""Good payments fast: the program at fixed S for guessed volunteers, the guess improved by its own prices, and a search over S.

With the volunteers decided the leader's problem at one S is convex and small (:mod:`stackfu.leader.certified.sifting`); its
solution is realised exactly through the price of its profile. Two moves improve the guess and never lose the point at hand:

- a client at full whose distance condition binds becomes a volunteer (its condition goes away, its payment is 0 anyway);
- a volunteer that would have to be paid after all is released from being at full.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...judging.gaps import Gap, gap_at
from ...model import Array
from ..tolerances import BROKEN, COARSE_SNAP, FLAT, SAFETY
from .bound import BoundProblem
from .candidates import Candidates
from .knots import compact
from .room import give_back
from .sifting import SAMPLE, Prices, Restriction, SliceAnswer, solve_at

__all__ = ["Proposals"]

Mask = npt.NDArray[np.bool_]

#: Relative part of budget and thresholds held back, so that the realised profile stays within both.
SHRINKS = (1e-8, 1e-6, 1e-4)
#: Radius of the ball around a known mixture in which a better one is sought, relative to the spread of the clients.
FIRST_RADIUS, NEARBY = 0.05, 0.015
#: What is left of the radius once the best mixture of the ball lies well inside.
SHRINKING = 0.1
#: Balls tried, and so few clients of whom it is open in a ball whether they volunteer that the point is solved for exactly.
BALLS, FEW = 8, 1000
#: A best total is settled if a parabola through its neighbours, this near relative to it, promises less than this part of the gap.
NARROW, SETTLED_TOTAL = 0.05, 0.05
#: A share that is short of its cap by less than this part of it is at the cap: interior points come no nearer.
AT_CAP = 1e-6
#: Rows of a ball's programme may be broken by this, in units of the largest squared distance: its answer is a guess for the next.
ROUGHLY_BROKEN = 1e-6
GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)


class Found(NamedTuple):
    """Value (infinite: none found), prices and mixture at one S."""

    value: float
    prices: Prices
    z: Array | None

    def compact(self) -> Found:
        """The same in half of the digits where there are very many clients: a search over S keeps a dozen."""
        y = self.prices
        few = replace(y, rows=compact(y.rows), inner=compact(y.inner), pulled=compact(y.pulled))
        return Found(self.value, few, None if self.z is None else compact(self.z))


class Proposals:
    """Feasible profiles at given totals; the best ones are kept by ``candidates``, if there are any to be kept."""

    def __init__(
        self,
        problem: BoundProblem,
        candidates: Candidates | None,
        unit: float,
        gap: Gap,
        penalty: float,
        stop: Callable[[], bool],
    ) -> None:
        self.problem, self.candidates, self.unit, self._gap = problem, candidates, unit, gap
        self.stop = stop
        self.penalty = penalty
        self.solves = 0
        self._shrink = SHRINKS[0]

    @property
    def gap(self) -> float:
        """Return the gap to close in normalised units, which may depend on the best profile."""
        best = np.inf if self.candidates is None else self.candidates.value
        return gap_at(self._gap, best) / self.unit

    @property
    def upper(self) -> float:
        """The incumbent's value in normalised units."""
        return np.inf if self.candidates is None else self.candidates.value / self.unit

    def keen(self, total: float, prices: Prices, share: float = 1.0) -> Mask:
        """Who would take part fully, unpaid, at ``share`` of the way from the ideal mixture to the prices' centre."""
        p = self.problem
        distances = p.diagonal - 2.0 * share * prices.inner + share * share * prices.square
        return np.asarray(distances + 0.5 * p.client_sampling / total > p.theta * total)

    def at(self, total: float, volunteers: Mask, guess: Prices, rounds: int = 3) -> Found:
        """Best value found at S starting from a guess of the volunteers, and the point and the prices there."""
        p = self.problem
        best = Found(np.inf, guess, None)
        cap = p.alpha / total
        for _ in range(rounds):
            answer = self._solve(total, volunteers, guess)
            if answer is None:
                break
            guess = answer.prices
            keen = self.keen(total, guess)
            capped = answer.z >= cap * (1.0 - AT_CAP)
            after = keen & (volunteers | capped) | (capped & (guess.rows > 0) & ~volunteers)
            if answer.broken > BROKEN:
                after = keen | after
            elif answer.value < best.value - 1e-2 * self.gap:
                best = Found(answer.value, guess, answer.z)
                if answer.value < self.upper:
                    self._realise(total, volunteers, answer)
            else:
                break
            if np.array_equal(after, volunteers) or self.stop():
                break
            volunteers = after
        return best

    def _solve(self, total: float, volunteers: Mask, guess: Prices) -> SliceAnswer | None:
        p = self.problem
        if float(p.alpha[volunteers].sum()) >= total * (1.0 - SAFETY):
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
            penalty=self.penalty,
            held_back=self._shrink,
            stop=self.stop,
        )

    def _realise(self, total: float, volunteers: Mask, answer: SliceAnswer) -> bool:
        """Offer the profile; hold more back where rounding does not let it pass."""
        if self.candidates is None:
            return True
        for shrink in SHRINKS:
            if self.stop():
                break
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

    def around(self, total: float, guess: Prices) -> Found:
        """The best at S of two guesses: the volunteers as at a known point, and as at the ideal mixture.

        With very many clients some are near indifference wherever the mixture is, and a guess of all of them holds it fast;
        there the relaxed program within a ball around the known point says who volunteers.
        """
        if self.problem.place.count > 2 * SAMPLE:
            return self._within(total, guess, NEARBY if guess.priced else FIRST_RADIUS)
        known, ideal = self.keen(total, guess), self.keen(total, guess, 0.0)
        found = self.at(total, known, guess)
        return (
            found
            if np.array_equal(known, ideal)
            else min(found, self.at(total, ideal, guess), key=lambda f: f.value)
        )

    def _within(self, total: float, guess: Prices, radius: float) -> Found:
        """The best at S near a known mixture: who volunteers is what the relaxed program of smaller and smaller balls says."""
        p = self.problem
        nothing = Found(np.inf, guess, None)
        radius *= float(np.sqrt(np.median(p.diagonal)))
        last, final = -np.inf, False
        for _ in range(BALLS):
            restriction = self._ball(total, guess, radius)
            if float(p.alpha[restriction.full].sum()) >= total:
                return nothing
            final = final or int((~restriction.paid & ~restriction.full).sum()) <= FEW
            self.solves += 1
            relaxed = solve_at(
                p,
                total,
                restriction,
                guess=guess,
                enough=0.1 * self.gap,
                penalty=self.penalty,
                exact=final,
                stop=self.stop,
            )
            if relaxed.broken > ROUGHLY_BROKEN or self.stop():
                return nothing
            after = relaxed.prices
            between = p.place.dot(guess.centre, after.centre, after.inner)
            moved = float(np.sqrt(max(after.square - 2.0 * between + guess.square, 0.0)))
            guess = after
            if final:
                break
            if moved <= 0.5 * radius:
                unsure = self.keen(total, guess) & (relaxed.z < 0.99 * p.alpha / total)
                final = not unsure.any() or relaxed.value - last < 0.1 * self.gap
                radius, last = radius if final else SHRINKING * radius, relaxed.value
        return self.at(total, self.keen(total, guess), guess, 2)

    def _ball(self, total: float, guess: Prices, radius: float) -> Restriction:
        """What is known of mixtures within ``radius`` of the guess's centre."""
        p = self.problem
        roots = np.sqrt(np.maximum(p.diagonal - 2.0 * guess.inner + guess.square, 0.0))
        shift = 0.5 * p.client_sampling / total
        far = (roots + radius) ** 2 + shift
        full = np.maximum(roots - radius, 0.0) ** 2 + shift > p.theta * total
        return Restriction(far <= p.theta * total, full, far)

    def scan(self, start: float, guess: Prices, enough: Callable[[], bool]) -> tuple[float, Found]:
        """Best S away from ``start``, both ways, then by golden section."""
        found = {start: Found(self.upper, guess, None)}
        for shares in ((1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2), (-1 / 64, -1 / 16, -1 / 4)):
            reached = False
            for share in shares:
                total = start + share * (1.0 - start if share > 0 else start - self.problem.floor)
                if enough():
                    break
                value = self._attempt(found, total)
                if reached and not np.isfinite(value):  # feasible totals came and went
                    break
                reached = reached or bool(np.isfinite(value))
        return self._golden(found, 10, enough)

    def close_in(
        self, start: float, width: float, guess: Prices, enough: Callable[[], bool]
    ) -> tuple[float, Found]:
        """Best S near ``start``."""
        found: dict[float, Found] = {}
        for total in (start, start - width, start + width):
            if not found:
                new = self.around(start, guess)
                give_back(self.problem.place.count)
                found[start] = new.compact() if np.isfinite(new.value) else Found(np.inf, guess, None)
            elif not enough() and self.problem.floor < total < 1.0:
                self._attempt(found, total)
        return self._golden(found, 6, enough)

    def _attempt(self, found: dict[float, Found], total: float) -> float:
        near = min(found, key=lambda s: (not np.isfinite(found[s].value), abs(s - total)))
        guess = found[near].prices
        new = self.around(total, guess)
        give_back(self.problem.place.count)
        found[total] = new.compact() if np.isfinite(new.value) else Found(np.inf, guess, None)
        return new.value

    def _golden(
        self, found: dict[float, Found], attempts: int, enough: Callable[[], bool]
    ) -> tuple[float, Found]:
        """Parabolas and golden sections in turn, until a parabola promises nothing that counts."""
        for attempt in range(attempts):
            totals = sorted(found)
            best = min(totals, key=lambda s: found[s].value)
            i = totals.index(best)
            left, right = totals[max(i - 1, 0)], totals[min(i + 1, len(totals) - 1)]
            for s in set(totals) - {left, best, right}:  # only the value counts any more
                found[s] = Found(found[s].value, found[best].prices, None)
            if enough() or right - left < FLAT * best:
                break
            further = right - best >= best - left
            at = best + (1.0 - GOLDEN) * (right - best) if further else best - (1.0 - GOLDEN) * (best - left)
            vertex, gain = _vertex([(s, found[s].value) for s in (left, best, right)])
            if gain < SETTLED_TOTAL * self.gap and right - left < NARROW * best:
                break
            self._attempt(found, vertex if attempt % 2 == 0 and np.isfinite(gain) else at)
        best = min(found, key=lambda s: found[s].value)
        return best, found[best]


def _vertex(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Where the parabola through three points, the middle one lowest, is lowest, and by how much; infinite if there is none.

    >>> _vertex([(0.0, 1.0), (1.0, 0.5), (2.0, 1.0)])
    (1.0, 0.0)
    >>> _vertex([(0.0, 1.0), (0.0, 1.0), (2.0, 3.0)])
    (0.0, inf)
    """
    (left, at_left), (middle, at_middle), (right, at_right) = points
    if not left < middle < right or not np.isfinite([at_left, at_right]).all():
        return middle, np.inf
    before, after = (at_middle - at_left) / (middle - left), (at_right - at_middle) / (right - middle)
    curve = (after - before) / (right - left)
    if curve <= 0.0:
        return middle, np.inf
    vertex = 0.5 * (left + middle) - 0.5 * before / curve
    return vertex, curve * (vertex - middle) ** 2


def _snapped(x: Array) -> Array:
    """Shares that an interior-point method left a hair inside are at 0 or at full."""
    return np.where(x < COARSE_SNAP, 0.0, np.where(x > 1.0 - COARSE_SNAP, 1.0, x))
