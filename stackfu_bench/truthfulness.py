"""Loss of truthful mechanisms on the digits federation: ``python -m stackfu_bench.truthfulness``.

Capped offers for known costs beside posted prices, by the others' reports and by a public cost that is right or too high. The
file has losses alone, which are the same on every machine; it takes seconds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stackfu.atomic import write_atomically
from stackfu.demo import digits_game

RESULTS = Path(__file__).parent / "results" / "truthfulness.json"
#: Few samples cost something: without it the best plan would use no data.
SAMPLING = 30.0
#: Budgets as parts of the price of full participation, and how far too high the public cost is.
BUDGETS, FACTORS = (0.05, 0.15, 0.4), (1.0, 1.5, 2.0)
#: Gap to which capped offers are certified, relative to the unpaid loss.
GAP = 1e-2


def measure(budgets: Sequence[float] = BUDGETS, factors: Sequence[float] = FACTORS) -> dict[str, Any]:
    """The server's loss by mechanism, for every budget."""
    game = digits_game(sampling_constant=SAMPLING)
    asked = {
        "capped offers, costs known": {"offers": "capped", "gap": GAP, "progress": False},
        "`posted`, by the others' reports": {"method": "posted"},
    }
    for factor in factors:
        height = "as it is" if factor == 1.0 else f"{factor:g} times too high"
        public = {"method": "posted", "public_cost": factor * float(game.kappa.max())}
        asked[f"`posted`, public cost {height}"] = public
    rows = []
    for name, options in asked.items():
        found = [game.solve(share * game.full_participation_price, **options) for share in budgets]
        rows.append({"mechanism": name, "losses": [solution.server_loss for solution in found]})
    return {
        "unpaid": game.equilibrium().server_loss,
        "sampling_constant": SAMPLING,
        "gap": GAP,
        "budgets": list(budgets),
        "rows": rows,
    }


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=RESULTS)
    out = parser.parse_args(given).out
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, (json.dumps(measure(), indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
