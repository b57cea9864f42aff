"""An attack on the leader: games at nasty scales, every option, and a search for payments that a certificate says do not exist.

    python tests/attack/attack_leader.py --games 2000 --out stackfu_bench/results/attack/leader.json

The reference shares no code with the library: profiles are drawn and improved step by step, priced by the closed form written out
here in extended precision, and compared with what the solver claims. A *confident wrong answer* is a CERTIFIED solution whose
lower bound a feasible profile beats, whose own payments overspend, miss a constraint or leave a client something to gain, or whose
stated objective is not the value of its profile. A *false infeasible* is an InfeasibleError where the reference finds a profile.
Anything that raises what is no StackfuError is a crash.
"""

from __future__ import annotations

import sys

import numpy as np
from campaign import main

import stackfu as sf

LONG = np.longdouble
#: A feasible value below a stated bound by less than this part of the objective's own size is rounding of the reference.
CLEAR = 1e-8


def nasty_game(rng):
    """A game whose distances, sizes and costs live at unusual scales, and the name of its kind."""
    count, gone, width = int(rng.integers(2, 8)), int(rng.integers(0, 3)), int(rng.integers(1, 5))
    points = rng.normal(size=(count + gone, width))
    kind = rng.choice(["plain", "outlier", "twins", "near twins", "line", "cluster"])
    if kind == "outlier":
        points[rng.integers(len(points))] *= 10.0 ** rng.uniform(1, 5)
    elif kind == "twins":
        points[rng.integers(len(points))] = points[rng.integers(len(points))]
    elif kind == "near twins":
        i, j = rng.integers(len(points), size=2)
        points[i] = points[j] + 10.0 ** rng.uniform(-9, -2) * rng.normal(size=width)
    elif kind == "line":
        points = rng.normal(size=(len(points), 1)) * rng.normal(size=width)
    elif kind == "cluster":
        points = points[:1] + 10.0 ** rng.uniform(-6, -1) * points
    points = points * 10.0 ** rng.choice([-3.0, -1.0, 0.0, 0.0, 1.0])
    sizes = rng.uniform(0.5, 2.0, len(points)) * 10.0 ** (
        rng.uniform(0, 6, len(points)) if rng.random() < 0.3 else 0
    )
    keep = sizes[gone:]
    alpha = keep / keep.sum()
    rows = points[gone:]
    centre = alpha @ rows
    spread = max(float(alpha @ ((rows - centre) ** 2).sum(1)), 1e-12)
    decades = rng.choice([0.5, 2.0, 6.0])
    costs = spread * alpha * 10.0 ** rng.uniform(-decades, decades, count) * rng.choice([0.1, 1.0, 10.0])
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(points),
        sizes,
        range(gone),
        costs=np.maximum(costs, 1e-300),
        lambda_v=rng.choice([0.0, 1.0, 1.0]),
        lambda_s=rng.choice([0.3, 1.0]),
        lambda_q=rng.choice([0.1, 1.0, 1.0, 5.0]),
    )
    return game, kind


def nasty_request(rng, game):
    """A budget from 1e-9 of the full price to none, and options."""
    price = game.full_participation_price
    budget = None if rng.random() < 0.08 else float(price * 10.0 ** rng.uniform(-9, 0.3))
    if rng.random() < 0.05:
        budget = float(rng.choice([0.0, price]))
    options = {}
    kind = rng.choice(["plain", "plain", "plain", "floor", "weight", "cheapest", "cap"])
    if kind == "floor":
        options["min_total"] = float(rng.choice([rng.uniform(0.0, 1.0), 1.0]))
    elif kind == "weight":
        options["payment_weight"] = float(10.0 ** rng.uniform(-3, 2))
    elif kind in ("cheapest", "cap"):
        unpaid, full = game.equilibrium(), game.server_loss(np.ones(game.count))
        options["max_loss"] = float(full + (unpaid.server_loss - full) * rng.uniform(-0.2, 1.0))
        if not options["max_loss"] > 0:
            options["max_loss"] = max(full, 1e-300)
        if kind == "cheapest":
            options |= {"payment_weight": 1.0, "loss_weight": 0.0}
    if budget is None and not {"payment_weight", "max_loss"} & set(options):
        options["payment_weight"] = 1.0
    return budget, options


class Reference:
    """The leader's problem from its definition, in extended precision."""

    def __init__(self, game, budget, options):
        rows = np.asarray(game.embeddings.features, dtype=LONG)
        self.rows = rows[game.remaining]
        sizes = np.asarray(game.all_sizes, dtype=LONG)
        left = sizes[game.remaining]
        self.alpha = left / left.sum()
        self.costs = np.asarray(game.costs, dtype=LONG)
        self.lam = LONG(game.lambda_q) * LONG(game.loss_constant)
        self.targets = [self.alpha @ self.rows, (sizes / sizes.sum()) @ rows]
        self.weights = [
            LONG(game.lambda_v) * LONG(game.loss_constant),
            LONG(game.lambda_s) * LONG(game.loss_constant),
        ]
        self.budget = LONG(np.inf) if budget is None else LONG(budget)
        self.floor = LONG(options.get("min_total", 0.0))
        self.cap = LONG(options.get("max_loss", np.inf))
        self.on_loss, self.on_pay = options.get("loss_weight", 1.0), options.get("payment_weight", 0.0)

    def price(self, x):
        """Value and spend of the rows of x; value is infinite where a profile is not feasible."""
        x = np.atleast_2d(np.asarray(x, dtype=LONG))
        y = x * self.alpha
        total = y.sum(axis=1)
        m = (y / total[:, None]) @ self.rows
        d2 = ((m[:, None, :] - self.rows[None]) ** 2).sum(-1)
        bracket = self.costs - 2 * self.lam * self.alpha * d2 / total[:, None]
        inducible = ((x >= 1) | (bracket >= 0)).all(axis=1)
        spend = (np.maximum(bracket, 0) * x).sum(axis=1)
        loss = sum(w * ((m - t) ** 2).sum(-1) for w, t in zip(self.weights, self.targets, strict=True))
        value = self.on_loss * loss + self.on_pay * spend
        fine = inducible & (spend <= self.budget) & (total >= self.floor) & (loss <= self.cap)
        return np.where(fine, value, np.inf), spend, loss

    def gains(self, payments, x):
        """Largest gain of a client relative to its own stakes, by search over its own participation."""
        x, payments = np.asarray(x, dtype=LONG), np.asarray(payments, dtype=LONG)
        y, worst = self.alpha * x, LONG(0)
        for k in range(len(x)):
            others = np.delete(np.arange(len(x)), k)
            rest = y[others].sum()
            pull = y[others] @ (self.rows[others] - self.rows[k])
            q = pull @ pull

            def utility(share, k=k, rest=rest, q=q):
                amount = rest + self.alpha[k] * share
                drift = np.where(rest > 0, q / np.maximum(amount, LONG(1e-4000)) ** 2, LONG(0))
                return (payments[k] - self.costs[k]) * share - self.lam * drift

            grid = np.linspace(LONG(0) if rest > 0 else LONG(1e-6), LONG(1), 400)
            for _ in range(4):
                values = utility(grid)
                best = int(np.argmax(values))
                grid = np.linspace(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)], 200)
            drift = q / max(y.sum(), LONG(1e-4000)) ** 2
            stakes = max(self.costs[k], payments[k], self.lam * drift)
            worst = max(worst, (utility(grid).max() - utility(x[k])) / stakes)
        return float(worst)

    def search(self, rng, starts, rounds=40, pool=300):
        """The best feasible value found by drawing and by moving, with its profile."""
        count = len(self.alpha)
        shapes = rng.uniform(size=(pool, count)) ** rng.choice([0.1, 1.0, 5.0, 20.0], size=(pool, 1))
        shapes[rng.random(shapes.shape) < 0.15] = 1.0
        shapes[rng.random(shapes.shape) < 0.15] = 0.0
        shapes *= np.where(rng.random((pool, 1)) < 0.5, 10.0 ** rng.uniform(-4, 0, (pool, 1)), 1.0)
        candidates = np.concatenate([np.ones((1, count)), *[np.atleast_2d(s) for s in starts], shapes])
        candidates = candidates[candidates.sum(axis=1) > 0]
        values, _, _ = self.price(candidates)
        best = int(np.argmin(values))
        x, value, size = candidates[best], values[best], 0.3
        for _ in range(rounds):
            moves = np.tile(x, (120, 1))
            moves[:40] *= 1.0 + size * rng.normal(size=(40, count))
            moves[40:80] += size * rng.normal(size=(40, count)) * (rng.random((40, count)) < 0.4)
            moves[80:] *= 1.0 + size * rng.normal(size=(40, 1))
            moves = np.clip(moves, 0.0, 1.0)
            moves = moves[moves.sum(axis=1) > 0]
            found, _, _ = self.price(moves)
            k = int(np.argmin(found))
            if found[k] < value:
                x, value = moves[k], found[k]
            else:
                size *= 0.6
        return float(value), x


def attack(seed, time_limit=2.0):
    """One game; the verdict in a word, and what is needed to look at it again."""
    rng = np.random.default_rng([2026, seed])
    game, kind = nasty_game(rng)
    budget, options = nasty_request(rng, game)
    case = {"seed": seed, "kind": str(kind), "budget": budget, "options": options}
    reference = Reference(game, budget, options)
    try:
        solution = game.solve(budget, time_limit=time_limit, progress=False, **options)
    except sf.InfeasibleError as error:
        value, x = reference.search(rng, [])
        if np.isfinite(value):
            return "false infeasible", {
                **case,
                "value": value,
                "x": np.asarray(x, float).tolist(),
                "error": str(error),
            }
        return "infeasible", case
    except sf.InputError as error:
        return "refused", {**case, "error": str(error)}
    except sf.StackfuError as error:
        return "no answer", {**case, "error": str(error)}
    case["status"] = solution.status.name
    confident = solution.status is sf.Status.CERTIFIED
    # the solver's own profile, a hair inside its constraints, is the best place to look for a better one
    starts = [solution.participation]
    if not game.is_homogeneous:
        starts.append(game.equilibrium().participation)
    value, x = reference.search(rng, starts)
    size = max(abs(float(solution.objective)), abs(value) if np.isfinite(value) else 0.0)
    if value < solution.lower_bound - CLEAR * size:
        return "bound beaten", {
            **case,
            "value": value,
            "bound": solution.lower_bound,
            "x": np.asarray(x, float).tolist(),
        }
    if not confident:
        return solution.status.name.lower(), case
    _, _, loss = reference.price(solution.participation)
    paid = float(np.asarray(solution.payments, LONG) @ np.asarray(solution.participation, LONG))
    claimed = reference.on_loss * float(loss[0]) + reference.on_pay * paid
    if budget is not None and paid > budget * (1 + 1e-9):
        return "overspent", {**case, "spend": paid}
    # a loss is a squared distance, which coordinates rounded to floats leave uncertain by the square of their own rounding
    rounding = reference.on_loss * float(sum(reference.weights) * (1e-15 * np.abs(reference.rows).max()) ** 2)
    if abs(claimed - solution.objective) > 1e-7 * abs(claimed) + rounding:
        return "objective wrong", {**case, "claimed": solution.objective, "value": claimed}
    gain = reference.gains(solution.payments, solution.participation)
    if gain > 1e-6:
        return "no equilibrium", {**case, "gain": gain}
    if float((reference.alpha * solution.participation).sum()) < float(reference.floor) * (1 - 1e-9):
        return "floor missed", case
    if float(loss[0]) > float(reference.cap) * (1 + 1e-9):
        return "loss cap missed", case
    check = solution.verify()
    if not check:
        return "verify refuses", {**case, "message": check.message}
    return "certified", case


WRONG = (
    "bound beaten",
    "overspent",
    "objective wrong",
    "no equilibrium",
    "floor missed",
    "loss cap missed",
    "verify refuses",
    "false infeasible",
    "crash",
)


if __name__ == "__main__":
    sys.exit(main(__doc__.splitlines()[0], attack, WRONG, games=2000))
