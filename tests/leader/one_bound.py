"""Readable form of the bound for linear and capped offers: ``docs/theory/leader.md``, "One bound for both kinds of offers".

Every client contributes the least of a few functions of the total S, each a Laurent polynomial with the degrees -2 to 2. On an
interval the bound follows from their values at the ends and from second divided differences.
"""

from dataclasses import dataclass, field

import numpy as np

DEGREES = (-2, -1, 0, 1, 2)


class Laurent:
    """A Laurent polynomial in S; coefficients may be arrays over clients."""

    __array_ufunc__ = None  # arrays leave sums and products to this class

    def __init__(self, **coefficients):
        self.c = {int(name[1:].replace("m", "-")): value for name, value in coefficients.items()}

    @classmethod
    def of(cls, c):
        made = cls()
        made.c = c
        return made

    def __add__(self, other):
        other = other if isinstance(other, Laurent) else Laurent(s0=other)
        return Laurent.of({d: self.c.get(d, 0.0) + other.c.get(d, 0.0) for d in {*self.c, *other.c}})

    __radd__ = __add__

    def __mul__(self, other):
        other = other if isinstance(other, Laurent) else Laurent(s0=other)
        out = {}
        for d, x in self.c.items():
            for e, y in other.c.items():
                out[d + e] = out.get(d + e, 0.0) + x * y
        return Laurent.of(out)

    __rmul__ = __mul__

    def __neg__(self):
        return self * -1.0

    def __sub__(self, other):
        return self + -other

    def __rsub__(self, other):
        return -self + other

    def __call__(self, s):
        return sum(x * s**d for d, x in self.c.items()) if self.c else 0.0

    def total(self):
        """The sum over clients."""
        return Laurent.of({d: np.sum(x) for d, x in self.c.items()})

    def curvature(self, a, b):
        """A number Delta with ``f(S) >= chord + sigma (1 - sigma) Delta`` on [a, b]."""
        h = b - a
        # second divided differences f[a, b, S]: greatest and least over S
        most = {-2: (a + 2 * b) / (a**3 * b**2), -1: 1 / (a * a * b), 2: 1.0}
        least = {-2: (2 * a + b) / (a**2 * b**3), -1: 1 / (a * b * b), 2: 1.0}
        out = 0.0
        for d, x in self.c.items():
            if d not in (0, 1):
                out = out - h * h * (np.maximum(x, 0.0) * most[d] - np.maximum(-x, 0.0) * least[d])
        return out


S, V = Laurent(s1=1.0), Laurent(sm1=1.0)


def affine(at_a, at_b, a, b):
    """The affine function with these values at the ends."""
    if a == b:
        return Laurent(s0=at_a)
    slope = (at_b - at_a) / (b - a)
    return Laurent(s0=at_a - a * slope, s1=slope)


@dataclass
class Problem:
    """The leader's problem in normalised units; the fields are the symbols of the theory page."""

    alpha: np.ndarray
    theta: np.ndarray
    points: np.ndarray
    budget: float
    W: float = 1.0
    constant: float = 0.0
    A: float = 0.0
    noise: np.ndarray | float = 0.0
    a: float = 0.0
    loss_weight: float = 1.0
    payment_weight: float = 0.0
    cap: float = np.inf
    capped: bool = False

    def __post_init__(self):
        self.diagonal = np.einsum("ij,ij->i", self.points, self.points)
        self.noise = np.broadcast_to(np.asarray(self.noise, dtype=float), self.alpha.shape)

    def stakes(self, z, s):
        """D_k."""
        m = z @ self.points
        return np.sum((self.points - m) ** 2, axis=1) + self.a / (2 * s)

    def loss(self, z, s):
        m = z @ self.points
        return self.W * m @ m + self.constant + (self.noise @ z + self.A) / s

    def spend(self, z, s):
        return float(z @ np.maximum(self.theta * s - self.stakes(z, s), 0.0))

    def objective(self, z, s):
        return self.loss_weight * self.loss(z, s) + self.payment_weight * self.spend(z, s)


@dataclass
class Region:
    """Totals in [a, b], shares in [least, most], squared distances in [near, far]; decisions for linear offers."""

    a: float
    b: float
    least: np.ndarray
    most: np.ndarray
    near: np.ndarray
    far: np.ndarray
    paid: np.ndarray
    volunteer: np.ndarray


@dataclass
class Multipliers:
    """Values at one total."""

    omega: float
    beta: float
    gamma: float
    nu2: float
    t: float
    P: np.ndarray
    c: np.ndarray


@dataclass
class Bound:
    """The ends, the curvature, and the least value on the interval."""

    at_a: float
    at_b: float
    delta: float
    weights: tuple = field(default=(0.0, 0.0))
    centres: tuple = field(default=())

    @property
    def least(self):
        low = min(self.at_a, self.at_b)
        rise = abs(self.at_b - self.at_a)
        if self.delta >= 0 or rise >= -self.delta:
            return low
        return low - (self.delta + rise) ** 2 / (-4 * self.delta)


def bound(p, r, first, second, lower):
    """Return the bound on a region, with multipliers that are affine between ``first`` at a and ``second`` at b."""
    a, b = r.a, r.b

    def mix(get):
        return affine(get(first), get(second), a, b)

    omega, beta, gamma, t, P = (
        mix(lambda y, n=n: getattr(y, n)) for n in ("omega", "beta", "gamma", "t", "P")
    )
    ell = p.loss_weight * omega + gamma
    nu = p.payment_weight * omega + beta
    nu2 = mix(lambda y: y.nu2)
    nu1 = nu - nu2
    T = p.W * ell + nu1 + P.total()
    weights = T(a), T(b)
    if not min(weights) > 0:
        return Bound(-np.inf, -np.inf, 0.0)
    pulls = [w * y.c for w, y in zip(weights, (first, second), strict=True)]  # w = T c, affine as well
    slope = affine(
        *(p.points @ (pull - y.P @ p.points) for pull, y in zip(pulls, (first, second), strict=True)), a, b
    )
    psi = t - 2.0 * slope - nu1 * (p.theta * S - p.diagonal) - ell * V * p.noise
    f_low = p.a / 2 * V + r.near - p.theta * S
    f_high = p.a / 2 * V + r.far - p.theta * S
    corners = _corners(p, r, psi, nu1, nu2, P, f_low, f_high)
    values = [np.array([corner(s) + allowed for corner, allowed in corners]) for s in (a, b)]
    leasts = [value.min(axis=0) for value in values]
    if not np.isfinite(leasts).all():  # a client for whom nothing is left
        return Bound(np.inf, np.inf, 0.0)
    spare = np.minimum(values[0] - leasts[0], values[1] - leasts[1])
    bends = np.array([corner.curvature(a, b) + np.zeros(len(p.alpha)) for corner, _ in corners]) + 4 * spare
    common = ell * (p.constant + p.A * V) - p.a / 2 * (nu1 * V) - omega * lower + t
    common = common + (P * (p.diagonal + p.a / 2 * V - p.theta * S)).total()
    if np.isfinite(p.budget):
        common = common - beta * p.budget
    if np.isfinite(p.cap):
        common = common - gamma * p.cap
    ends = [
        common(s) - pull @ pull / weight + least.sum()
        for s, pull, weight, least in zip((a, b), pulls, weights, leasts, strict=True)
    ]
    apart = np.sum((first.c - second.c) ** 2) * min(weights)
    delta = apart + common.curvature(a, b) + bends.min(axis=0).sum() if b > a else 0.0
    return Bound(*ends, delta, weights, (first.c, second.c))


def _corners(p, r, psi, nu1, nu2, P, f_low, f_high):
    """Every client's functions, and infinity for the clients for whom a function does not count."""
    n = len(p.alpha)
    zero = Laurent(s0=np.zeros(n))
    tight = p.alpha / r.b < r.most  # the cap alpha / S is the tighter one somewhere
    upper = Laurent(s0=np.where(tight, 0.0, r.most), sm1=np.where(tight, p.alpha, 0.0))
    lower = Laurent(s0=r.least)
    full = Laurent(sm1=p.alpha)
    below, above = f_high(r.a) <= 0, f_low(r.b) > 0  # eagerness falls with S
    paid_ends = [f_low, Laurent.of({d: np.where(below, x, 0.0) for d, x in f_high.c.items()})]
    eager_ends = [f_high, Laurent.of({d: np.where(above, x, 0.0) for d, x in f_low.c.items()})]
    no_paid = np.where(r.volunteer | above, np.inf, 0.0)
    cannot_be_full = (p.alpha / r.b > r.most) & (not p.capped)
    no_eager = np.where(r.paid | below | cannot_be_full, np.inf, 0.0)
    out = [(z * (-(nu2 * f)) - P * f - psi * z + zero, no_paid) for z in (lower, upper) for f in paid_ends]
    out += [
        (z * (nu1 * f) - P * f - psi * z + zero, no_eager)
        for z in ((lower, upper) if p.capped else (full,))
        for f in eager_ends
    ]
    return out
