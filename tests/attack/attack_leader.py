"""An attack on the leader: games at nasty scales, every option, and a search for payments that a certificate says do not exist.

    python tests/attack/attack_leader.py --games 2000 --out stackfu_bench/results/attack/leader.json

The reference shares no code with the library: profiles are drawn and improved step by step, priced from the definition written out
here in extended precision, and compared with what the solver claims. A *confident wrong answer* is a lower bound that a feasible
profile beats, or a CERTIFIED solution whose own offers overspend, miss a constraint or leave a client something to gain, whose
stated objective is not the value of its profile, which is worse than the baselines, or, where it calls itself robust, has another
equilibrium that overspends. A *false infeasible* is an InfeasibleError where the reference finds a profile. Anything that raises
what is no StackfuError is a crash.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from campaign import main

import stackfu as sf

sys.path.insert(0, str(Path(__file__).parent))
import attack_equilibria

LONG = np.longdouble
#: A feasible value below a stated bound by less than this part of the objective's own size is rounding of the reference.
CLEAR = 1e-8
#: Seconds that a solve may take: what is not closed by then must say so.
SECONDS = 1.0
KINDS = (
    "plain", "plain", "outlier", "twins", "near twins", "line", "dependent", "cluster", "dominating", "volunteers", "alike"
)  # fmt: skip
REQUESTS = (
    "plain", "plain", "plain", "floor", "samples", "weight", "cheapest", "cap", "near", "robust", "finite", "finite floor"
)  # fmt: skip


def nasty_game(rng, request="plain"):
    """A game with distances, sizes and costs at unusual scales, and the name of its kind."""
    count, gone, width = int(rng.integers(2, 8)), int(rng.integers(0, 3)), int(rng.integers(1, 5))
    if request == "robust":
        count = min(count, 4)  # all its equilibria are enumerated
    elif rng.random() < 0.05:
        count = int(rng.choice([15, 25, 65]))
    points = rng.normal(size=(count + gone, width))
    sizes = rng.uniform(0.5, 2.0, len(points))
    kind = str(rng.choice(KINDS))
    i, j = rng.choice(len(points), size=2, replace=False)
    if kind == "outlier":
        points[i] *= 10.0 ** rng.uniform(1, 6)
    elif kind == "twins":
        points[i] = points[j]
        if rng.random() < 0.5:
            sizes[i] = sizes[j]
    elif kind == "near twins":
        points[i] = points[j] + 10.0 ** rng.uniform(-9, -2) * rng.normal(size=width)
    elif kind == "line":
        points = rng.normal(size=(len(points), 1)) * rng.normal(size=width)
    elif kind == "dependent":
        points[i] = np.delete(points, i, axis=0).mean(axis=0)
    elif kind == "cluster":
        points = points[:1] + 10.0 ** rng.uniform(-6, -1) * points
    elif kind == "dominating":
        sizes[i] *= 10.0 ** rng.uniform(2, 7)
    elif kind == "alike":
        points[gone:] = points[gone]
    points = points * 10.0 ** rng.choice([-3.0, -1.0, 0.0, 0.0, 1.0])
    if request.startswith("finite"):  # a kernel with k(a, a) = 1
        points = points / max(1.0, 1.001 * float(np.sqrt((points**2).sum(axis=1).max())))
    if rng.random() < 0.3:
        sizes = sizes * 10.0 ** rng.uniform(0, 6, len(points))
    if rng.random() < 0.5:
        sizes = sizes * 10.0 ** rng.uniform(0, 3)
    keep = sizes[gone:]
    alpha = keep / keep.sum()
    rows = points[gone:]
    spread = max(float(alpha @ ((rows - alpha @ rows) ** 2).sum(1)), 1e-12)
    decades = rng.choice([0.5, 2.0, 6.0])
    level = 0.01 if kind == "volunteers" else rng.choice([0.1, 1.0, 10.0])
    costs = spread * alpha * 10.0 ** rng.uniform(-decades, decades, count) * level
    own = None
    if rng.random() < 0.15:
        weights = rng.uniform(0.0, 2.0, int(rng.integers(1, 4)))
        if rng.random() < 0.5:
            own = sf.ServerLoss.to_points(
                points[rng.integers(len(points), size=len(weights))] + 0.1 * rng.normal(), weights
            )
        else:
            own = sf.ServerLoss.to_mixtures(rng.dirichlet(np.ones(len(points)), size=len(weights)), weights)
    paper = {"lambda_v": rng.choice([0.0, 1.0, 1.0]), "lambda_s": rng.choice([0.3, 1.0])}
    constant = 0.0
    if rng.random() < 0.2:
        constant = float(spread * keep.sum() * 10.0 ** rng.uniform(-8, 1))
    embeddings = sf.MeanEmbeddings.from_features(points)
    game = sf.StackelbergGame(
        embeddings,
        sizes,
        range(gone),
        costs=np.maximum(costs, 1e-300),
        lambda_q=rng.choice([0.1, 1.0, 1.0, 5.0]),
        loss_constant=rng.choice([1.0, 1.0, 1e-3, 300.0]),
        sampling_constant=constant,
        **(paper if own is None else {"server_loss": own}),
    )
    return game, kind


def nasty_request(rng, game, kind):
    """A budget from 1e-9 of the full price to none, options, and a profile known to meet them if there is one."""
    price = game.full_participation_price
    budget = None if rng.random() < 0.08 else float(price * 10.0 ** rng.uniform(-9, 0.3))
    if rng.random() < 0.08:
        budget = float(rng.choice([0.0, price, np.inf, 1e300]))
    options, known = {}, []
    if kind in ("floor", "finite floor"):
        options["min_total"] = float(rng.choice([rng.uniform(0.0, 1.0), 1.0]))
        if rng.random() < 0.3:
            budget = price
    elif kind == "samples":
        options["min_samples"] = float(game.sizes.sum() * rng.uniform(0.0, 1.0))
    elif kind == "weight":
        options["payment_weight"] = float(10.0 ** rng.uniform(-3, 4))
    elif kind in ("cheapest", "cap"):
        unpaid = None if game.is_homogeneous else game.equilibrium().server_loss
        full = game.server_loss(np.ones(game.count))
        unpaid = 2.0 * full if unpaid is None else unpaid
        options["max_loss"] = float(full + (unpaid - full) * rng.uniform(-0.2, 1.0))
        if not options["max_loss"] > 0:
            options["max_loss"] = max(full, 1e-300)
        if kind == "cheapest":
            options |= {"payment_weight": 1.0, "loss_weight": 0.0}
    elif kind == "near" and budget is not None:
        try:
            best = game.solve(budget, gap=1e-4, time_limit=0.3 * SECONDS, progress=False)
        except sf.StackfuError:
            pass
        else:
            options["max_loss"] = float(best.server_loss * (1 + rng.choice([1e-6, 1e-3, 0.03])))
            known.append(best.participation)
    elif kind == "robust":
        options["robust"] = True
    if kind.startswith("finite"):
        options["finite_sample"] = True
    if budget is None and not {"payment_weight", "max_loss"} & set(options):
        options["payment_weight"] = 1.0
    if "robust" not in options and rng.random() < 0.2:
        options["offers"] = str(rng.choice(["capped", "capped", "contract"]))
        if not (game.sampling or "finite_sample" in options or {"min_total", "min_samples"} & set(options)):
            options["min_total"] = float(rng.uniform(0.01, 0.9))  # less and less data would cost nothing
        if options["offers"] == "capped" and rng.random() < 0.25:
            worst = -float(game.lam * game.geometry.scale)
            options["outside"] = worst * 10.0 ** rng.uniform(-4, 1, game.count)
    if rng.random() < 0.3:
        options["gap"] = float(rng.choice([1e-2, 1e-3, 1e-4]))
    return budget, options, known


class Reference:
    """The leader's problem from its definition, in extended precision."""

    def __init__(self, game, budget, options):
        rows = np.asarray(game.embeddings.features, dtype=LONG)
        self.rows = rows[game.remaining]
        sizes = np.asarray(game.all_sizes, dtype=LONG)
        left = sizes[game.remaining]
        self.alpha = left / left.sum()
        self.costs = np.asarray(game.costs, dtype=LONG)
        constant = LONG(game.loss_constant)
        self.lam = LONG(game.lambda_q) * constant
        if game.has_paper_loss:
            self.targets = [self.alpha @ self.rows, (sizes / sizes.sum()) @ rows]
            self.weights = [LONG(game.lambda_v) * constant, LONG(game.lambda_s) * constant]
        else:
            values = [np.asarray(t.values, dtype=LONG) for t in game.loss.targets]
            self.targets = [
                v if t.kind == "point" else v @ rows for t, v in zip(game.loss.targets, values, strict=True)
            ]
            self.weights = [LONG(w) for w in game.loss.weights]
        self.thin = LONG(game.sampling_constant) / (constant * left.sum())  # a / S on every squared distance
        self.noise = np.zeros(len(self.alpha), dtype=LONG)
        if options.get("finite_sample"):
            self.noise = self.variances(left) / left.sum()
        self.offers = options.get("offers", "linear")
        self.outside = options.get("outside")
        self.budget = LONG(np.inf) if budget is None else LONG(budget)
        self.floor = max(
            LONG(options.get("min_total", 0.0)), LONG(options.get("min_samples", 0.0)) / left.sum()
        )
        self.cap = LONG(options.get("max_loss", np.inf))
        self.on_loss, self.on_pay = options.get("loss_weight", 1.0), options.get("payment_weight", 0.0)

    def variances(self, counts):
        """Variance of one sample of every client, without bias: samples of equal clients are pooled, one alone says nothing."""
        if (self.rows == self.rows[0]).all():
            counts = np.full(len(counts), counts.sum())
        several = counts > 1
        unbiased = (1 - (self.rows**2).sum(axis=1)) * counts / np.where(several, counts - 1, 1)
        return np.where(several, np.minimum(unbiased, 1), 1)

    def price(self, x):
        """Value, spend and loss of the rows of x; value is infinite where a profile is not feasible."""
        x = np.atleast_2d(np.asarray(x, dtype=LONG))
        y = x * self.alpha
        total = y.sum(axis=1)
        m = (y / total[:, None]) @ self.rows
        d2 = ((m[:, None, :] - self.rows[None]) ** 2).sum(-1)
        s = total[:, None]
        bracket = self.costs - 2 * self.lam * self.alpha * (d2 + self.thin / (2 * s)) / s
        payouts = np.maximum(bracket, 0) * x
        fine = np.ones(len(x), dtype=bool)
        if self.offers == "linear":
            fine = ((x >= 1) | (bracket >= 0)).all(axis=1)
        elif self.offers == "contract":
            payouts = self._transfers(x, y, s, d2)
        if self.outside is not None:
            kept = payouts - self.costs * x - self.lam * (d2 + self.thin / s)
            payouts = payouts + np.maximum(self.outside - kept, 0)
        spend = payouts.sum(axis=1)
        loss = sum(w * ((m - t) ** 2).sum(-1) for w, t in zip(self.weights, self.targets, strict=True))
        loss = loss + sum(self.weights) * (self.thin + (y / s) @ self.noise) / total
        value = self.on_loss * loss + self.on_pay * spend
        fine &= (spend <= self.budget) & (total >= self.floor) & (loss <= self.cap)
        return np.where(fine, value, np.inf), spend, loss

    def _transfers(self, x, y, s, d2):
        """Return the transfer that makes the whole quantity as good as the best unpaid amount; by bisection of its slope."""
        rest = np.maximum(s - y, 0)
        alone = rest <= 0
        q = np.where(alone, 0, s**2 * d2)
        low, high = np.zeros_like(y), y.copy()
        tiny = LONG(1e-4000)
        kappa = self.costs / self.alpha
        for _ in range(80):
            middle = (low + high) / 2
            amount = np.maximum(rest + middle, tiny)
            rising = 2 * self.lam * q / amount**3 + self.lam * self.thin / amount**2 > kappa
            low, high = np.where(rising, middle, low), np.where(rising, high, middle)
        amount = np.maximum(rest + high, tiny)
        leaving = kappa * high + self.lam * (q / amount**2 + self.thin / amount)
        staying = kappa * y + self.lam * (q / s**2 + self.thin / s)
        return np.where(x > 0, np.maximum(staying - leaving, 0), 0)

    def gains(self, offers, x):
        """Largest gain of a client relative to its own stakes, by search over its own participation."""
        x = np.asarray(x, dtype=LONG)
        prices, caps = np.asarray(offers.prices, dtype=LONG), np.asarray(offers.caps, dtype=LONG)
        y, worst = self.alpha * x, LONG(0)
        for k in range(len(x)):
            others = np.delete(np.arange(len(x)), k)
            rest = y[others].sum()
            pull = y[others] @ (self.rows[others] - self.rows[k])
            q = pull @ pull

            def utility(share, k=k, rest=rest, q=q):
                amount = np.maximum(rest + self.alpha[k] * share, LONG(1e-4000))
                drift = np.where(rest > 0, q / amount**2, LONG(0)) + self.thin / amount
                paid = prices[k] * share
                if offers.kind == "contract":
                    paid = np.where(share >= caps[k], prices[k] * caps[k], LONG(0))
                return paid - self.costs[k] * share - self.lam * drift

            grid = np.linspace(LONG(0) if rest > 0 else LONG(1e-6) * caps[k], caps[k], 400)
            best = utility(x[k])
            for _ in range(4):
                values = utility(grid)
                place = int(np.argmax(values))
                best = max(best, values[place])
                grid = np.linspace(grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)], 200)
            drift = q / max(y.sum(), LONG(1e-4000)) ** 2
            stakes = max(self.costs[k], prices[k], self.lam * drift)
            worst = max(worst, (best - utility(x[k])) / stakes)
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


def attack(seed, time_limit=SECONDS):
    """One game; the verdict in a word, and what is needed to look at it again."""
    rng = np.random.default_rng([2026, seed])
    request = str(rng.choice(REQUESTS))
    game, kind = nasty_game(rng, request)
    budget, options, known = nasty_request(rng, game, request)
    shown = {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in options.items()
    }
    case = {"seed": seed, "kind": f"{kind}, {request}", "budget": budget, "options": shown}
    reference = Reference(game, budget, options)
    offers = "" if "offers" not in options else f", {options['offers']}"
    try:
        solution = game.solve(budget, time_limit=time_limit, progress=False, **options)
    except sf.InfeasibleError as error:
        value, x = reference.search(rng, known)
        if np.isfinite(value):
            found = {"value": value, "x": np.asarray(x, float).tolist(), "error": str(error)}
            return "false infeasible", {**case, **found}
        return "infeasible" + offers, case
    except sf.InputError as error:
        return "refused" + offers, {**case, "error": str(error)}
    except sf.StackfuError as error:
        return "no answer" + offers, {**case, "error": str(error)}
    case["status"] = solution.status.name
    verdict, details = judge(rng, game, budget, options, solution, reference, known)
    return verdict + ("" if verdict in WRONG else offers), {**case, **details}


def judge(rng, game, budget, options, solution, reference, known):
    """Return the error of a solution, or its status."""
    # the solver's own profile, a hair inside its constraints, is the best place to look for a better one
    starts = [solution.participation, *known]
    if not game.is_homogeneous:
        starts.append(game.equilibrium().participation)
    baselines = list(simple_answers(rng, game, budget, options))
    starts += [answer.participation for answer in baselines]
    value, x = reference.search(rng, starts)
    size = max(abs(float(solution.objective)), abs(value) if np.isfinite(value) else 0.0)
    if value < solution.lower_bound - CLEAR * size:
        return "bound beaten", {
            "value": value,
            "bound": solution.lower_bound,
            "x": np.asarray(x, float).tolist(),
        }
    for answer in baselines:
        if solution.status is not sf.Status.FAILED and solution.objective > answer.server_loss + max(
            solution.gap, CLEAR * size
        ):
            return "worse than a baseline", {"method": answer.method, "loss": answer.server_loss}
    if solution.status is not sf.Status.CERTIFIED:
        return solution.status.name.lower(), {}
    _, _, loss = reference.price(solution.participation)
    paid = float(np.asarray(solution.payouts, LONG).sum())
    claimed = reference.on_loss * float(loss[0]) + reference.on_pay * paid
    if budget is not None and paid > budget * (1 + 1e-9):
        return "overspent", {"spend": paid}
    # a loss is a squared distance, which coordinates rounded to floats leave uncertain by the square of their own rounding
    digits = 4e-15 * float(np.abs(reference.rows).max())
    rounding = float(sum(reference.weights)) * digits**2
    if abs(claimed - solution.objective) > 1e-7 * abs(claimed) + reference.on_loss * rounding:
        return "objective wrong", {"claimed": solution.objective, "value": claimed}
    gain = reference.gains(solution.offers, solution.participation)
    if gain > 1e-6:
        return "no equilibrium", {"gain": gain}
    if float((reference.alpha * solution.participation).sum()) < float(reference.floor) * (1 - 1e-9):
        return "floor missed", {}
    if float(loss[0]) > float(reference.cap) * (1 + 1e-9) + rounding:
        return "loss cap missed", {}
    if options.get("robust") and np.isfinite(reference.budget):
        for other in attack_equilibria.Reference(game, solution.payments, None).equilibria():
            spend = float(np.asarray(solution.payments) @ [float(v) for v in other])
            if spend > budget * (1 + 1e-9):
                return "robust overspends", {"spend": spend, "x": [float(v) for v in other]}
    check = solution.verify()
    if not check:
        return "verify refuses", {"message": check.message}
    return "certified", {}


def simple_answers(rng, game, budget, options):
    """Return the answers of the baselines, for one in five requests that they understand."""
    if set(options) - {"gap"} or budget is None or not 0 < budget < 1e299 or rng.random() > 0.2:
        return
    for method in ("uniform", "haipo"):
        try:
            answer = game.solve(budget, method, max_iterations=30)
        except sf.StackfuError:
            continue
        if answer.status is not sf.Status.FAILED and answer.spend <= budget:
            yield answer


WRONG = (
    "bound beaten",
    "worse than a baseline",
    "overspent",
    "robust overspends",
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
