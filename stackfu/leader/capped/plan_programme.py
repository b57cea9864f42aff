"""Cone programmes at one total participation: the relaxation of a region.

Variables: the mixture z, its embedding m, ``q >= ||m||^2``, the spend, an elastic slack xi, and for every client, with the
eagerness
``f_k = D_k - theta_k S = q - 2 <m, mu_k> + const``,

    e_k >= f_k,    plus_k  >= z_k e_k      (if it may ride free)      spend >= S theta.z - diag.z + q - a v / 2 + sum_k plus_k
    i_k >= -f_k,   minus_k >= z_k i_k      (if it may be paid)        spend >= sum_k minus_k

with the products bounded below by McCormick's inequalities on the region. With outside options ``r_k >= d_k^2 / 2 + a v / 2 +
o_k + z_k min(D_k, theta_k S)`` is added to both. There the product is ``z_k (theta_k S - (-f_k)_+)``, of which a region allows
what lies in the hull of its corners, either end of the share and three places of the eagerness.
"""

from __future__ import annotations

from dataclasses import dataclass

import clarabel
import numpy as np
import numpy.typing as npt

from ...model import Array
from ..cone import Blocks, quiet_settings
from .capped_bound import Multipliers, Region, eagerness
from .plan_problem import PlanProblem

__all__ = ["BUDGET_PENALTY", "Answer", "relaxed"]

Index = npt.NDArray[np.intp]

#: Of the cone solver; bounds do not depend on it.
CONE_TOLERANCE = 1e-9
#: Price of breaking the budget or the cap on the loss, per unit, relative to the objective's own size.
BUDGET_PENALTY = 1e2
#: The cone of ``q >= ||m||^2`` is scaled by the size of ``||m||``, whose square is kept above this.
SMALLEST_CONE = 1e-10


@dataclass(frozen=True, eq=False)
class Answer:
    """A point with its multipliers, and what stands for the products at it."""

    z: Array
    total: float
    value: float  # of the objective, without the penalty
    slack: float  # xi
    products: Array  # plus_k
    prices: Array  # minus_k
    drawn: Array  # what stands for z_k min(D_k, theta_k S), of those who can leave
    multipliers: Multipliers


@dataclass(frozen=True, eq=False)
class _Products:
    """Products ``z_k e_k``: whose, bounds of the factor, and inequalities ``product >= slope_z z + slope_e e - constant``."""

    clients: Index
    low: Array
    high: Array
    cuts: tuple[tuple[Array, Array, Array], ...]

    @classmethod
    def mccormick(cls, clients: Index, least: Array, most: Array, low: Array, high: Array) -> _Products:
        """On a box of shares and factors."""
        least, most = least[clients], most[clients]
        return cls(clients, low, high, ((low, least, least * low), (high, most, most * high)))


_SETTINGS = quiet_settings(CONE_TOLERANCE)


@dataclass(frozen=True, eq=False)
class _Setting:
    """Setting of a programme: a total, ranges of the shares, relaxations of the products, and bounds of the stakes."""

    total: float
    budget: float
    least: Array
    most: Array
    plus: _Products
    minus: _Products
    #: Of those who can leave: the places of their eagerness on a region, (3, N).
    places: Array
    #: Scale of ``||m||^2``, and the price of broken limits.
    size: float
    penalty: float


def relaxed(
    problem: PlanProblem, region: Region, total: float, size: float, penalty: float = BUDGET_PENALTY
) -> Answer:
    """The relaxation of a region at one S in it; ``size`` is the scale of ``||m||^2``."""
    low, high = eagerness(problem, region)
    high = np.maximum(low, high)
    least = region.least
    most = np.maximum(np.minimum(region.most, problem.alpha / total), least)
    rides, paid = np.flatnonzero(high > 0.0), np.flatnonzero(low < 0.0)
    plus = _Products.mccormick(rides, least, most, np.maximum(low[rides], 0.0), high[rides])
    minus = _Products.mccormick(paid, least, most, np.maximum(-high[paid], 0.0), -low[paid])
    places = np.stack([low, np.clip(0.0, low, high), high])
    setting = _Setting(total, problem.budget, least, most, plus, minus, places, size, penalty)
    return _Programme(problem, setting).solve()


class _Programme:
    """The programme of a setting, block by block, and what its answer means."""

    def __init__(self, problem: PlanProblem, setting: _Setting) -> None:
        self.problem, self.setting = problem, setting
        p = problem
        outside = np.zeros(0) if p.outside is None else p.outside
        self.leavers = np.flatnonzero(np.isfinite(outside))
        self.half = 0.5 * p.client_sampling / setting.total
        self.loss_at_all = p.loss_constant + p.loss_sampling / setting.total
        blocks = self.blocks = Blocks()
        blocks.variable("z", p.count)  # the mixture
        blocks.variable("m", p.points.shape[1])  # its embedding
        blocks.variable("q", 1)  # at least ||m||^2
        blocks.variable("spend", 1)
        blocks.variable(
            "e", len(setting.plus.clients)
        )  # eagerness of those who may ride free, and its product with z
        blocks.variable("plus", len(setting.plus.clients))
        blocks.variable(
            "i", len(setting.minus.clients)
        )  # reluctance of those who may be paid, and its product with z
        blocks.variable("minus", len(setting.minus.clients))
        blocks.variable("retainer", len(self.leavers))
        blocks.variable("corners", 6 * len(self.leavers))
        blocks.variable("xi", 1)  # what limits are broken by
        self._mixture()
        self._spend()
        self._limits()
        self._products(1.0, setting.plus, "e", "plus")
        self._products(-1.0, setting.minus, "i", "minus")
        if len(self.leavers):
            self._retainers()
        self._objective()
        blocks.finish()

    def _rows(self, name: str, count: int) -> None:
        self.blocks.block(name, count, clarabel.NonnegativeConeT)

    def _all(self, name: str) -> Index:
        where = self.blocks.variables[name]
        return np.arange(where.stop - where.start)

    def _mixture(self) -> None:
        """Shares between their bounds that sum to 1, their embedding, and its square."""
        p, setting, blocks = self.problem, self.setting, self.blocks
        n, r = p.points.shape
        every, axes = np.arange(n), np.arange(r)
        blocks.block("sum", 1, clarabel.ZeroConeT)
        blocks.entries("sum", "z", 0, every, 1.0)
        blocks.right("sum", 1.0)
        blocks.block("embedding", r, clarabel.ZeroConeT)
        blocks.entries("embedding", "m", axes, axes, 1.0)
        blocks.entries("embedding", "z", axes[:, None], every[None, :], -p.points.T)
        self._rows("least", n)
        blocks.entries("least", "z", every, every, -1.0)
        blocks.right("least", -setting.least)
        self._rows("most", n)
        blocks.entries("most", "z", every, every, 1.0)
        blocks.right("most", setting.most)
        blocks.square("q", "m", scale=float(np.sqrt(max(setting.size, SMALLEST_CONE))))

    def _spend(self) -> None:
        """The spend is at least what the variance says, and at least what is owed client by client."""
        p, blocks = self.problem, self.blocks
        self._rows("variance", 1)
        blocks.entries("variance", "z", 0, self._all("z"), self.setting.total * p.theta - p.diagonal)
        blocks.entries("variance", "q", 0, 0, 1.0)
        blocks.entries("variance", "plus", 0, self._all("plus"), 1.0)
        blocks.right("variance", self.half)
        self._rows("direct", 1)
        blocks.entries("direct", "minus", 0, self._all("minus"), 1.0)
        for row in ("variance", "direct"):
            blocks.entries(row, "retainer", 0, self._all("retainer"), 1.0)
            blocks.entries(row, "spend", 0, 0, -1.0)

    def _limits(self) -> None:
        """Budget and cap on the loss, elastic."""
        p, blocks = self.problem, self.blocks
        self._rows("elastic", 1)
        blocks.entries("elastic", "xi", 0, 0, -1.0)
        if np.isfinite(self.setting.budget):
            self._rows("budget", 1)
            blocks.entries("budget", "spend", 0, 0, 1.0)
            blocks.entries("budget", "xi", 0, 0, -1.0)
            blocks.right("budget", self.setting.budget)
        if np.isfinite(p.loss_cap):
            self._rows("loss", 1)
            blocks.entries("loss", "z", 0, self._all("z"), p.noise / self.setting.total)
            blocks.entries("loss", "q", 0, 0, p.loss_square)
            blocks.entries("loss", "xi", 0, 0, -1.0)
            blocks.right("loss", p.loss_cap - self.loss_at_all)

    def _products(self, sign: float, products: _Products, factor: str, product: str) -> None:
        """``factor >= sign * eagerness`` with ``eagerness = q - 2 <m, mu_k> + level_k``, and what bounds its product with z."""
        p, blocks, who = self.problem, self.blocks, products.clients
        at, axes = np.arange(len(who)), self._all("m")
        level = p.diagonal[who] + self.half - p.theta[who] * self.setting.total
        self._rows(f"{factor} above", len(who))
        blocks.entries(f"{factor} above", "q", at, 0, sign)
        blocks.entries(f"{factor} above", "m", at[:, None], axes[None, :], -2.0 * sign * p.points[who])
        blocks.entries(f"{factor} above", factor, at, at, -1.0)
        blocks.right(f"{factor} above", -sign * level)
        for number, (slope_z, slope_e, constant) in enumerate(products.cuts):
            name = f"{product} above cut {number}"
            self._rows(name, len(who))
            blocks.entries(name, "z", at, who, slope_z)
            blocks.entries(name, factor, at, at, slope_e)
            blocks.entries(name, product, at, at, -1.0)
            blocks.right(name, constant)
        self._rows(f"least {factor}", len(who))
        blocks.entries(f"least {factor}", factor, at, at, -1.0)
        blocks.right(f"least {factor}", -products.low)
        self._rows(f"most {factor}", len(who))
        blocks.entries(f"most {factor}", factor, at, at, 1.0)
        blocks.right(f"most {factor}", products.high)
        self._rows(f"least {product}", len(who))
        blocks.entries(f"least {product}", product, at, at, -1.0)

    def _retainers(self) -> None:
        """Add the retainers of clients that could leave: at least 0, and at least their loss from staying."""
        p, blocks, who = self.problem, self.blocks, self.leavers
        assert p.outside is not None
        at, most = np.arange(len(who)), (p.theta * self.setting.total)[who]
        self._rows("keep", len(who))
        blocks.entries("keep", "q", at, 0, 0.5)
        blocks.entries("keep", "m", at[:, None], self._all("m")[None, :], -p.points[who])
        shares, places = self._corners(self.setting.places)
        self.drawn = shares * (most + np.minimum(places, 0.0))
        blocks.entries("keep", "corners", at[None, :], self._corner_columns(), self.drawn)
        blocks.entries("keep", "retainer", at, at, -1.0)
        blocks.right("keep", -(0.5 * p.diagonal[who] + self.half + p.outside[who]))
        self._rows("least retainer", len(who))
        blocks.entries("least retainer", "retainer", at, at, -1.0)

    def _corner_columns(self) -> Index:
        """Return the positions of the corners' weights, (6, clients that can leave)."""
        return np.arange(6 * len(self.leavers)).reshape(6, -1)

    def _corners(self, places: Array) -> tuple[Array, Array]:
        """Shares and eagerness at the corners, of which both are a mean, and with them the products; (6, those who can leave)."""
        p, setting, blocks, who = self.problem, self.setting, self.blocks, self.leavers
        at, columns = np.arange(len(who)), self._corner_columns()
        shares = np.repeat(np.stack([setting.least[who], setting.most[who]]), 3, axis=0)
        places = np.tile(places[:, who], (2, 1))
        self._rows("least weight", columns.size)
        blocks.entries("least weight", "corners", columns, columns, -1.0)
        for name, value in (("weights", np.ones_like(shares)), ("share", shares), ("place", -places)):
            blocks.block(name, len(who), clarabel.ZeroConeT)
            blocks.entries(name, "corners", at[None, :], columns, value)
        blocks.right("weights", 1.0)
        blocks.entries("share", "z", at, who, -1.0)
        blocks.entries("place", "q", at, 0, 1.0)
        blocks.entries("place", "m", at[:, None], self._all("m")[None, :], -2.0 * p.points[who])
        blocks.right("place", p.theta[who] * setting.total - p.diagonal[who] - self.half)
        for product, clients, value in (
            ("plus", setting.plus.clients, shares * np.maximum(places, 0.0)),
            ("minus", setting.minus.clients, shares * np.maximum(-places, 0.0)),
        ):
            both, here, there = np.intersect1d(who, clients, return_indices=True)
            rows = np.arange(len(both))
            self._rows(f"{product} above corners", len(both))
            blocks.entries(
                f"{product} above corners", "corners", rows[None, :], columns[:, here], value[:, here]
            )
            blocks.entries(f"{product} above corners", product, rows, there, -1.0)
        return shares, places

    def _objective(self) -> None:
        p, blocks = self.problem, self.blocks
        blocks.cost("z", p.loss_weight * p.noise / self.setting.total)
        blocks.cost("q", p.loss_weight * p.loss_square)
        blocks.cost("spend", p.payment_weight)
        blocks.cost("xi", self.setting.penalty * (p.loss_weight + p.payment_weight))

    def solve(self) -> Answer:
        """The answer, or where the solver has none the clients' own mixture with multipliers that prove nothing."""
        data, right, cost = self.blocks.at(1.0)
        found = self.blocks.solver(data, right, cost, _SETTINGS).solve()
        x, dual = np.asarray(found.x), np.asarray(found.z)
        if not (np.isfinite(x).all() and np.isfinite(dual).all()):
            x, dual = np.zeros(self.blocks.width), np.zeros(self.blocks.height)
        p, setting = self.problem, self.setting
        part = {name: x[where] for name, where in self.blocks.variables.items()}
        mixture = np.maximum(part["z"], 0.0)
        mixture = mixture / mixture.sum() if mixture.sum() > 0 else p.alpha / p.alpha.sum()
        gains, owes = np.zeros(p.count), np.zeros(p.count)
        gains[setting.plus.clients], owes[setting.minus.clients] = part["plus"], part["minus"]
        drawn = np.zeros(p.count)
        if len(part["corners"]):
            drawn[self.leavers] = (self.drawn * part["corners"].reshape(6, -1)).sum(axis=0)
        broken = float(part["xi"][0])
        penalty = float(cost[self.blocks.variables["xi"]][0]) * broken
        return Answer(
            z=mixture,
            total=setting.total,
            value=p.loss_weight * self.loss_at_all + float(cost @ x) - penalty,
            slack=broken,
            products=gains,
            prices=owes,
            drawn=drawn,
            multipliers=self._multipliers(mixture, dual),
        )

    def _multipliers(self, mixture: Array, dual: Array) -> Multipliers:
        p, setting, rows = self.problem, self.setting, self.blocks.rows

        def price(name: str) -> float:
            return max(float(dual[rows[name]][0]), 0.0) if name in rows else 0.0

        prices = np.zeros(p.count)
        prices[setting.plus.clients] += dual[rows["e above"]]
        prices[setting.minus.clients] -= dual[rows["i above"]]
        if "place" in rows:
            prices[self.leavers] += dual[rows["place"]]
        budget, cap = price("budget"), price("loss")
        direct = min(price("direct"), p.payment_weight + budget)
        keep = None
        if len(self.leavers):
            keep = np.zeros(p.count)
            keep[self.leavers] = np.clip(dual[rows["keep"]], 0.0, p.payment_weight + budget)
        ell = (p.loss_weight + cap) * p.loss_square
        _lift_weight(prices, ell + p.payment_weight + budget - direct, keep)
        # z_k meets the multipliers of m = sum z_k mu_k, not m itself: the centre that reproduces them is exact to first order
        pulls = prices if keep is None else prices + 0.5 * keep
        weight = ell + p.payment_weight + budget - direct + float(pulls.sum())
        centre = mixture
        if weight > 0.0:
            wanted = (pulls @ p.points - 0.5 * dual[rows["embedding"]]) / weight
            centre = mixture + p.weights_of(wanted - mixture @ p.points)
        return Multipliers(
            total=setting.total,
            objective=1.0,
            budget=budget,
            loss_cap=cap,
            level=-float(dual[rows["sum"]][0]),
            direct=direct,
            rows=prices,
            keep=keep,
            mixture=centre,
        )


def _lift_weight(rows: Array, others: float, keep: Array | None) -> None:
    """Shrink what is negative among the rows P until ``T = others + sum P + sum X / 2`` is no rounding below 0.

    T is the multiplier of ``q >= ||m||^2``: 0 where the relaxation takes a larger q, and the solver's rounding makes that
    negative; such multipliers prove nothing, however far the relaxation lies above the target. P may be anything.
    """
    others += 0.0 if keep is None else 0.5 * float(keep.sum())
    negative = rows < 0.0
    missing = CONE_TOLERANCE * (others + float(np.abs(rows).sum())) - (others + float(rows.sum()))
    if missing > 0.0 and negative.any():
        rows[negative] *= max(1.0 + missing / float(rows[negative].sum()), 0.0)
