"""Committed measurements as the Markdown that the pages ask for; needs no Sphinx.

A page asks for a table by a directive's name and, if one file fills several, by a word after it: :data:`TABLES`. Missing
measurements are marked as such.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from stackfu_bench.leader_by_size import ROWS as PLANNED
from stackfu_bench.offers_by_size import SIZES

ROOT = Path(__file__).parents[2]
BENCH, TRUST = Path("stackfu_bench", "results"), Path("integration", "results", "trust")
#: The least cosine that a federation asks for unless told otherwise, which the table marks.
DEFAULT_COSINE = -0.1
#: Least cosines that the table shows; the file has more.
COSINES = (-0.3, -0.2, DEFAULT_COSINE, 0.0)


def grid(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """Return the lines of a table: first columns are words, the others numbers."""
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * left + "---:|" * (len(head) - left),
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows),
    ]


def percent(share: float) -> str:
    """A share with one digit if it is below one in a hundred.

    >>> percent(0.47), percent(0.007), percent(0.0)
    ('47%', '0.7%', '0%')
    """
    return f"{100 * share:.1f}%" if 0.0 < share < 0.01 else f"{100 * share:.0f}%"


def seconds(value: float) -> str:
    """Seconds to two digits, or whole ones.

    >>> seconds(0.0123), seconds(4.51), seconds(217.4)
    ('0.012 s', '4.5 s', '217 s')
    """
    return f"{value:.0f} s" if value >= 10 else f"{value:.2g} s"


def gap(value: float) -> str:
    """A gap to two digits, as powers of ten are written.

    >>> gap(1e-3), gap(0.000984), gap(0.0)
    ('1e-3', '9.8e-4', '0')
    """
    return "0" if value == 0.0 else f"{value:.1e}".replace("e-0", "e-").replace(".0e", "e")


def origin(rows: Iterable[dict[str, Any]]) -> list[str]:
    """When and where rows were measured."""
    rows = list(rows)
    days = sorted({row["date"][:10] for row in rows})
    machines = sorted({f"{row['machine']['cpu']} ({row['machine']['cores']} cores)" for row in rows})
    loads = [row["machine"]["load_at_start"] for row in rows if row["machine"]["load_at_start"] is not None]
    busy = f", load up to {max(loads):.1f} at the start of a row" if loads else ""
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return ["", f"Measured {when} on {', '.join(machines)}{busy}."]


def outcome(row: dict[str, Any]) -> str:
    """The status, and a refusal by the judge where there was one."""
    said = row["status"].lower().replace("_", " ")
    return said if row["verified"] else f"{said}, **not verified**"


# -------------------------------------------------------------------- by number of clients


def missing(planned: Sequence[int], there: Sequence[int]) -> list[str]:
    """Numbers of clients of which rows are planned that the file does not have."""
    left = sorted((Counter(planned) - Counter(there)).elements())
    if not left:
        return []
    sizes = ", ".join(f"{clients:,}" for clients in dict.fromkeys(left))
    return ["", f"*Not measured yet: {len(left)} of {len(planned)} rows, of {sizes} clients.*"]


def leader_sizes(record: dict[str, Any]) -> list[str]:
    """Certified linear payments by size: one line per row of the file."""
    rows = [row for row in record["rows"] if row["option"] == "budget"]
    rows.sort(
        key=lambda row: (
            row["clients"],
            row["cost"] != 3.0,
            row["gram"],
            -row["gap"],
            row["seed"],
            row["share"],
        )
    )
    if not rows:
        return NOT_YET
    lines = (
        (
            f"{row['clients']:,}",
            "Gram matrix" if row["gram"] else f"D = {row['width']}",
            percent(row["share"]),
            f"{row['seed']}",
            percent(row["volunteers"]),
            gap(row["gap"]),
            gap(row["gap_reached"]),
            outcome(row),
            f"{row['loss']:.4f}",
            seconds(row["seconds"]),
            seconds(row["cpu"]),
            f"{row['memory_gb']:.2f} GB",
            f"{row['game_gb']:.2g} GB",
        )
        for row in rows
    )
    head = ["clients", "form", "budget", "seed", "volunteers", "gap asked", "reached", "outcome", "loss", "clock", "processor",
            "memory", "rows of the game"]  # fmt: skip
    planned = [row.clients for row in PLANNED if row.option == "budget"]
    return [*grid(head, lines, 2), *origin(rows), *missing(planned, [row["clients"] for row in rows])]


#: Labels of the options in the leader's rows.
OPTIONS = {
    "budget": "a budget alone",
    "floor": "a floor, `min_total=0.2`",
    "finite_sample": "`finite_sample=True`",
    "payment_weight": "`payment_weight`, with the budget",
    "payment_weight_alone": "`payment_weight`, and no budget",
    "max_loss": "`max_loss` of half of the unpaid loss",
    "sampling_constant": "a sampling constant",
    "own_loss": "a server loss of one's own (the distance to a random mixture of the original clients)",
    "cheapest": "the cheapest payments for half of the unpaid loss (`loss_weight=0`)",
}


def leader_options(record: dict[str, Any]) -> list[str]:
    """Options of certified payments: one line per option, sizes side by side."""
    asked = [row for row in record["rows"] if row["option"] != "budget"]
    if not asked:
        return NOT_YET
    like = {(row["clients"], row["width"], row["share"], row["seed"], row["gap"]) for row in asked}
    alone = [
        row for row in record["rows"] if row["option"] == "budget" and not row["gram"] and row["cost"] == 3.0
    ]
    rows = asked + [
        row for row in alone if (row["clients"], row["width"], row["share"], row["seed"], row["gap"]) in like
    ]
    sizes = sorted(
        {row["clients"] for row in rows} | {row.clients for row in PLANNED if row.option != "budget"}
    )
    found = {(row["option"], row["clients"]): row for row in rows}
    lines = []
    for option, name in OPTIONS.items():
        cells = [name]
        for clients in sizes:
            row = found.get((option, clients))
            cells += (
                ["not measured yet", "", ""]
                if row is None
                else [
                    f"{outcome(row)} to {gap(row['gap_reached'])}",
                    f"{row['loss']:.4f}",
                    seconds(row["cpu"]),
                ]
            )
        lines.append(cells)
    head = ["option", *(f"{n:,} clients{what}" for n in sizes for what in ("", ": loss", ": processor"))]
    return [*grid(head, lines), *origin(rows)]


def offers_sizes(record: dict[str, Any]) -> list[str]:
    """Capped plans by size, compared with linear payments and the local search."""

    def cell(row: dict[str, Any], name: str, form: Callable[[Any], str]) -> str:
        if name not in row:
            return "not measured yet"
        return "none found" if row[name] is None else form(row[name])

    def loss(value: float) -> str:
        return f"{value:.4f}"

    rows = sorted(record["rows"], key=lambda row: row["clients"])
    if not rows:
        return NOT_YET
    lines = []
    for row in rows:
        linear = cell(row, "linear", loss)
        if row.get("linear_status", "CERTIFIED") != "CERTIFIED" and row.get("linear") is not None:
            linear += " (not closed)"
        local = cell(row, "local_search", loss)
        if "local_search" in row:
            local += f" ({row['local_starts']} starts, {seconds(row['local_cpu'])})"
        lines.append(
            [
                f"{row['clients']:,}",
                cell(row, "loss", loss),
                cell(row, "bound", loss),
                outcome(row) if "status" in row else "not measured yet",
                linear,
                local,
                *(cell(row, name, seconds) for name in ("capped_limit", "seconds", "cpu", "verify_seconds")),
                cell(row, "memory_gb", lambda value: f"{value:.2f} GB"),
            ]
        )
    head = ["clients", "capped", "proved: not below", "outcome", "best linear payments", "local search", "limit", "clock",
            "processor", "judged again", "memory"]  # fmt: skip
    return [*grid(head, lines), *origin(rows), *missing(list(SIZES), [row["clients"] for row in rows])]


# -------------------------------------------------------------------- other benchmarks


def truthfulness(record: dict[str, Any]) -> list[str]:
    """The loss under each mechanism, by budget."""
    head = [
        f"server loss (unpaid {record['unpaid']:.4f})",
        *(f"budget {percent(share)}" for share in record["budgets"]),
    ]
    return grid(
        head, ([row["mechanism"], *(f"{loss:.4f}" for loss in row["losses"])] for row in record["rows"])
    )


def mutation(record: dict[str, Any]) -> list[str]:
    """Mutants by module, and below them the functions that hold survivors."""
    rows = record["rows"]
    if not rows:
        return NOT_YET
    together = {name: sum(row[name] for row in rows) for name in ("mutants", "noticed")}
    lines = [
        (
            f"`{row['module']}`",
            str(row["mutants"]),
            str(row["noticed"]),
            str(len(row["survivors"])),
            row["date"],
        )
        for row in rows
    ]
    share = percent(together["noticed"] / together["mutants"])
    total = ("together", str(together["mutants"]), f"{together['noticed']} ({share})",
             str(together["mutants"] - together["noticed"]), "")  # fmt: skip
    said = []
    for row in rows:
        counted = Counter(survivor["function"] for survivor in row["survivors"])
        if counted:
            names = ", ".join(f"`{name}`" + (f" ({n})" if n > 1 else "") for name, n in counted.items())
            said.append(f"- `{row['module']}`: {names}")
    named = ["", "Survivors, by the function that holds them:", "", *said] if said else []
    return [*grid(["module", "mutants", "noticed", "survived", "date"], [*lines, total]), *named]


# -------------------------------------------------------------------- trust


def privacy(record: list[dict[str, Any]]) -> list[str]:
    """Accuracy of attacks on embeddings, by noise and number of features."""
    head = [
        "epsilon",
        "features",
        "AUC, mean",
        "AUC, worst client",
        "class mix off by",
        "server loss",
        "of the budget spent",
    ]
    lines = (
        (
            "none" if row["epsilon"] is None else f"{row['epsilon']:g}",
            str(row["features"]),
            *(f"{row[name]:.2f}" for name in ("auc_mean", "auc_worst", "class_mix_error")),
            f"{row['server_loss']:.4f}",
            percent(row["spend_of_budget"]),
        )
        for row in record
    )
    return grid(head, lines)


def directions(record: list[dict[str, Any]]) -> list[str]:
    """Rounds that directions refuse, honest and flipped, by least cosine and beta."""
    betas = sorted({row["beta"] for row in record})
    found = {(row["least_cosine"], row["beta"]): row for row in record}
    lines = []
    for cosine in COSINES:
        rows = [found[cosine, beta] for beta in betas]
        name = f"**{cosine:g}** (default)" if cosine == DEFAULT_COSINE else f"{cosine:g}"
        lines.append(
            [name, *(f"{percent(r['honest_refused'])} / {percent(r['flipped_refused'])}" for r in rows)]
        )
    return grid(["least cosine", *(f"β = {beta:g}" for beta in betas)], lines)


def scale(record: list[dict[str, Any]]) -> list[str]:
    """Seconds of the mechanism's phases by number of clients, with and without Flower's engine."""
    lines = (
        (
            f"{row['clients']:,}",
            {"none": "none", "ray": "Flower's simulation"}[row["engine"]],
            ", ".join(dict.fromkeys([row["method"], row["status"].lower()])),
            *(seconds(row["seconds"][phase]) for phase in ("embeddings", "offers", "responses")),
            seconds(row["seconds"]["settlement"] + row["seconds"]["report"]),
            seconds(row["total_seconds"]),
            f"{row['ledger_bytes'] / row['clients'] / 1000:.1f} kB",
        )
        for row in record
    )
    head = ["clients", "engine", "offers by", "embeddings", "offers", "responses", "settlement, report", "everything",
            "ledger, per client"]  # fmt: skip
    return grid(head, lines, 3)


#: Labels of messages; all others belong to secure sums.
MESSAGES = {
    "query.stackfu_roll": "roll call",
    "train": "a round of training",
    "query.stackfu_embed": "embedding",
    "query.stackfu_respond": "announcements",
    "train.stackfu_unlearn": "two rounds of unlearning",
    "evaluate.stackfu_measure": "measures",
}


def sent(record: list[dict[str, Any]]) -> list[str]:
    """Bytes per client that passed in the largest run without an engine, by kind of message."""
    row = max((row for row in record if row["engine"] == "none"), key=lambda row: row["clients"])
    down, up = row["bytes_down"], row["bytes_up"]
    lines = [
        (name, f"{down[kind]:,.0f}", f"{up[kind]:,.0f}") for kind, name in MESSAGES.items() if kind in down
    ]
    others = [kind for kind in down if kind not in MESSAGES]
    if others:
        lines.append(("secure sums", *(f"{sum(way[kind] for kind in others):,.0f}" for way in (down, up))))
    head = [f"message ({row['clients']:,} clients, D = {row['features']})", "bytes to a client", "from it"]
    return grid(head, lines)


def attack(record: dict[str, Any]) -> list[str]:
    """Verdicts on dishonest steps against a federation, and how many of them were wrong."""
    said = (
        f"{record['steps']:,} steps in {record['sequences']:,} sequences on {record['runs']:,} runs: "
        f"{record['false_fits']} false fits, "
        f"{record['honest_blamed']} honest parties blamed (commit `{record['commit']}`, first seed {record['first_seed']})."
    )
    lines = ((verdict, f"{count:,}") for verdict, count in sorted(record["counts"].items()))
    return [said, "", *grid(["verdict of the audit", "steps"], lines)]


NOT_YET = ["*Not measured yet.*"]
#: Directive and what may stand behind it: the file, the command that measures it, and what makes its lines.
TABLES: dict[str, tuple[Path, str, Callable[[Any], list[str]]]] = {
    "leader-by-size sizes": (BENCH / "leader_by_size.json", "make bench-sizes", leader_sizes),
    "leader-by-size options": (BENCH / "leader_by_size.json", "make bench-sizes", leader_options),
    "offers-by-size": (BENCH / "offers_by_size.json", "make bench-sizes", offers_sizes),
    "truthfulness-table": (BENCH / "truthfulness.json", "python -m stackfu_bench.truthfulness", truthfulness),
    "mutation-table": (BENCH / "mutation.json", "make mutants", mutation),
    "trust-table privacy": (TRUST / "privacy.json", "make load", privacy),
    "trust-table directions": (TRUST / "directions.json", "make load", directions),
    "trust-table scale": (TRUST / "scale.json", "make load", scale),
    "trust-table attack": (TRUST / "attack.json", "make attack-federation", attack),
    "trust-table sent": (TRUST / "scale.json", "make load", sent),
}


def table(name: str, root: Path = ROOT) -> list[str]:
    """The lines of a table; where its file is missing, that it is, and what would measure it."""
    if name not in TABLES:
        raise ValueError(f"no table {name!r}; there are {', '.join(TABLES)}")
    file, command, lines = TABLES[name]
    path = root / file
    made = lines(json.loads(path.read_text())) if path.exists() else NOT_YET
    return [f"*Not measured yet: `{command}` writes `{file.as_posix()}`.*"] if made == NOT_YET else made
