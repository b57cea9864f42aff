"""``stackfu demo``: the whole story on embedded data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..answers import proved, say_json, working
from ..app import app, examples
from ..budgets import even_grid
from ..parsing import AsJson, Quiet

if TYPE_CHECKING:
    from ...results import Equilibrium, Solution


@app.command(epilog=examples("stackfu demo --budget 0.1 --output /tmp/demo"))
def demo(
    budget: Annotated[
        float, typer.Option("--budget", "-b", help="Largest spend: payment times participation, summed.")
    ] = 0.05,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")] = Path(
        "stackfu-demo"
    ),
    points: Annotated[int, typer.Option(help="Most budgets on the explorer page.", min=2)] = 17,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Return the whole story on embedded data: ten clients share handwritten digits, three ask to be forgotten."""
    from ...demo import digits_federation, digits_game
    from ...explorer import write_explorer
    from ..records import write_frontier

    federation = digits_federation()
    with working("embedding, solving, checking", quiet or as_json):
        game = digits_game()
        unpaid = game.equilibrium()
        best = game.solve(budget, progress=False)
        haipo = game.solve(budget, method="haipo")
        uniform = game.solve(budget, method="uniform")
        frontier = game.frontier(even_grid(game, None, points), progress=False)
        check = best.verify()

    output.mkdir(parents=True, exist_ok=True)
    written = {
        "game": output / "game.json",
        "certified": output / "certified.json",
        "haipo": output / "haipo.json",
        "uniform": output / "uniform.json",
        "frontier": output / "frontier.csv",
        "explorer": output / "explorer.html",
    }
    game.save(written["game"])
    for name, solution in (("certified", best), ("haipo", haipo), ("uniform", uniform)):
        solution.save(written[name])
    write_frontier(frontier, written["frontier"])
    # uniform prices take a second per budget: the table above has them for one
    write_explorer(frontier, written["explorer"], "Handwritten digits over ten clients", compare=["haipo"])

    code = proved(best.status) if check else 1
    if as_json:
        record = {
            "game": game.summary(),
            "unpaid": unpaid.summary(),
            **{s.method: s.summary() for s in (best, haipo, uniform)},
            "verification": check.summary(),
            "files": {name: str(path) for name, path in written.items()},
        }
        say_json(record)
        return code

    from ..tables import best_in_words, clients_table, comparison_table, console, game_line, led_by, say_guess

    out = console()
    out.print(led_by("1. The federation.", "bold", f" {game_line(game)}"))
    out.print(
        f"   Digits are spread with Dirichlet(0.2) over labels and quantities; the kernel has bandwidth "
        f"{game.embeddings.bandwidth:.3g} (median distance)."
    )
    _labels(out, federation)
    out.print(
        led_by(
            "2. Without payments",
            "bold",
            f" the clients settle where {unpaid.total:.1%} of the remaining data takes part; "
            f"that is {unpaid.uniqueness.value}.",
        )
    )
    share = budget / game.full_participation_price
    out.print(
        led_by(
            f"3. A budget of {budget:g}",
            "bold",
            f", {share:.0%} of what it costs to have everybody take part fully.",
        )
    )
    rows: list[tuple[str, Equilibrium, Solution | None]] = [
        ("none", unpaid, None),
        ("uniform price", uniform.equilibrium, uniform),
        ("HAIPO", haipo.equilibrium, haipo),
        ("certified", best.equilibrium, best),
    ]
    out.print(comparison_table(rows, "What the budget buys"))
    out.print(clients_table(best.equilibrium, "The certified payments, client by client"))
    out.print(led_by("4. The certificate.", "bold", f" {best_in_words(best)}"))
    out.print(f"   Checked again from scratch: {check.message}.")
    say_guess(out, game)
    files = ", ".join(path.name for path in written.values())
    out.print(led_by("5. Files", "bold", f" in {output}: {files}."))
    out.print(
        f"   Open {written['explorer']} in a browser; check with: stackfu verify {written['certified']}"
    )
    out.print(
        f"   To keep this short the page compares with HAIPO alone; stackfu explore {written['game']} adds one price for all and "
        "capped offers."
    )
    return code


def _labels(out: Any, federation: Any) -> None:
    """A small heat map of who owns which digit."""
    import numpy as np
    from rich.text import Text

    shades = " ░▒▓█"
    table = np.array([np.bincount(labels, minlength=10) for labels in federation.labels])
    out.print("   client   digits 0 to 9   samples")
    for i, counts in enumerate(table):
        cells = "".join(shades[int(np.ceil(4 * c / counts.max()))] for c in counts)
        gone = i in federation.removed
        out.print(
            Text(
                f"   {i:>6}   {cells}      {counts.sum():>7}{'   to be forgotten' if gone else ''}",
                style="dim" if gone else "",
            )
        )
    out.print()
