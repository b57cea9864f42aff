"""The least spend for a loss among many clients, by asking a few budgets for their least loss.

Where the spend alone is minimised, under a cap on the loss, relaxed programs far from the optimum cost nothing, so their
multipliers say nothing about where better mixtures are, and a search among many clients may not end: it is given a share of the
time. The least loss for a given budget has no such places. It falls with the budget, and a budget at which it stays above the cap
is a lower bound of the least spend. A search need not find that loss: it ends when it falls to the cap (:func:`.large.refute`),
or when every box is shown to stay above it, and then its tree is the proof:

    loss - cap + beta (spend - b) > 0    on every box,

read as a bound of the spend, ``1 / beta`` of the cap's price to one of the objective's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import ConvergenceError, InfeasibleError
from ...jit import clock
from ...judging.bound_check import BoundVerdict, check_bound
from ...judging.gaps import Gap, gap_at
from ...model import Array, GameModel, Objective
from ...results import Status
from ...results.certificate import Knot, LeaderCertificate
from ..tolerances import TINY
from .candidates import Candidate, Candidates
from .claims import accepted
from .large import refute, search_large
from .normalised import normalised
from .small_search import Run

__all__ = ["least_spend"]

#: A budget that suffices for all clients: prices never exceed costs.
ALL_COSTS = 1.01
#: Losses are shown to be above the cap by this part of it: the judge rounds against the claim.
BEYOND = 1e-5
#: Distance from the cap above which a loss counts as different from it.
NEAR_THE_CAP = 1e-4
#: The remaining claim is requested at once if it is this part of the known one, or more.
ALL_AT_ONCE = 0.3
#: Part of the gap that the last budgets leave to the judge.
LAST = 0.95
#: Share of the time that the search for the spend itself has first.
DIRECTLY = 0.3
#: Budgets are asked no nearer to either end of what is known than this part of it.
INSIDE = 0.05


def least_spend(
    game: GameModel,
    objective: Objective,
    *,
    gap: Gap,
    time_limit: float,
    max_nodes: int,
    starts: Iterable[Array] = (),
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> Run:
    """Return payments that keep the loss below its cap for the least spend, within ``gap``, and a certificate."""
    until = clock() + time_limit
    profiles = list(starts)
    kept = Candidates(game, objective, normalised(game, objective))
    for x in profiles:
        kept.offer_start(x)
    if kept.best is None:
        profiles.append(_any_payments(game, objective, time_limit, max_nodes, profiles))
    direct = search_large(
        game,
        objective,
        gap=gap,
        time_limit=DIRECTLY * max(until - clock(), 0.0),
        max_nodes=max_nodes,
        starts=iter(profiles),
        callback=callback,
    )
    if direct.status is not Status.TIME_LIMIT:
        return direct
    unpaid = game.loss_of(game.profile(profiles[0]), objective.finite_sample)
    asked = _Asked(game, objective, gap, direct.best, unpaid, callback)
    if direct.certificate is not None and direct.bound > 0.0:
        asked.low, asked.certificate, asked.verdict = direct.bound, direct.certificate, direct.verdict
    status = Status.CERTIFIED
    while not asked.done:
        left = until - clock()
        if left <= 0.0 or asked.nodes >= max_nodes:
            status = Status.TIME_LIMIT if left <= 0.0 else Status.MAX_ITERATIONS
            break
        status = asked.ask(asked.next_budget, left, max_nodes, profiles[:1])
        if status is not Status.CERTIFIED:
            break
    return Run(
        best=asked.best,
        bound=asked.low,
        history=(*direct.history, *asked.history),
        status=status,
        nodes=direct.nodes + asked.nodes,
        pool=direct.pool,
        certificate=asked.certificate,
        verdict=asked.verdict,
    )


def _any_payments(
    game: GameModel, objective: Objective, time_limit: float, max_nodes: int, profiles: list[Array]
) -> Array:
    """Return the participation of some payments that keep the loss below its cap, or an error."""
    most = min(objective.budget, ALL_COSTS * float(game.costs.sum()))
    found = refute(
        game,
        _for_loss(objective, most),
        objective.max_loss,
        gap=NEAR_THE_CAP * objective.max_loss,
        time_limit=time_limit,
        max_nodes=max_nodes,
        starts=iter(profiles),
    )
    if found.best is not None and found.best.loss <= objective.max_loss:
        return found.best.x
    if found.tree is not None:
        raise InfeasibleError(
            f"no payments of at most {most:.6g} in all have a loss of at most {objective.max_loss:.6g}: every box of total "
            "participation was refuted"
        )
    raise ConvergenceError(
        f"no feasible payments were found, and none were proved impossible ({found.status.name.lower()})"
    )


def _for_loss(objective: Objective, budget: float) -> Objective:
    """Return the least loss for a budget, with everything else as it was asked for."""
    return replace(objective, budget=budget, loss_weight=1.0, payment_weight=0.0, max_loss=np.inf)


class _Asked:
    """Budgets that were asked, and what is known of the least spend."""

    def __init__(
        self,
        game: GameModel,
        objective: Objective,
        gap: Gap,
        best: Candidate,
        unpaid_loss: float,
        callback: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self.game, self.objective, self.asked_gap, self.callback = game, objective, gap, callback
        self.began = clock()
        self.best, self.low = best, 0.0  # in units of the objective
        self.certificate: LeaderCertificate | None = None
        self.verdict: BoundVerdict | None = None
        self.history: list[dict[str, Any]] = []
        self.nodes = 0
        self.unpaid_loss = unpaid_loss
        self.reached = 0  # how many budgets brought the loss to its cap
        self.ceiling = np.inf  # of budgets that were asked in vain

    @property
    def gap(self) -> float:
        """The gap to close at the best payments."""
        return gap_at(self.asked_gap, self.best.value)

    @property
    def done(self) -> bool:
        """True if the gap is closed."""
        return self.certificate is not None and self.best.value - self.low <= self.gap

    @property
    def next_budget(self) -> float:
        """Return a budget between the ends at which the loss is likely to be at its cap."""
        cap, high = self.objective.max_loss, min(self.best.value, self.ceiling)
        width = high - self.low
        share = 0.5  # of a budget that was ruled out one knows only that its loss is above the cap
        if self.certificate is None and self.unpaid_loss > cap > 0.0:
            above, below = (
                float(np.log(max(loss / cap, TINY))) for loss in (self.unpaid_loss, self.best.loss)
            )
            # every budget that reached the cap counts half as much as the one before: the next ones do not creep
            share = above * 0.5**self.reached / (above * 0.5**self.reached - min(below, 0.0))
        near = min(LAST * self.gap / width, 1.0) if width > 0.0 else 1.0
        if near >= ALL_AT_ONCE:  # what is left to be shown may be shown at once
            share = 1.0 - near
        share = float(np.clip(share, min(INSIDE, 1.0 - near), 1.0 - near))
        return (self.low + share * width) / self.objective.payment_weight

    def ask(self, budget: float, seconds: float, max_nodes: int, unpaid: list[Array]) -> Status:
        """Look for payments within a budget that reach the cap, or for the proof that there are none."""
        cap = self.objective.max_loss
        found = refute(
            self.game,
            _for_loss(self.objective, budget),
            cap * (1.0 + BEYOND),
            gap=NEAR_THE_CAP * cap,
            time_limit=seconds,
            max_nodes=max_nodes - self.nodes,
            starts=iter([*unpaid, self.best.x]),
            callback=self._report,
        )
        self.nodes += found.nodes
        at = self.objective.payment_weight * budget
        if found.tree is not None:
            return self._claim(found.tree, at)
        if found.best is not None and found.best.loss <= cap:
            spend = self.objective.payment_weight * found.best.spend
            if spend < self.best.value:
                self.best = replace(found.best, value=spend)
                self.reached += 1
        elif found.status is Status.CERTIFIED:  # too near to the cap to be told from it
            self.ceiling = at
        return found.status

    def _claim(self, tree: LeaderCertificate, lower: float) -> Status:
        """Have the judge look at a proof."""
        weight = self.objective.payment_weight
        claim = LeaderCertificate(lower, tuple(_of_spend(knot, weight) for knot in tree.knots), tree.tree)

        def check(claim: LeaderCertificate) -> BoundVerdict:
            return check_bound(self.game, self.objective, claim, "intervals")

        answer = accepted(check, claim, (1.0 - LAST) * self.gap)
        if answer is None or answer[0].lower <= self.low:
            return Status.CONVERGED
        self.certificate, self.verdict = answer
        self.low = answer[0].lower
        return Status.CERTIFIED

    def _report(self, record: dict[str, Any]) -> None:
        record = {
            **record,
            "node": self.nodes + record["node"],
            "lower": self.low,
            "upper": self.best.value,
            "seconds": clock() - self.began,
        }
        self.history.append(record)
        if self.callback is not None:
            self.callback(record)


def _of_spend(knot: Knot, weight: float) -> Knot:
    """Multipliers of the least loss for a budget, read as multipliers of the least spend for a loss."""
    return replace(knot, objective=knot.budget / weight, budget=0.0, loss_cap=knot.objective)
