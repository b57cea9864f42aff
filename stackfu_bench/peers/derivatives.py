"""Derivatives of equilibria: stackfu compared with CasADi, cvxpylayers, and differences of equilibria.

No peer can state the whole problem: equilibria with clients that stay out or take part fully are no root of smooth equations,
and no convex programme. Each gets the missing part as input, and its time excludes finding it:

- CasADi gets the active set and solves the equations of the clients inside, with derivatives by the implicit function theorem;
- cvxpylayers gets the total at the equilibrium and solves and differentiates the convex quadratic programme for the shares in it;
  how the total itself moves is put together from two of its gradients.

ParametricMCPs.jl states mixed complementarity problems as these are, but needs Julia, which this environment lacks.
"""

from __future__ import annotations

import warnings

import numpy as np

import stackfu as sf
from stackfu.sensitivity import EquilibriumDerivatives
from stackfu_bench.peers.table import Row, interleaved

REPEATS = 20
#: Relative difference up to which two gradients agree.
AGREE = 1e-4


def game_of(clients: int) -> tuple[sf.StackelbergGame, np.ndarray]:
    """A game and payments at which some clients are out, some inside and some fully in."""
    rng = np.random.default_rng(clients)
    rows = rng.normal(size=(clients + 1, clients)) / np.sqrt(clients)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(rows), rng.uniform(1.0, 5.0, clients + 1), removed=[0], cost_scale=6.0
    )
    return game, game.costs * rng.uniform(0.0, 0.9, clients)


def by_differences(game: sf.StackelbergGame, payments: np.ndarray):
    """Forward differences of equilibria that stackfu finds, one per client."""
    base = game.equilibrium(payments).server_loss

    def run() -> np.ndarray:
        step = 1e-7
        return np.array(
            [
                (game.equilibrium(payments + step * row).server_loss - base) / step
                for row in np.eye(game.count)
            ]
        )

    return run


def by_casadi(game: sf.StackelbergGame, derivatives: EquilibriumDerivatives):
    """CasADi's root finder on the clients inside, and its gradient of the server's loss."""
    import casadi as ca

    at = derivatives.at
    gram, inside = np.array(game.geometry.gram), at.inside
    n = game.count
    free, payments = ca.SX.sym("y", len(inside)), ca.SX.sym("p", n)
    y = ca.SX(np.where(np.isin(np.arange(n), inside), 0.0, at.y))
    for i, k in enumerate(inside):
        y[int(k)] = free[i]
    total = ca.sum1(y)
    mixture = y / total
    inner = gram @ mixture
    square = ca.dot(mixture, inner)
    w = (ca.DM(game.costs) - payments) / ca.DM(game.drift_weight)
    g = square - 2 * inner + ca.DM(np.diag(gram)) - total * w
    root = ca.rootfinder("root", "newton", {"x": free, "p": payments, "g": g[[int(k) for k in inside]]})
    weight, pull, constant = game.loss_centre
    loss = ca.Function("loss", [free], [weight * (square - 2 * ca.dot(mixture, ca.DM(pull)) + constant)])
    p = ca.MX.sym("p", n)
    found = root(x0=at.y[inside] * 0.99, p=p)["x"]
    gradient = ca.Function("gradient", [p], [ca.gradient(loss(found), p)])

    def run() -> np.ndarray:
        return np.array(gradient(at.payments)).ravel()

    return run


def by_cvxpylayers(game: sf.StackelbergGame, derivatives: EquilibriumDerivatives):
    """The programme ``min z'Gz + q'z``, ``sum z = 1``, ``0 <= z <= top`` of the mixture at a given total, by cvxpylayers."""
    import cvxpy as cp
    import torch
    from cvxpylayers.torch import CvxpyLayer

    at, n = derivatives.at, game.count
    values, vectors = np.linalg.eigh(np.array(game.geometry.gram))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    z, q, top = cp.Variable(n), cp.Parameter(n), cp.Parameter(n)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(root @ z) + q @ z), [cp.sum(z) == 1, z >= 0, z <= top])
    layer = CvxpyLayer(problem, parameters=[q, top], variables=[z])
    gram, costs = torch.tensor(np.array(game.geometry.gram)), torch.tensor(np.array(game.costs))
    alpha, unit = torch.tensor(np.array(game.alpha)), torch.tensor(np.array(game.drift_weight))
    weight, pull, constant = game.loss_centre
    pull, k = torch.tensor(np.array(pull)), int(at.inside[0])
    precise = {"solver_args": {"eps": 1e-10}}

    def run() -> np.ndarray:
        payments = torch.tensor(np.array(at.payments), requires_grad=True)
        total = torch.tensor(at.total, dtype=torch.float64, requires_grad=True)
        w = (costs - payments) / unit
        try:
            (share,) = layer(total * w - torch.diag(gram), alpha / total, **precise)
        except Exception:
            (share,) = layer(total * w - torch.diag(gram), alpha / total)
        inner = gram @ share
        square = share @ inner
        level = square - 2 * inner[k] + gram[k, k] - total * w[k]
        loss = weight * (square - 2 * share @ pull + constant)
        of_level = torch.autograd.grad(level, (payments, total), retain_graph=True)
        of_loss = torch.autograd.grad(loss, (payments, total))
        return (of_loss[0] - of_loss[1] * of_level[0] / of_level[1]).numpy()

    return run


def compared(clients: int, repeats: int, peers: tuple[str, ...]) -> list[Row]:
    game, payments = game_of(clients)
    eq = game.equilibrium(payments)
    derivatives = EquilibriumDerivatives.of(eq)
    at = derivatives.at

    def gradient() -> np.ndarray:
        return EquilibriumDerivatives.of(eq).derivative("payments", "server_loss")

    wanted = gradient()
    made = {
        "CasADi, told the active set": lambda: by_casadi(game, derivatives),
        "cvxpylayers, told the total": lambda: by_cvxpylayers(game, derivatives),
        "differences of equilibria": lambda: by_differences(game, payments),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tasks = {name: made[name]() for name in peers}
        away = {
            name: float(np.abs(run() - wanted).max() / np.abs(wanted).max()) for name, run in tasks.items()
        }
        best = interleaved({"stackfu": gradient, **tasks}, repeats)
    active = f"{len(at.inside)} inside, {len(at.full)} full, {len(at.out)} out"
    return [
        Row(
            f"gradient of the loss by the payments of {clients} clients", name, best["stackfu"], best[name],
            note=f"{active}; {'agree' if away[name] < AGREE else 'apart'} to {away[name]:.0e}", extra={"disagreement": away[name]},
        )
        for name in peers
    ]  # fmt: skip


def run(quick: bool) -> list[Row]:
    peers = ("CasADi, told the active set", "cvxpylayers, told the total", "differences of equilibria")
    rows = compared(10, REPEATS, peers)
    if not quick:
        rows += compared(100, 5, peers)
    return rows
