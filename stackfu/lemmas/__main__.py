"""``python -m stackfu.lemmas [NAME]``: list the statements, or print one with its counterexample."""

from __future__ import annotations

import sys

from . import ALL

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Print the list, or one statement; 2 for an unknown name."""
    if arguments in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if not arguments:
        width = max(map(len, ALL))
        for name, statement in ALL.items():
            print(f"{name:<{width}}  {statement.verdict.value:<22}  {statement.title}")
        return 0
    for name in arguments:
        if name not in ALL:
            print(f"no statement {name!r}; the names are: {', '.join(ALL)}", file=sys.stderr)
            return 2
        print(ALL[name])
        for counterexample in ALL[name].counterexamples:
            print("\ncounterexample to the wording of the paper:\n")
            print(counterexample)
        print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
