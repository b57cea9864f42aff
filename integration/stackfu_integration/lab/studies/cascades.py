"""Departures of clients that measure losses: after every departure the head is trained again.

A client that stays has the payments, its cost and the measured loss of the common model; outside it has the measured loss of a
model of its own data. The client that would gain most leaves, with its data; the others answer anew to the same offers, the
head is trained again on what they bring, and so on until no client would gain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stackfu.errors import ConvergenceError, InfeasibleError, NoEquilibriumError
from stackfu.game import StackelbergGame
from stackfu.requests import without
from stackfu_integration.arrays import FloatArray
from stackfu_integration.lab.mechanisms import CAPPED_LABELS, MECHANISMS, SAME_SHARE, UNIFORM, UNPAID
from stackfu_integration.lab.payments import plan_payments
from stackfu_integration.lab.runs.rounding import rounded
from stackfu_integration.lab.runs.source import Source
from stackfu_integration.lab.studies.bench import Bench, Measured, one_thread
from stackfu_integration.storage import write_json

__all__ = ["OFFERED", "Cascades", "outside_options", "unfold"]

CERTIFIED_LABELS = "certified-labels"
RETAINERS = "retainers"
#: Offers that are compared; the certified payments are linear ones in the labels game.
OFFERED = (UNPAID, UNIFORM, SAME_SHARE, CERTIFIED_LABELS, CAPPED_LABELS, RETAINERS)


def outside_options(bench: Bench, game: StackelbergGame) -> FloatArray:
    """Return what every remaining client has outside, in the utilities of the game, from measured losses.

    Utilities of the game leave out what the original federation costs a client; so does this:
    ``o_k = -[f_k(alone) - f_k(original)] - C d_k^2(mu_O) - A / n_O``.
    """
    pilots = bench.pilots
    lost = pilots.alone["pooled"] - pilots.before["pooled"][list(pilots.remaining)]
    baseline = game.loss_constant * np.asarray(game.distances_to_original)
    return np.asarray(-lost - baseline - game.sampling_constant / float(game.all_sizes.sum()))


def offers_of(
    bench: Bench, game: StackelbergGame, name: str, budget: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return prices, caps and retainers of a mechanism."""
    nothing = np.zeros(game.count)
    if name == CERTIFIED_LABELS:
        found = game.solve(budget, "certified", gap=1e-3, time_limit=10.0, progress=False)
        return np.asarray(found.payments), np.ones(game.count), nothing
    if name == RETAINERS:
        options = MECHANISMS[CAPPED_LABELS].options_in(game, budget)
        kept = game.solve(budget, progress=False, outside=outside_options(bench, game), **options)
        return tuple(
            np.asarray(part) for part in (kept.offers.prices, kept.offers.caps, kept.offers.retainers)
        )  # type: ignore[return-value]
    plan = plan_payments(game, name, budget)
    return plan.payments, plan.caps, nothing


def unfold(
    bench: Bench, game: StackelbergGame, prices: FloatArray, caps: FloatArray, retainers: FloatArray
) -> dict[str, Any]:
    """Let clients answer, train, and leave one after another; return every round and how it ends."""
    place = {int(client): k for k, client in enumerate(game.remaining)}
    alone = dict(zip(bench.pilots.remaining, bench.pilots.alone["pooled"], strict=True))
    left: list[int] = []
    rounds: list[dict[str, Any]] = []
    while True:
        now = without(game, left) if left else game
        here = [place[int(client)] for client in now.remaining]
        x = _answer(now, prices[here], caps[here])
        if x is None:
            return {"left": left, "stay": [], "collapsed": True, "rounds": rounds, "spend": 0.0}
        shares = {int(client): float(share) for client, share in zip(now.remaining, x, strict=True)}
        try:
            found = bench.train(shares, (*bench.removed, *left))
        except ConvergenceError as error:
            return {"left": left, "diverged": str(error), "rounds": rounds}
        payout = prices[here] * x + retainers[here]
        inside = payout - now.costs * x - found.pooled[list(shares)]
        gain = -np.array([alone[client] for client in shares]) - inside
        rounds.append(
            {
                "clients": list(shares),
                "participation": x.tolist(),
                "spend": float(payout.sum()),
                "gains_by_leaving": gain.tolist(),
                **_quality(bench, found, list(shares)),
            }
        )
        worst = int(np.argmax(gain))
        if gain[worst] <= 0.0:
            break
        left.append(list(shares)[worst])
        if len(left) >= game.count - 1:  # one client is no federation
            return {"left": left, "stay": [], "collapsed": True, "rounds": rounds, "spend": 0.0}
    last = rounds[-1]
    return {
        "left": left,
        "stay": last["clients"],
        "collapsed": False,
        "rounds": rounds,
        "spend": last["spend"],
    }


def _answer(game: StackelbergGame, prices: FloatArray, caps: FloatArray) -> FloatArray | None:
    """Return the clients' equilibrium; None if no client takes part."""
    try:
        x = np.asarray(game.equilibrium(prices, caps=caps).participation)
    except NoEquilibriumError:
        return None
    # a share of less than half a sample of every client is no data
    used = sum(round(float(share) * float(size)) for share, size in zip(x, game.sizes, strict=True))
    return x if used else None


def _quality(bench: Bench, found: Measured, staying: list[int]) -> dict[str, float]:
    """V + S, S in points and the worst Q, as in a study without departures; the worst Q is that of the clients who are left."""
    made = bench.effects(found)
    made["worst_q"] = float((found.losses - bench.original.losses)[staying].max())
    return made


@dataclass
class Cascades:
    """Departures in the federations of one preset: a file per federation."""

    source: Source
    folder: Path
    betas: tuple[float, ...]
    seeds: tuple[int, ...]
    cost_scales: tuple[float, ...] = (10.0, 1.0)
    budget: float = 0.5

    def tasks(self) -> Iterator[tuple[float, int]]:
        """Betas and seeds, seed by seed."""
        for seed in self.seeds:
            for beta in self.betas:
                yield beta, seed

    def path(self, beta: float, seed: int) -> Path:
        """File of a federation."""
        return self.folder / f"{self.source.preset.name}-b{beta:g}-s{seed}.json"

    def run(self, beta: float, seed: int) -> None:
        """Unfold every kind of offers in one federation."""
        bench = Bench(self.source, beta, seed)
        found: list[dict[str, Any]] = []
        for scale in self.cost_scales:
            game = bench.game(scale)
            budget = self.budget * float(game.full_participation_price)
            for name in OFFERED if budget > 0 else (UNPAID,):
                about: dict[str, Any] = {"cost_scale": scale, "mechanism": name, "budget": budget}
                try:
                    about |= unfold(bench, game, *offers_of(bench, game, name, budget))
                except (InfeasibleError, ConvergenceError, NoEquilibriumError) as error:
                    about["without_answer"] = str(error)
                found.append(about)
        about = {"preset": self.source.preset.name, "beta": beta, "seed": seed, "cascades": found}
        write_json(self.path(beta, seed), rounded(about))

    def complete(self, finished: Callable[[str], None], out_of_time: Callable[[], bool]) -> bool:
        """Run what is missing until the time is over; True when nothing is left."""
        for beta, seed in self.tasks():
            if self.path(beta, seed).is_file():
                continue
            if out_of_time():
                return False
            with one_thread():
                self.run(beta, seed)
            finished(self.path(beta, seed).stem)
        return True

    def collect(self, out: Path) -> Path:
        """Write all federations as one file."""
        files = [self.path(*task) for task in self.tasks()]
        stored = [json.loads(path.read_text()) for path in files if path.is_file()]
        return write_json(out / f"cascades-{self.source.preset.name}.json", {"federations": stored})
