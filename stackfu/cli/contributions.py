"""Effects of more money for each client, and values of each client's data: tables, sentences and records of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, NotDifferentiableError
from ..html import NOTHING, money, number
from ..sensitivity.marginal import signed
from .tables import MOST_ROWS, Cell, fitted
from .wording import as_typed

if TYPE_CHECKING:
    from rich.console import Console

    from ..results import Equilibrium, Solution
    from ..sensitivity.marginal import MarginalEffects
    from ..values import ClientValues

__all__ = ["contributions", "say_contributions", "say_values"]


def contributions(result: Equilibrium | Solution, sensitivity: bool, values: bool) -> dict[str, Any]:
    """Return what was asked for of a result, as records for programs."""
    found: dict[str, Any] = {}
    if sensitivity:
        found["sensitivity"] = {
            **result.marginal_effects().summary(),
            "budget": _of_budget(result),
        }
    if values:
        found["values"] = result.values().summary()
    return found


def say_contributions(out: Console, result: Equilibrium | Solution, sensitivity: bool, values: bool) -> None:
    """Print what was asked for of a result: a table and a sentence each."""
    game = result.game
    if sensitivity:
        effects = result.marginal_effects()
        if effects.reason:
            out.print(f"{as_typed(effects.words())}.")
        else:
            _say_effects(out, effects, result)
        if said := _budget_in_words(_of_budget(result), effects.step, game.currency):
            out.print(said)
    if values:
        equilibrium = getattr(result, "equilibrium", result)
        if not equilibrium.participation.any():
            out.print("No client brings data, so none has a value.")
            return
        say_values(out, result.values(), result.payouts, NOTHING * game.costs, game.currency)


def _say_effects(out: Console, effects: MarginalEffects, result: Equilibrium | Solution) -> None:
    game, shown = result.game, range(min(len(effects.names), MOST_ROWS))
    cells: dict[str, list[Cell]] = {
        "client": [effects.names[k] for k in shown],
        "payment": [number(result.payments[k], NOTHING * game.costs[k]) for k in shown],
        "samples": [f"{effects.together[k]:+.3g}" for k in shown],
        "its own": [f"{effects.own[k]:+.3g}" for k in shown],
        "server loss": [signed(effects.loss[k]) for k in shown],
        "spend": [signed(effects.spend[k]) for k in shown],
    }
    title = f"What {money(effects.step, game.currency)} more for a client brings"
    table = fitted(title, cells, (("spend",), ("its own",)), game.count, game.currency)
    table.caption = "payment: for full participation; samples: of all clients together; at the present rates"
    out.print(table)
    out.print(f"{effects.words(None, game.currency)}.")


def _of_budget(result: Equilibrium | Solution) -> dict[str, Any] | None:
    """Return what one more unit of the budget brings at a certified optimum, None of other results."""
    from ..results import Solution

    if not isinstance(result, Solution) or result.limits is None or not np.isfinite(result.budget):
        return None
    try:
        loss, samples = (result.sensitivity("budget", of) for of in ("server_loss", "samples"))
    except (NotDifferentiableError, InputError) as error:
        return {"server_loss": None, "samples": None, "reason": str(error)}
    return {"server_loss": float(loss), "samples": float(samples.sum()), "reason": None}


def _budget_in_words(found: dict[str, Any] | None, step: float, currency: str | None) -> str:
    """Return the effect of the budget in a sentence, nothing where there is none."""
    if found is None:
        return ""
    if found["reason"] is not None:
        return f"What a larger budget brings is not known: {as_typed(found['reason'])}."
    return (
        f"{money(step, currency)} more of budget, spent as well as possible, changes the server loss by "
        f"{signed(step * found['server_loss'])} and the samples by {step * found['samples']:+.3g}."
    )


def say_values(out: Console, values: ClientValues, receives: Any, nothing: Any, currency: str | None) -> None:
    """Print values of clients and their payments (None: not known), with the confidence of the values."""
    shown = range(min(len(values.clients), MOST_ROWS))
    cells: dict[str, list[Cell]] = {"client": [values.clients[k] for k in shown]}
    if receives is not None:
        paid = float(np.sum(receives))
        cells["receives"] = [number(receives[k], nothing[k]) for k in shown]
        cells["of all paid"] = [f"{receives[k] / paid:.1%}" if paid > 0 else "–" for k in shown]
    cells |= {
        "Shapley value": [number(values.shapley[k]) for k in shown],
        "of all value": [f"{values.shares[k]:.1%}" for k in shown],
        **(
            {}
            if values.exact
            else {
                "at least": [number(values.low[k]) for k in shown],
                "at most": [number(values.high[k]) for k in shown],
            }
        ),
        "lost without it": [number(values.leave_one_out[k]) for k in shown],
        "alone": [number(values.alone[k]) for k in shown],
    }
    table = fitted(
        f"What each client contributes to the fall of the {values.measure}"
        if values.measure == "server loss"
        else f"What each client contributes to {values.measure}",
        cells,
        (("alone",), ("of all paid",), ("lost without it",)),
        len(values.clients),
        currency,
    )
    table.caption = (
        "lost without it: by all together if it brought nothing; alone: its value without the others"
    )
    out.print(table)
    out.print(
        f"All together {number(values.whole)}, from {number(values.empty)} without anybody's data. {values.words}"
    )
