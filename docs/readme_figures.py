"""Write the README's six rows of figures from the committed results: ``python docs/readme_figures.py``."""

import json
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->"
#: Section, task and peer of the rows that the README shows; docs/benchmarks.md has all of them.
SHOWN = (
    ("embedding", "gram, n=10000, d=64", "torch, tuned"),
    ("followers", "an equilibrium of 10 clients", "casadi / Ipopt"),
    ("followers", "1000000 clients, D = 128, float64: solved and verified", "30 passes F.T @ y"),
    ("leader", "51 games, equal budget", "haipo"),
    ("leader", "51 games, equal budget", "differential evolution"),
    ("leader", "certified, 100 clients, 4 games", "time allowed"),
)


def rounded(ratio: float) -> str:
    """Three digits, and no pretence of more."""
    return f"{ratio:.2f}" if ratio < 10 else f"{float(f'{ratio:.3g}'):.0f}"


def chosen(records: dict[str, dict], section: str, task: str, peer: str) -> dict:
    """The row of the results that is meant; a benchmark that is renamed must be renamed here too."""
    rows = records.get(section, {}).get("rows", [])
    found = [row for row in rows if (row["task"], row["peer"]) == (task, peer)]
    if len(found) != 1:
        raise SystemExit(
            f"{len(found)} rows for {section}: {task}, {peer}; adapt SHOWN in docs/readme_figures.py"
        )
    return found[0]


def table() -> str:
    """The rows, how many of all goals are met, and the date and machine of every section."""
    files = sorted((ROOT / "stackfu_bench" / "results").glob("*.json"))
    records = {file.stem: json.loads(file.read_text()) for file in files}
    # beside the peers' files lie measurements of other kinds, which name no section
    records = {name: record for name, record in records.items() if "section" in record}
    lines = ["| task | peer | ratio | wanted | note |", "|---|---|---:|---:|---|"]
    for choice in SHOWN:
        row = chosen(records, *choice)
        wanted = "" if row["target"] is None else f"{row['target']:.3g}"
        cells = (row["task"], row["peer"], rounded(row["ratio"]), wanted, row["note"])
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    goals = [row for record in records.values() for row in record["rows"] if row["target"] is not None]
    met = sum(row["ratio"] >= row["target"] for row in goals)
    origins = [
        f"{name} {record['date'][:10]} on {record['machine']['cpu']} with {record['machine']['cores']} cores"
        for name, record in records.items()
    ]
    together = sum(len(record["rows"]) for record in records.values())
    summary = f"Of {together} rows {len(goals)} have a stated goal, and {met} meet it. Measured: {'; '.join(origins)}."
    return "\n".join([*lines, "", textwrap.fill(summary, 120, break_on_hyphens=False)]) + "\n"


def with_figures(readme: str) -> str:
    """The README with the table in its place."""
    before, rest = readme.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(with_figures(path.read_text()))
