"""Both checkers on many random games: ``python tests/verify_anywhere.py --games 1000``; exits with an error if they disagree once.

They agree where our own checker accepts a solution and the second one proves every claim that it checks; the number of
claims left open is printed. Each solution is then forged: its bound is raised to a billionth below its objective. The second
checker has to accept every forged bound that ours accepts; the few that it proves alone, with its additional digits, are printed.
"""

import argparse
import collections
import json
import sys
import tempfile
from pathlib import Path

from random_solutions import random_solution
from second_checker import check_again, said

import stackfu as sf

#: Games that are solved before the second checker is asked about them.
BATCH = 50


def raised(solution, path):
    """Write the solution with a bound just below its objective; return whether our own checker accepts that."""
    record = json.loads(path.read_text())
    bound = solution.objective * (1 - 1e-9)
    if solution.certificate is None or not bound > solution.lower_bound:
        return None
    record["lower_bound"] = record["certificate"]["lower"] = bound
    record["version"] = 2
    del record["certificate"]["claim"]
    forged = path.with_suffix(".forged.json")
    forged.write_text(json.dumps(record))
    return forged, bool(sf.load(forged).verify())


def main():
    """Run the campaign and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first game")
    asked = parser.parse_args()
    found, disagreements, games = collections.Counter(), [], 0
    for start in range(asked.first, asked.first + asked.games, BATCH):
        with tempfile.TemporaryDirectory() as folder:
            cases = []
            for seed in range(start, min(start + BATCH, asked.first + asked.games)):
                solution = random_solution(seed)
                if solution is None:
                    found["no payments keep the limits"] += 1
                    continue
                games += 1
                path = Path(folder) / f"{seed}.json"
                solution.save(path)
                cases.append((seed, path, bool(solution.verify())))
                forged = raised(solution, path)
                if forged is not None:
                    cases.append((seed, *forged))
            for (seed, _, ours), report in zip(
                cases, check_again([path for _, path, _ in cases]), strict=True
            ):
                left = sorted(line["what"] for line in report["lines"] if line["verdict"] == "not checked")
                theirs = report["verdict"] in ("proved", "not checked") and "bound" not in left
                found[
                    f"{'accepted' if ours else 'refused'}, then {report['verdict']}: {', '.join(left) or '-'}"
                ] += 1
                if theirs and not ours and "claim" in left:
                    print(f"seed {seed}: a raised bound that only the second checker can prove")
                elif ours != theirs:
                    disagreements.append(seed)
                    print(f"seed {seed}: ours says {ours}, the second {report['verdict']}: {said(report)}")
        print(f"{games} games, {len(disagreements)} disagreements", flush=True)
    for what, count in found.most_common():
        print(f"{count:6} {what}")
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
