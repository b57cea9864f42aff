"""Proof of an equilibrium in ball arithmetic.

The game that is proved about is exact: the binary numbers stored in the certificate (inner products or
feature rows of the remaining clients, amounts of data, costs, payments, caps, lam, A) taken at face value,
everything else derived from them in balls that contain the exact result. In the variables of
:mod:`stackfu.model.profile`, multiplied by S^2 to be polynomial,

    h_k(y) = S^2 g_k = S^2 G_kk - 2 S (Gy)_k + y'Gy + a S / 2 - S^3 w_k,      S = sum y.

**Box.** Fix who is out (y_k = 0) and who brings all that is taken (y_k = cap_k alpha_k); the others solve the square
system ``h_k = 0``. With an approximate inverse Y of the Jacobian, Krawczyk's operator on the box X around a
centre c

    K(X) = c - Y h(c) + (I - Y h'(X)) (X - c)

maps X into its interior only if X contains exactly one solution. That solution is an equilibrium if 0 < y_k
< cap_k alpha_k and w_k > 0 inside, and if for everyone else the slope of its own utility,

    q_k / T^3 + a / (2 T^2) - w_k,    q_k = S0^2 G_kk - 2 S0 (G y_{-k})_k + y_{-k}'G y_{-k},    S0 <= T <= S0 + cap_k alpha_k,

has one strict sign at both ends of T, hence on the whole interval: it is monotone in T (for a = 0 whatever the sign of
q_k, so the proof does not even need the stored inner products to be positive semidefinite; for a > 0 where
``3 q_k + a S0 > 0``, which is checked). Who may not take part at all has no choice.

**Regret.** Where that fails because the equilibrium is degenerate (a continuum, or a client exactly at a
threshold), the point itself is judged: rigorous upper bounds on every client's gain from deviating, and on
how far its best response is from what it does.

Both are refused, with :class:`~stackfu.errors.VerificationError`, for a point that is further than
:data:`LIMIT` from the equilibrium (box) or whose clients' best responses are further away than that
(regret).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import flint
import numpy as np
import numpy.typing as npt

from ..atomic import write_atomically
from ..errors import FileFormatError, InputError, StackfuError, VerificationError
from ..results import Equilibrium
from .ball_game import Ball, BallGame, Balls, stored_embeddings
from .numbers import BallArithmetic

__all__ = ["LIMIT", "Certificate", "check_certificate", "prove_equilibrium"]

#: A point further than this from an exact equilibrium, in participation, is refused.
LIMIT = 1e-7
#: Participation closer than this to 0 or 1 may be rounding; both readings are tried.
SNAP = 1e-9
#: Clients beyond this number are too many for ball arithmetic.
LARGEST = 1000
#: A gain below this part of a client's cost is no reason to move: the client is indifferent.
NO_REASON_TO_MOVE = 1e-26

FORMAT = "stackfu-certificate"
#: Version 2 knows caps and a sampling constant; what has neither is written as version 1.
VERSION = 2


@dataclass(frozen=True)
class Certificate:
    """Proved claim about a participation profile, and everything needed to check it again.

    ``kind`` is ``"box"``: exactly one equilibrium with these clients out and full lies within ``radius`` of
    ``participation`` (in every entry); or ``"regret"``: no client gains more than ``regret`` by deviating
    from ``participation``, and every client that gains more than 1e-26 of its cost has its best response
    within ``radius``. All numbers are stored exactly, as hexadecimal strings.
    """

    kind: str
    precision: int
    clients: tuple[int, ...]
    form: str
    embeddings: tuple[tuple[str, ...], ...]
    sizes: tuple[str, ...]
    costs: tuple[str, ...]
    lambda_q: str
    loss_constant: str
    payments: tuple[str, ...]
    participation: tuple[str, ...]
    places: str
    centre: tuple[tuple[str, int], ...]
    width: tuple[tuple[str, int], ...]
    radius: float
    regret: float
    #: A, and the most that is taken of each client (empty: everything).
    sampling_constant: str = (0.0).hex()
    caps: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """True if an exact equilibrium was enclosed (rather than the point's regret bounded)."""
        return self.kind == "box"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate to a ``.json`` file."""
        target = Path(path)
        if target.suffix != ".json":
            raise InputError("path", "must end in .json", value=str(target))
        news = {"sampling_constant": self.sampling_constant, "caps": self.caps}
        plain = float.fromhex(self.sampling_constant) == 0.0 and not self.caps
        known = {name: value for name, value in self.__dict__.items() if not plain or name not in news}
        record = {"format": FORMAT, "version": 1 if plain else VERSION, **known}
        write_atomically(target, json.dumps(record, indent=1).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read a certificate; this checks the file, not the proof (see :func:`check_certificate`)."""
        source = Path(path)
        if not source.exists():
            raise FileNotFoundError(f"no such file: {source}")
        try:
            record = json.loads(source.read_text())
        except (ValueError, OSError) as error:
            raise FileFormatError(f"{source}: not a readable certificate ({error})") from error
        if not isinstance(record, dict) or record.pop("format", None) != FORMAT:
            raise FileFormatError(f"{source}: this is not a certificate")
        version = record.pop("version", None)
        if not isinstance(version, int) or version < 1:
            raise FileFormatError(f"{source}: the version {version!r} is not one this library wrote")
        if version > VERSION:
            raise FileFormatError(
                f"{source}: written by a newer stackfu (version {version}, this one reads {VERSION})"
            )
        try:
            return cls(**{name: _tuples(value) for name, value in record.items()})
        except TypeError as error:
            raise FileFormatError(f"{source}: the record is damaged ({error})") from error

    def check(self) -> Certificate:
        """Re-check the proof from the stored numbers alone; returns self or raises ``VerificationError``."""
        return check_certificate(self)

    def __str__(self) -> str:
        where = {"0": "out", "1": "full", "*": "inside"}
        groups = ", ".join(f"{self.places.count(mark)} {word}" for mark, word in where.items())
        if self.exact:
            return (
                f"proved: exactly one equilibrium with {groups} lies within {self.radius:.1e} of this point "
                f"(its clients' regret here is at most {self.regret:.1e})"
            )
        return (
            f"proved: no client gains more than {self.regret:.1e} by deviating, and no best response that "
            f"is worth "
            f"anything is further than {self.radius:.1e} away ({groups}); degenerate, so no box was enclosed"
        )


def prove_equilibrium(equilibrium: Equilibrium, precision: int = 256) -> Certificate:
    """Prove that an exact equilibrium lies in a tiny box around the point, or bound the point's regret.

    >>> import numpy as np, stackfu as sf
    >>> emb = sf.MeanEmbeddings.from_features(np.array([[0.0, 0.0], [1.0, 0.0], [0.25, 1.0]]))
    >>> game = sf.StackelbergGame(emb, sizes=[1, 2, 1], costs=[2.0, 4.0, 2.0])
    >>> certificate = game.equilibrium().prove()
    >>> certificate.kind, certificate.radius < 1e-12
    ('box', True)

    Raises
    ------
    VerificationError
        If the point is no equilibrium, or too far from one.
    """
    if not isinstance(precision, (int, np.integer)) or not 64 <= precision <= 100_000:
        raise InputError("precision", "must be a number of bits between 64 and 100000", value=precision)
    bare = _bare_certificate(equilibrium, int(precision))
    with BallArithmetic(int(precision)).context():
        game = _ExactGame(bare)
        reasons = []
        for places in _readings(bare.places, equilibrium):
            try:
                return _prove_box(game, replace(bare, places=places))
            except VerificationError as error:
                reasons.append(str(error))
        try:
            return _prove_regret(game, replace(bare, kind="regret"))
        except VerificationError as error:
            reasons.append(str(error))
    raise VerificationError("this point could not be proved: " + "; ".join(dict.fromkeys(reasons)))


def check_certificate(certificate: Certificate | str | os.PathLike[str]) -> Certificate:
    """Check a proof again from nothing but the numbers stored in the certificate.

    Returns the certificate; raises :class:`~stackfu.errors.VerificationError` if any step does not follow.
    """
    held = certificate if isinstance(certificate, Certificate) else Certificate.load(certificate)
    if not isinstance(held.precision, int) or not 64 <= held.precision <= 100_000:
        raise VerificationError(f"the stated precision {held.precision!r} is not usable")
    with BallArithmetic(held.precision).context():
        try:
            game = _ExactGame(held)
            regret, distance = game.regret_and_distance(game.point)
            _demand(
                regret <= held.regret,
                f"the regret may be {regret:.3e}, above the stated {held.regret:.3e}",
            )
            if held.kind == "box":
                _check_box(game, held)
            elif held.kind == "regret":
                _demand(
                    distance <= held.radius,
                    f"a best response may be {distance:.3e} away, above {held.radius:.3e}",
                )
                _demand(
                    held.radius <= LIMIT,
                    f"the stated distance {held.radius:.3e} is above the limit {LIMIT:g}",
                )
            else:
                raise VerificationError(f"unknown kind of certificate {held.kind!r}")
        except StackfuError:
            raise
        except (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError) as error:
            raise VerificationError(
                f"the certificate is damaged ({type(error).__name__}: {error})"
            ) from error
    return held


# -------------------------------------------------------------------- the exact game


def _demand(condition: bool, message: str) -> None:
    if not condition:
        raise VerificationError(message)


class _ExactGame(BallGame):
    """The game that a certificate stores, and the point."""

    def __init__(self, stored: Certificate) -> None:
        n, rows = len(stored.clients), stored.embeddings
        columns = [
            stored.sizes,
            stored.costs,
            stored.payments,
            stored.caps or ((1.0).hex(),) * n,
            stored.participation,
        ]
        _demand(
            n >= 2
            and len(rows) == n
            and all(len(c) == n for c in columns)
            and len({len(r) for r in rows}) == 1,
            "the stored arrays do not fit together",
        )
        sizes, costs, paid, caps, self.x = ([_ball(v) for v in column] for column in columns)
        _demand(all(s > 0 for s in sizes) and all(c > 0 for c in costs), "sizes and costs must be positive")
        _demand(all(p >= 0 for p in paid), "payments must not be negative")
        _demand(all(x >= 0 and x <= 1 for x in self.x), "participation must lie in [0, 1]")
        _demand(all(c >= 0 and c <= 1 for c in caps), "caps must lie in [0, 1]")
        _demand(all(x <= c for x, c in zip(self.x, caps, strict=True)), "participation is above its cap")
        constants = [_ball(v) for v in (stored.lambda_q, stored.loss_constant, stored.sampling_constant)]
        _demand(bool(constants[0] * constants[1] > 0), "lam must be positive")
        _demand(bool(constants[2] >= 0), "the sampling constant must not be negative")
        embeddings = [[_ball(v) for v in row] for row in rows]
        super().__init__(sizes, costs, paid, caps, constants, stored.form, embeddings)
        self.gram = self.embeddings
        if stored.form == "features":
            self.gram = self.embeddings * self.embeddings.transpose()
        else:
            _demand(stored.form == "gram" and len(rows[0]) == n, "unknown form of the embeddings")
            symmetric = all(self.gram[i, j] == self.gram[j, i] for i in range(n) for j in range(i))
            _demand(symmetric, "the inner products are not symmetric")
        self.point = [a * x for a, x in zip(self.alpha, self.x, strict=True)]

    def field(self, y: Balls) -> tuple[Ball, Balls, Ball]:
        """``S``, ``Gy`` and ``y'Gy``."""
        product = self.gram * flint.arb_mat(self.n, 1, y)
        inner = [product[k, 0] for k in range(self.n)]
        return sum(y, flint.arb(0)), inner, sum((a * b for a, b in zip(y, inner, strict=True)), flint.arb(0))

    def conditions(self, y: Balls, clients: Sequence[int]) -> Balls:
        """``h_k = S^2 g_k`` for the given clients."""
        total, inner, square = self.field(y)
        return [
            total**2 * self.gram[k, k]
            - 2 * total * inner[k]
            + square
            + self.a * total / 2
            - total**3 * self.w[k]
            for k in clients
        ]

    def jacobian(self, y: Balls, clients: Sequence[int]) -> Any:
        """``d h_k / d y_j = 2 S (G_kk - G_kj) - 2 (Gy)_k + 2 (Gy)_j + a / 2 - 3 S^2 w_k``."""
        total, inner, _ = self.field(y)
        g = self.gram
        return flint.arb_mat(
            [
                [
                    2 * total * (g[k, k] - g[k, j])
                    - 2 * inner[k]
                    + 2 * inner[j]
                    + self.a / 2
                    - 3 * total**2 * self.w[k]
                    for j in clients
                ]
                for k in clients
            ]
        )

    def pull(self, y: Balls, k: int, field: tuple[Ball, Balls, Ball]) -> tuple[Ball, Ball]:
        """``S0_k`` and ``q_k = ||sum_{i != k} y_i (mu_i - mu_k)||^2``, which do not depend on ``y_k``."""
        _, inner, square = field
        if all(v.is_zero() for i, v in enumerate(y) if i != k):
            return flint.arb(0), flint.arb(0)
        rest = sum((v for i, v in enumerate(y) if i != k), flint.arb(0))
        own = self.gram[k, k]
        others = inner[k] - own * y[k]
        square_others = square - 2 * y[k] * others - y[k] ** 2 * own
        return rest, rest**2 * own - 2 * rest * others + square_others

    def slopes(self, y: Balls, k: int, field: tuple[Ball, Balls, Ball]) -> tuple[Ball, Ball]:
        """``q_k / T^3 + a / (2 T^2) - w_k`` at both ends of client k's choice, between which it is monotone."""
        rest, q = self.pull(y, k, field)
        if self.a.is_zero():
            if rest.is_zero():
                return -self.w[k], -self.w[k]
            return q / rest**3 - self.w[k], q / (rest + self.bound[k]) ** 3 - self.w[k]
        if rest.is_zero():  # it falls from infinity
            return flint.arb(1), self.a / (2 * self.bound[k] ** 2) - self.w[k]
        _demand(bool(3 * q + self.a * rest > 0), "the slope of a client's utility may not be monotone")
        most = rest + self.bound[k]
        return (
            q / rest**3 + self.a / (2 * rest**2) - self.w[k],
            q / most**3 + self.a / (2 * most**2) - self.w[k],
        )

    def regret_and_distance(self, y: Balls) -> tuple[float, float]:
        """Upper bounds on the largest gain from deviating and on the distance to a best response."""
        field = self.field(y)
        _demand(bool(field[0] > 0), "nobody takes part")
        worst, furthest = flint.arb(0), flint.arb(0)
        for k in range(self.n):
            gain, distance = self._deviation(y, k, field)
            worst, furthest = worst.max(gain), furthest.max(distance)
        return _up(worst), _up(furthest)

    def _deviation(self, y: Balls, k: int, field: tuple[Ball, Balls, Ball]) -> tuple[Ball, Ball]:
        """Gain from k's best response and its distance in participation; 0 where the gain is negligible."""
        alpha, w = self.alpha[k], self.w[k]
        bound = self.bound[k]
        if bound.is_zero():
            return flint.arb(0), flint.arb(0)
        rest, q = self.pull(y, k, field)
        low_slope, high_slope = self.slopes(y, k, field)
        if low_slope < 0 and high_slope < 0:
            best = flint.arb(0)
            _demand(not rest.is_zero(), "a client that faces nobody gains by shrinking, without end")
        elif low_slope > 0 and high_slope > 0:
            best = bound
        elif w > 0 and (rest > 0 or (rest.is_zero() and self.a > 0)):
            best = _clip(_positive_root((q / w).nonnegative_part(), self.a / (2 * w)) - rest, bound)
        else:
            best = flint.arb(
                bound / 2, (bound / 2).upper()
            )  # indifferent within rounding: it might do anything
        step = best - y[k]
        # U_k(best) - U_k(now) = (p_k - c_k) step / alpha_k + lam q (1 / now^2 - 1 / then^2) + lam a (1 / now - 1 / then)
        now, then = rest + y[k], rest + best
        saved = (
            flint.arb(0)
            if rest.is_zero()
            else self.lam * q * step * (now + then) * (1 / now) ** 2 * (1 / then) ** 2
        )
        if self.a > 0:
            saved = saved + self.lam * self.a * step / (now * then)
        gain = self.net[k] * step / alpha + saved
        if gain < NO_REASON_TO_MOVE * self.costs[k]:
            return gain, flint.arb(0)
        return gain, abs(step / alpha)


def _clip(value: Ball, top: Ball) -> Ball:
    """Return the ball cut to [0, top]."""
    return value.max(flint.arb(0)).min(top)


def _cube_root(ball: Ball) -> Ball:
    """Return a ball around the cube root of a non-negative ball, which may contain 0."""
    if ball > 0:
        return ball.root(3)
    top = ball.upper()
    if not top > 0:
        return flint.arb(0)
    half = top.root(3).upper() / 2
    return flint.arb(half, half.upper())


def _positive_root(r: Ball, p: Ball) -> Ball:
    """A ball around the positive root of ``R^3 - p R - r``, for balls ``r >= 0`` and ``p > 0``; the cube root of r for ``p = 0``.

    The cubic is negative below that root and positive above it.
    """
    if p.is_zero():
        return _cube_root(r)
    root = (r.upper().root(3) if r.upper() > 0 else flint.arb(0)) + p.upper().sqrt()
    root = root.mid()
    for _ in range(200):
        after = (root - (root**3 - p.mid() * root - r.mid()) / (3 * root**2 - p.mid())).mid()
        if not after < root:
            break
        root = after
    half = root * flint.arb(2) ** (8 - flint.ctx.prec)
    while True:
        low, high = (root - half).max(flint.arb(0)).lower(), (root + half).upper()
        if (low.is_zero() or low**3 - p * low - r < 0) and high**3 - p * high - r > 0:
            return low.union(high)
        half = 4 * half
        if half > root:  # what is known of r and p says no more than this
            return flint.arb(0).union((_cube_root(r) + p.sqrt()).upper())


def _up(ball: Ball) -> float:
    """Return a float that is at least the ball's upper end."""
    if not ball.is_finite():
        return float("inf")
    top = float(ball.upper())
    return float(np.nextafter(np.nextafter(max(top, 0.0), np.inf), np.inf)) if top > 0 else 0.0


# -------------------------------------------------------------------- the two proofs


def _prove_box(game: _ExactGame, bare: Certificate) -> Certificate:
    """Find a box by Newton's method from the point and have it checked."""
    inside = [k for k, mark in enumerate(bare.places) if mark == "*"]
    y = _at_places(game, bare.places, [game.point[k] for k in inside], inside)
    if inside:
        for _ in range(12):
            slope = game.jacobian(y, inside).mid()
            value = flint.arb_mat(len(inside), 1, game.conditions(y, inside)).mid()
            try:
                step = slope.solve(value).mid()
            except ZeroDivisionError:
                raise VerificationError("the equilibrium is degenerate: its Jacobian is singular") from None
            centre = [(y[k] - step[i, 0]).mid() for i, k in enumerate(inside)]
            y = _at_places(game, bare.places, centre, inside)
            if max(abs(float(step[i, 0])) / float(game.alpha[k]) for i, k in enumerate(inside)) < 2.0 ** (
                -0.8 * bare.precision
            ):
                break
        # a box wide enough for rounding at this precision, far narrower than any distance of interest
        width = [
            flint.arb(2) ** (-bare.precision // 2) * y[k].mid().max(game.alpha[k] * flint.arb(2) ** -60)
            for k in inside
        ]
        centre = [y[k].mid() for k in inside]
    else:
        centre, width = [], []
    found = replace(
        bare,
        kind="box",
        centre=tuple(_exact(c) for c in centre),
        width=tuple(_exact(v.upper()) for v in width),
    )
    distance = _check_box(game, found)
    return replace(found, radius=distance, regret=game.regret_and_distance(game.point)[0])


def _prove_regret(game: _ExactGame, bare: Certificate) -> Certificate:
    regret, distance = game.regret_and_distance(game.point)
    _demand(distance <= LIMIT, f"a client's best response is {distance:.1e} away from what it does")
    return replace(bare, regret=regret, radius=distance)


def _check_box(game: _ExactGame, held: Certificate) -> float:
    """Verify a box certificate; returns a bound on the distance of the exact equilibrium to the point."""
    _demand(
        len(held.places) == game.n and set(held.places) <= set("01*"), "the places do not fit the clients"
    )
    inside = [k for k, mark in enumerate(held.places) if mark == "*"]
    _demand(len(held.centre) == len(held.width) == len(inside), "the box does not fit the clients inside")
    centre = [_from_exact(c) for c in held.centre]
    width = [_from_exact(v) for v in held.width]
    _demand(all(v > 0 for v in width), "the box has no width")
    box = [flint.arb(c, v) for c, v in zip(centre, width, strict=True)]
    if inside:
        _krawczyk(game, held.places, inside, centre, width, box)
    y = _at_places(game, held.places, box, inside)
    field = game.field(y)
    _demand(bool(field[0] > 0), "nobody takes part")
    for k, mark in enumerate(held.places):
        name = held.clients[k]
        if mark == "*":
            _demand(bool(y[k] > 0) and bool(y[k] < game.bound[k]), f"client {name} is not strictly inside")
            _demand(bool(game.w[k] > 0), f"client {name} is inside but paid its cost")
            continue
        if game.bound[k].is_zero():
            continue
        low, high = game.slopes(y, k, field)
        if mark == "0":
            _demand(bool(low < 0) and bool(high < 0), f"client {name} may want to take part")
        else:
            _demand(bool(low > 0) and bool(high > 0), f"client {name} may not want to take part fully")
    distance = 0.0
    for k in range(game.n):
        distance = max(
            distance,
            _up(abs(y[k] / game.alpha[k] - game.x[k]))
            if held.places[k] != "1"
            else _up(game.caps[k] - game.x[k]),
        )
    _demand(distance <= held.radius, f"the equilibrium is {distance:.1e} away from the point")
    _demand(held.radius <= LIMIT, f"the stated distance {held.radius:.1e} is above the limit {LIMIT:g}")
    return distance


def _krawczyk(
    game: _ExactGame, places: str, inside: list[int], centre: Balls, width: Balls, box: Balls
) -> None:
    """Demand that Krawczyk's operator maps the box into its interior."""
    size = len(inside)
    at_centre = _at_places(game, places, centre, inside)
    over_box = _at_places(game, places, box, inside)
    try:
        inverse = game.jacobian(at_centre, inside).mid().inv().mid()
    except ZeroDivisionError:
        raise VerificationError("the equilibrium is degenerate: its Jacobian is singular") from None
    value = flint.arb_mat(size, 1, game.conditions(at_centre, inside))
    slack = -(inverse * game.jacobian(over_box, inside))
    for i in range(size):
        slack[i, i] += 1
    spread = flint.arb_mat(size, 1, [flint.arb(0, v) for v in width])
    image = slack * spread - inverse * value
    for i in range(size):
        _demand(
            bool(abs(image[i, 0]) < width[i]),
            "the equilibrium is degenerate or too ill-conditioned for this precision: Krawczyk's test fails",
        )


def _at_places(game: _ExactGame, places: str, values: Balls, inside: list[int]) -> Balls:
    y = [game.bound[k] if mark == "1" else flint.arb(0) for k, mark in enumerate(places)]
    for k, value in zip(inside, values, strict=True):
        y[k] = value
    return y


# -------------------------------------------------------------------- numbers in files


def _bare_certificate(equilibrium: Equilibrium, precision: int) -> Certificate:
    """Return everything a certificate stores about game and point, nothing proved yet."""
    game, x = equilibrium.game, equilibrium.participation
    if game.count > LARGEST:
        raise InputError(
            "equilibrium", f"ball arithmetic is meant for up to {LARGEST} clients", value=game.count
        )
    form, rows = stored_embeddings(game)
    most = game.no_caps if equilibrium.caps is None else equilibrium.caps
    places = "".join("0" if v == 0 else "1" if v == top else "*" for v, top in zip(x, most, strict=True))
    return Certificate(
        kind="box",
        precision=precision,
        clients=tuple(int(k) for k in game.remaining),
        form=form,
        embeddings=tuple(_hex(row) for row in rows),
        sizes=_hex(game.sizes),
        costs=_hex(game.costs),
        lambda_q=game.lambda_q.hex(),
        loss_constant=game.loss_constant.hex(),
        payments=_hex(equilibrium.payments),
        participation=_hex(x),
        places=places,
        centre=(),
        width=(),
        radius=LIMIT,
        regret=0.0,
        sampling_constant=game.sampling_constant.hex(),
        caps=() if equilibrium.caps is None else _hex(most),
    )


def _readings(places: str, equilibrium: Equilibrium) -> list[str]:
    """Return the point's places as they are, and with participation within rounding of 0 or the cap read as such."""
    x = equilibrium.participation
    most = equilibrium.game.no_caps if equilibrium.caps is None else equilibrium.caps
    snapped = "".join(
        "0" if v <= SNAP else "1" if v >= top - SNAP else mark
        for v, top, mark in zip(x, most, places, strict=True)
    )
    return list(dict.fromkeys([places, snapped]))


def _hex(values: npt.ArrayLike) -> tuple[str, ...]:
    return tuple(float(v).hex() for v in np.asarray(values, dtype=np.float64))


def _ball(text: str) -> Ball:
    value = float.fromhex(text)
    _demand(bool(np.isfinite(value)), f"{text!r} is not a finite number")
    return flint.arb(value)


def _exact(ball: Ball) -> tuple[str, int]:
    """Return an exact ball as mantissa (hexadecimal) and power of two."""
    mantissa, exponent = ball.man_exp()
    return hex(int(mantissa)), int(exponent)


def _from_exact(pair: Sequence[Any]) -> Ball:
    mantissa, exponent = pair
    number = flint.arb(flint.fmpz(int(mantissa, 16))) * flint.arb(2) ** int(exponent)
    _demand(number.is_exact(), "a stored number needs more than the stated precision")
    return number


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
