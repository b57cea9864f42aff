"""Several removal requests, one after the other: costs anchored, one budget, a history.

The same client keeps its cost of full participation when the federation shrinks (the default costs of a new game would
change with it).

>>> import stackfu as sf
>>> from stackfu.demo import digits_game
>>> requests = sf.Requests(digits_game(sampling_constant=30.0).replace(removed=[]), budget=0.2)
>>> first = requests.remove([0], share=0.5, offers="capped", gap=1e-2, progress=False)
>>> second = requests.remove([1, 2], offers="capped", gap=1e-2, progress=False)
>>> len(requests), requests.spent <= 0.2, requests.game.removed
(2, True, (0, 1, 2))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .embedding.names import listed
from .errors import InfeasibleError, InputError
from .game import StackelbergGame
from .leader.tolerances import OVERSPENT
from .model import Objective
from .model.arguments import number
from .model.content import Content
from .results import Solution, Status
from .results.access import Tables

__all__ = ["Request", "Requests"]


@dataclass(frozen=True, eq=False)
class Request(Content):
    """One request: who left, what could be spent, and what was offered."""

    removed: tuple[int, ...]
    budget: float
    solution: Solution

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the removed clients."""
        return tuple(self.solution.game.called(k) for k in self.removed)

    def summary(self) -> dict[str, Any]:
        """Return the request as plain values."""
        return {
            "removed": list(self.names),
            "budget": self.budget,
            "spend": self.solution.spend,
            "objective": self.solution.objective,
            "total": self.solution.equilibrium.total,
            "samples_used": self.solution.samples_used,
            "remaining": self.solution.game.count,
            "status": self.solution.status.name,
        }


@dataclass(eq=False)
class Requests(Tables, Sequence[Request]):
    """A federation that answers removal requests from one budget; ``game`` is the federation as it is now."""

    game: StackelbergGame
    budget: float
    history: list[Request] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        game: Any = self.game
        budget: Any = self.budget
        if not isinstance(game, StackelbergGame):
            raise InputError("game", "must be a StackelbergGame", value=repr(game))
        self.budget = Objective(budget=budget).budget

    @property
    def spent(self) -> float:
        """Cost of all requests together."""
        return float(sum(request.solution.spend for request in self.history))

    @property
    def left(self) -> float:
        """Remaining budget."""
        return max(self.budget - self.spent, 0.0)

    def remove(self, clients: Iterable[int | str], *, share: float = 1.0, **options: Any) -> Solution:
        """Answer a request with at most ``share`` of what is left.

        ``options`` are those of ``solve``. Nothing changes if it fails.
        """
        if not 0.0 < number(share, "share") <= 1.0:
            raise InputError("share", "must lie in (0, 1]", value=share)
        if "budget" in options:
            raise InputError(
                "budget",
                "is that of all requests; share says how much of what is left",
                value=options["budget"],
            )
        after = without(self.game, clients)
        solution = after.solve(share * self.left, **options)
        if solution.status is Status.FAILED:
            raise InfeasibleError(solution.message)
        if solution.spend > self.left * (1.0 + OVERSPENT):
            raise InfeasibleError(f"the answer costs {solution.spend:g}, and {self.left:g} is left")
        gone = tuple(k for k in after.removed if k not in self.game.removed)
        self.history.append(Request(gone, share * self.left, solution))
        self.game = after
        return solution

    def summary(self) -> dict[str, Any]:
        """Return the history as plain values."""
        return {
            "budget": self.budget,
            "spent": self.spent,
            "left": self.left,
            "requests": [request.summary() for request in self.history],
        }

    def to_pandas(self) -> Any:
        """Return a DataFrame with one row per request (needs pandas)."""
        from .html import data_frame

        rows = [request.summary() for request in self.history]
        names = ("removed", "budget", "spend", "objective", "total", "remaining", "status")
        columns = {name: [row[name] for row in rows] for name in names}
        columns["removed"] = [listed(names, len(names)) for names in columns["removed"]]
        return data_frame(columns, range(1, len(rows) + 1), "request")

    def __len__(self) -> int:
        return len(self.history)

    def __getitem__(self, index: Any) -> Any:
        return self.history[index]

    def __repr__(self) -> str:
        return f"Requests({len(self)} answered, {self.spent:.6g} of {self.budget:.6g} spent, {self.game.count} clients remain)"


def without(game: StackelbergGame, clients: Iterable[int | str]) -> StackelbergGame:
    """Return the game after more clients have left, by number or name; the others keep their costs."""
    gone = game.client_names.positions(clients, "removed", remaining=True, removing=True)
    if not gone:
        raise InputError("removed", "must name at least one client")
    keep = ~np.isin(np.asarray(game.remaining), gone)
    own = {} if game.has_paper_loss else {"server_loss": game.loss}
    return game.replace(removed=(*game.removed, *gone), costs=game.costs[keep], **own)
