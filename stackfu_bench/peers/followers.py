"""Equilibria of the clients' game: stackfu, general complementarity and Nash solvers, and at scale.

Every peer gets what favours it: an exact Jacobian, a model built before the clock starts, a start in the
middle of the box, and credit for every point at which no client gains more than 1e-6 (relative) by
deviating, although stackfu is held to 1e-12 and also settles whether there are others.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import psutil

import stackfu as sf
from stackfu import catalog
from stackfu_bench.peers.table import Row, fitted_exponent

N = 10
GOOD = 1e-6
REPEATS = 20  # of every solver but NashOpt; the quickest counts


# ------------------------------------------------------------------ small games


def small_games(count: int) -> list[tuple[sf.StackelbergGame, np.ndarray]]:
    """Games of ten clients: few to many take part, some dependent embeddings, some generous payments."""
    games = []
    for seed in range(count):
        rng = np.random.default_rng([10, seed])
        points = rng.normal(size=(N, (1, 3, 12, 12)[seed % 4]))
        sizes = rng.exponential(size=N) + 0.05
        emb = sf.MeanEmbeddings.from_gram(points @ points.T)
        game = sf.StackelbergGame(emb, sizes, cost_scale=float(np.exp(rng.uniform(0, 6))))
        games.append((game, game.costs * rng.uniform(0, (0.5, 1.1)[seed % 3 == 0], N)))
    return games


def games_with_several(count: int) -> list[tuple[sf.StackelbergGame, np.ndarray]]:
    """The reference game with three equilibria, slightly disturbed, with five small clients added."""
    entry = catalog.three_equilibria()
    values, vectors = np.linalg.eigh(entry.game.geometry.gram)
    core = vectors * np.sqrt(np.maximum(values, 0.0))
    games = []
    for seed in range(count):
        rng = np.random.default_rng([11, seed])
        points = np.zeros((N, 10))
        points[:5, :5] = core * rng.uniform(0.999, 1.001, core.shape)
        points[5:, 5:] = np.diag(rng.uniform(0.5, 1.5, 5))
        sizes = np.append(entry.game.alpha, rng.uniform(1e-5, 1e-4, 5))
        alpha = sizes / sizes.sum()
        reluctance = np.append(entry.game.reluctance(), rng.uniform(1.0, 50.0, 5))
        emb = sf.MeanEmbeddings.from_gram(points @ points.T)
        games.append((sf.StackelbergGame(emb, sizes, costs=2.0 * alpha * reluctance), np.zeros(N)))
    return games


def is_right(game: sf.StackelbergGame, payments: np.ndarray, x: np.ndarray | None) -> bool:
    """Return True if no client gains by deviating, in units of the largest drift."""
    if x is None or not np.all(np.isfinite(x)):
        return False
    x = np.clip(x, 0.0, 1.0)
    if x.sum() <= 1e-12:
        return False
    return game.regret(payments, x) <= GOOD * game.lam * game.geometry.scale


def slopes(
    gram: np.ndarray, alpha: np.ndarray, w: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """``F_k = S w_k - d_k^2`` (the complementarity function) and its Jacobian in x."""
    y = alpha * x
    total = y.sum()
    inner = gram @ y / total
    square = y @ inner / total
    values = total * w - (np.diag(gram) - 2 * inner + square)
    gaps = gram - inner[:, None] - inner[None, :] + square
    return values, (w[:, None] + 2 * gaps / total) * alpha[None, :]


def by_fischer_burmeister(game: sf.StackelbergGame, payments: np.ndarray) -> np.ndarray | None:
    """scipy least squares on the Fischer-Burmeister residuals of the box-constrained problem."""
    from scipy.optimize import least_squares

    scale = game.geometry.scale
    gram, alpha, w = game.geometry.gram / scale, game.alpha, game.reluctance(payments) / scale

    def parts(x: np.ndarray) -> tuple[np.ndarray, ...]:
        values, jacobian = slopes(gram, alpha, w, x)
        upper = 1.0 - x
        far = np.hypot(upper, values) + 1e-300
        inner = far - upper + values  # -phi(upper, -F)
        near = np.hypot(x, inner) + 1e-300
        return values, jacobian, upper, far, inner, near

    def residual(x: np.ndarray) -> np.ndarray:
        *_, inner, near = parts(x)
        return x + inner - near

    def jacobian(x: np.ndarray) -> np.ndarray:
        values, slope, upper, far, inner, near = parts(x)
        d_inner = (values / far + 1.0)[:, None] * slope
        d_inner[np.diag_indices(N)] += 1.0 - upper / far
        out = (1.0 - inner / near)[:, None] * d_inner
        out[np.diag_indices(N)] += 1.0 - x / near
        return out

    result = least_squares(
        residual,
        np.full(N, 0.5),
        jacobian,
        bounds=(1e-12, 1.0),
        xtol=1e-13,
        ftol=1e-13,
        gtol=1e-13,
        max_nfev=500,
    )
    return np.asarray(result.x)


def by_ipopt() -> Callable[[sf.StackelbergGame, np.ndarray], np.ndarray | None]:
    """casadi and Ipopt: multipliers of the bounds as variables, complementarity as the objective."""
    import casadi as ca

    gram, alpha, w = ca.MX.sym("G", N, N), ca.MX.sym("alpha", N), ca.MX.sym("w", N)
    x, low, high = ca.MX.sym("x", N), ca.MX.sym("low", N), ca.MX.sym("high", N)
    total = ca.dot(alpha, x)
    inner = ca.mtimes(gram, alpha * x) / total
    square = ca.dot(alpha * x, inner) / total
    slope = total * w - (ca.diag(gram) - 2 * inner + square)
    problem = {
        "x": ca.vertcat(x, low, high),
        "p": ca.vertcat(ca.reshape(gram, N * N, 1), alpha, w),
        "f": ca.dot(low, x) + ca.dot(high, 1 - x),
        "g": slope - low + high,
    }
    options = {"print_time": False, "ipopt": {"print_level": 0, "sb": "yes", "tol": 1e-10, "max_iter": 500}}
    solver = ca.nlpsol("equilibrium", "ipopt", problem, options)
    start = np.concatenate([np.full(N, 0.5), np.full(2 * N, 0.1)])
    lower = np.concatenate([np.full(N, 1e-12), np.zeros(2 * N)])
    upper = np.concatenate([np.ones(N), np.full(2 * N, np.inf)])

    def solve(game: sf.StackelbergGame, payments: np.ndarray) -> np.ndarray | None:
        scale = game.geometry.scale
        data = np.concatenate(
            [(game.geometry.gram / scale).ravel(), game.alpha, game.reluctance(payments) / scale]
        )
        result = solver(x0=start, lbx=lower, ubx=upper, lbg=0.0, ubg=0.0, p=data)
        return np.asarray(result["x"]).ravel()[:N]

    return solve


def by_nashopt(game: sf.StackelbergGame, payments: np.ndarray) -> tuple[np.ndarray | None, float]:
    """NashOpt on the clients' own objectives; timed at a second solve, when JAX has compiled all."""
    import jax
    import jax.numpy as jnp
    from nashopt import GNEP

    jax.config.update("jax_enable_x64", True)
    scale = game.geometry.scale
    gram, alpha = jnp.array(game.geometry.gram / scale), jnp.array(game.alpha)
    net = jnp.array((game.costs - payments) / (game.lam * scale))

    def objective(k: int) -> Callable:
        def loss(x):
            z = alpha * x / (alpha @ x)
            inner = gram @ z
            return net[k] * x[k] + gram[k, k] - 2 * inner[k] + z @ inner

        return jax.jit(loss)

    problem = GNEP([1] * N, f=[objective(k) for k in range(N)], lb=np.zeros(N), ub=np.ones(N))
    start = np.full(N, 0.5)
    elapsed, x = float("inf"), None
    for _ in range(2):
        began = time.perf_counter()
        try:
            x = np.asarray(problem.solve(x0=start, verbose=0).x)
        except Exception:  # a solver that gives up has no answer
            x = None
        elapsed = min(elapsed, time.perf_counter() - began)
    return x, elapsed


def small_rows(quick: bool) -> list[Row]:
    games = [*small_games(10 if quick else 100), *games_with_several(2 if quick else 20)]
    ipopt = by_ipopt()
    for game, payments in games[:2]:  # compile, build caches
        game.equilibrium(payments)
        by_fischer_burmeister(game, payments)
        ipopt(game, payments)

    def clock(run: Callable[[], object]) -> tuple[float, object]:
        began = time.perf_counter()
        answer = run()
        return time.perf_counter() - began, answer

    names = ("scipy, Fischer-Burmeister", "casadi / Ipopt", "NashOpt")
    ours: dict[str, list[float]] = {name: [] for name in names}
    theirs: dict[str, list[float]] = {name: [] for name in names}
    wrong = dict.fromkeys(names, 0)
    own_wrong, several = 0, 0
    for number, (game, payments) in enumerate(games):
        best = float("inf")
        for _ in range(REPEATS):
            elapsed, found = clock(lambda g=game, p=payments: g.equilibrium(p))
            best = min(best, elapsed)
        own_wrong += not (found.status.success and is_right(game, payments, found.participation))
        several += len(game.equilibria(payments)) > 1
        for name, solver in zip(names, (by_fischer_burmeister, ipopt), strict=False):
            elapsed, x = min(
                (clock(lambda s=solver, g=game, p=payments: s(g, p)) for _ in range(REPEATS)),
                key=lambda pair: pair[0],
            )
            ours[name].append(best)
            theirs[name].append(elapsed)
            wrong[name] += not is_right(game, payments, x)
        if number < (1 if quick else 4):  # it takes seconds per game, most of it tracing
            x, elapsed = by_nashopt(game, payments)
            ours["NashOpt"].append(best)
            theirs["NashOpt"].append(elapsed)
            wrong["NashOpt"] += not is_right(game, payments, x)
    return [
        Row(
            f"an equilibrium of {N} clients",
            name,
            float(np.median(ours[name])),
            float(np.median(theirs[name])),
            target=50.0,
            note=f"median; wrong in {wrong[name]} of {len(theirs[name])} games, stackfu in {own_wrong}"
            f" of {len(games)}, {several} of them with several equilibria, of which a peer returns one"
            + ("; JAX traces anew in every solve, and that is most of its time" if name == "NashOpt" else ""),
            extra={
                "wrong": wrong[name],
                "games": len(theirs[name]),
                "stackfu_wrong": own_wrong,
                "several_equilibria": several,
                "least_ratio": float(np.min(np.array(theirs[name]) / np.array(ours[name]))),
            },
        )
        for name in names
    ]


# ------------------------------------------------------------------ large games


def large_features(count: int, dimension: int, dtype: str) -> np.ndarray:
    """Random Fourier features of normal clouds, made block by block."""
    rng = np.random.default_rng(0)
    frequencies = 0.3 * rng.normal(size=(16, dimension))
    phases = rng.uniform(0, 2 * np.pi, size=dimension)
    features = np.empty((count, dimension), dtype=dtype)
    for start in range(0, count, 10_000):
        block = rng.normal(size=(min(10_000, count - start), 16))
        features[start : start + len(block)] = np.sqrt(2 / dimension) * np.cos(block @ frequencies + phases)
    return features


def large_game(features: np.ndarray) -> tuple[sf.StackelbergGame, np.ndarray]:
    rng = np.random.default_rng(1)
    game = sf.StackelbergGame(
        sf.MeanEmbeddings.from_features(features), rng.integers(20, 500, len(features)), cost_scale=5.0
    )
    return game, game.costs * rng.uniform(0, 0.9, game.count)


def measure_large(count: int, dimension: int, dtype: str) -> dict[str, float]:
    """Return time and memory of one large game and of passes ``F.T @ y``; run in its own process."""
    warm, payments = large_game(large_features(110_000, dimension, dtype))
    warm.equilibrium(payments)
    del warm, payments
    before = psutil.Process().memory_info().rss
    features = large_features(count, dimension, dtype)
    y = np.random.default_rng(2).random(count).astype(dtype)
    seconds, passes = [], []
    residual = 0.0
    for _ in range(3):
        game, payments = large_game(features)  # fresh: nothing is cached from the run before
        passes += [_elapsed(lambda: features.T @ y) for _ in range(5)]
        began = time.perf_counter()
        found = game.equilibrium(payments)
        seconds.append(time.perf_counter() - began)
        passes += [_elapsed(lambda: features.T @ y) for _ in range(5)]
        if not found.status.success:
            raise RuntimeError(f"{count} clients were not solved: {found}")
        residual = max(residual, found.residual)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": min(seconds),
        "pass": float(np.median(passes)),
        "matrix_mb": features.nbytes / 1e6,
        "peak_mb": peak * 1024 / 1e6,
        "start_mb": before / 1e6,
        "residual": residual,
        "sweeps": found.iterations,
    }


def _elapsed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def large_rows(quick: bool) -> list[Row]:
    count, dimension = (200_000 if quick else 1_000_000), 128
    rows = []
    for dtype in ("float32", "float64"):
        code = (
            "import json; from stackfu_bench.peers.followers import measure_large; "
            f"print(json.dumps(measure_large({count}, {dimension}, '{dtype}')))"
        )
        printed = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout
        facts = json.loads(printed.splitlines()[-1])
        rows += [
            Row(
                f"{count} clients, D = {dimension}, {dtype}: solved and verified",
                "30 passes F.T @ y",
                facts["seconds"],
                30 * facts["pass"],
                target=1.0,
                note=f"{facts['seconds'] / facts['pass']:.1f} passes, residual {facts['residual']:.1e}, "
                f"{facts['sweeps']:.0f} sweeps",
                extra=facts,
            ),
            Row(
                f"{count} clients, D = {dimension}, {dtype}: peak memory",
                "1.5 feature matrices",
                facts["peak_mb"] - facts["start_mb"],
                1.5 * facts["matrix_mb"],
                unit="MB",
                target=None if quick else 1.0,  # small matrices drown in what else a process needs
                note="the matrix itself included, above what the process used before",
            ),
        ]
    return rows


def scaling_row(quick: bool) -> Row:
    """Time of a solve against N D, from a thousand clients to a million."""
    counts = (1_000, 10_000, 100_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
    sizes, times = [], []
    for count in counts:
        for dimension in (32, 128):
            if count * dimension > 64_000_000:
                continue
            game, payments = large_game(large_features(count, dimension, "float64"))
            game.equilibrium(payments, method="sweeps")
            best = min(
                _elapsed(lambda g=game, p=payments: g.equilibrium(p, method="sweeps")) for _ in range(4)
            )
            sizes.append(count * dimension)
            times.append(best)
    exponent = fitted_exponent(sizes, times)
    extra = {f"N D = {size}": t for size, t in zip(sizes, times, strict=True)}
    return Row(
        f"exponent of time in N D, {counts[0]} to {counts[-1]} clients",
        "linear growth",
        exponent,
        1.0,
        unit="",
        target=0.95,
        note=f"the exponent is {exponent:.2f}; fitted over D = 32 and 128",
        extra=extra,
    )


def run(quick: bool) -> list[Row]:
    return [*small_rows(quick), *large_rows(quick), scaling_row(quick)]
