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
from typing import Any

import numpy as np
import numpy.typing as npt

from ..model import Array, FeatureGeometry, GameModel, Profile

__all__ = ["Sweeps", "newton_polish", "sweep_to_equilibrium"]

Clients = npt.NDArray[np.intp]

#: Newton's method is tried up to this many clients inside.
LARGEST_SYSTEM = 2000
#: With features, so many neighbouring rows are visited in a row.
BLOCK = 64
#: From this many clients on, a sample of them is settled first.
LARGE = 100_000
SAMPLE = 10_000
#: Damping of the first attempt and of the ones after a fall to the origin.
DAMPINGS = (1.0, 0.5, 0.2, 0.05)


@dataclass(eq=False)
class Sweeps:
    """Where the sweeps ended: the best profile met, and what happened on the way."""

    profile: Profile = field(init=False)
    settled: bool = False
    interrupted: bool = False
    falls: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


def sweep_to_equilibrium(
    game: GameModel,
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
    clients: Clients | None = None
    if start is not None and alpha @ start > 1e-100:  # S squared must not underflow; less is nobody
        y = alpha * start
    elif game.count >= LARGE and (coarse := _coarse_centre(game, w, guess, seed)) is not None:
        y, clients = state.start_near(coarse)
    else:
        y = alpha * guess
    result = Sweeps()
    first, best = y.copy(), np.inf
    with _progress_bar(max_iterations, progress, game) as report:
        try:
            while len(result.history) < max_iterations:
                damping = DAMPINGS[min(result.falls, len(DAMPINGS) - 1)]
                everyone = clients is None
                if clients is None:
                    clients = state.everyone()
                    state.refresh(y)
                centre, places = state.centre(y), _places(y, alpha)
                motion = (np.inf, np.inf)
                for _ in range(min(2 if everyone else 50, max_iterations - len(result.history))):
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
                    if participants == 0:
                        break
                    last, places = places, _places(y, alpha)
                    before, centre = centre, state.centre(y)
                    motion = state.apart(centre, before)
                    if worst <= 0.1 * tolerance * scale:
                        break
                    if places == last:
                        polished = newton_polish(game, w, y, state.point)
                        if polished is not None:
                            state.follow(y, polished)
                            y = polished
                            break
                    if not everyone:  # those whose answer is clear by now need not be asked in this round
                        few, _ = state.undecided(y, state.squares(clients, centre), clients, motion)
                        clients = few if len(few) else clients
                if participants == 0:
                    result.falls += 1
                    y, clients = alpha * (guess * 0.5**result.falls), None
                    continue
                profile = state.profile(y)
                clients, worst = state.undecided(y, profile.to_clients, None, motion)
                if worst < best:
                    best, result.profile = worst, profile
                if worst <= 0.5 * tolerance * scale:
                    result.settled = True
                    break
        except KeyboardInterrupt:
            result.interrupted = True
    if best == np.inf:
        result.profile = state.profile(y if np.any(y > 0) else first)
    return result


def newton_polish(
    game: GameModel, w: Array, y: Array, point: Array | None = None, steps: int = 12
) -> Array | None:
    """Solve ``g_k = 0`` for the clients strictly inside, the others fixed; None if that leaves [0, alpha].

    ``point`` is ``sum y mu``, if it is known (features only).
    """
    alpha = game.alpha
    inside = np.flatnonzero((y > 0) & (y < alpha))
    if len(inside) == 0:
        return np.array(y)
    if len(inside) > LARGEST_SYSTEM:
        return None
    fixed: Array = np.array(y)
    fixed[inside] = 0.0
    rest = float(fixed.sum())
    geometry = game.geometry
    share, caps, weight = y[inside].copy(), alpha[inside], w[inside]
    if isinstance(geometry, FeatureGeometry):
        rows = np.asarray(geometry.features[geometry.remaining[inside]], dtype=np.float64)
        held = geometry.combine(fixed) if point is None else point - share @ rows
        rows = rows - geometry.mean_remaining
        pull = held - rest * geometry.mean_remaining
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


def _first_guess(game: GameModel, w: Array) -> float:
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


def _coarse_centre(game: GameModel, w: Array, guess: float, seed: int) -> tuple[Array, float] | None:
    """Mean embedding and total at which a sample of the clients settles."""
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
    """The kernels bound to one game: sweeps, passes over clients, and distances between mixtures."""

    def __init__(self, game: GameModel, w: Array, seed: int) -> None:
        self.game, self.w = game, w
        self.rng = np.random.default_rng(seed)
        self.features = game.geometry if isinstance(game.geometry, FeatureGeometry) else None
        self.point: Array | None = None  # sum y mu, with features

    def profile(self, y: Array) -> Profile:
        """The profile, summed anew."""
        return self.game.profile(np.where(y >= self.game.alpha, 1.0, y / self.game.alpha))

    def start_near(self, coarse: tuple[Array, float]) -> tuple[Array, Clients]:
        """Everybody in or out by its inclination at a given centre, and who may think differently nearby."""
        squares = self.squares(None, coarse)
        y = np.where(squares > coarse[1] * self.w, self.game.alpha, 0.0)
        self.refresh(y)
        clients, _ = self.undecided(y, squares, None, self.apart(self.centre(y), coarse), coarse[1])
        return y, clients

    def everyone(self) -> Clients:
        """All clients in random order."""
        return self.shuffled(np.arange(self.game.count))

    def shuffled(self, clients: Clients) -> Clients:
        """Clients in random order; with features by blocks of neighbours, so that memory is read in order."""
        if self.features is None:
            return self.rng.permutation(clients)
        whole = len(clients) // BLOCK * BLOCK
        blocks = clients[:whole].reshape(-1, BLOCK)
        return np.concatenate([self.rng.permutation(blocks, axis=0).ravel(), clients[whole:]])

    def sweep(self, y: Array, clients: Clients, damping: float) -> tuple[int, float, float]:
        """Let the clients respond, one after another; y changes in place."""
        from . import _sweep_kernels as kernels

        alpha, w = self.game.alpha, self.w
        if self.features is not None:
            table, rows = self.features.features, self.features.remaining
            outcome = kernels.sweep_features(table, rows, alpha, w, y, self.point, clients, damping)
        else:
            gram = self.game.geometry.gram
            outcome = kernels.sweep_gram(gram, alpha, w, y, np.empty(len(y)), clients, damping)
        participants, worst, moved = outcome
        return int(participants), float(worst), float(moved)

    def refresh(self, y: Array) -> None:
        """Sum y mu anew: sweeps keep it up to date, with rounding."""
        if self.features is not None:
            self.point = self.features.combine(y)

    def follow(self, y: Array, after: Array) -> None:
        """Take a change of few entries of y into account."""
        if self.features is not None and self.point is not None:
            changed = np.flatnonzero(after != y)
            rows = np.asarray(self.features.features[self.features.remaining[changed]], dtype=np.float64)
            self.point = self.point + (after[changed] - y[changed]) @ rows

    def centre(self, y: Array) -> tuple[Array, float]:
        """What stands for m (the point itself, or the mixture), and S."""
        total = float(y.sum())
        return (y if self.point is None else self.point) / total, total

    def apart(self, a: tuple[Array, float], b: tuple[Array, float]) -> tuple[float, float]:
        """How far two centres are apart, and their totals."""
        gap = a[0] - b[0]
        square = float(gap @ gap if self.features is not None else gap @ self.game.geometry.gram @ gap)
        return max(square, 0.0) ** 0.5, abs(a[1] - b[1])

    def squares(self, clients: Clients | None, centre: tuple[Array, float]) -> Array:
        """Squared distances of the given clients (None: all) to a centre, in the clients' order."""
        if self.features is None:
            every = self.game.geometry.mixture(centre[0]).to_clients
            return every if clients is None else every[clients]
        if clients is None:
            return self.features.squared_distances(centre[0])
        from ..model._geometry_kernels import squared_distances

        return np.asarray(
            squared_distances(self.features.features, self.features.remaining[clients], centre[0])
        )

    def undecided(
        self,
        y: Array,
        squares: Array,
        clients: Clients | None,
        motion: tuple[float, float],
        total: float | None = None,
    ) -> tuple[Clients, float]:
        """Who may respond differently within twice the last motion, and the largest violation."""
        from . import _sweep_kernels as kernels

        among = np.arange(self.game.count) if clients is None else clients
        kept = np.empty(len(among), dtype=np.intp)
        total = float(y.sum()) if total is None else total
        count, worst = kernels.undecided(
            squares, total, self.w, y, self.game.alpha, among, 2.0 * motion[0], 2.0 * motion[1], kept
        )
        return self.shuffled(kept[:count]), worst


@contextmanager
def _progress_bar(
    total: int, wanted: bool | None, game: GameModel
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
