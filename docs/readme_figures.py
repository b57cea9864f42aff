"""Write the README's table of figures from the committed results: ``python docs/readme_figures.py``."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->"
#: Longer sections show the rows that have a stated goal.
MOST_ROWS = 8


def rounded(ratio: float) -> str:
    """Three digits, and no pretence of more."""
    return f"{ratio:.2f}" if ratio < 10 else f"{float(f'{ratio:.3g}'):.0f}"


def table() -> str:
    """The table, with the date and machine of every section."""
    files = sorted((ROOT / "stackfu_bench" / "results").glob("*.json"))
    if not files:
        return "No figures are committed yet.\n"
    lines = ["| task | peer | ratio | wanted | note |", "|---|---|---:|---:|---|"]
    origins = []
    for file in files:
        record = json.loads(file.read_text())
        rows = record["rows"]
        if len(rows) > MOST_ROWS:
            rows = [row for row in rows if row["target"] is not None] or rows
        for row in rows:
            wanted = "" if row["target"] is None else f"{row['target']:.3g}"
            cells = (row["task"], row["peer"], rounded(row["ratio"]), wanted, row["note"])
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        machine = record["machine"]
        origins.append(
            f"{record['section']} {record['date'][:10]}, {machine['cpu']}, {machine['cores']} cores, "
            f"load {machine['load_at_start']:.1f} at the start"
        )
    return "\n".join([*lines, "", f"Measured: {'; '.join(origins)}."]) + "\n"


def with_figures(readme: str) -> str:
    """The README with the table in its place."""
    before, rest = readme.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(with_figures(path.read_text()))
