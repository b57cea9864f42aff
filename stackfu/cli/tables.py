"""Results as tables for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..embedding.names import listed
from ..html import NOTHING, in_currency, money, number
from ..model.impacts import guessed
from ..model.offers import utilities_of
from ..results.cautions import amount
from .wording import as_typed

if TYPE_CHECKING:
    from ..game import StackelbergGame
    from ..lemmas import LemmaReport
    from ..model import GameModel
    from ..results import Cascade, Equilibria, Equilibrium, Frontier, Solution

__all__ = [
    "and_more",
    "best_in_words",
    "cascade_table",
    "clients_table",
    "comparison_table",
    "console",
    "equilibria_table",
    "fitted",
    "frontier_table",
    "game_line",
    "led_by",
    "lemmas_table",
    "offers_table",
    "pilots_table",
    "say_guess",
]

#: Longer tables are cut: a terminal is no place for a thousand clients.
MOST_ROWS = 40
_GOOD = {"CERTIFIED", "CONVERGED", "UNIQUE"}
#: Label of each kind of offers.
POSTED = {"linear": "payments", "capped": "capped offers", "contract": "contracts"}
#: Widths of the bars; the first that leaves space for the numbers is used.
BARS = (10, 5, 0)
#: Most letters of a name, and how many are left where there is no room for more.
LONGEST, SHORTEST = 24, 6
#: A cell: text, or a share that is drawn as a bar.
Cell = str | Text | float


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command line: a reader that has seen enough is no failure."""
        raise BrokenPipeError


def console() -> Console:
    """Standard output, in which a name in square brackets is no markup; piped output is not squeezed into 80 columns."""
    return _Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)


def led_by(words: str, style: str, rest: str) -> Text:
    """Return a sentence with emphasised first words."""
    return Text.assemble((words, style), rest)


def say_guess(out: Console, game: StackelbergGame) -> None:
    """A warning where losses are shown that no training has confirmed; nothing for a calibrated game."""
    if line := guessed(game):
        out.print(led_by("A guess:", "yellow", line.removeprefix("A guess:")))


def best_in_words(solution: Solution) -> str:
    """Return the proved claim about a solution, as a sentence."""
    said = f" {_sentence(solution.message)}" if solution.message and solution.status.success else ""
    posted = POSTED[solution.offers.kind]
    if solution.lower_bound == -float("inf"):
        if solution.status.name == "TIME_LIMIT":
            return f"In its time {solution.method} proved nothing about how good these {posted} are; --time-limit gives it more."
        return f"{solution.method} proves nothing about how good these {posted} are.{said}"
    currency = solution.game.currency
    within = (
        f"a budget of {money(solution.budget, currency)}" if solution.budget < float("inf") else "any budget"
    )
    limit = f"within {within}"
    if solution.proves == "spend":
        limit = f"with a server loss of at most {solution.goal.max_loss:g}"
    unit = currency if solution.proves == "spend" else None
    bound, reached = money(solution.lower_bound, unit), money(solution.objective, unit)
    gap = f"gap {percentage(solution.relative_gap)} of that" if solution.gap > 0 else "no gap"
    noisy = (
        solution.goal.finite_sample and solution.proves == "objective" and solution.goal.payment_weight == 0.0
    )
    proves = "loss with noise" if noisy and solution.goal.loss_weight == 1.0 else solution.proves
    text = f"No {posted} {limit} bring the {proves} below {bound}" + (
        f", which these reach ({gap})." if bound == reached else f"; these bring it to {reached} ({gap})."
    )
    several = solution.equilibrium.uniqueness.name
    if several == "UNIQUE":
        return f"{text} They have exactly one equilibrium.{said}"
    if solution.offers.kind != "linear":
        return f"{text}{said}"
    from ..leader.certified.certified_payments import ENUMERATE_UP_TO

    if solution.game.count > ENUMERATE_UP_TO and several == "UNKNOWN":
        return f"{text} Whether they have other equilibria is not settled: {as_typed(solution.equilibrium.reason)}.{said}"
    text += f" Their equilibrium is {solution.equilibrium.uniqueness.value}"
    if solution.game.count > ENUMERATE_UP_TO:  # listing the others would take longer than the search did
        return f"{text}.{said}"
    return f"{text}: {_between(solution.optimistic, solution.pessimistic)}.{said}"


def percentage(part: float) -> str:
    """Return a part of something in percent, with two digits however small it is.

    Examples
    --------
    >>> percentage(0.0123), percentage(9.4e-7), percentage(3.0)
    ('1.2%', '9.4e-05%', '300%')
    """
    return f"{100.0 * part:.2g}%" if part < 0.995 else f"{100.0 * part:.0f}%"


def _sentence(text: str) -> str:
    text = as_typed(text)
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _between(best: float, worst: float) -> str:
    """Return the server loss of several equilibria; one number where they do not differ in the digits that are shown."""
    if f"{best:.6g}" != f"{worst:.6g}":
        return f"the server loss lies between {best:.6g} and {worst:.6g}"
    apart = "" if best == worst else f" (at most {worst - best:.1e} apart)"
    return f"the server loss is {best:.6g} in all that are known{apart}"


def bar(share: float, width: int = 10) -> Text:
    """Return a share of 1 as a bar with its percentage."""
    filled = round(share * width)
    text = Text("█" * filled, style="cyan").append("░" * (width - filled), style="dim")
    return text.append(f"{' ' if width else ''}{share:>4.0%}")


def verdict(name: str) -> Text:
    """Return a status or uniqueness, coloured by whether it is good news."""
    return Text(name.lower().replace("_", " "), style="green" if name in _GOOD else "yellow")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.caption_justify, table.caption_style = "left", "dim"
    for column in columns:
        left = column.startswith("<")
        table.add_column(column.lstrip("<"), justify="left" if left else "right", no_wrap=True)
    return table


def game_line(game: StackelbergGame) -> str:
    """Return the game in a sentence."""
    gone = [game.called(k) for k in game.removed]
    removed = listed(gone) if len(gone) <= 8 else f"{len(gone)} of them"
    return (
        f"{len(game.all_sizes)} clients with {game.all_sizes.sum():g} samples; "
        f"forgotten: {removed or 'nobody'}; remaining: {game.count} with {game.sizes.sum():g} samples"
        f"{'' if game.currency is None else f'; amounts of money in {game.currency}'}."
    )


def whole_in_words(solution: Solution) -> str:
    """Return what the plan in whole samples costs and is worth, in a sentence."""
    whole = solution.whole_samples()
    if not whole.total:
        return "In whole samples: no client brings one."
    kept = "" if whole else f" But {'; '.join(whole.broken)}."
    finite = solution.goal.finite_sample
    noise = f", with their noise {whole.objective:.6g}" if finite and not solution.goal.is_spend else ""
    spend = money(whole.spend, whole.game.currency)
    return (
        f"In whole samples: if every client brings exactly those, {whole.total} in all, at the prices above, the spend is "
        f"{spend} and the server loss {whole.server_loss:.6g}{noise} (enclosed to {max(whole.error, 1e-15):.0e}).{kept}"
    )


def clients_table(eq: Equilibrium, title: str, whole: Any = None) -> Table:
    """Return one row per client: what it owns, what it is paid, what it does and what it gets."""
    game = eq.game
    low, high = game.thresholds(eq.participation, eq.caps)
    shown, nothing = range(min(game.count, MOST_ROWS)), NOTHING * game.costs
    receives, changes = eq.payments * eq.participation, eq.impacts.clients
    cells: dict[str, list[Cell]] = {
        **_owned(game),
        "payment": [number(eq.payments[k], nothing[k]) for k in shown],
        **({} if eq.caps is None else {"at most": [f"{eq.caps[k]:.0%}" for k in shown]}),
        "<takes part": [float(eq.participation[k]) for k in shown],
        "uses": [amount(float(eq.samples[k])) for k in shown],
        **_whole(whole, len(shown)),
        "receives": [number(receives[k], nothing[k]) for k in shown],
        "utility": [number(eq.utilities[k]) for k in shown],
        "change": [f"{changes[k]:+.3g}" for k in shown],
        "out below": [number(max(low[k], 0.0)) for k in shown],
        "full above": [number(max(high[k], 0.0)) for k in shown],
    }
    spare = (("out below", "full above"), ("change",), ("utility",), ("samples",), ("receives",))
    table = fitted(title, cells, spare, game.count, game.currency)
    kept = cells.keys()
    table.caption = "cost, payment: for full participation, in proportion for less; uses: samples"
    table.caption += ", whole: rounded" if whole is not None else ""
    if "at most" in kept:
        table.caption += "; at most: the most that is taken"
    if "change" in kept:
        table.caption += "; change: of its loss, predicted, against the original model"
    if "out below" in kept:
        table.caption += "; out below, full above: payments at which it would, the others as they are"
    return table


def _whole(counts: Any, shown: int) -> dict[str, list[Cell]]:
    """Return the column of whole samples, if it is asked for."""
    return {} if counts is None else {"whole": [str(int(counts[k])) for k in range(shown)]}


def _owned(game: StackelbergGame | GameModel) -> dict[str, list[Cell]]:
    """Return the first columns of a table of clients."""
    shown = range(min(game.count, MOST_ROWS))
    return {
        "client": [str(game.label(k)) for k in shown],
        "samples": [f"{game.sizes[k]:g}" for k in shown],
        "cost": [number(game.costs[k]) for k in shown],
    }


def short(name: str, most: int = LONGEST) -> str:
    """Return a name that leaves room for the rest of its row."""
    return name if len(name) <= most else name[: most - 1] + "…"


def fitted(
    title: str,
    cells: dict[str, list[Cell]],
    spare: Sequence[Sequence[str]] = (),
    count: int = 0,
    currency: str | None = None,
) -> Table:
    """Return a table as wide as the terminal at most: bars shrink, then columns go in the order given, then names; never a digit.

    Headings of money name its currency on a line of their own, which takes no room from the numbers.
    """
    room = console()

    def tried(width: int, letters: int = LONGEST) -> tuple[Table, int]:
        table = _of_columns(title, cells, count, width, letters, currency)
        return table, Measurement.get(room, room.options.update(max_width=1000), table).maximum - room.width

    for names in ((), *spare):
        for name in names:
            cells.pop(name, None)
        for width in BARS:
            table, beyond = tried(width)
            if beyond <= 0:
                return table
    return tried(BARS[-1], max(LONGEST - beyond, SHORTEST))[0]


def _of_columns(
    title: str, cells: dict[str, list[Cell]], count: int, width: int, letters: int, currency: str | None
) -> Table:
    table = _table(title, *(in_currency(name, currency, "\n") for name in cells))
    for row in zip(*cells.values(), strict=True):
        drawn = [bar(cell, width) if isinstance(cell, float) else cell for cell in row]
        if "client" in cells:
            drawn[0] = short(str(drawn[0]), letters)
        table.add_row(*drawn)
    if count > MOST_ROWS:
        table.add_row("...", f"{count - MOST_ROWS} more")
    return table


def offers_table(solution: Solution, title: str, whole: bool = False) -> Table:
    """Return one row per client: what is posted to it, and what it receives."""
    counts = solution.whole_samples().counts if whole else None
    game, offers = solution.game, solution.offers
    shown, nothing = range(min(game.count, MOST_ROWS)), NOTHING * game.costs
    payouts = solution.payouts
    received: list[Cell] = [number(payouts[k], nothing[k]) for k in shown]
    kept: list[Cell] = [number(offers.retainers[k], nothing[k]) for k in shown]
    retainers = {"retainer": kept} if offers.retainers.any() else {}
    if offers.kind == "contract":
        sums = offers.prices * offers.caps
        cells: dict[str, list[Cell]] = {
            **_owned(game),
            "<brings": [float(offers.caps[k]) for k in shown],
            "uses": [amount(float(solution.samples[k])) for k in shown],
            **_whole(counts, len(shown)),
            "is paid": [number(sums[k], nothing[k]) for k in shown],
            **({**retainers, "receives": received} if retainers else {}),
            "utility": [
                number(u) for u in utilities_of(game, payouts, solution.equilibrium.profile)[: len(shown)]
            ],
        }
        caption = "a contract is all or nothing: exactly this share of its data for exactly this sum; cost: of all its data"
    else:
        cells = {
            **_owned(game),
            "price": [number(offers.prices[k], nothing[k]) for k in shown],
            "<at most": [float(offers.caps[k]) for k in shown],
            "uses": [amount(float(solution.samples[k])) for k in shown],
            **_whole(counts, len(shown)),
            "receives": received,
            **retainers,
        }
        caption = "cost, price: for all of a client's data, in proportion for less; nothing beyond the limit is used or paid"
    table = fitted(title, cells, (("utility",), ("samples",), ("receives",)), game.count, game.currency)
    table.caption = f"{caption}; uses: samples{', whole: rounded' if whole else ''}"
    return table


def cascade_table(found: Cascade, title: str) -> Table:
    """Return one row per round of departures."""
    table = _table(title, "round", "clients", "data used", "samples", "server loss", "<leaving")
    table.columns[-1].no_wrap = False
    for i, (departure, used, samples) in enumerate(zip(found, found.used, found.samples_used, strict=True)):
        leaving = [found.game.called(k) for k in departure.leaving]
        table.add_row(
            str(i + 1),
            str(len(departure.clients)),
            f"{used:.1%}",
            amount(samples),
            number(departure.server_loss),
            and_more(leaving),
        )
    table.caption = (
        "data used: of all that the remaining clients own, those who left included; samples: that take part"
    )
    return table


def and_more(names: Sequence[str]) -> str:
    """Names in a sentence, those beyond a dozen counted."""
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return (listed(names[:12]) or "nobody") + more


def comparison_table(rows: Sequence[tuple[str, Equilibrium, Solution | None]], title: str) -> Table:
    """Return one row per mechanism."""
    of_spend = any(solution is not None and solution.proves == "spend" for _, _, solution in rows)
    bound = "least spend proved" if of_spend else "lower bound"
    noisy = (
        any(solution is not None and solution.goal.finite_sample for _, _, solution in rows) and not of_spend
    )
    # the bound is one of the loss with noise: both losses are named
    loss, objective = (
        ("loss without noise",) if noisy else ("server loss",),
        ("loss with noise",) if noisy else (),
    )
    cells: dict[str, list[Cell]] = {
        name: []
        for name in ("<payments", "spend", "data used", "samples", *objective, *loss, bound, "gap", "<status")
    }
    for name, eq, solution in rows:
        proved = solution is not None and solution.lower_bound > -float("inf")
        row: list[Cell] = [
            name,
            number(eq.spend if solution is None else solution.spend),
            f"{eq.total:.1%}",
            amount(eq.samples_used),
            *([number(eq.game.loss_of(eq.profile, True))] if noisy else []),
            number(eq.server_loss),
            number(solution.lower_bound) if solution and proved else "",
            _gap(solution.relative_gap) if solution and proved else "",
            verdict(eq.status.name if solution is None else solution.status.name),
        ]
        for column, cell in zip(cells.values(), row, strict=True):
            column.append(cell)
    currency = rows[0][1].game.currency
    table = fitted(title, cells, (("gap",), ("data used",), (bound,)), currency=currency)
    if "gap" in cells:
        table.caption = "gap: relative to what was minimised"
    return table


def _gap(gap: float) -> str:
    return f"{gap:.0e}" if gap > 0 else "0"


def equilibria_table(found: Equilibria, title: str) -> Table:
    """Return one row per equilibrium."""
    cells: dict[str, list[Cell]] = {
        "": [f"E{i + 1}" for i in range(len(found))],
        "data used": [f"{eq.total:.4%}" for eq in found],
        "samples": [amount(eq.samples_used) for eq in found],
        "taking part": [f"{int((eq.participation > 0).sum())} of {found.game.count}" for eq in found],
        "spend": [number(eq.spend) for eq in found],
        "server loss": [f"{eq.server_loss:.6g}" for eq in found],
        "residual": [_gap(eq.residual) for eq in found],
        "<status": [verdict(eq.status.name) for eq in found],
    }
    return fitted(title, cells, (("residual",), ("taking part",), ("samples",)), currency=found.game.currency)


def frontier_table(frontier: Frontier, title: str) -> Table:
    """Return one row per budget."""
    bounds = [float(bound) for bound in frontier.lower_bounds]
    proved = [bound > -float("inf") for bound in bounds]
    apart = [max(s.objective - bound, 0.0) for s, bound in zip(frontier, bounds, strict=True)]
    gaps = [gap / abs(s.objective) if gap else 0.0 for s, gap in zip(frontier, apart, strict=True)]
    noisy = frontier.solutions[0].goal.finite_sample and frontier.solutions[0].proves != "spend"
    cells: dict[str, list[Cell]] = {
        "budget": [number(s.budget) for s in frontier],
        "spend": [number(s.spend) for s in frontier],
        "data used": [f"{s.equilibrium.total:.1%}" for s in frontier],
        "samples": [amount(s.samples_used) for s in frontier],
        **({"loss with noise": [f"{s.objective:.6g}" for s in frontier]} if noisy else {}),
        "loss without noise" if noisy else "server loss": [f"{s.server_loss:.6g}" for s in frontier],
        "lower bound": [f"{b:.6g}" if known else "" for b, known in zip(bounds, proved, strict=True)],
        "gap": [_gap(gap) if known else "" for gap, known in zip(gaps, proved, strict=True)],
        "<status": [verdict(s.status.name) for s in frontier],
    }
    return fitted(title, cells, (("gap",), ("data used",), ("spend",)), currency=frontier.game.currency)


def pilots_table(counts: npt.NDArray[np.intp], game: StackelbergGame, title: str) -> Table:
    """Return a table with one row per pilot: how many clients and samples it takes."""
    table = _table(title, "pilot", "clients", "samples", "of all", "fewest of a client", "most of a client")
    for i, row in enumerate(counts[:MOST_ROWS]):
        used = row[row > 0]
        table.add_row(
            str(i + 1),
            str(len(used)),
            str(used.sum()),
            f"{used.sum() / game.sizes.sum():.1%}",
            str(used.min()),
            str(used.max()),
        )
    if len(counts) > MOST_ROWS:
        table.add_row("...", f"{len(counts) - MOST_ROWS} more")
    return table


def lemmas_table(report: LemmaReport) -> Table:
    """Return one row per statement: what is known of it for all games, and what it says about this one."""
    table = _table("The published statements at this game", "<statement", "<for all games", "<here")
    table.columns[2].no_wrap = False
    for row in report:
        style = {"REFUTED": "red", "CORRECTED": "yellow"}.get(row.verdict.name, "green")
        table.add_row(row.name, Text(row.verdict.value, style=style), Text(row.meaning))
    return table
