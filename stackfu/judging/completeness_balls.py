"""The checker of :mod:`.completeness` once more, in ball arithmetic: slower by a thousand, and right at any scale.

The game is the binary numbers it stores, taken at face value, and the chain may hold numbers of any precision; everything derived
from them is a ball that contains the exact value. The argument is the one told there; only rounding is left to python-flint.
Stored inner products need not be those of any embeddings: rounding can leave them a little short of it. How much is found
exactly, in rational numbers (:func:`_defect`), and added to what the argument leaves in doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flint

from ..model import Array, GameModel
from .ball_game import Ball, BallGame, stored_embeddings
from .completeness import RESOLVED, WIDE, Completeness
from .numbers import BallArithmetic

__all__ = ["LARGEST_CHAIN", "check_complete_in_balls"]

#: Bits of the midpoints.
CHAIN_BITS = 600
#: Up to this many clients it is worth the time.
LARGEST_CHAIN = 12
#: Segments are halved this often at most.
DEPTH = 220
#: A radius that halving does not make smaller than this is due to the chain, not to the length of the segment.
SHRINKS = 0.9
#: Undecided pieces that are kept.
MOST_BALL_LEAVES = 60
#: Stored inner products may fall short of those of embeddings by the largest of them times one of these powers of one half.
DEFECTS = (60, 56, 54, 52, 51, 50, 49, 48, 46, 44, 40)
#: Steps towards the zero of a level: they double its digits.
NEWTON = 12
#: Around an equilibrium a piece is cut out; the level at its ends is this many times the uncertainty.
CLEAR = 4
#: Totals this near to a bracket, relative to its ends, are in it: they are floats, and it may be narrower than their rounding.
NEXT_TO = 1e-9
#: Segments that are looked at, at most.
MOST_LOOKS = 4000

Vector = list[Any]
UNDECIDED, DECIDED = 0, 1


def check_complete_in_balls(
    game: GameModel,
    payments: Array,
    chain: Sequence[Sequence[Any]],
    found: Sequence[Any],
    caps: Array | None = None,
    continua: Sequence[tuple[float, float]] = (),
) -> Completeness:
    """Check that the equilibria ``found`` are complete; the chain's entries are floats or exact numbers of python-flint.

    >>> import numpy as np, stackfu as sf
    >>> game = sf.StackelbergGame(sf.MeanEmbeddings.from_features(np.eye(2)), [1, 1], costs=[1.0, 1.0])
    >>> chain = [[1.0, 1.0], [0.5, 0.5], [1e-3, 1e-3]]
    >>> check_complete_in_balls(game, np.zeros(2), chain, [[0.5, 0.5]]).accepted
    True
    """
    most = game.no_caps if caps is None else caps
    with BallArithmetic(CHAIN_BITS).context():
        balls = _Balls.of(game, payments, most)
        profiles = [[flint.arb(v) if not isinstance(v, flint.arb) else v.mid() for v in x] for x in chain]
        if len(profiles) < 3 or len(profiles) % 2 == 0:
            return Completeness(False, (), "the chain is too short")
        for x in profiles:
            if any(v < 0 or v > c for v, c in zip(x, balls.caps, strict=True)):
                return Completeness(False, (), "the chain leaves what the clients can do")
        for reason in (balls.far_off(), balls.open_above(profiles[0]), balls.open_below(profiles[-1])):
            if reason:
                return Completeness(False, (), reason)
        leaves = balls.walk(profiles)
        if leaves is None:
            return Completeness(False, (), "too much of the chain decides nothing")
        totals = [balls.total(balls.amounts([float(v) for v in x])) for x in found]
        return balls.settle(leaves, totals, continua)


@dataclass(frozen=True, eq=False)
class _Point:
    """A control profile: participation, amounts, their total, and ``D y``."""

    x: Vector
    y: Vector
    s: Ball
    d: Vector


@dataclass(frozen=True, eq=False)
class _Leaf:
    points: tuple[_Point, _Point, _Point]
    place: list[int]
    radius: Ball


class _Balls(BallGame):
    """A game's numbers, and the checker's steps on them; in floats those stand in :mod:`.completeness`."""

    @classmethod
    def of(cls, game: GameModel, payments: Array, caps: Array | None = None) -> _Balls:
        """Return a game under payments and caps, and what its stored inner products fall short of those of embeddings."""
        found = super().of(game, payments, caps)
        assert isinstance(found, _Balls)
        found.N, found.D = found.n, found.distances()
        form, stored = stored_embeddings(game)
        #: A number with ``-x'Dx / 2 >= -defect ||x||^2`` for all x that sum to zero.
        found.defect = flint.arb(0) if form == "features" else _defect(stored)
        return found

    N: int
    D: Any
    defect: Ball

    # ------------------------------------------------------------ small things

    def point(self, x: Vector) -> _Point:
        """Return a control profile weighed."""
        y = [a * v for a, v in zip(self.alpha, x, strict=True)]
        spread = self.D * flint.arb_mat(self.N, 1, y)
        return _Point(x, y, self.total(y), [spread[k, 0] for k in range(self.N)])

    def cut(
        self, segment: tuple[_Point, _Point, _Point], t: Ball
    ) -> tuple[tuple[_Point, _Point, _Point], tuple[_Point, _Point, _Point]]:
        """Return the parts of a segment before and after t."""

        def between(a: _Point, b: _Point) -> _Point:
            return _Point(
                _mixed(a.x, b.x, t), _mixed(a.y, b.y, t), a.s + t * (b.s - a.s), _mixed(a.d, b.d, t)
            )

        a, b, c = segment
        first, last = between(a, b), between(b, c)
        middle = between(first, last)
        return (a, first, middle), (middle, last, c)

    def far_off(self) -> str:
        """Return the reason why stored inner products are too far from those of any embeddings, or an empty string."""
        return "" if self.defect.is_finite() else "the stored inner products are not those of any embeddings"

    # ------------------------------------------------------------ the ends of the chain

    def open_above(self, x: Vector) -> str:
        """Return the reason why equilibria above the first total are not excluded, or an empty string."""
        if all((v - c).is_zero() for v, c in zip(x, self.caps, strict=True)):
            return ""
        top = self.total([a * v for a, v in zip(self.alpha, x, strict=True)])
        for k in range(self.N):
            reach = max((self.D[k, j] for j in range(self.N)), key=lambda v: float(v.mid()))
            if not top * self.w[k] > reach + self.a / (2 * top) or any(
                self.D[k, j] > reach for j in range(self.N)
            ):
                return "the chain does not begin where everybody takes part, nor above every possible total"
        return ""

    def open_below(self, x: Vector) -> str:
        """Return the reason why equilibria below the last total are not excluded, or an empty string."""
        last = self.total([a * v for a, v in zip(self.alpha, x, strict=True)])
        # with a defect, d_i + d_j >= sqrt(D_ij) holds up to twice the root of twice the defect
        lost = 2 * _root(2 * self.defect)
        roots = [w.nonnegative_part().sqrt() if w > 0 else flint.arb(0) for w in self.w]
        if any(not (w > 0 or w <= 0) for w in self.w):
            return "the sign of a reluctance cannot be told"
        for i in range(self.N):
            for j in range(i):
                if not self.D[i, j] > lost**2:
                    continue
                reached = (self.D[i, j].sqrt() - lost) ** 2 > last * (roots[i] + roots[j]) ** 2
                if reached and self.bound[i] > last and self.bound[j] > last:
                    return ""
        if self.a > 0:
            eager = [b for w, b in zip(self.w, self.bound, strict=True) if 2 * w * last**2 < self.a]
            if self.total(eager) > last:
                return ""
        return "the chain ends where something may still happen below"

    # ------------------------------------------------------------ along the chain

    def inclinations(self, points: tuple[_Point, _Point, _Point]) -> tuple[list[Vector], Vector]:
        """Bernstein coefficients of degree 6 of ``s^2 g_k`` along a segment, and an upper bound on ``s^2 d_k^2``."""
        s = [p.s for p in points]
        joint = {}
        for i in range(3):
            for j in range(i, 3):
                joint[i, j] = self.total([u * v for u, v in zip(points[i].y, points[j].d, strict=True)])
        cube = _cubed(s)
        line = _elevate(_elevate(_elevate(_elevate(s))))
        values, drift = [], []
        for k in range(self.N):
            pair = {
                (i, j): (s[j] * points[i].d[k] + s[i] * points[j].d[k] - joint[i, j]) / 2 for i, j in joint
            }
            four = [pair[0, 0], pair[0, 1], (pair[0, 2] + 2 * pair[1, 1]) / 3, pair[1, 2], pair[2, 2]]
            six = _elevate(_elevate(four))
            values.append(
                [v - self.w[k] * c + self.a * t / 2 for v, c, t in zip(six, cube, line, strict=True)]
            )
            drift.append(_largest(six).max(flint.arb(0)))
        return values, drift

    def decide(
        self, points: tuple[_Point, _Point, _Point], before: Ball
    ) -> tuple[int, list[int], Ball, bool, tuple[Ball, Ball] | None]:
        """Decide if an equilibrium can have a total on the segment; also return positions, radius, and whether to continue.

        ``before`` is the radius of the segment that this is a part of. Last come the places around which the level vanishes.
        """
        arb = flint.arb
        values, drift = self.inclinations(points)
        top, bottom = _largest([p.s for p in points]), _smallest([p.s for p in points])
        level, best = -1, arb(0)
        for k in range(self.N):
            room = self.total([p.y[k].min(self.bound[k] - p.y[k]) for p in points])
            if room > best:
                level, best = k, room
        gap = arb(0)
        for k in range(self.N):
            if k == level:
                continue
            against = values[level] if level >= 0 else [arb(0)] * 7
            more = _largest([v - t for v, t in zip(values[k], against, strict=True)]).max(arb(0))
            less = _largest([t - v for v, t in zip(values[k], against, strict=True)]).max(arb(0))
            least, most = _smallest([p.y[k] for p in points]), _largest([p.y[k] for p in points])
            room = (self.bound[k].min(top) - least).max(arb(0))
            gap = gap + (more * room).max(less * most)
        square = _above(gap / (2 * bottom**3) + 2 * self.defect) if bottom > 0 else arb("inf")
        radius = _above(square.sqrt()) if square > 0 else arb(0)
        eager, willing, places = arb(0), arb(0), []
        for k in range(self.N):
            move = top * (
                top * (radius**2 + 4 * self.defect) + 2 * radius * _root(drift[k] + 2 * self.defect * top**2)
            )
            low, high = _smallest(values[k]), _largest(values[k])
            place = 1 if low > move else -1 if high < -move else 0
            places.append(place)
            if place == 1:
                eager = eager + self.bound[k]
            if place != -1:
                willing = willing + self.bound[k]
        if eager > top or willing < bottom:
            return DECIDED, places, radius, False, None
        # along the segment the level changes by less than the radius leaves in doubt, and that hardly shrinks any more
        if level < 0:
            return UNDECIDED, places, radius, True, None
        doubt = bottom * 2 * radius * _root(drift[level])
        if radius > SHRINKS * before and _largest(values[level]) - _smallest(values[level]) <= doubt:
            return UNDECIDED, places, radius, False, None
        return UNDECIDED, places, radius, True, _around_zero(values[level], doubt)

    def walk(self, chain: list[Vector]) -> list[_Leaf] | None:
        """Return the pieces that decide nothing, in the chain's order; None if they are too many."""
        points = [self.point(x) for x in chain]
        leaves: list[_Leaf] = []
        looks = 0
        for i in range(0, len(points) - 1, 2):
            stack = [((points[i], points[i + 1], points[i + 2]), 0, flint.arb("inf"), True)]
            while stack:
                segment, depth, before, whole = stack.pop()
                looks += 1
                if looks > MOST_LOOKS:
                    return None
                verdict, place, radius, useful, around = self.decide(segment, before)
                if verdict == DECIDED:
                    continue
                if depth >= DEPTH or not useful:
                    leaves.append(_Leaf(segment, place, radius))
                    if len(leaves) > MOST_BALL_LEAVES:
                        return None
                    continue
                if whole and around is not None:  # the rest next to the zero is often decided at once
                    start, end = around
                    rest, last = self.cut(segment, end)
                    first, middle = self.cut(rest, start / end)
                    stack += [
                        (last, depth, radius, False),
                        (middle, DEPTH, radius, False),
                        (first, depth, radius, False),
                    ]
                    continue
                first, last = self.cut(segment, flint.arb(0.5))
                stack += [(last, depth + 1, radius, whole), (first, depth + 1, radius, whole)]
        return leaves

    # ------------------------------------------------------------ around the equilibria

    def settle(
        self, leaves: list[_Leaf], totals: Vector, continua: Sequence[tuple[float, float]]
    ) -> Completeness:
        """Group undecided pieces that touch, and show that each group holds at most one equilibrium, and one was found there."""
        groups: list[list[_Leaf]] = []
        for leaf in leaves:
            if groups and groups[-1][-1].points[2] is leaf.points[0]:
                groups[-1].append(leaf)
            else:
                groups.append([leaf])
        brackets, left = [], list(totals)
        for group in groups:
            low, high = self.bracket(group)
            bracket = (float(low), float(high))
            brackets.append(bracket)
            close = [s for s in left if not s < low * (1 - NEXT_TO) and not s > high * (1 + NEXT_TO)]
            if any(
                bracket[0] <= last * (1 + NEXT_TO) and first <= bracket[1] * (1 + NEXT_TO)
                for first, last in continua
            ):
                left = [s for s in left if not any(s is c for c in close)]
                continue
            if len(close) != 1:
                word = "no equilibrium was found" if not close else f"{len(close)} equilibria were found"
                return Completeness(
                    False, tuple(brackets), f"{word} with a total next to {bracket[0]:.9g}, where some may be"
                )
            left = [s for s in left if s is not close[0]]
            reason = self.several(group)
            if reason:
                return Completeness(False, tuple(brackets), f"{reason} (total next to {bracket[0]:.9g})")
        if left:
            return Completeness(
                False, tuple(brackets), "no equilibrium can have a total that one is said to have"
            )
        word = "equilibrium" if len(brackets) == 1 else "equilibria"
        return Completeness(
            True, tuple(brackets), f"every total was followed; {len(brackets)} {word}, no other is possible"
        )

    def unsure(self, group: list[_Leaf]) -> list[int]:
        """Return the clients not known to be at one of their bounds in every equilibrium of the group."""
        first = group[0].place
        return [k for k in range(self.N) if first[k] == 0 or any(leaf.place[k] != first[k] for leaf in group)]

    def bracket(self, group: list[_Leaf]) -> tuple[Ball, Ball]:
        """Between which totals the equilibria of the group lie."""
        sums = [p.s for leaf in group for p in leaf.points]
        if not self.unsure(group):
            sums = [self.total([b for b, place in zip(self.bound, group[0].place, strict=True) if place > 0])]
        return _smallest(sums), _largest(sums)

    def several(self, group: list[_Leaf]) -> str:
        """Return the reason why the group may hold several equilibria, or an empty string."""
        arb = flint.arb
        unsure = self.unsure(group)
        if not unsure:
            return ""
        low, high = self.bracket(group)
        if high - low > RESOLVED * high:
            return WIDE
        corners = [p for leaf in group for p in leaf.points]
        centre = corners[len(corners) // 2]
        reach = _largest([leaf.radius for leaf in group]) + _largest([self.apart(centre, p) for p in corners])
        inverse = _around(1 / low, 1 / high)
        z = [v / centre.s for v in centre.y]
        spread = [v / centre.s for v in centre.d]
        joint = self.total([u * v for u, v in zip(z, spread, strict=True)])
        n = len(unsure)
        inner, jacobian = flint.arb_mat(n, n), flint.arb_mat(n, n)
        drift = [_root((spread[k] - joint / 2).max(arb(0)) + 2 * self.defect) for k in unsure]
        for i, k in enumerate(unsure):
            for j, q in enumerate(unsure):
                value = (spread[k] + spread[q] - joint - self.D[k, q]) / 2
                doubt = _above(reach * (drift[i] + drift[j]) + reach**2 + 4 * self.defect)
                inner[i, j] = value
                jacobian[i, j] = 2 * inverse * (value + arb(0, doubt)) + self.w[k] + self.a / 2 * inverse**2
        symmetric = (jacobian + jacobian.transpose()) / 2
        if _definite(symmetric):
            return ""
        if self.strictly_inside(group, unsure, inner) and _regular(jacobian):
            return ""
        return "an equilibrium there may not be the only one: its Jacobian cannot be told from a singular one"

    def apart(self, a: _Point, b: _Point) -> Ball:
        """Return a bound on the distance of two profiles' mixture embeddings."""
        gap = [u / a.s - v / b.s for u, v in zip(a.y, b.y, strict=True)]
        spread = self.D * flint.arb_mat(self.N, 1, gap)
        square = -self.total([gap[k] * spread[k, 0] for k in range(self.N)]) / 2
        return _root(square.max(flint.arb(0)) + 2 * self.defect)

    def strictly_inside(self, group: list[_Leaf], unsure: list[int], inner: Any) -> bool:
        """Return True if every equilibrium of the group has all unsure clients strictly between their bounds.

        Its mixture differs from the candidate's by v on the unsure clients only, ``sum v = 0``, with ``v'Kv <= r^2``, so
        ``v_k^2 <= (K + c 11')^-1_kk r^2``.
        """
        sure = [k for k in range(self.N) if k not in unsure]
        n = len(unsure)
        for leaf in group:
            for p in leaf.points:
                for k in sure:
                    wanted = self.caps[k] if leaf.place[k] > 0 else flint.arb(0)
                    if not (p.x[k] - wanted).is_zero():
                        return False
        shift = _largest([inner[i, i] for i in range(n)]).max(flint.arb(0))
        shifted = flint.arb_mat(n, n)
        for i in range(n):
            for j in range(n):
                shifted[i, j] = inner[i, j] + shift.mid()
        try:
            inverse = shifted.inv()
        except ZeroDivisionError:
            return False
        for leaf in group:
            for i, k in enumerate(unsure):
                move = _root(_above(inverse[i, i] * leaf.radius**2).max(flint.arb(0)))
                for p in leaf.points:
                    room = p.y[k].min(self.bound[k] - p.y[k]) / p.s
                    if not room > move:
                        return False
        return True


# -------------------------------------------------------------------- numbers


def _above(ball: Ball) -> Ball:
    """Return an exact number that is not below the ball."""
    return ball.upper()


def _root(ball: Ball) -> Ball:
    """Return an upper bound of the square root of a ball that is not negative."""
    top = ball.upper()
    return top.sqrt().upper() if top > 0 else flint.arb(0)


def _largest(values: Vector) -> Ball:
    """Return an exact number that none of the balls exceeds."""
    best = values[0].upper()
    for v in values[1:]:
        best = best.max(v.upper())
    return best.upper()


def _smallest(values: Vector) -> Ball:
    """Return an exact number that none of the balls falls below."""
    return -_largest([-v for v in values])


def _around(a: Ball, b: Ball) -> Ball:
    """Return a ball around two balls."""
    return a.union(b)


def _mixed(u: Vector, v: Vector, t: Ball) -> Vector:
    """Return the part t of the way from one vector to another."""
    return [a + t * (b - a) for a, b in zip(u, v, strict=True)]


def _around_zero(c: Vector, doubt: Ball) -> tuple[Ball, Ball] | None:
    """Two exact places around a zero of a polynomial given by Bernstein coefficients, beyond which it is clear of what is in doubt.

    None if it has the same sign at both ends of the segment, or none are found. A segment may be cut anywhere: these save looks.
    """
    middles = [v.mid() for v in c]
    if not middles[0] * middles[-1] < 0:
        return None
    t = (middles[0] / (middles[0] - middles[-1])).mid()
    for _ in range(NEWTON):
        row = middles
        while len(row) > 2:
            row = [v.mid() for v in _mixed(row[:-1], row[1:], t)]
        value, slope = row[0] + t * (row[1] - row[0]), (len(c) - 1) * (row[1] - row[0])
        if not (slope > 0 or slope < 0):
            return None
        t = (t - value / slope).mid()
        if not 0 < t < 1:
            return None
    room = (CLEAR * (doubt + abs(value)) / abs(slope)).upper() + flint.arb(2) ** -DEPTH
    start, end = (t - room).mid(), (t + room).mid()
    return (start, end) if start > 0 and end < 1 else None


def _elevate(c: Vector) -> Vector:
    """Bernstein coefficients of the same polynomial, one degree higher."""
    degree = len(c) - 1
    return [
        c[0],
        *((i * c[i - 1] + (degree + 1 - i) * c[i]) / (degree + 1) for i in range(1, degree + 1)),
        c[degree],
    ]


def _cubed(s: Vector) -> Vector:
    """Bernstein coefficients of degree 6 of the cube of a quadratic."""
    a, b, c = s
    return [
        a**3,
        a * a * b,
        (a * a * c + 4 * a * b * b) / 5,
        (3 * a * b * c + 2 * b**3) / 5,
        (a * c * c + 4 * b * b * c) / 5,
        b * c * c,
        c**3,
    ]


def _definite(matrix: Any) -> bool:
    """Return True if every symmetric matrix in the balls is positive definite: Gaussian elimination has positive pivots only."""
    n = matrix.nrows()
    rows = [[matrix[i, j] for j in range(n)] for i in range(n)]
    for p in range(n):
        if not rows[p][p] > 0:
            return False
        for i in range(p + 1, n):
            factor = rows[i][p] / rows[p][p]
            for j in range(p + 1, n):
                rows[i][j] = rows[i][j] - factor * rows[p][j]
    return True


def _defect(inner: Array) -> Ball:
    """Return the distance of stored inner products from those of embeddings; infinite if larger than rounding explains.

    With the last client as the origin ``-x'Dx / 2`` is a quadratic form of the others' entries; it is made semidefinite by the
    smallest of some multiples of the identity, which rational arithmetic decides without error.
    """
    n = len(inner) - 1
    exact = [[flint.fmpq(*float(v).as_integer_ratio()) for v in row] for row in inner]
    half = flint.fmpq(1, 2)

    def square(i: int, j: int) -> Any:
        return exact[i][i] + exact[j][j] - exact[i][j] - exact[j][i]

    form = [[half * (square(i, n) + square(j, n) - square(i, j)) for j in range(n)] for i in range(n)]
    size = max((form[i][i] for i in range(n)), default=flint.fmpq(0))
    for shift in (None, *DEFECTS):
        extra = flint.fmpq(0) if shift is None else size * flint.fmpq(1, 2**shift)
        if _semidefinite(
            [[v + extra if i == j else v for j, v in enumerate(row)] for i, row in enumerate(form)]
        ):
            return flint.arb(extra).upper()
    return flint.arb("inf")


def _semidefinite(rows: list[list[Any]]) -> bool:
    """Return True if a symmetric matrix of rational numbers is positive semidefinite: a vanishing pivot needs a vanishing row."""
    n = len(rows)
    rows = [list(row) for row in rows]
    for p in range(n):
        pivot = rows[p][p]
        if pivot < 0 or (pivot == 0 and any(v != 0 for v in rows[p][p + 1 :])):
            return False
        if pivot == 0:
            continue
        for i in range(p + 1, n):
            factor = rows[i][p] / pivot
            for j in range(i, n):
                rows[i][j] = rows[j][i] = rows[i][j] - factor * rows[p][j]
    return True


def _regular(matrix: Any) -> bool:
    """Return True if every matrix in the balls is regular."""
    try:
        return not matrix.det().contains(0)
    except (ZeroDivisionError, ValueError):
        return False
