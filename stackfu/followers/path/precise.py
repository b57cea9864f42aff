"""The path with several hundred bits: for games with numbers too far apart for float64.

A client ten million times larger than the others, an outlier a million times further away, costs over twelve decades: what decides
about one client is then below the rounding of what is said about another. Here nothing is rounded visibly, so zero tests need no
care; ties that are exact in the game's own binary numbers show as numbers below :data:`EXACT_TIE`, everything else is far above
it. The sets and polynomials are those of :mod:`stackfu.followers.reference`, the steps those of :mod:`._loop`; it is slower by a
thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import flint
import numpy as np

from ...model import Array, GameModel, frozen
from .curve import COLUMNS, Path, Root

__all__ = ["follow_precisely", "possible"]

#: Bits: products of 53-bit numbers that are 1e60 apart, and as much again for what cancels.
PRECISION = 600
#: Up to this many clients it is worth the time.
LARGEST = 40
#: Relative to the terms that were added up, below this a number is zero.
EXACT_TIE = 2.0**-200
#: The same where inner products are stored in float64 and were rounded before they came here.
STORED_TIE = 1e-13
#: Steps at the same total after which ties are said to go round in circles, by number of clients.
PRECISE_PATIENCE = (20, 100)
#: Limit on the halvings of a piece with its middle control profile outside [0, 1].
PRECISE_CUTS = 12
#: Shares that leave [0, 1] by less than this are at the bound: they were rounded to float64 for this test.
OUTSIDE = 1e-12
OUT, INSIDE, FULL = -1, 0, 1

Number = Any
Poly = list[Any]


def possible(game: GameModel) -> bool:
    """Return True if the game is small enough."""
    return game.count <= LARGEST


@contextmanager
def _bits(precision: int) -> Iterator[None]:
    before = flint.ctx.prec
    flint.ctx.prec = precision
    try:
        yield
    finally:
        flint.ctx.prec = before


def follow_precisely(game: GameModel, payments: Array, lowest: float, caps: Array | None = None) -> Path:
    """All zeros of t and the chain down to the total ``lowest``, as :func:`~stackfu.followers.path.follow_path` gives them."""
    with _bits(PRECISION):
        walk = _Walk(game, payments, lowest, game.no_caps if caps is None else caps)
        finished = walk.run()
        roots = tuple(
            Root(frozen(walk.floats(y)), np.array(walk.among_all(status, OUT), dtype=np.int8), kind, tight)
            for y, status, kind, tight in reversed(walk.roots)
        )
        exact = [walk.among_all(x, flint.arb(0)) for x in walk.chain]
        chain = np.minimum([[float(v) for v in x] for x in exact], game.no_caps if caps is None else caps)
    rows = np.array(walk.rows).reshape(-1, len(COLUMNS))
    return Path(rows, 1.0, roots, finished, 0.0 if finished else np.inf, chain, exact)


def _value(p: Poly, s: Number) -> Number:
    acc = flint.arb(0)
    for c in reversed(p):
        acc = acc * s + c
    return acc.mid()


def _size(p: Poly, s: Number) -> Number:
    """Return the sizes of the terms of a polynomial at s > 0."""
    return sum((abs(c) * s**i for i, c in enumerate(p)), flint.arb(0)).mid()


def _slope(p: Poly) -> Poly:
    return [i * c for i, c in enumerate(p)][1:]


class _Walk:
    """The state of the path: where it is, who is where, and what was found."""

    def __init__(self, game: GameModel, payments: Array, lowest: float, caps: Array) -> None:
        arb = flint.arb
        self.game, self.lowest = game, lowest
        #: Nothing is taken from the others: they only look on.
        self.who = [int(k) for k in np.flatnonzero(caps > 0)]
        self.N = len(self.who)
        sizes = [arb(float(v)) for v in game.sizes]
        owned = sum(sizes, arb(0))
        everybody = [(v / owned).mid() for v in sizes]
        lam = arb(game.lambda_q) * arb(game.loss_constant)
        self.a = (arb(game.sampling_constant) / (arb(game.loss_constant) * owned)).mid()
        self.shares = [everybody[k] for k in self.who]
        self.caps = [arb(float(caps[k])) for k in self.who]
        #: The most that each brings.
        self.alpha = [(v * c).mid() for v, c in zip(self.shares, self.caps, strict=True)]
        self.w = [
            ((arb(float(game.costs[k])) - arb(float(payments[k]))) / (2 * lam * everybody[k])).mid()
            for k in self.who
        ]
        self.G = _products(game, everybody, self.who)
        self.sizes = flint.arb_mat(
            self.N, self.N, [abs(self.G[i, j]).mid() for i in range(self.N) for j in range(self.N)]
        )
        # stored inner products are rounded themselves: what depends affinely on others does so only up to that
        self.dependent = EXACT_TIE**0.5 if game.embeddings.features is not None else STORED_TIE
        self.status = [FULL] * self.N
        self.s = arb(1)
        self.roots: list[tuple[list[Number], list[int], str, int]] = []
        self.rows: list[list[float]] = []
        self.chain: list[list[Number]] = [list(self.caps)]
        self.sign = -1
        self.zone: list[tuple[Number, Number, list[int]]] = []
        self.own: list[Poly] = []
        self.height: Poly = []

    # ---------------------------------------------------------------- the loop

    def run(self) -> bool:
        """Follow the curve to ``lowest`` (and to 0, as far as zeros are concerned); False if ties bring it to a halt."""
        idle = 0
        self.s = sum(self.alpha, flint.arb(0)).mid()
        while True:
            if not self.inside and not self.rise():
                return False
            y, multipliers, level = self.solve()
            bottom, client, side = self.next_event(y, multipliers)
            if bottom is None or bottom < self.s:
                idle = 0
                end = flint.arb(0) if bottom is None else bottom
                self.zeros(y, level, end)
                self.trace(y, end)
                if bottom is None:
                    return self.sign > 0 and not self.zone
                self.s = end
            else:
                idle += 1
                if idle > PRECISE_PATIENCE[0] * self.N + PRECISE_PATIENCE[1]:
                    return False
            if not self.change(client, side, y):
                return False

    @property
    def inside(self) -> list[int]:
        """Clients strictly between their bounds."""
        return [k for k in range(self.N) if self.status[k] == INSIDE]

    @property
    def full(self) -> list[int]:
        """Clients at their caps."""
        return [k for k in range(self.N) if self.status[k] == FULL]

    def rise(self) -> bool:
        """Follow the vertical curve without inside clients up to the point where the least willing client at its cap comes in."""
        full = self.full
        if not full:
            return False
        self.s = sum((self.alpha[k] for k in full), flint.arb(0)).mid()
        y = [self.alpha[k] if k in set(full) else flint.arb(0) for k in range(self.N)]
        values, _ = self.inclinations(y, self.s)
        pick = min(full, key=lambda k: (values[k], k))
        size = self.G[pick, pick] + max(self.sizes[k, k] for k in full) + abs(self.s * self.w[pick])
        size = size + self.a / (2 * self.s)
        self.note(self.s, values[pick], size, y, self.s)
        self.status[pick] = INSIDE
        return True

    def inclinations(self, y: list[Number], s: Number) -> tuple[list[Number], list[Number]]:
        """``g_k = d_k^2 + a / (2 s) - s w_k`` of every client, and the client's own terms."""
        z = [v / s for v in y]
        inner = self.G * flint.arb_mat(self.N, 1, z)
        square = sum((z[k] * inner[k, 0] for k in range(self.N)), flint.arb(0))
        thin = self.a / (2 * s)
        d2 = [self.G[k, k] - 2 * inner[k, 0] + square + thin for k in range(self.N)]
        own = [s * self.w[k] for k in range(self.N)]
        values = [(a - b).mid() for a, b in zip(d2, own, strict=True)]
        return values, [abs(a).max(abs(b)).mid() for a, b in zip(d2, own, strict=True)]

    # ---------------------------------------------------------------- a piece

    def solve(self) -> tuple[list[Poly], list[Poly], Poly]:
        """y, multipliers and ``s^2 t`` (with the sampling term, ``a s / 2``) as polynomials in s, by ascending powers."""
        arb, G, inside, full = flint.arb, self.G, self.inside, self.full
        n = len(inside)
        system, right = flint.arb_mat(n + 1, n + 1), flint.arb_mat(n + 1, 3)
        owned = sum((self.alpha[c] for c in full), arb(0))
        held = flint.arb_mat(
            self.N, 1, [self.alpha[k] if self.status[k] == FULL else arb(0) for k in range(self.N)]
        )
        pull = G * held
        for i, k in enumerate(inside):
            for j, q in enumerate(inside):
                system[i, j] = 2 * G[k, q]
            system[i, n] = system[n, i] = arb(1)
            right[i, 0], right[i, 1], right[i, 2] = -2 * pull[k, 0], G[k, k], -self.w[k]
        right[n, 0], right[n, 1], right[n, 2] = -owned, arb(1), arb(0)
        answer = system.solve(right)
        Y = flint.arb_mat(self.N, 3)
        for k in full:
            Y[k, 0] = self.alpha[k]
        for i, k in enumerate(inside):
            for p in range(3):
                Y[k, p] = answer[i, p].mid()
        eta = [answer[n, p].mid() for p in range(3)]
        if not full:  # without clients at a cap everything has a factor s
            eta[0] = arb(0)
            for k in inside:
                Y[k, 0] = arb(0)
        inner = G * Y
        multipliers = []
        for k in range(self.N):
            extra = (arb(0), G[k, k], -self.w[k])
            multipliers.append([(extra[p] - 2 * inner[k, p] - eta[p]).mid() for p in range(3)])
        square = Y.transpose() * inner
        # what was added up, before anything cancelled: zero tests are relative to this
        size = flint.arb_mat(self.N, 3, [abs(Y[k, p]).mid() for k in range(self.N) for p in range(3)])
        sizes = self.sizes * size
        squares = size.transpose() * sizes
        self.own = [
            [sizes[k, p] * 2 + abs(eta[p]) + abs((arb(0), G[k, k], self.w[k])[p]) for p in range(3)]
            for k in range(self.N)
        ]
        self.height = [arb(0)] * 5
        for i in range(3):
            self.height[i + 1] = self.height[i + 1] + abs(eta[i])
            for j in range(3):
                self.height[i + j] = self.height[i + j] + squares[i, j]
        level = [arb(0)] * 5
        for i in range(3):
            level[i + 1] = level[i + 1] + eta[i]
            for j in range(3):
                level[i + j] = level[i + j] + square[i, j]
        y = [[Y[k, p] for p in range(3)] for k in range(self.N)]
        if not full:
            level[0] = level[1] = arb(0)
            for k in range(self.N):
                multipliers[k][0] = arb(0)
        level[1] = level[1] + self.a / 2
        self.height[1] = self.height[1] + self.a / 2
        return y, multipliers, [c.mid() for c in level]

    def next_event(self, y: list[Poly], multipliers: list[Poly]) -> tuple[Number | None, int, int]:
        """Return the next total at which a condition fails, the client, and its bound; None if none fails."""
        best: Number | None = None
        event = (-1, 0)
        worst = None
        for k in range(self.N):
            if self.status[k] == INSIDE:
                cap = [self.alpha[k] - y[k][0], -y[k][1], -y[k][2]]
                conditions = [(y[k], 0, self.s), (cap, 1, self.s)]
            else:
                sign = 1 if self.status[k] == FULL else -1
                conditions = [([sign * c for c in multipliers[k]], 0, _size(self.own[k], self.s))]
            for poly, side, size in conditions:
                where, harm = self.first_violation(poly, size)
                if where is None:
                    continue
                now = harm is not None
                if best is None or where > best or (now and worst is not None and harm > worst):
                    best, event, worst = where, (k, side), harm
        return best, *event

    def first_violation(self, poly: Poly, size: Number) -> tuple[Number | None, Number | None]:
        """Return the largest s up to here just below which the polynomial is negative; and how fast, if that is here.

        ``size`` is that of the terms which the polynomial is made of.
        """
        s = self.s
        tie = EXACT_TIE * size
        value = _value(poly, s)
        if not value > tie:  # zero or (by rounding) below: what happens next decides
            slope = (-s * _value(_slope(poly), s)).mid()  # for a relative step down
            bend = (s * s * poly[2]).mid()
            if slope < -tie:
                return s, -slope / size
            if slope <= tie:
                return (s, flint.arb(0)) if bend < -tie else (None, None)
            if not bend < 0:
                return None, None
            where = s * (1 + slope / bend)
            return (where.mid(), None) if where > EXACT_TIE * s else (None, None)
        roots = [r for r in _roots(poly, flint.arb(0), s) if r < s]
        below = [r for r in roots if r > EXACT_TIE * s]
        return (max(below), None) if below else (None, None)

    def zeros(self, y: list[Poly], level: Poly, end: Number) -> None:
        """Zeros of t between here and ``end``."""
        stops = [self.s, *sorted(_roots(_slope(level), end, self.s), reverse=True)]
        if end > 0:
            stops.append(end)
        else:  # s^2 t has a double zero at 0 (with a sampling term a simple one) that means nothing
            stops.append(min(stops[-1], self.s) * flint.arb(2) ** -300)
        before = stops[0]
        for stop in stops:
            value, size = _value(level, stop), _size(self.height, stop)
            where = stop
            changes = abs(value) > EXACT_TIE * size and (1 if value > 0 else -1) != self.sign
            if changes and not self.zone and before > stop:
                inner = _roots(level, stop, before)
                where = inner[0] if inner else stop
            profile = [_value(p, where) for p in y]
            self.note(stop, value, size, [_value(p, stop) for p in y], where, profile)
            before = stop

    def note(
        self,
        s: Number,
        value: Number,
        size: Number,
        y: list[Number],
        crossing: Number,
        crossed: list[Number] | None = None,
    ) -> None:
        """Take a stop of the curve into account, as :func:`._zeros.note` does."""
        if not abs(value) > EXACT_TIE * size:
            self.zone.append((s, y, list(self.status)))
            return
        now = 1 if value > 0 else -1
        if self.zone:
            (top, first, places), (bottom, last, other) = self.zone[0], self.zone[-1]
            if top - bottom > flint.arb(2) ** -60 * top:
                self.found(first, places, "flat")
                self.found(last, other, "flat")
            else:
                self.found(first, places, "crossing" if now != self.sign else "touching")
        elif now != self.sign:
            self.found(y if crossed is None else crossed, list(self.status), "crossing")
        self.zone = []
        self.sign = now

    def found(self, y: list[Number], status: list[int], kind: str) -> None:
        """Record a zero, and how many clients at a bound are indifferent there."""
        values, sizes = self.inclinations(y, sum(y, flint.arb(0)))
        tight = sum(
            1
            for k in range(self.N)
            if status[k] != INSIDE and not abs(values[k]) > flint.arb(2) ** -40 * sizes[k]
        )
        self.roots.append(([v.mid() for v in y], status, kind, tight))

    # ---------------------------------------------------------------- changes

    def change(self, client: int, side: int, y: list[Poly]) -> bool:
        """Let a client change its place; False if that cannot be done."""
        if self.status[client] == INSIDE:
            self.status[client] = OUT if side == 0 else FULL
            return True
        inside = self.inside
        if not inside:
            self.status[client] = INSIDE
            return True
        # does it depend affinely on those inside?
        arb, G, n = flint.arb, self.G, len(inside)
        system, right = flint.arb_mat(n + 1, n + 1), flint.arb_mat(n + 1, 1)
        for i, k in enumerate(inside):
            for j, q in enumerate(inside):
                system[i, j] = G[k, q]
            system[i, n] = system[n, i] = arb(1)
            right[i, 0] = G[k, client]
        right[n, 0] = arb(1)
        answer = system.solve(right)
        weights = [answer[i, 0].mid() for i in range(n)]
        square = G[client, client] - answer[n, 0]
        for i, k in enumerate(inside):
            square = square - weights[i] * G[k, client]
        size = G[client, client] + sum((abs(weights[i] * G[k, client]) for i, k in enumerate(inside)), arb(0))
        if square > self.dependent * size:
            self.status[client] = INSIDE
            return True
        direction = 1 if self.status[client] == OUT else -1
        limit, leaver, strongest = self.alpha[client], -1, arb(0)
        rates = [-direction * v for v in weights]
        rooms = []
        for i, k in enumerate(inside):
            here = _value(y[k], self.s)
            room = None
            if rates[i] > EXACT_TIE:
                room = ((self.alpha[k] - here).max(arb(0)) / rates[i]).mid()
            elif rates[i] < -EXACT_TIE:
                room = (here.max(arb(0)) / -rates[i]).mid()
            rooms.append(room)
            if room is not None and room < limit:
                limit = room
        for i, room in enumerate(rooms):
            if room is not None and room - limit <= EXACT_TIE * limit and abs(rates[i]) > strongest:
                leaver, strongest = i, abs(rates[i])
        if leaver < 0:
            self.status[client] = FULL if self.status[client] == OUT else OUT
            return True
        self.status[inside[leaver]] = FULL if rates[leaver] > 0 else OUT
        self.status[client] = INSIDE
        return True

    # ---------------------------------------------------------------- what is left for the judge

    def floats(self, y: list[Number]) -> Array:
        """Return the participation of all clients, rounded, between 0 and the cap."""
        x = [
            float(cap) if (v - most).is_zero() else float((v / share).mid())
            for v, share, most, cap in zip(y, self.shares, self.alpha, self.caps, strict=True)
        ]
        most = [float(cap) for cap in self.caps]
        return np.array(self.among_all(np.clip(x, 0.0, most), 0.0))

    def among_all(self, values: Iterable[Any], fill: Any) -> list[Any]:
        """Spread values of the clients that may take part over all clients."""
        out = [fill] * self.game.count
        for k, value in zip(self.who, values, strict=True):
            out[k] = value
        return out

    def trace(self, y: list[Poly], end: Number) -> None:
        """Append the piece to the chain and to the table."""
        top, bottom = self.s, max(end, flint.arb(self.lowest)) if self.lowest > 0 else end
        self.rows.append(
            [float(self.s), float(end), np.nan, np.nan, len(self.inside), len(self.full), 0.0, 0.0]
        )
        if not bottom < top or not bottom > 0:
            return
        first = self.placed([_value(p, top) for p in y])
        last = self.chain[-1]
        if any(abs(a - b) > EXACT_TIE for a, b in zip(first, last, strict=True)):
            self.chain += [[((a + b) / 2).mid() for a, b in zip(first, last, strict=True)], first]
        self.segment(y, top, bottom, PRECISE_CUTS)

    def segment(self, y: list[Poly], top: Number, bottom: Number, cuts: int) -> None:
        step = (bottom - top) / 2
        middle = [(_value(p, top) + step * _value(_slope(p), top)).mid() for p in y]
        shares = [float((v / most).mid()) for v, most in zip(middle, self.alpha, strict=True)]
        outside = any(not -OUTSIDE <= shares[k] <= 1.0 + OUTSIDE for k in self.inside)
        if outside and cuts:
            half = ((top + bottom) / 2).mid()
            self.segment(y, top, half, cuts - 1)
            self.segment(y, half, bottom, cuts - 1)
            return
        self.chain += [self.placed(middle), self.placed([_value(p, bottom) for p in y])]

    def placed(self, y: list[Number]) -> list[Number]:
        """Return a profile with those at a bound exactly there."""
        zero = flint.arb(0)
        return [
            (v / share).mid().max(zero).min(cap) if place == INSIDE else cap if place == FULL else zero
            for v, share, cap, place in zip(y, self.shares, self.caps, self.status, strict=True)
        ]


def _products(game: GameModel, alpha: list[Number], who: list[int]) -> Any:
    """Inner products of some of the remaining clients around the mean of all of them."""
    products = _all_products(game, alpha)
    if len(who) == game.count:
        return products
    return flint.arb_mat(len(who), len(who), [products[i, j] for i in who for j in who])


def _all_products(game: GameModel, alpha: list[Number]) -> Any:
    keep, N = game.remaining, game.count
    features = game.embeddings.features
    share = flint.arb_mat(1, N, alpha)
    if features is not None:
        rows = np.asarray(features[keep], dtype=np.float64)
        table = flint.arb_mat(N, rows.shape[1], [flint.arb(v) for v in rows.ravel().tolist()])
        mean = share * table
        for i in range(N):
            for j in range(rows.shape[1]):
                table[i, j] = table[i, j] - mean[0, j]
        return (table * table.transpose()).mid()
    stored = -game.embeddings._best[np.ix_(keep, keep)]
    table = flint.arb_mat(N, N, [flint.arb(v) for v in stored.ravel().tolist()])
    pull = table * share.transpose()
    square = (share * pull)[0, 0]
    for i in range(N):
        for j in range(N):
            table[i, j] = table[i, j] - pull[i, 0] - pull[j, 0] + square
    return table.mid()


def _roots(p: Poly, low: Number, high: Number) -> list[Number]:
    """Return the sign changes of a polynomial in (low, high), descending: between stationary points it is monotone."""
    while p and p[-1].is_zero():
        p = p[:-1]
    if len(p) < 2:
        return []
    if len(p) == 2:
        root = (-p[0] / p[1]).mid()
        return [root] if low < root < high else []
    stops = [high, *_roots(_slope(p), low, high), low]
    found = []
    for a, b in pairwise(stops):
        above, below = _value(p, a), _value(p, b)
        if not above.is_zero() and not below.is_zero() and (above > 0) != (below > 0):
            found.append(_bracketed(p, b, a, below, above))
    return found


def _bracketed(p: Poly, low: Number, high: Number, below: Number, above: Number) -> Number:
    """Return the root of a polynomial that changes sign once, by Newton's method where it stays inside and bisection elsewhere."""
    rising = above > 0
    x = ((low + high) / 2).mid()
    derivative = _slope(p)
    for _ in range(4 * PRECISION):
        value = _value(p, x)
        if value.is_zero():
            return x
        if (value > 0) == rising:
            high = x
        else:
            low = x
        slope = _value(derivative, x)
        step = None if slope.is_zero() else (x - value / slope).mid()
        after = step if step is not None and low < step < high else ((low + high) / 2).mid()
        if abs(after - x) <= flint.arb(2) ** (16 - PRECISION) * abs(after) or not low < after < high:
            return after
        x = after
    return x
