"""Cautions about a solution that is correct but cannot be used: too few samples to train on, noise that is not known.

Payments are found for shares of data, and a share can be a thousandth of a sample. The certificate is then as true as any other,
and nothing can be trained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..model import GameModel
from ..model.arguments import number

__all__ = ["amount", "caution_of_frontier", "cautions_of", "check_floor", "few_samples_used", "rough_noise"]

#: Clients with fewer samples than this are pointed out where the variance of their samples counts.
FEW = 5
#: Names that are listed before the rest is counted.
LISTED = 5


def amount(samples: float) -> str:
    """Return a number of samples as text.

    Examples
    --------
    >>> amount(0.08412), amount(12.3456), amount(1836.4), amount(120.0)
    ('0.0841', '12.3', '1836', '120')
    """
    return f"{samples:.0f}" if samples >= 1000 else f"{samples:.3g}"


def cautions_of(solution: Any, warn_below: float | None = None) -> list[str]:
    """Return what should be known before a solution is used, in sentences.

    Parameters
    ----------
    solution
        Any solution.
    warn_below
        Fewest samples in all that are enough, by default one for each client that takes part.
    """
    return [*filter(None, [few_samples_used(solution, warn_below), *rough_noise(solution)])]


def caution_of_frontier(solutions: Sequence[Any], warn_below: float | None = None) -> str:
    """Return a sentence if some of several solutions use fewer samples than is enough, and else an empty text."""
    tiny = [solution for solution in solutions if few_samples_used(solution, warn_below)]
    if not tiny:
        return ""
    largest = tiny[-1]
    said = few_samples_used(largest, warn_below)
    return f"{len(tiny)} of {len(solutions)} budgets buy too little: for {largest.budget:.6g}, {said}"


def check_floor(warn_below: object) -> float | None:
    """Return a number of samples as a float, None for the default; refuse what is negative or no number."""
    if warn_below is None:
        return None
    least = number(warn_below, "warn_below")
    if math.isnan(least) or least < 0:
        raise InputError("warn_below", "must not be negative or NaN", value=warn_below)
    return least


def few_samples_used(solution: Any, warn_below: float | None = None) -> str:
    """Return a sentence if the clients bring fewer samples than ``warn_below`` in all, and else an empty text."""
    used = solution.samples_used
    taking = int(np.count_nonzero(solution.participation))
    least = float(taking) if warn_below is None else warn_below
    if used >= least:
        return ""
    clients = "1 client" if taking == 1 else f"{taking} clients"
    if warn_below is not None:
        fewer = f"fewer than {amount(least)}"
        return f"the plan uses {amount(used)} samples of {clients} in all, {fewer}: min_samples=... asks for more"
    return (
        f"the plan uses {amount(used)} samples of {clients} in all, less than one each, which is no data to train on: "
        "compare the units of budget and costs, or ask for min_samples=..."
    )


def rough_noise(solution: Any) -> list[str]:
    """Return a sentence for clients with unknown noise, and one for clients with roughly known noise."""
    game = solution.game
    if not (solution.goal.finite_sample or game.loss.sampling):
        return []
    counts = game.noise_counts
    found = []
    if (alone := np.flatnonzero(counts <= 1.0)).size:
        has = "has" if alone.size == 1 else "have"
        found.append(
            f"{_clients(game, alone)} {has} a single sample, which does not show how much samples vary; counted is the largest "
            "variance that the kernel allows, 1"
        )
    if (few := np.flatnonzero((counts > 1.0) & (counts < FEW))).size:
        has, its = ("has", "its") if few.size == 1 else ("have", "their")
        found.append(f"{_clients(game, few)} {has} fewer than {FEW} samples: {its} noise is known roughly")
    return found


def _clients(game: GameModel, places: np.ndarray) -> str:
    """Return clients by name; those beyond a few are counted."""
    names = [str(game.label(int(k))) for k in places[:LISTED]]
    if len(places) > LISTED:
        return f"clients {', '.join(names)} and {len(places) - LISTED} more"
    if len(names) == 1:
        return f"client {names[0]}"
    return f"clients {', '.join(names[:-1])} and {names[-1]}"
