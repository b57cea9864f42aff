"""An attack on capped offers and contracts: games and requests at nasty scales against the definitions.

    python tests/attack/attack_offers.py --games 2000 --out stackfu_bench/results/attack/offers.json

The reference shares no code with the library: plans are priced in extended precision by the formulas written out here, and the
equilibria below the caps are enumerated pattern by pattern in 120-digit balls. A *confident wrong answer* is a plan that is said
to be the only equilibrium and is not, offers that can cost more than the budget, a plan that misses a floor, a cap on the loss
or somebody's outside utility, a lower bound that a feasible plan beats, an objective that is not the plan's, an answer that is
worse than the best linear payments or that its own ``verify`` refuses, an upper end of costs below which somebody behaves
otherwise, and an InfeasibleError where the reference finds a plan. Anything that raises what is no StackfuError is a crash.
"""

from __future__ import annotations

import itertools
import sys

import attack_equilibria
import attack_leader
import numpy as np
from attack_leader import CLEAR, LONG
from campaign import main
from flint import arb

import stackfu as sf

#: Largest allowed gain, relative to the largest of the client's own cost, payout and drift.
GAIN = 1.01e-9
#: Limits are met to this part of themselves: the last digits of sums.
LAST_DIGITS = 1e-9
#: Seconds that a solve may take.
SECONDS = 2.0
#: Up to this many clients with a cap the equilibria below the caps are enumerated.
ENUMERATED = 4


def nasty_game(rng, request):
    """A game at unusual scales with a sampling constant from nothing to a thousand times the spread."""
    game, kind = attack_leader.nasty_game(rng, request)
    if rng.random() < 0.5:
        constant = game.geometry.scale * float(game.sizes.sum()) * 10.0 ** rng.uniform(-12, 3)
        own = {} if game.has_paper_loss else {"server_loss": game.loss}
        game = game.replace(sampling_constant=float(constant), **own)
    return game, f"{kind}, sampling" if game.sampling else kind


def nasty_request(rng, game, request):
    """A budget, options with the kind of offers, and the method."""
    budget, options, _ = attack_leader.nasty_request(rng, game, request)
    for name in ("offers", "outside"):
        options.pop(name, None)
    options["offers"] = str(rng.choice(["capped", "capped", "capped", "contract"]))
    if rng.random() < 0.1 and budget is not None and np.isfinite(budget):
        return budget, {"offers": options["offers"]}, str(rng.choice(["haipo", "uniform"]))
    if (
        not (game.sampling or {"finite_sample", "min_total", "min_samples"} & set(options))
        and rng.random() < 0.95
    ):
        options["min_total"] = float(rng.choice([rng.uniform(0, 1), 1.0, 10.0 ** rng.uniform(-9, 0)]))
    if rng.random() < 0.15:
        options["outside"] = nasty_outside(rng, game)
    if rng.random() < 0.15 and options["offers"] == "capped":
        high = game.costs * 10.0 ** rng.uniform(0, rng.choice([0.0, 1.0, 4.0]), game.count)
        options["costs_between"] = (high * rng.choice([0.0, 1e-9, 0.5, 1.0]), high)
    return budget, options, "certified"


def nasty_outside(rng, game):
    """Outside utilities around what clients get, far above, far below, or nowhere to go."""
    x = rng.uniform(size=game.count)
    profile = game.profile(x)
    bare = -game.costs * x - game.lam * (profile.to_clients + game.sampling / profile.total)
    shift = 10.0 ** rng.uniform(-6, 6, game.count) * rng.choice([-1.0, 0.0, 1e-6], size=game.count)
    return np.where(rng.random(game.count) < 0.4, -np.inf, bare + shift * np.abs(bare))


class Plans(attack_leader.Reference):
    """The server's problem under capped offers or contracts, from its definition, in extended precision."""

    def __init__(self, game, budget, options):
        super().__init__(game, budget, options)
        self.kappa = self.costs / self.alpha
        if self.outside is not None:
            self.outside = np.asarray(self.outside, dtype=LONG)

    def parts(self, x):
        """Total, squared distances, loss and payouts of the rows of x."""
        x = np.atleast_2d(np.asarray(x, dtype=LONG))
        y = x * self.alpha
        total = y.sum(axis=1)
        z = y / total[:, None]
        m = z @ self.rows
        d2 = ((m[:, None, :] - self.rows[None]) ** 2).sum(-1)
        loss = sum(w * ((m - t) ** 2).sum(-1) for w, t in zip(self.weights, self.targets, strict=True))
        loss = loss + sum(self.weights) * (self.thin + z @ self.noise) / total
        paid = self.capped(x, d2, total) if self.offers == "capped" else self.contracts(y, d2, total)
        if self.outside is not None:
            drift = self.lam * (d2 + self.thin / total[:, None])
            paid = np.maximum(paid, self.costs * x + drift + self.outside)
        return total, d2, loss, paid

    def capped(self, x, d2, total):
        bracket = (
            self.costs - 2 * self.lam * self.alpha * (d2 + self.thin / (2 * total[:, None])) / total[:, None]
        )
        return np.maximum(bracket, 0) * x

    def contracts(self, y, d2, total):
        """Return the cost of full participation beyond the best unpaid one, by bisection of a rising slope."""
        rest = np.maximum(total[:, None] - y, 0)
        q = np.where(rest > 0, total[:, None] ** 2 * d2, 0)
        low, high = np.zeros_like(y), y
        for _ in range(70):
            middle = (low + high) / 2
            amount = np.maximum(rest + middle, LONG(1e-4000))
            rising = self.kappa - 2 * self.lam * q / amount**3 - self.lam * self.thin / amount**2 > 0
            low, high = np.where(rising, low, middle), np.where(rising, middle, high)
        away = np.maximum(rest + high, LONG(1e-4000))
        here = total[:, None]
        less = y - high
        # q (1 / away^2 - 1 / here^2) + a (1 / away - 1 / here) without subtracting numbers of one size
        spared = less * (q * (here + away) / (here * away) ** 2 + self.thin / (here * away))
        return np.maximum(self.kappa * less - self.lam * spared, 0)

    def price(self, x):
        """Value, spend and loss of the rows of x; value is infinite where a plan is not feasible."""
        total, _, loss, paid = self.parts(x)
        spend = paid.sum(axis=1)
        value = self.on_loss * loss + self.on_pay * spend
        fine = (spend <= self.budget) & (total >= self.floor) & (loss <= self.cap)
        return np.where(fine, value, np.inf), spend, loss


class Below(attack_equilibria.Reference):
    """The clients' game below caps, in balls; who may bring nothing has no pattern of its own."""

    def equilibria(self):
        found = []
        choices = [(-1, 0, 1) if cap > 0 else (-1,) for cap in self.caps]
        for pattern in itertools.product(*choices):
            inside = [k for k in range(self.count) if pattern[k] == 0]
            full = [k for k in range(self.count) if pattern[k] == 1]
            for y in self._pattern(inside, full) if inside or full else ():
                x = [v / a for v, a in zip(y, self.alpha, strict=True)]
                if self._holds(x) and not any(attack_equilibria._same(x, other) for other in found):
                    found.append(x)
        return found


def attack(seed, time_limit=SECONDS):
    """One game and one request; the verdict in a word, and what is needed to look at it again."""
    rng = np.random.default_rng([2028, seed])
    request = str(rng.choice([r for r in attack_leader.REQUESTS if r != "robust"]))
    game, kind = nasty_game(rng, request)
    budget, options, method = nasty_request(rng, game, request)
    case = {
        "seed": seed,
        "kind": f"{kind}, {request}",
        "budget": budget,
        "method": method,
        "options": readable(options),
    }
    between = options.get("costs_between")
    own = {} if method != "certified" else {"time_limit": time_limit, "progress": False}
    assumed = game if between is None else with_costs(game, between[1])
    reference = Plans(assumed, budget, options)
    try:
        solution = game.solve(budget, method, **options, **own)
    except sf.InfeasibleError as error:
        value, x = reference.search(rng, [])
        if np.isfinite(value):
            return "false infeasible", {**case, "value": value, "x": as_list(x), "error": str(error)}
        return "infeasible", case
    except sf.InputError as error:
        return "refused", {**case, "error": str(error)}
    except sf.StackfuError as error:
        return "no answer", {**case, "error": str(error)}
    status = solution.status.name.lower()
    case["status"] = status
    if solution.status is sf.Status.FAILED:
        return "failed", case
    for check in (promises, equilibrium, behaviour, optimality):
        found = check(rng, game, solution, reference, budget, options)
        if found is not None:
            return found[0], {**case, **found[1]}
    verdict = solution.verify()
    if not verdict:
        return "verify refuses", {**case, "message": verdict.message}
    words = [options["offers"], status]
    if options["offers"] == "capped" and solution.equilibrium.uniqueness is not sf.Uniqueness.UNIQUE:
        words.append("uniqueness not claimed")
    return ", ".join(words), case


def promises(rng, game, solution, reference, budget, options):
    """Budget whatever happens, floor, cap on the loss, objective, outside utilities."""
    offers = solution.offers
    prices, caps, retainers = (
        np.asarray(v, dtype=LONG) for v in (offers.prices, offers.caps, offers.retainers)
    )
    most = (prices * caps).sum() + retainers.sum()
    if most > reference.budget * (1 + LONG(LAST_DIGITS)):
        return "overspent", {"most": float(most)}
    if (prices < 0).any() or (caps < 0).any() or (caps > 1).any() or (retainers < 0).any():
        return "offers make no sense", {}
    for _ in range(20):
        spent = offers.payouts(rng.uniform(size=game.count) ** rng.choice([0.1, 1.0, 9.0])).sum()
        if spent > float(most) * (1 + 1e-12):
            return "overspent", {"spent": spent, "most": float(most)}
    total, d2, loss, _ = reference.parts(solution.participation)
    if total[0] < reference.floor * (1 - LONG(LAST_DIGITS)):
        return "floor missed", {"total": float(total[0])}
    if loss[0] > reference.cap * (1 + LONG(LAST_DIGITS)):
        return "loss cap missed", {"loss": float(loss[0])}
    claimed = float(reference.on_loss * loss[0] + reference.on_pay * most)
    if abs(claimed - solution.objective) > 1e-7 * abs(claimed) + nothing(reference):
        return "objective wrong", {"claimed": solution.objective, "value": claimed}
    if reference.outside is not None:
        drift = reference.lam * (d2[0] + reference.thin / total[0])
        utility = prices * caps + retainers - reference.costs * caps - drift
        stakes = reference.costs + drift + np.where(np.isfinite(reference.outside), abs(reference.outside), 0)
        if (utility < reference.outside - LONG(GAIN) * stakes).any():
            return "somebody leaves", {"utility": as_list(utility)}
    return None


def equilibrium(rng, game, solution, reference, budget, options):
    """The plan is every client's best response, and the only equilibrium if that is claimed."""
    x, offers = solution.participation, solution.offers
    if offers.kind == "contract":
        _, d2, _, paid = reference.parts(x)
        given = np.asarray(offers.prices, LONG) * np.asarray(offers.caps, LONG)
        short = paid[0] - given - np.asarray(offers.retainers, LONG)
        stakes = np.maximum(np.maximum(reference.costs * x, given), reference.lam * d2[0])
        if (short > LONG(GAIN) * stakes).any():
            return "no equilibrium", {"short": as_list(short / stakes)}
        return None
    return _only(solution.game, offers, x, solution.equilibrium.uniqueness)


def _only(game, offers, x, uniqueness):
    exact = Below(game, offers.prices, offers.caps)
    gain = max(exact.gains([arb(float(v)) for v in x]))
    if gain > GAIN:
        return "no equilibrium", {"gain": gain, "x": as_list(x)}
    if uniqueness is not sf.Uniqueness.UNIQUE:
        return None
    every = game.equilibria(offers.prices, caps=offers.caps)
    far = [e for e in every if np.abs(e.participation - x).max() > 1e-6]
    if far or every.uniqueness in (sf.Uniqueness.MULTIPLE, sf.Uniqueness.CONTINUUM):
        return "false unique", {"x": as_list(x), "listed": [as_list(e.participation) for e in every]}
    if np.count_nonzero(offers.caps) <= ENUMERATED:
        found = [np.array([float(v) for v in e]) for e in exact.equilibria()]
        if len(found) != 1 or np.abs(found[0] - x).max() > 1e-6:
            return "false unique", {"x": as_list(x), "exact": [as_list(e) for e in found]}
    return None


def behaviour(rng, game, solution, reference, budget, options):
    """Costs anywhere in the box lead to the same plan."""
    if "costs_between" not in options:
        return None
    low, high = options["costs_between"]
    for share in (rng.uniform(size=game.count), np.zeros(game.count)):
        true = with_costs(game, np.maximum(low + share * (high - low), 1e-300))
        found = _only(true, solution.offers, solution.participation, solution.equilibrium.uniqueness)
        if found is not None:
            return f"below the upper ends: {found[0]}", {**found[1], "costs": as_list(true.costs)}
    return None


def optimality(rng, game, solution, reference, budget, options):
    """No feasible plan beats the bound; linear payments are no better."""
    if solution.method != "certified":
        return None
    starts = [solution.participation]
    rounding = nothing(reference)
    if not game.is_homogeneous:
        unpaid = solution.game.equilibrium()
        starts.append(unpaid.participation)
        rounding += (
            reference.on_loss * 1e-15 * unpaid.server_loss
        )  # zero, beside the losses that are added up
    linear = None
    if "outside" not in options:
        asked = {k: v for k, v in options.items() if k not in ("offers", "costs_between")}
        try:
            linear = solution.game.solve(budget, **asked, time_limit=0.5, progress=False)
            starts.append(linear.participation)
        except sf.StackfuError:
            linear = None
    value, x = reference.search(rng, starts)
    size = max(abs(float(solution.objective)), abs(value) if np.isfinite(value) else 0.0)
    if value < solution.lower_bound - CLEAR * size:
        return "bound beaten", {"value": value, "bound": solution.lower_bound, "x": as_list(x)}
    # posted prices lie slightly above the least ones, so that no client is indifferent
    certain = linear is not None and linear.status is sf.Status.CERTIFIED and linear.seconds < 0.1 * SECONDS
    if certain and solution.objective > linear.objective + 1e-7 * size + rounding:
        return "worse than linear", {"objective": solution.objective, "linear": linear.objective}
    return None


def nothing(reference):
    """A loss that is the rounding of coordinates: mixtures that lie on the server's ideal point cannot be told apart."""
    return reference.on_loss * float(sum(reference.weights) * (1e-15 * np.abs(reference.rows).max()) ** 2)


def with_costs(game, costs):
    return game.replace(costs=costs, **({} if game.has_paper_loss else {"server_loss": game.loss}))


def as_list(x):
    return np.asarray(x, dtype=float).tolist()


def readable(options):
    return {k: as_list(v) if k in ("outside", "costs_between") else v for k, v in options.items()}


WRONG = (
    "overspent",
    "offers make no sense",
    "floor missed",
    "loss cap missed",
    "objective wrong",
    "somebody leaves",
    "no equilibrium",
    "false unique",
    "below the upper ends: no equilibrium",
    "below the upper ends: false unique",
    "bound beaten",
    "worse than linear",
    "verify refuses",
    "false infeasible",
    "crash",
)


if __name__ == "__main__":
    sys.exit(main(__doc__.splitlines()[0], attack, WRONG, games=2000))
