"""One equilibrium of a large game: best responses one client after another, then Newton's method.

A sweep costs O(N D) with features (the weighted sum of feature rows is kept up to date) and O(N^2) with
a Gram matrix. Few clients matter after the first sweeps: while the mean embedding m stays within ``r`` of
where a full pass computed the distances, and S within ``e``, ``g_k`` moves by at most
``r (2 d_k + r) + e |w_k|``, so clients at a bound with a larger margin are left out of the sweeps until the
next full pass. For those strictly inside, ``g_k = 0`` is a square system with

    d g_k / d y_j = -2 <mu_k - m, mu_j - m> / S - w_k

that Newton's method solves in a few steps. Nothing here proves convergence: a point is accepted only if
the conditions hold for every client at it.

Best responses can fall to the origin: once everybody but one has dropped out, the last one has nobody to
respond to. That is no equilibrium; the sweeps then start again with damping.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..geometry import Array, FeatureGeometry, frozen

if TYPE_CHECKING:
    from ..game import StackelbergGame

__all__ = ["Sweeps", "newton_polish", "sweep_to_equilibrium"]

Clients = npt.NDArray[np.intp]

#: Newton's method is tried up to this many clients inside.
LARGEST_SYSTEM = 2000
#: From this many clients on, a sample of them is settled first.
LARGE = 100_000
SAMPLE = 10_000
#: Damping of the first attempt and of the ones after a fall to the origin.
DAMPINGS = (1.0, 0.5, 0.2, 0.05)


@dataclass(eq=False)
class Sweeps:
    """Where the sweeps ended: the profile, and what happened on the way."""

    participation: Array
    settled: bool = False
    interrupted: bool = False
    falls: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


def sweep_to_equilibrium(
    game: StackelbergGame,
    payments: Array,
    *,
    start: Array | None,
    tolerance: float,
    max_iterations: int,
    seed: int,
    callback: Callable[[dict[str, Any]], None] | None,
    progress: bool | None,
) -> Sweeps:
    """Sweep until the equilibrium conditions hold within half the tolerance at every client."""
    w, alpha, scale = game.reluctance(payments), game.alpha, game.geometry.scale
    state = _State(game, w, seed)
    guess = _first_guess(game, w)
    clients, drift, shift = state.everyone(), np.inf, np.inf
    if start is not None and np.any(start > 0):
        y = alpha * start
    elif game.count >= LARGE and (coarse := _coarse_centre(game, w, guess, seed)) is not None:
        y = np.where(game.geometry.squared_distances(coarse[0]) > coarse[1] * w, alpha, 0.0)
        state.refresh(y)
        drift, shift = (2.0 * gap for gap in state.apart(state.centre(y), coarse))
        clients, _ = state.undecided(y, drift, shift)
    else:
        y = alpha * guess
    result = Sweeps(frozen(np.where(y >= alpha, 1.0, y / alpha)))
    with _progress_bar(max_iterations, progress, game) as report:
        try:
            while len(result.history) < max_iterations:
                damping = DAMPINGS[min(result.falls, len(DAMPINGS) - 1)]
                if drift == np.inf:
                    state.refresh(y)
                anchor = state.centre(y)
                before, places = anchor, _places(y, alpha)
                for _ in range(2 if drift == np.inf else 50):
                    participants, worst, moved = state.sweep(y, clients, damping)
                    record = {
                        "sweep": len(result.history) + 1,
                        "clients": len(clients),
                        "violation": worst / scale,
                        "moved": moved,
                        "total": float(y.sum()),
                        "participants": int(participants),
                        "damping": damping,
                    }
                    result.history.append(record)
                    report(record)
                    if callback is not None:
                        callback(record)
                    if participants == 0 or len(result.history) >= max_iterations:
                        break
                    last, places = places, _places(y, alpha)
                    now = state.centre(y)
                    away, motion = state.apart(now, anchor), state.apart(now, before)
                    before = now
                    if worst <= 0.1 * tolerance * scale or away[0] > drift or away[1] > shift:
                        break
                    if places == last:
                        polished = newton_polish(game, w, y)
                        if polished is not None:
                            state.follow(y, polished)
                            y = polished
                            break
                if participants == 0:
                    result.falls += 1
                    y = alpha * (guess * 0.5**result.falls)
                    clients, drift, shift = state.everyone(), np.inf, np.inf
                    continue
                drift, shift = 2.0 * motion[0], 2.0 * motion[1]
                clients, worst = state.undecided(y, drift, shift)
                if worst <= 0.5 * tolerance * scale:
                    result.settled = True
                    break
        except KeyboardInterrupt:
            result.interrupted = True
    if np.any(y > 0):
        result.participation = frozen(np.where(y >= alpha, 1.0, y / alpha))
    return result


def newton_polish(game: StackelbergGame, w: Array, y: Array, steps: int = 12) -> Array | None:
    """Solve ``g_k = 0`` for the clients strictly inside, the others fixed; None if that leaves [0, alpha]."""
    alpha = game.alpha
    inside = np.flatnonzero((y > 0) & (y < alpha))
    if len(inside) == 0:
        return y.copy()
    if len(inside) > LARGEST_SYSTEM:
        return None
    fixed = y.copy()
    fixed[inside] = 0.0
    rest = float(fixed.sum())
    geometry = game.geometry
    share, caps, weight = y[inside].copy(), alpha[inside], w[inside]
    if isinstance(geometry, FeatureGeometry):
        rows = np.asarray(geometry.features[geometry.remaining[inside]], dtype=np.float64)
        rows = rows - geometry.mean_remaining
        pull = geometry.combine(fixed) - rest * geometry.mean_remaining
    else:
        gram = geometry.gram[np.ix_(inside, inside)]
        diagonal = np.diag(gram)
        fixed_inner = geometry.gram @ fixed
        pull_inner, pull_square = fixed_inner[inside], float(fixed @ fixed_inner)
    smallest = np.inf
    best = share
    for _ in range(steps):
        total = rest + share.sum()
        if total <= 0.0:
            return None
        if isinstance(geometry, FeatureGeometry):
            gaps = rows - (pull + share @ rows) / total
            products = gaps @ gaps.T
            squares = np.diag(products)
        else:
            inner = (pull_inner + gram @ share) / total
            square = (pull_square + share @ (2.0 * pull_inner + gram @ share)) / total**2
            squares = diagonal - 2.0 * inner + square
            products = gram - inner[:, None] - inner[None, :] + square
        g = squares - total * weight
        size = float(np.abs(g).max())
        if not np.isfinite(size) or size >= smallest:
            break
        smallest, best = size, share
        jacobian = -2.0 * products / total - weight[:, None]
        share = share - np.linalg.lstsq(jacobian, g, rcond=None)[0]
    if np.any(best < -1e-12 * caps) or np.any(best > caps * (1.0 + 1e-12)):
        return None
    out = fixed
    out[inside] = np.clip(best, 0.0, caps)
    return out


def _places(y: Array, alpha: Array) -> bytes:
    """Who is out, inside and full, in a form that compares fast."""
    return np.packbits(y > 0).tobytes() + np.packbits(y >= alpha).tobytes()


def _first_guess(game: StackelbergGame, w: Array) -> float:
    """The participation, the same for everybody, at which drift and reluctance roughly balance."""
    geometry = game.geometry
    if isinstance(geometry, FeatureGeometry):
        few = np.linspace(0, game.count - 1, min(game.count, 1000)).astype(np.intp)
        rows = np.asarray(geometry.features[geometry.remaining[few]], dtype=np.float64)
        spread = float(np.mean(np.sum((rows - geometry.mean_remaining) ** 2, axis=1)))
    else:
        spread = float(game.alpha @ geometry.mixture(game.alpha).to_clients)
    reluctance = float(game.alpha @ w)
    return 1.0 if reluctance <= spread else spread / reluctance


def _coarse_centre(game: StackelbergGame, w: Array, guess: float, seed: int) -> tuple[Array, float] | None:
    """Mean embedding and total at which a sample of the clients settles, to start the whole game near there."""
    from . import _sweep_kernels as kernels

    geometry, rng = game.geometry, np.random.default_rng(seed)
    if not isinstance(geometry, FeatureGeometry):
        return None
    few = np.sort(rng.choice(game.count, SAMPLE, replace=False))
    rows, alpha, reluctance = geometry.remaining[few], game.alpha[few] / game.alpha[few].sum(), w[few]
    y = alpha * guess
    point = y @ np.asarray(geometry.features[rows], dtype=np.float64)
    for _ in range(15):
        order = rng.permutation(SAMPLE)
        participants, _, moved = kernels.sweep_features(
            geometry.features, rows, alpha, reluctance, y, point, order, 1.0
        )
        if participants < 2:
            return None
        if moved < 1e-3:
            break
    total = float(y.sum())
    return point / total, total


class _State:
    """The kernels bound to one game: sweeps, passes over all clients, and distances between mixtures."""

    def __init__(self, game: StackelbergGame, w: Array, seed: int) -> None:
        self.game, self.w = game, w
        self.rng = np.random.default_rng(seed)
        self.room = np.empty(game.count, dtype=np.intp)
        self.point = np.zeros(0)  # sum y mu, with features

    def everyone(self) -> Clients:
        """All clients in random order, by blocks of consecutive ones so that memory is read in order."""
        from ._sweep_kernels import BLOCK

        N = self.game.count
        size = BLOCK if isinstance(self.game.geometry, FeatureGeometry) else 1
        blocks = self.rng.permutation(-(-N // size))
        order = (blocks[:, None] * size + np.arange(size)).ravel()
        return order[order < N]

    def sweep(self, y: Array, clients: Clients, damping: float) -> tuple[int, float, float]:
        """Let the clients respond, one after another; y changes in place."""
        from . import _sweep_kernels as kernels

        geometry, alpha = self.game.geometry, self.game.alpha
        if isinstance(geometry, FeatureGeometry):
            features, rows = geometry.features, geometry.remaining
            return kernels.sweep_features(features, rows, alpha, self.w, y, self.point, clients, damping)
        return kernels.sweep_gram(geometry.gram, alpha, self.w, y, np.empty(len(y)), clients, damping)

    def refresh(self, y: Array) -> None:
        """Sum y mu anew: sweeps keep it up to date, with rounding."""
        if isinstance(self.game.geometry, FeatureGeometry):
            self.point = self.game.geometry.combine(y)

    def follow(self, y: Array, after: Array) -> None:
        """Take a change of few entries of y into account."""
        geometry = self.game.geometry
        if isinstance(geometry, FeatureGeometry):
            changed = np.flatnonzero(after != y)
            rows = np.asarray(geometry.features[geometry.remaining[changed]], dtype=np.float64)
            self.point = self.point + (after - y)[changed] @ rows

    def centre(self, y: Array) -> tuple[Array, float]:
        """What stands for m (the point itself, or the mixture), and S."""
        total = float(y.sum())
        if isinstance(self.game.geometry, FeatureGeometry):
            return self.point / total, total
        return y / total, total

    def apart(self, a: tuple[Array, float], b: tuple[Array, float]) -> tuple[float, float]:
        """How far two centres are apart, and their totals."""
        gap = a[0] - b[0]
        if isinstance(self.game.geometry, FeatureGeometry):
            square = float(gap @ gap)
        else:
            square = max(float(gap @ self.game.geometry.gram @ gap), 0.0)
        return square**0.5, abs(a[1] - b[1])

    def undecided(self, y: Array, drift: float, shift: float) -> tuple[Clients, float]:
        """A pass over all clients: who may respond differently nearby, and the largest violation."""
        from . import _sweep_kernels as kernels

        centre, total = self.centre(y)
        geometry = self.game.geometry
        if isinstance(geometry, FeatureGeometry):
            squares = geometry.squared_distances(centre)
        else:
            squares = geometry.mixture(centre).to_clients
        count, worst = kernels.undecided(squares, total, self.w, y, self.game.alpha, drift, shift, self.room)
        return self.rng.permutation(self.room[:count]), worst


@contextmanager
def _progress_bar(
    total: int, wanted: bool | None, game: StackelbergGame
) -> Iterator[Callable[[dict[str, Any]], None]]:
    if wanted is None:
        wanted = sys.stderr.isatty() and game.count >= 1_000_000
    if not wanted:
        yield lambda record: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("best responses", total=total)
        yield lambda record: bar.update(
            task, advance=1, description=f"best responses, violation {record['violation']:.1e}"
        )
