"""Results as tables for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..embedding.names import listed
from ..model.impacts import guessed
from ..pages import NOTHING, number

if TYPE_CHECKING:
    from ..game import StackelbergGame
    from ..lemmas import LemmaReport
    from ..results import Cascade, Equilibria, Equilibrium, Frontier, Solution

__all__ = [
    "and_more",
    "best_in_words",
    "cascade_table",
    "clients_table",
    "comparison_table",
    "console",
    "equilibria_table",
    "frontier_table",
    "game_line",
    "led_by",
    "lemmas_table",
    "offers_table",
    "say_guess",
]

#: Longer tables are cut: a terminal is no place for a thousand clients.
MOST_ROWS = 40
_GOOD = {"CERTIFIED", "CONVERGED", "UNIQUE"}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command line: a reader that has seen enough is no failure."""
        raise BrokenPipeError


def console() -> Console:
    """Standard output, in which a name in square brackets is no markup; piped output is not squeezed into 80 columns."""
    return _Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)


def led_by(words: str, style: str, rest: str) -> Text:
    """A sentence whose first words stand out."""
    return Text.assemble((words, style), rest)


def say_guess(out: Console, game: StackelbergGame) -> None:
    """A warning where losses are shown that no training has confirmed; nothing for a calibrated game."""
    if line := guessed(game):
        out.print(led_by("A guess:", "yellow", line.removeprefix("A guess:")))


def best_in_words(solution: Solution) -> str:
    """What is proved about a solution, in a sentence."""
    if solution.lower_bound == -float("inf"):
        if solution.status.name == "TIME_LIMIT":
            return f"In its time {solution.method} proved nothing about how good these payments are; --time-limit gives it more."
        return f"{solution.method} proves nothing about how good its payments are."
    limit = f"within {f'a budget of {solution.budget:g}' if solution.budget < float('inf') else 'any budget'}"
    if solution.proves == "spend":
        limit = f"with a server loss of at most {solution.goal.max_loss:g}"
    posted = "payments" if solution.offers.kind == "linear" else f"{solution.offers.kind} offers"
    bound, reached = f"{solution.lower_bound:.6g}", f"{solution.objective:.6g}"
    text = f"No {posted} {limit} bring the {solution.proves} below {bound}" + (
        f", which these reach (gap {solution.gap:.1e})."
        if bound == reached
        else f"; these bring it to {reached} (gap {solution.gap:.1e})."
    )
    several = solution.equilibrium.uniqueness.name
    if several == "UNIQUE":
        return text + " They have exactly one equilibrium."
    if solution.offers.kind != "linear":
        return f"{text} {solution.message[:1].upper()}{solution.message[1:]}."
    from ..leader.certified.mechanism import ENUMERATE_UP_TO

    if solution.game.count > ENUMERATE_UP_TO and several == "UNKNOWN":
        return f"{text} Whether they have other equilibria is not settled: {solution.equilibrium.reason}."
    text += f" Their equilibrium is {solution.equilibrium.uniqueness.value}"
    if solution.game.count > ENUMERATE_UP_TO:  # listing the others would take longer than the search did
        return f"{text}."
    return f"{text}: {_between(solution.optimistic, solution.pessimistic)}."


def _between(best: float, worst: float) -> str:
    """The server loss of several equilibria; one number where they do not differ in the digits that are shown."""
    if f"{best:.6g}" != f"{worst:.6g}":
        return f"the server loss lies between {best:.6g} and {worst:.6g}"
    apart = "" if best == worst else f" (at most {worst - best:.1e} apart)"
    return f"the server loss is {best:.6g} in all that are known{apart}"


def bar(share: float, width: int = 10) -> Text:
    """A share of 1 as a bar with its percentage."""
    filled = round(share * width)
    text = Text("█" * filled, style="cyan").append("░" * (width - filled), style="dim")
    return text.append(f" {share:>4.0%}")


def verdict(name: str) -> Text:
    """A status or uniqueness, coloured by whether it is good news."""
    return Text(name.lower().replace("_", " "), style="green" if name in _GOOD else "yellow")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.caption_justify, table.caption_style = "left", "dim"
    for column in columns:
        left = column.startswith("<")
        table.add_column(column.lstrip("<"), justify="left" if left else "right", no_wrap=True)
    return table


def game_line(game: StackelbergGame) -> str:
    """The game in a sentence."""
    gone = [game.called(k) for k in game.removed]
    removed = listed(gone) if len(gone) <= 8 else f"{len(gone)} of them"
    return (
        f"{len(game.all_sizes)} clients with {game.all_sizes.sum():g} samples; "
        f"forgotten: {removed or 'nobody'}; remaining: {game.count} with {game.sizes.sum():g} samples."
    )


def clients_table(eq: Equilibrium, title: str) -> Table:
    """One row per client: what it owns, what it is paid, what it does and what it gets."""
    game = eq.game
    low, high = game.thresholds(eq.participation)
    receives, changes = eq.payments * eq.participation, eq.impacts.clients
    heads = "client,samples,cost,payment,<takes part,receives,utility,change,out below,full above"
    cells: dict[str, list[str | Text]] = {head: [] for head in heads.split(",")}
    for k in range(min(game.count, MOST_ROWS)):
        row: list[str | Text] = [
            short(str(game.who(k))),
            f"{game.sizes[k]:g}",
            number(game.costs[k]),
            number(eq.payments[k], NOTHING * game.costs[k]),
            bar(eq.participation[k]),
            number(receives[k], NOTHING * game.costs[k]),
            number(eq.utilities[k]),
            f"{changes[k]:+.3g}",
            number(max(low[k], 0.0)),
            number(max(high[k], 0.0)),
        ]
        for column, cell in zip(cells.values(), row, strict=True):
            column.append(cell)
    room = console()
    table = _of_columns(title, cells, game.count)
    for spare in (("out below", "full above"), ("receives",)):  # what goes where there is no room
        if Measurement.get(room, room.options.update(max_width=1000), table).maximum <= room.width:
            break
        for name in spare:
            del cells[name]
        table = _of_columns(title, cells, game.count)
    table.caption = "cost, payment: for full participation, in proportion for less; "
    table.caption += "change: of its loss, predicted, against the original model"
    if "out below" in cells:
        table.caption += "; out below, full above: payments at which it would, the others as they are"
    return table


def short(name: str) -> str:
    """A name that leaves room for the rest of its row."""
    return name if len(name) <= 24 else name[:23] + "…"


def _of_columns(title: str, cells: dict[str, list[str | Text]], count: int) -> Table:
    table = _table(title, *cells)
    for row in zip(*cells.values(), strict=True):
        table.add_row(*row)
    if count > MOST_ROWS:
        table.add_row("...", f"{count - MOST_ROWS} more")
    return table


def offers_table(solution: Solution, title: str) -> Table:
    """One row per client: what is posted to it, and what it receives."""
    game, offers = solution.game, solution.offers
    keeps = bool(offers.retainers.any())
    columns = ["client", "samples", "cost", "price", "<at most", "receives", *(["retainer"] if keeps else [])]
    table = _table(title, *columns)
    payouts = solution.payouts
    for k in range(min(game.count, MOST_ROWS)):
        row: list[str | Text] = [
            short(str(game.who(k))),
            f"{game.sizes[k]:g}",
            number(game.costs[k]),
            number(offers.prices[k], NOTHING * game.costs[k]),
            bar(offers.caps[k]),
            number(payouts[k], NOTHING * game.costs[k]),
            *([number(offers.retainers[k], NOTHING * game.costs[k])] if keeps else []),
        ]
        table.add_row(*row)
    if game.count > MOST_ROWS:
        table.add_row("...", f"{game.count - MOST_ROWS} more")
    table.caption = "cost, price: for all of a client's data, in proportion for less; nothing beyond the limit is used or paid"
    return table


def cascade_table(found: Cascade, title: str) -> Table:
    """One row per round of departures."""
    table = _table(title, "round", "clients", "data used", "server loss", "<leaving")
    for i, departure in enumerate(found):
        leaving = [found.game.called(k) for k in departure.leaving]
        table.add_row(
            str(i + 1),
            str(len(departure.clients)),
            f"{departure.total:.1%}",
            number(departure.server_loss),
            and_more(leaving),
        )
    return table


def and_more(names: Sequence[str]) -> str:
    """Names in a sentence, those beyond a dozen counted."""
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return (listed(names[:12]) or "nobody") + more


def comparison_table(rows: Sequence[tuple[str, Equilibrium, Solution | None]], title: str) -> Table:
    """One row per mechanism."""
    table = _table(title, "<payments", "spend", "data used", "server loss", "lower bound", "gap", "<status")
    for name, eq, solution in rows:
        proved = solution is not None and solution.lower_bound > -float("inf")
        bound, gap = (
            (number(solution.lower_bound), f"{solution.gap:.0e}") if solution and proved else ("", "")
        )
        status = eq.status.name if solution is None else solution.status.name
        table.add_row(
            name, number(eq.spend), f"{eq.total:.1%}", number(eq.server_loss), bound, gap, verdict(status)
        )
    return table


def equilibria_table(found: Equilibria, title: str) -> Table:
    """One row per equilibrium."""
    table = _table(title, "", "data used", "taking part", "spend", "server loss", "residual", "<status")
    for i, eq in enumerate(found):
        table.add_row(
            f"E{i + 1}",
            f"{eq.total:.4%}",
            f"{int((eq.participation > 0).sum())} of {found.game.count}",
            number(eq.spend),
            f"{eq.server_loss:.6g}",
            f"{eq.residual:.0e}",
            verdict(eq.status.name),
        )
    return table


def frontier_table(frontier: Frontier, title: str) -> Table:
    """One row per budget."""
    table = _table(title, "budget", "spend", "data used", "server loss", "lower bound", "gap", "<status")
    for solution, bound in zip(frontier, frontier.lower_bounds, strict=True):
        table.add_row(
            number(solution.budget),
            number(solution.spend),
            f"{solution.equilibrium.total:.1%}",
            f"{solution.server_loss:.6g}",
            f"{bound:.6g}" if bound > -float("inf") else "",
            f"{max(solution.objective - bound, 0.0):.0e}" if bound > -float("inf") else "",
            verdict(solution.status.name),
        )
    return table


def lemmas_table(report: LemmaReport) -> Table:
    """One row per statement: what is known of it for all games, and what it says about this one."""
    table = _table("The published statements at this game", "<statement", "<for all games", "<here")
    table.columns[2].no_wrap = False
    for row in report:
        style = {"REFUTED": "red", "CORRECTED": "yellow"}.get(row.verdict.name, "green")
        table.add_row(row.name, Text(row.verdict.value, style=style), Text(row.meaning))
    return table
