"""Breaks the second checker once in each place and asks who notices: ``python tests/mutation/mutants_of_second_checker.py``.

A mutant is caught if a file of ``tests/forgeries`` gets another answer, if an honest file's numbers or bounds are not what they
were, or if a test of ``tests/judging/second_checker.mjs`` fails; one that hangs or dies is caught too. What only changes words,
drawing or speed is not broken. ``equivalent.json`` names the changes that change nothing that matters, each with its reason.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "forgeries")]
from expand import forged_text, forgeries  # noqa: E402
from second_checker import CHECKER, NODE  # noqa: E402


def files():
    """Return the honest files, small ones first, and the forgeries, with what is known of each."""
    known = json.loads((TESTS / "forgeries" / "numbers" / "of_second_checker.json").read_text())
    texts = {name: (TESTS / "forgeries" / "honest" / f"{name}.json").read_text() for name in known}
    forged = {name: (forgery, forged_text(forgery)) for name, forgery in forgeries().items()}
    return {
        "honest": [
            {"name": name, "text": texts[name], **known[name]}
            for name in sorted(known, key=lambda name: len(texts[name]))
        ],
        "forged": [
            {
                "name": name,
                "text": text,
                "stillTrue": "still_true" in forgery,
                "pattern": forgery["javascript"],
            }
            for name, (forgery, text) in sorted(forged.items(), key=lambda item: len(item[1][1]))
        ],
    }


def main():
    """Run the mutants and print those that survive; exit with an error if too many do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=0, help="so many, evenly drawn; 0 for all")
    parser.add_argument("--at-least", type=float, default=0.7, help="the share that has to be caught")
    parser.add_argument("--seconds", type=float, default=20.0, help="for one mutant")
    asked = parser.parse_args()
    equivalent = json.loads((Path(__file__).parent / "equivalent.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work.json"
        work.write_text(
            json.dumps({"source": str(CHECKER), "files": files(), "equivalent": equivalent, **vars(asked)})
        )
        done = subprocess.run(
            [NODE, Path(__file__).with_suffix(".mjs"), work], stdout=subprocess.PIPE, text=True, check=True
        )
    found = json.loads(done.stdout)
    for survivor in found["survivors"]:
        print(
            f"survived in {survivor['function']}: {survivor['was']!r} -> {survivor['now']!r}: "
            f"{survivor['before']}[[]]{survivor['after']}"
        )
    for entry in found["unused"] if not asked.mutants else ():
        print(f"no longer a survivor, or gone: {entry}")
    count = found["count"]
    matter = found["tried"] - count.get("equivalent", 0)
    caught = matter - count.get("nobody", 0)
    print(", ".join(f"{who} {number}" for who, number in sorted(count.items())))
    print(
        f"{caught} of {matter} mutants that matter caught, {caught / matter:.1%}; "
        f"{found['tried']} of {found['places']} places tried"
    )
    return 0 if caught >= asked.at_least * matter else 1


if __name__ == "__main__":
    sys.exit(main())
