"""One equilibrium of a large game: best responses one client after another, then Newton's method.

A sweep costs O(N D) with features (the weighted sum of feature rows is kept up to date) and O(N^2) with
a Gram matrix. Few clients matter after the first sweeps: while the mean embedding m stays within ``r`` of
where a full pass computed the distances, and S within ``e``, ``g_k`` moves by at most
``r (2 d_k + r) + e |w_k|`` (a sampling term adds what ``a / (2 S)`` moves by), so clients at a bound with a larger margin are left
out of the sweeps until the next full pass. Those strictly inside are left to Newton's method (:mod:`.newton`) once nobody changes
its place any more. Nothing here proves convergence: a point is accepted only if the conditions hold for every client at it.

Best responses can fall to the origin: once all clients but one have dropped out, the last one has none to
respond to. That is no equilibrium; the sweeps then start again with damping. With a sampling term this does not happen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..model import Array, GameModel, Profile
from ..progress import reporting
from .newton import newton_polish
from .options import SearchOptions
from .running import Centre, Clients, running_mixture
from .solver_tolerances import CONFIRMED, NOBODY, SETTLED

__all__ = ["Sweeps", "sweep_to_equilibrium"]

#: From this many clients on, a sample of them is settled first.
LARGE = 100_000
SAMPLE = 10_000
#: From this many clients on, sweeps take long enough for a progress line.
MANY = 1_000_000
#: Damping of the first attempt and of the ones after a fall to the origin.
DAMPINGS = (1.0, 0.5, 0.2, 0.05)
#: Consecutive sweeps over all clients, and over the undecided ones.
IN_A_ROW, IN_A_ROW_AMONG_FEW = 2, 50


@dataclass(eq=False)
class Sweeps:
    """End of the sweeps: the best profile found, and the events on the way."""

    profile: Profile = field(init=False)
    settled: bool = False
    interrupted: bool = False
    falls: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


def sweep_to_equilibrium(
    game: GameModel, payments: Array, options: SearchOptions, tolerance: float, caps: Array | None = None
) -> Sweeps:
    """Sweep until the equilibrium conditions hold within half the tolerance at every client."""
    search = _Search(game, payments, options, tolerance, caps)
    wanted = options.progress
    if wanted is None and game.count < MANY:
        wanted = False
    with reporting("best responses", wanted, lambda record: None) as report:
        assert report is not None
        try:
            while search.goes_on and not search.result.settled:
                search.one_round(report)
        except KeyboardInterrupt:
            search.result.interrupted = True
    return search.finish()


class _Search:
    """State of the sweeps: current participation, the next clients, and the best profile found."""

    def __init__(
        self,
        game: GameModel,
        payments: Array,
        options: SearchOptions,
        tolerance: float,
        caps: Array | None = None,
    ) -> None:
        self.game, self.options = game, options
        self.w, self.alpha = game.reluctance(payments), game.alpha
        self.caps = game.no_caps if caps is None else caps
        #: Cap on each client's participation.
        self.bound = self.alpha if caps is None else self.alpha * caps
        self.tolerance = tolerance
        self.running = running_mixture(game, self.w, self.bound)
        self.rng = np.random.default_rng(options.seed)
        self.result = Sweeps()
        self.guess = self._first_guess()
        self.clients: Clients | None = None
        self.y = self._start()
        self.first, self.best = self.y.copy(), np.inf

    @property
    def goes_on(self) -> bool:
        """True while sweeps are left."""
        return len(self.result.history) < self.options.max_iterations

    @property
    def scale(self) -> float:
        """The size of what balances: the largest squared distance, and the sampling term where it is larger."""
        a = self.game.sampling
        largest = self.game.geometry.scale
        return largest if a == 0.0 else max(largest, 0.5 * a / max(float(self.y.sum()), NOBODY))

    def one_round(self, report: Callable[[dict[str, Any]], None]) -> None:
        """Sweep over all clients, or several times over the undecided ones; then make a full pass."""
        y, everyone = self.y, self.clients is None
        if self.clients is None:
            self.clients = self.running.shuffled(np.arange(self.game.count), self.rng)
            self.running.refresh(y)
        damping = DAMPINGS[min(self.result.falls, len(DAMPINGS) - 1)]
        centre, places = self.running.centre(y), _places(y, self.bound)
        motion = (np.inf, np.inf)
        for _ in range(IN_A_ROW if everyone else IN_A_ROW_AMONG_FEW):
            if not self.goes_on:
                break
            participants, worst, moved = self.running.sweep(y, self.clients, damping)
            self._record(participants, worst, moved, damping, report)
            if participants == 0:
                self._start_again()
                return
            last, places = places, _places(y, self.bound)
            before, centre = centre, self.running.centre(y)
            motion = self.running.apart(centre, before)
            if worst <= SETTLED * self.tolerance * self.scale:
                break
            if places == last:
                polished = newton_polish(self.game, self.w, y, self.running.point, bound=self.bound)
                if polished is not None:
                    self.running.follow(y, polished)
                    self.y = polished
                    break
            if not everyone:  # decided clients are skipped in this round
                few, _ = self._undecided(self.running.squares(self.clients, centre), self.clients, motion)
                self.clients = few if len(few) else self.clients
        profile = self._profile(self.y)
        self.clients, worst = self._undecided(profile.to_clients, None, motion)
        if worst < self.best:
            self.best, self.result.profile = worst, profile
        self.result.settled = worst <= CONFIRMED * self.tolerance * self.scale

    def finish(self) -> Sweeps:
        """Return the result, with a profile even if no round came to its end."""
        if self.best == np.inf:
            self.result.profile = self._profile(self.y if np.any(self.y > 0) else self.first)
        return self.result

    # ---------------------------------------------------------------- where to start

    def _start(self) -> Array:
        start = self.options.start
        if start is not None and self.bound @ start > NOBODY:
            return self._within(self.alpha * start)
        coarse = None
        if self.game.count >= LARGE:
            few = np.sort(self.rng.choice(self.game.count, SAMPLE, replace=False))
            coarse = self.running.of_sample(few, self.guess, self.rng)
        return self._within(self.alpha * self.guess) if coarse is None else self._near(coarse)

    def _within(self, y: Array) -> Array:
        """Return y below the caps."""
        return y if self.bound is self.alpha else np.minimum(y, self.bound)

    def _first_guess(self) -> float:
        """Return the participation, the same for all clients, at which drift and reluctance roughly balance."""
        spread = self.game.geometry.typical_square(self.alpha)
        reluctance = float(self.alpha @ self.w)
        a = self.game.sampling
        if a > 0.0 and reluctance > 0.0:
            spread = 0.5 * (spread + float(np.sqrt(spread**2 + 2.0 * a * reluctance)))
        return 1.0 if reluctance <= spread else spread / reluctance

    def _near(self, coarse: Centre) -> Array:
        """Set all clients in or out by their inclination at a given centre; undecided ones are asked first."""
        squares = self.running.squares(None, coarse)
        pull = squares if self.game.sampling == 0.0 else squares + 0.5 * self.game.sampling / coarse[1]
        self.y = np.where(pull > coarse[1] * self.w, self.bound, 0.0)
        self.running.refresh(self.y)
        motion = self.running.apart(self.running.centre(self.y), coarse)
        self.clients, _ = self._undecided(squares, None, motion, coarse[1])
        return self.y

    def _start_again(self) -> None:
        """Start lower, with damping, after all clients have dropped out."""
        self.result.falls += 1
        self.y, self.clients = self._within(self.alpha * (self.guess * 0.5**self.result.falls)), None

    # ---------------------------------------------------------------- on the way

    def _record(
        self,
        participants: int,
        worst: float,
        moved: float,
        damping: float,
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        assert self.clients is not None
        record = {
            "sweep": len(self.result.history) + 1,
            "clients": len(self.clients),
            "violation": worst / self.scale,
            "moved": moved,
            "total": float(self.y.sum()),
            "participants": participants,
            "damping": damping,
        }
        self.result.history.append(record)
        report(record)
        if self.options.callback is not None:
            self.options.callback(record)

    def _profile(self, y: Array) -> Profile:
        """Return the profile, summed anew."""
        return self.game.profile(np.where(y >= self.bound, self.caps, np.minimum(y / self.alpha, self.caps)))

    def _undecided(
        self,
        squares: Array,
        clients: Clients | None,
        motion: tuple[float, float],
        total: float | None = None,
    ) -> tuple[Clients, float]:
        """Return the clients that may respond differently within twice the last motion, and the largest violation."""
        from . import _sweep_kernels as kernels

        among = np.arange(self.game.count) if clients is None else clients
        kept = np.empty(len(among), dtype=np.intp)
        total = float(self.y.sum()) if total is None else total
        count, worst = kernels.undecided(
            squares,
            total,
            self.w,
            self.y,
            self.bound,
            among,
            2.0 * motion[0],
            2.0 * motion[1],
            kept,
            self.game.sampling,
        )
        return self.running.shuffled(kept[:count], self.rng), worst


def _places(y: Array, alpha: Array) -> bytes:
    """Return the sets of clients out, inside and full, in a form that compares fast."""
    return np.packbits(y > 0).tobytes() + np.packbits(y >= alpha).tobytes()
