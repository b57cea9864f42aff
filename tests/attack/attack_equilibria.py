"""An attack on the clients' equilibria: games at nasty scales against support enumeration in 120-digit balls.

    python tests/attack/attack_equilibria.py --games 20000 --out stackfu_bench/results/attack/equilibria.json

The reference shares no code with the library. For every pattern {out, inside, full}^N the amounts of those inside are
polynomials in the total s, and the condition that is left is a polynomial of degree four whose roots are isolated and refined;
every root is tested against the definition. A *confident wrong answer* is a CERTIFIED profile in which some client can gain more
than it says, a UNIQUE where there are two, a complete list that misses one or holds one that does not exist (listed and exact
ones belong together by their totals, which the list claims to know to a thousandth), or an answer that its own ``verify``
refuses. Anything that raises what is no StackfuError is a crash. Answers that keep what they claim and still are more than
1e-5 from the exact participation are counted as *rough*.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from campaign import main
from flint import arb, arb_mat, arb_poly, ctx
from vicious_games import vicious_game

import stackfu as sf

sys.path.insert(
    0, str(Path(__file__).parents[1])
)  # run as a script, the tests' own references are one folder up
from follower_games import enumerate_supports, random_batch

#: Binary digits of the reference; inputs are taken as the exact numbers that the floats are.
BITS = 400
#: Largest allowed gain of a client, relative to its own stakes, where the library says CERTIFIED (it says a billionth).
GAIN = 1.01e-9
#: Up to this many clients all patterns are looked at (3 to the power of them).
MOST_ENUMERATED = 5
#: Accuracy of the totals in a list that claims to be complete (in addition to the rounding of a float).
TOTAL = 1e-3 * (1 + 1e-9)
#: Further than this from the exact participation an answer is rough.
ROUGH = 1e-5
#: What is left of an exact equilibrium's conditions in 120 digits is about 1e-119 of their terms; next to one it is the square
#: of the distance, which rounded data can make as small as 1e-38.
EXACTLY = arb("1e-70")
METHODS = ("auto", "auto", "path", "sweeps", "qp")


def nasty_game(rng):
    """A game at unusual scales, payments and caps for it, and the name of its kind."""
    if rng.random() < 0.1:
        return several(rng)
    count, width = int(rng.choice([2, 3, 3, 4, 4, 5])), int(rng.integers(1, 5))
    points = rng.normal(size=(count, width))
    kind = str(
        rng.choice(["plain", "outlier", "twins", "near twins", "line", "dependent", "cluster", "dominating"])
    )
    i, j = rng.choice(count, size=2, replace=False)
    sizes = rng.uniform(0.5, 2.0, count)
    if kind == "outlier":
        points[i] *= 10.0 ** rng.uniform(3, 6)
    elif kind == "twins":
        points[i] = points[j]
        if rng.random() < 0.5:
            sizes[i] = sizes[j]
    elif kind == "near twins":
        points[i] = points[j] + 10.0 ** rng.uniform(-9, -2) * rng.normal(size=width)
    elif kind == "line":
        points = rng.normal(size=(count, 1)) * rng.normal(size=width)
    elif kind == "dependent":
        points[i] = np.delete(points, i, axis=0).mean(axis=0)
    elif kind == "cluster":
        points = points[:1] + 10.0 ** rng.uniform(-6, -1) * points
    elif kind == "dominating":
        sizes[i] *= 10.0 ** rng.uniform(2, 7)
    if rng.random() < 0.3:
        sizes *= 10.0 ** rng.uniform(0, 6, count)
    points = points * 10.0 ** rng.choice([-3.0, -1.0, 0.0, 0.0, 1.0])
    alpha = sizes / sizes.sum()
    spread = max(float(alpha @ ((points - alpha @ points) ** 2).sum(1)), 1e-12)
    decades = rng.choice([0.3, 1.0, 3.0, 6.0])
    costs = spread * alpha * 10.0 ** rng.uniform(-decades, decades, count) * rng.choice([0.1, 1.0, 10.0])
    if kind == "twins" and rng.random() < 0.5:
        costs[i] = costs[j]
    lambda_q = rng.choice([0.1, 1.0, 1.0, 5.0])
    payments = costs * rng.choice(
        [0.0, 0.0, 0.5, 0.9, 1.0 - 1e-6, 1.0 - 1e-12, 1.0, 1.0 + 1e-12, 1.0 + 1e-6, 1.5, 10.0], size=count
    )
    if rng.random() < 0.4:
        payments = np.zeros(count)
    elif rng.random() < 0.3:
        payments = costs * rng.uniform(0, 1, count)
    if kind == "twins" and rng.random() < 0.5:
        payments[i] = payments[j]
    caps, constant = None, 0.0
    if rng.random() < 0.25:
        caps = rng.choice([0.0, 1e-6, 0.01, 0.3, 0.9, 1.0], size=count) * rng.uniform(0.5, 1.0, count)
        caps[i] = max(caps[i], 0.1)
        kind += ", caps"
    if rng.random() < 0.25:
        constant = float(spread * sizes.sum() * 10.0 ** rng.uniform(-8, 1))
        kind += ", sampling"
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points),
        sizes,
        costs=costs,
        lambda_q=lambda_q,
        sampling_constant=constant,
    )
    return game, payments, caps, kind


def several(rng):
    """Three clients on a line, from a batch in which those with three equilibria are looked for; they are about one in 180."""
    points, alpha, w = random_batch(rng, 300, 3, 1)
    found = enumerate_supports(points, alpha, w)
    chosen = next((b for b, profiles in enumerate(found) if len(profiles) > 1), 0)
    scale = 10.0 ** rng.choice([-3.0, 0.0, 2.0])
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points[chosen] * scale),
        alpha[chosen] * 1e3,
        costs=2.0 * alpha[chosen] * w[chosen] * scale**2,
    )
    return game, np.zeros(3), None, "several"


class Reference:
    """The clients' game in balls."""

    def __init__(self, game, payments, caps):
        ctx.prec = BITS
        count = self.count = game.count
        if game.embeddings.features is None:
            stored = np.asarray(game.embeddings.gram, float)[np.ix_(game.remaining, game.remaining)]
            inner = [[arb(float(v)) for v in row] for row in stored]
        else:
            rows = np.asarray(game.embeddings.features, float)[game.remaining]
            base = [[arb(float(v)) for v in row] for row in rows]
            inner = [[_dot(u, v) for v in base] for u in base]
        # the first client as origin
        self.gram = [
            [inner[i][j] - inner[i][0] - inner[0][j] + inner[0][0] for j in range(count)]
            for i in range(count)
        ]
        owned = sum((arb(float(n)) for n in game.sizes), arb(0))
        self.alpha = [(arb(float(n)) / owned).mid() for n in game.sizes]
        self.costs = [arb(float(c)) for c in game.costs]
        self.payments = [arb(float(p)) for p in payments]
        self.lam = arb(float(game.lambda_q)) * arb(float(game.loss_constant))
        self.noise = (arb(float(game.sampling_constant)) / (arb(float(game.loss_constant)) * owned)).mid()
        self.caps = [arb(1 if caps is None else float(caps[k])) for k in range(count)]
        self.w = [(self.costs[k] - self.payments[k]) / (2 * self.lam * self.alpha[k]) for k in range(count)]
        self.singular = 0

    def gains(self, x):
        """Return every client's gain by its best answer, relative to the largest of cost, payment and lam d_k^2."""
        y = [a * v for a, v in zip(self.alpha, x, strict=True)]
        out = []
        for k in range(self.count):
            others = [i for i in range(self.count) if i != k]
            rest = sum((y[i] for i in others), arb(0))
            g = self.gram
            q = sum(
                (y[i] * y[j] * (g[i][j] - g[i][k] - g[k][j] + g[k][k]) for i in others for j in others),
                arb(0),
            ).mid()
            q = max(q, arb(0))  # rounded inner products need not be those of any embeddings
            margin = self.payments[k] - self.costs[k]
            total = rest + y[k]

            if self.noise > 0:
                # concave in its own share, so the slope bounds the gain on either side
                slope = margin + 2 * self.lam * self.alpha[k] * q / total**3
                slope += self.lam * self.alpha[k] * self.noise / total**2
                gain = max((slope * (self.caps[k] - x[k])).mid(), (-slope * x[k]).mid(), arb(0))
            else:
                gain = self._gain(k, x[k], rest, q, margin)
            stakes = max(self.costs[k], self.payments[k], (self.lam * q / (total * total)).mid())
            out.append(float((gain / stakes).mid()))
        return out

    def _gain(self, k, share, rest, q, margin):
        """Return the gain of the best answer over ``share``: its closed form, without a sampling term."""

        def utility(share):
            amount = rest + self.alpha[k] * share
            return margin * share - (self.lam * q / (amount * amount) if q > 0 else 0)

        if margin >= 0:
            best = self.caps[k]
        elif q > 0:
            want = ((2 * self.lam * self.alpha[k] * q / -margin).root(3) - rest) / self.alpha[k]
            best = min(max(want.mid(), arb(0)), self.caps[k])
        else:
            best = arb(0)
        return utility(best) - utility(share)

    def equilibria(self):
        """Every equilibrium of every pattern that pins its profile down; patterns that do not are counted in ``singular``."""
        found = []
        for pattern in itertools.product((-1, 0, 1), repeat=self.count):
            inside = [k for k in range(self.count) if pattern[k] == 0]
            full = [k for k in range(self.count) if pattern[k] == 1]
            if not inside and not full:
                continue
            for y in self._pattern(inside, full):
                x = [v / a for v, a in zip(y, self.alpha, strict=True)]
                if self._holds(x) and not any(_same(x, other) for other in found):
                    found.append(x)
        return sorted(found, key=lambda x: float(sum(a * v for a, v in zip(self.alpha, x, strict=True))))

    def _pattern(self, inside, full):
        most = [a * c for a, c in zip(self.alpha, self.caps, strict=True)]
        taken = sum((most[k] for k in full), arb(0))
        if not inside:
            if taken > 0:
                yield [most[k] if k in full else arb(0) for k in range(self.count)]
            return
        n = len(inside)
        # 2 <M, phi_k> + s h = |phi_k|^2 s - w_k s^2 with M = s m and h = |m|^2: linear in (y, s h) at fixed s
        system = [[2 * self.gram[k][i] for i in inside] + [arb(-1)] for k in inside] + [
            [arb(1)] * n + [arb(0)]
        ]
        right = [
            [
                self.noise / 2 - 2 * sum((self.gram[k][i] * most[i] for i in full), arb(0)),
                self.gram[k][k],
                -self.w[k],
            ]
            for k in inside
        ]
        right.append([-taken, arb(1), arb(0)])
        try:
            solved = arb_mat(system).solve(arb_mat(right))
        except ZeroDivisionError:
            self.singular += 1
            return
        y = [arb_poly([most[k]]) if k in full else arb_poly([0]) for k in range(self.count)]
        for place, k in enumerate(inside):
            y[k] = arb_poly([solved[place, c].mid() for c in range(3)])
        level = arb_poly([solved[n, c].mid() for c in range(3)])  # s |m|^2
        square = sum(
            (self.gram[i][j] * (y[i] * y[j]) for i in range(self.count) for j in range(self.count)),
            arb_poly([0]),
        )
        condition = square - level * arb_poly([0, 1])
        # the sizes of what was added up, power by power: what is left of an exact zero is told apart by them
        size = [arb_poly([abs(c) for c in p.coeffs()]) for p in y]
        sizes = sum(
            (
                abs(self.gram[i][j]) * (size[i] * size[j])
                for i in range(self.count)
                for j in range(self.count)
            ),
            arb_poly([abs(c) for c in level.coeffs()]) * arb_poly([0, 1]),
        )
        for s in _positive_roots(condition, sizes):
            yield [p(s).mid() for p in y]

    def _holds(self, x):
        slack = arb("1e-40") * max(abs(v) for v in x)
        if any(v < -slack or v > cap + slack for v, cap in zip(x, self.caps, strict=True)):
            return False
        inside = [min(max(v, arb(0)), cap).mid() for v, cap in zip(x, self.caps, strict=True)]
        y = [a * v for a, v in zip(self.alpha, inside, strict=True)]
        total, g = sum(y, arb(0)), self.gram
        if not total > 0:
            return False
        for k in range(self.count):
            parts = [
                y[i] * y[j] * (g[i][j] - g[i][k] - g[k][j] + g[k][k])
                for i in range(self.count)
                for j in range(self.count)
                if i != k and j != k
            ]
            q, size = sum(parts, arb(0)).mid(), sum((abs(v) for v in parts), arb(0))
            q = q if q > EXACTLY * size else arb(0)
            margin = self.payments[k] - self.costs[k]
            pull = (
                2 * self.lam * self.alpha[k] * q / total**3 + self.lam * self.alpha[k] * self.noise / total**2
            )
            doubt = EXACTLY * (abs(margin) + pull)
            wants_more, wants_less = margin + pull > doubt, margin + pull < -doubt
            below, above = inside[k] < self.caps[k] * (1 - EXACTLY), inside[k] > EXACTLY * self.caps[k]
            if (wants_more and below) or (wants_less and above):
                return False
        return True


def _dot(u, v):
    return sum((a * b for a, b in zip(u, v, strict=True)), arb(0))


def _same(x, other):
    size = max(*x, *other)
    return all(abs(a - b) < arb("1e-50") * size for a, b in zip(x, other, strict=True))


def _real_roots(poly):
    """Real roots in balls; None if they cannot be told apart."""
    try:
        return [r.real.mid() for r in poly.complex_roots() if r.imag.contains(0)]
    except ValueError:
        return None


def _positive_roots(poly, sizes):
    """Positive real roots, good to the last digits; factors of s are taken out."""
    # remainder of an exact zero in balls of 120 digits, relative to its terms
    coefficients = [
        c.mid() if abs(c.mid()) > size * arb("1e-90") else arb(0)
        for c, size in zip(poly.coeffs(), sizes.coeffs(), strict=False)
    ]
    while coefficients and coefficients[0] == 0:
        coefficients.pop(0)
    while coefficients and coefficients[-1] == 0:
        coefficients.pop()
    if len(coefficients) < 2:
        return []
    poly = arb_poly(coefficients)
    slope = poly.derivative()
    roots = _real_roots(poly)
    if roots is None:
        # a multiple root has its neighbours in the derivative; where caps of 1e-324 put roots beside zero, the others are those of
        # the higher powers. Both are made good on the whole polynomial below
        parts = (slope, *(arb_poly(coefficients[i:]) for i in range(1, len(coefficients) - 1)))
        roots = [root for part in parts for root in _real_roots(part) or ()]
    out = []
    for root in roots:
        s = root
        for _ in range(40):
            step = poly(s) / slope(s)
            if not step.is_finite():
                break
            s = (s - step).mid()
            if abs(step) < abs(s) * arb("1e-110"):
                break
        if s > 0 and s <= 1 + arb("1e-40"):
            out.append(s)
    return out


def attack(seed):
    """One game; the verdict in a word, and what is needed to look at it again."""
    rng = np.random.default_rng([2027, seed])
    game, payments, caps, kind = (vicious_game if seed % 4 == 3 else nasty_game)(rng)
    method = str(rng.choice(METHODS))
    case = {"seed": seed, "kind": kind, "method": method}
    words = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            one = game.equilibrium(payments, caps=caps, method=method)
        except sf.StackfuError as error:
            one = None
            words.append(type(error).__name__)
        try:
            every = game.equilibria(payments, caps=caps)
        except sf.StackfuError as error:
            every = None
            words.append(type(error).__name__)
    reference = Reference(game, payments, caps)
    known = game.count <= MOST_ENUMERATED
    exact = reference.equilibria() if known else []
    points = [np.array([float(v) for v in x]) for x in exact]
    case["exact"] = [p.tolist() for p in points]

    for eq in ([one] if one is not None else []) + list(every or ()):
        if eq.status is not sf.Status.CERTIFIED:
            continue
        gain = max(reference.gains([arb(float(v)) for v in eq.participation]))
        if gain > GAIN:
            return "no equilibrium", {**case, "x": eq.participation.tolist(), "gain": gain}
    for eq in ([one] if one is not None else list(every or ()))[:1]:
        check = eq.verify()
        if eq.status is sf.Status.CERTIFIED and not check:
            return "verify refuses", {**case, "x": eq.participation.tolist(), "message": check.message}
        with tempfile.TemporaryDirectory() as folder:
            eq.save(Path(folder) / "eq.json")
            again = sf.load(Path(folder) / "eq.json")
        if repr(again.stated()) != repr(eq.stated()) or repr(again.game.summary()) != repr(game.summary()):
            return "file differs", {**case, "x": eq.participation.tolist()}
    for found in filter(None, (one, every)):
        if found.uniqueness is sf.Uniqueness.UNIQUE and len(exact) > 1:
            return "false unique", {**case, "reason": found.reason}
        alone = known and len(exact) == 1 and not reference.singular
        if found.uniqueness is sf.Uniqueness.MULTIPLE and alone:
            return "false multiple", {**case, "reason": found.reason}
    if every is not None and every.complete and known:
        for point in points:
            if not any(_covers(eq, point) for eq in every):
                return "missed", {**case, "found": [eq.participation.tolist() for eq in every]}
        alone = [eq for eq in every if eq.face is None]
        if not reference.singular:
            for eq in alone:
                if not any(_covers(eq, p) for p in points):
                    return "invented", {**case, "x": eq.participation.tolist()}
        if any(min(np.abs(eq.participation - p).max() for p in points) > ROUGH for eq in alone if points):
            words.append("rough")
    if every is not None:
        words.append(every.uniqueness.name.lower())
        words.append("complete" if every.complete else "perhaps not all")
    if one is not None:
        words.append(one.status.name.lower())
    return ", ".join(words), case


def _covers(eq, point):
    """Return True if a listed equilibrium is the point, or its face contains it."""
    x, alpha = eq.participation, eq.game.alpha
    if eq.face is None:
        return abs(float(alpha @ x) - float(alpha @ point)) <= TOTAL * float(alpha @ point)
    low, high = x.copy(), x.copy()
    if eq.face is not None:
        place = np.searchsorted(eq.game.remaining, eq.face.clients)
        low[place], high[place] = eq.face.lower, eq.face.upper
    return bool(np.all(point >= low - 1e-5) and np.all(point <= high + 1e-5))


WRONG = (
    "no equilibrium", "verify refuses", "file differs", "false unique", "false multiple", "missed", "invented", "crash"
)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(__doc__.splitlines()[0], attack, WRONG, games=20000))
