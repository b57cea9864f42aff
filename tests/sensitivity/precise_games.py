"""Games in 50-digit arithmetic, written from the model's definitions: equilibria by Newton's method, and what follows from them."""

from __future__ import annotations

import mpmath as mp
import numpy as np

import stackfu as sf

DIGITS = 50
#: Step of central differences: the error of second order and the rounding are both far below the comparison.
STEP = "1e-14"


def as_numbers(values):
    """Arrays as nested lists of mpmath numbers."""
    array = np.asarray(values, dtype=float)
    if array.ndim == 0:
        return mp.mpf(float(array))
    return [as_numbers(row) for row in array]


class PreciseGame:
    """All numbers of a game, and its outputs, from feature rows; the active set is that of a given equilibrium.

    ``numbers`` maps every parameter to its values; ``gone`` are the removed clients.
    """

    def __init__(self, numbers, gone, status):
        self.v, self.status = numbers, status
        self.keep = [i for i in range(len(numbers["sizes"])) if i not in gone]

    def prepare(self):
        v = self.v
        sizes = v["sizes"]
        self.n = mp.fsum(sizes[i] for i in self.keep)
        self.alpha = [sizes[i] / self.n for i in self.keep]
        self.top = [c * a for c, a in zip(v["caps"], self.alpha, strict=True)]
        self.lam = v["lambda_q"] * v["loss_constant"]
        self.a = v["sampling_constant"] / (v["loss_constant"] * self.n)
        self.rows = [v["embeddings"][i] for i in self.keep]

    def mixture(self, y):
        total = mp.fsum(y)
        return total, [
            mp.fsum(b * row[d] for b, row in zip(y, self.rows, strict=True)) / total
            for d in range(len(self.rows[0]))
        ]

    @staticmethod
    def apart(one, two):
        return mp.fsum((a - b) ** 2 for a, b in zip(one, two, strict=True))

    def slope(self, k, y):
        """d U_k / d x_k."""
        total, m = self.mixture(y)
        square = self.apart(m, self.rows[k])
        net = self.v["payments"][k] - self.v["costs"][k]
        return (
            net + 2 * self.lam * self.alpha[k] * square / total + self.lam * self.alpha[k] * self.a / total**2
        )

    def solve(self, x):
        """The equilibrium near x with the given active set."""
        self.prepare()
        inside = [k for k, s in enumerate(self.status) if s == "inside"]
        y = [
            self.top[k] if s == "full" else mp.mpf(0) if s == "out" else x[k] * self.alpha[k]
            for k, s in enumerate(self.status)
        ]
        for _ in range(12):
            if not inside:
                break
            total, m = self.mixture(y)
            residual = [self.slope(k, y) for k in inside]
            jacobian = mp.matrix(len(inside))
            for i, k in enumerate(inside):
                gap = [b - c for b, c in zip(m, self.rows[k], strict=True)]
                square = mp.fsum(c * c for c in gap)
                for j, other in enumerate(inside):
                    pull = 2 * mp.fsum((r - b) * c for r, b, c in zip(self.rows[other], m, gap, strict=True))
                    jacobian[i, j] = (
                        self.lam * self.alpha[k] * (2 * (pull - square) / total**2 - 2 * self.a / total**3)
                    )
            step = mp.lu_solve(jacobian, mp.matrix(residual))
            for i, k in enumerate(inside):
                y[k] -= step[i]
            if max(abs(s) for s in step) < mp.mpf(10) ** (8 - DIGITS):
                break
        self.y = y
        self.x = [b / c for b, c in zip(y, self.alpha, strict=True)]
        return self

    def outputs(self):
        v, y, x = self.v, self.y, self.x
        total, m = self.mixture(y)
        everybody = mp.fsum(v["sizes"])

        def mean(clients, count):
            return [
                mp.fsum(v["sizes"][i] * v["embeddings"][i][d] for i in clients) / count for d in range(len(m))
            ]

        to_remaining = self.apart(m, mean(self.keep, self.n)) + self.a / total
        to_original = self.apart(m, mean(range(len(v["sizes"])), everybody)) + self.a / total
        loss = v["loss_constant"] * (v["lambda_v"] * to_remaining + v["lambda_s"] * to_original)
        return {
            "participation": x,
            "samples": [v["sizes"][i] * s for i, s in zip(self.keep, x, strict=True)],
            "total": [total],
            "server_loss": [loss],
            "spend": [mp.fsum(p * s for p, s in zip(v["payments"], x, strict=True))],
            "utilities": [
                (v["payments"][k] - v["costs"][k]) * x[k]
                - self.lam * (self.apart(m, self.rows[k]) + self.a / total)
                for k in range(len(x))
            ],
        }


def moved(values, direction, step):
    if isinstance(values, list):
        return [moved(v, d, step) for v, d in zip(values, direction, strict=True)]
    return values + step * direction


def finite_difference(numbers, gone, status, x, parameter, direction):
    """Central differences of all outputs in a direction of one parameter."""
    step, ends = mp.mpf(STEP), []
    for sign in (1, -1):
        changed = {**numbers, parameter: moved(numbers[parameter], as_numbers(direction), sign * step)}
        ends.append(PreciseGame(changed, gone, status).solve(x).outputs())
    return {
        name: np.array(
            [float((p - q) / (2 * step)) for p, q in zip(ends[0][name], ends[1][name], strict=True)]
        )
        for name in ends[0]
    }


def random_game(rng, *, clients=None, form=None):
    """A game, payments, caps, and its numbers by parameter."""
    n = int(rng.integers(2, 6)) if clients is None else clients
    gone = int(rng.integers(0, 3))
    rows = 0.5 * rng.normal(size=(n + gone, max(n - 1, int(rng.integers(2, 6)))))
    sizes = rng.uniform(1.0, 5.0, n + gone)
    costs = rng.uniform(0.05, 1.0, n) * rng.choice([0.3, 1.0, 3.0])
    weights = {
        "lambda_v": float(rng.uniform(0.0, 2.0)),
        "lambda_s": float(rng.uniform(0.1, 2.0)),
        "lambda_q": float(rng.uniform(0.3, 2.0)),
        "loss_constant": float(rng.uniform(0.3, 2.0)),
        "sampling_constant": float(rng.choice([0.0, 0.05, 0.5])),
    }
    form = rng.choice(["gram", "features"]) if form is None else form
    emb = (
        sf.MeanEmbeddings.from_features(rows)
        if form == "features"
        else sf.MeanEmbeddings.from_gram(rows @ rows.T)
    )
    game = sf.StackelbergGame(emb, sizes, removed=range(gone), costs=costs, **weights)
    payments = costs * rng.choice([0.0, 1.0], n, p=[0.3, 0.7]) * rng.uniform(0.0, 0.95, n)
    caps = rng.choice([0.3, 1.0], n)
    numbers = {
        "payments": payments, "costs": costs, "caps": caps, "sizes": sizes, "embeddings": rows, **weights
    }  # fmt: skip
    return game, payments, caps, {name: as_numbers(value) for name, value in numbers.items()}, range(gone)
