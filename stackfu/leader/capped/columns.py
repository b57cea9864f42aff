r"""The server's problem at one total participation for any number of clients, by simplicial decomposition.

With every product replaced by something linear in z (a lower bound on a region) the problem at one S is

    minimise    w_loss (W q + v noise . z) + w_pay s + M xi,         q >= ||m||^2,  m = sum_k z_k mu_k
    subject to  curve q + first . z + shift <= s,    second . z <= s,    s <= B + xi,    loss <= cap + xi
                l_k <= z_k <= h_k,  sum z = 1

Its gradient prices clients one by one, and who is cheapest under given prices is a fractional knapsack: an *atom*, of
which only its embedding, its costs and a packed mask are kept. A small cone programme mixes the atoms; its multipliers price
the clients again. Every round costs one pass over the clients; the bound that prices give is exact for them, so it can be
stopped at any time.
"""

from __future__ import annotations

from dataclasses import dataclass

import clarabel
import numpy as np
import numpy.typing as npt

from ...jit import clock
from ...model import Array
from ..cone import Blocks, quiet_settings
from ..tolerances import ROUNDING, SNAP
from .capped_bound import Multipliers, Region, eagerness
from .plan_problem import PlanProblem
from .plan_programme import BUDGET_PENALTY, Answer

__all__ = ["relaxed_columns"]

#: Rounds at most, and the gap, relative to the objective's own range, at which they stop.
COLUMN_ROUNDS, COLUMN_TOLERANCE = 60, 1e-6
#: The cone of ``q >= ||m||^2`` is scaled by the size of ``||m||``, whose square is kept above this: smaller ones are
#: below what the gap above tells apart.
SMALLEST_COLUMN_CONE = 1e-8
#: Of the cone solver; prices of any accuracy give a bound.
_SETTINGS = quiet_settings(1e-8)


@dataclass(frozen=True, eq=False)
class _Linear:
    """The two ways to count the spend, linear but for ``curve q``."""

    first: Array
    second: Array
    curve: float
    shift: float


@dataclass(eq=False)
class _Atom:
    mask: npt.NDArray[np.uint8]  # packed: who is at its upper end
    split: int  # the client in between
    share: float  # where it is
    point: Array
    noise: float
    first: float
    second: float


def relaxed_columns(
    problem: PlanProblem, region: Region, total: float, deadline: float, penalty: float = BUDGET_PENALTY
) -> Answer:
    """A relaxation of a region at one S in it: eagerness at the ends of its range."""
    p = problem
    low, high = eagerness(p, region)
    most = np.maximum(np.minimum(region.most, p.alpha / total), region.least)
    half = 0.5 * p.client_sampling / total
    linear = _Linear(
        total * p.theta - p.diagonal + np.maximum(low, 0.0),
        np.maximum(-np.maximum(low, high), 0.0),
        1.0,
        -half,
    )
    return _solve(p, total, p.budget, region.least, most, linear, penalty, deadline)


def _solve(
    p: PlanProblem,
    total: float,
    budget: float,
    least: Array,
    most: Array,
    linear: _Linear,
    penalty: float,
    deadline: float,
) -> Answer:
    v = 1.0 / total
    noise = p.noise * v
    at_all = p.loss_constant + v * p.loss_sampling
    w_loss, w_pay = p.loss_weight, p.payment_weight
    atoms: list[_Atom] = []
    base_point = least @ p.points
    q_price, nu1, nu2, ell = w_loss * p.loss_square, 0.0, 0.0, w_loss
    beta = gamma = 0.0
    point = base_point
    weights = np.zeros(0)
    best = -np.inf
    kept: tuple[Array, float, float, float, float, float, float] | None = None
    upper, slack = np.inf, 0.0
    for _ in range(COLUMN_ROUNDS):
        prices = 2.0 * q_price * (p.points @ point) + nu1 * linear.first + nu2 * linear.second + ell * noise
        atom, cost, level = _knapsack(p, prices, least, most, linear, noise)
        if atoms:
            # weak duality at these multipliers: q >= 2 <m, c> - ||c||^2
            bound = cost - q_price * float(point @ point) + nu1 * linear.shift + ell * at_all
            bound -= 0.0 if np.isinf(budget) else beta * budget
            bound -= gamma * p.loss_cap if gamma else 0.0
            if bound > best:
                best, kept = bound, (np.array(point), nu1, nu2, beta, gamma, level, ell)
            if clock() > deadline or upper - best <= COLUMN_TOLERANCE * max(abs(upper), ROUNDING) + ROUNDING:
                break
        atoms.append(atom)
        weights, point, nu1, nu2, beta, gamma, upper, slack = _master(
            p, atoms, at_all, budget, linear, penalty, w_loss, w_pay
        )
        ell = w_loss + gamma
        q_price = ell * p.loss_square + linear.curve * nu1
        # atoms that the mixture does not use make room
        if len(atoms) > 40:
            used = weights > SNAP
            atoms = [a for a, u in zip(atoms, used, strict=True) if u]
            weights = weights[used] / weights[used].sum()
    z = _mixture(p, atoms, weights, least, most)
    if kept is None:
        kept = (np.array(point), nu1, nu2, 0.0, 0.0, 0.0, ell)
    point, nu1, nu2, beta, gamma, level, _ = kept
    return Answer(
        z=z,
        total=total,
        value=upper - penalty * slack * (w_loss + w_pay),
        slack=slack,
        products=np.zeros(0),
        prices=np.zeros(0),
        drawn=np.zeros(0),
        multipliers=Multipliers(
            total=total,
            objective=1.0,
            budget=beta,
            loss_cap=gamma,
            level=level,
            direct=nu2,
            rows=np.zeros(p.count),
            keep=None,
            mixture=None,
            centre=point,
        ),
    )


def _knapsack(
    p: PlanProblem, prices: Array, least: Array, most: Array, linear: _Linear, noise: Array
) -> tuple[_Atom, float, float]:
    """The cheapest mixture under given prices, its cost, and the price at which it stops buying."""
    room = most - least
    left = 1.0 - float(least.sum())
    order = np.argsort(prices, kind="stable")
    filled = np.cumsum(room[order])
    place = min(int(np.searchsorted(filled, left)), len(order) - 1)
    split = int(order[place])
    z = np.array(least)
    full = order[:place]
    z[full] = most[full]
    share = left - (float(filled[place - 1]) if place else 0.0)
    z[split] = least[split] + min(max(share, 0.0), float(room[split]))
    mask = np.zeros(p.count, dtype=bool)
    mask[full] = True
    atom = _Atom(
        np.packbits(mask),
        split,
        float(z[split]),
        z @ p.points,
        float(noise @ z),
        float(linear.first @ z),
        float(linear.second @ z),
    )
    return atom, float(prices @ z), float(prices[split])


def _mixture(p: PlanProblem, atoms: list[_Atom], weights: Array, least: Array, most: Array) -> Array:
    z = np.zeros(p.count)
    for atom, weight in zip(atoms, weights, strict=False):
        if weight <= 0.0:
            continue
        mask = np.unpackbits(atom.mask, count=p.count).astype(bool)
        part = np.where(mask, most, least)
        part[atom.split] = atom.share
        z += weight * part
    return np.asarray(z / z.sum())


def _master(
    p: PlanProblem,
    atoms: list[_Atom],
    at_all: float,
    budget: float,
    linear: _Linear,
    penalty: float,
    w_loss: float,
    w_pay: float,
) -> tuple[Array, Array, float, float, float, float, float, float]:
    """Mix the atoms: weights, embedding, multipliers (nu_1, nu_2, beta, gamma), value, slack."""
    n, r = len(atoms), p.points.shape[1]
    points = np.array([a.point for a in atoms])
    # an orthonormal basis of the atoms keeps the cone small
    basis = np.linalg.qr(points.T)[0] if n < r else np.eye(r)
    coordinates = points @ basis
    every, noise = np.arange(n), np.array([a.noise for a in atoms])
    blocks = Blocks()
    blocks.variable("weights", n)
    blocks.variable("q", 1)  # at least ||m||^2
    blocks.variable("spend", 1)
    blocks.variable("xi", 1)  # what limits are broken by
    blocks.block("sum", 1, clarabel.ZeroConeT)
    blocks.entries("sum", "weights", 0, every, 1.0)
    blocks.right("sum", 1.0)
    blocks.block("first", 1, clarabel.NonnegativeConeT)
    blocks.entries("first", "weights", 0, every, [a.first for a in atoms])
    blocks.entries("first", "q", 0, 0, linear.curve)
    blocks.entries("first", "spend", 0, 0, -1.0)
    blocks.right("first", -linear.shift)
    blocks.block("second", 1, clarabel.NonnegativeConeT)
    blocks.entries("second", "weights", 0, every, [a.second for a in atoms])
    blocks.entries("second", "spend", 0, 0, -1.0)
    if np.isfinite(budget):
        blocks.block("budget", 1, clarabel.NonnegativeConeT)
        blocks.entries("budget", "spend", 0, 0, 1.0)
        blocks.entries("budget", "xi", 0, 0, -1.0)
        blocks.right("budget", budget)
    if np.isfinite(p.loss_cap):
        blocks.block("loss", 1, clarabel.NonnegativeConeT)
        blocks.entries("loss", "weights", 0, every, noise)
        blocks.entries("loss", "q", 0, 0, p.loss_square)
        blocks.entries("loss", "xi", 0, 0, -1.0)
        blocks.right("loss", p.loss_cap - at_all)
    blocks.block("atoms", n, clarabel.NonnegativeConeT)
    blocks.entries("atoms", "weights", every, every, -1.0)
    blocks.block("elastic", 1, clarabel.NonnegativeConeT)
    blocks.entries("elastic", "xi", 0, 0, -1.0)
    scale = float(np.sqrt(max(np.einsum("ij,ij->i", points, points).min(), SMALLEST_COLUMN_CONE)))
    blocks.square("q", "weights", coordinates.T, scale)
    blocks.cost("weights", w_loss * noise)
    blocks.cost("q", w_loss * p.loss_square)
    blocks.cost("spend", w_pay)
    blocks.cost("xi", penalty * (w_loss + w_pay))
    blocks.finish()
    data, right, cost = blocks.at(1.0)
    answer = blocks.solver(data, right, cost, _SETTINGS).solve()
    x, dual = np.asarray(answer.x), np.asarray(answer.z)

    def price(name: str) -> float:
        return max(float(dual[blocks.rows[name]][0]), 0.0) if name in blocks.rows else 0.0

    weights = np.maximum(x[blocks.variables["weights"]], 0.0)
    weights = weights / weights.sum()
    return (
        weights,
        np.asarray(weights @ points),
        price("first"),
        price("second"),
        price("budget"),
        price("loss"),
        float(cost @ x) + w_loss * at_all,
        max(float(x[blocks.variables["xi"]][0]), 0.0),
    )
