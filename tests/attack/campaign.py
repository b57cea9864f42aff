"""Many attacks, counted: what `make attack` and the short version in the suite run."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import stackfu

#: Games between two writes of the counts.
CHUNK = 100


def outcome(attack, seed):
    """The verdict on one seed; whatever is raised and not foreseen is a crash."""
    try:
        return attack(seed)
    except Exception:
        return "crash", {"seed": seed, "error": traceback.format_exc(limit=-6)}


def campaign(attack, wrong, seeds, jobs=1):
    """Counts by verdict, and the cases that must not happen."""
    counts, cases = Counter(), []
    pool = ProcessPoolExecutor(jobs) if jobs > 1 else None
    outcomes = (
        pool.map(partial(outcome, attack), seeds, chunksize=8)
        if pool
        else (outcome(attack, s) for s in seeds)
    )
    for verdict, case in outcomes:
        counts[verdict] += 1
        if verdict in wrong:
            cases.append({"verdict": verdict, **case})
    if pool:
        pool.shutdown()
    return counts, cases


def main(description, attack, wrong, games):
    """The command line of an attack; exits with 1 if anything was wrong.

    With ``--out`` the counts are written every :data:`CHUNK` games, and a file that the same code left is continued.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--games", type=int, default=games)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    record = left_by_this_code(options.out, options.start)
    while record["games"] < options.games:
        began, done = time.perf_counter(), record["games"]
        first = options.start + done
        seeds = range(first, first + min(CHUNK, options.games - done))
        counts, cases = campaign(attack, wrong, seeds, options.jobs)
        record["games"] += len(seeds)
        record["seconds"] = round(record["seconds"] + time.perf_counter() - began, 1)
        record["counts"] = dict(sorted((Counter(record["counts"]) + counts).items()))
        record["wrong"] += cases
        if options.out is not None:
            partial_file = options.out.with_suffix(".partial")
            partial_file.write_text(as_text(record))
            partial_file.replace(options.out)
        print(
            f"\r{record['games']}/{options.games}, {len(record['wrong'])} wrong",
            end="",
            file=sys.stderr,
            flush=True,
        )
    print(file=sys.stderr)
    print(as_text(record), end="")
    return 1 if record["wrong"] else 0


def as_text(record):
    return json.dumps(record, indent=1, default=str) + "\n"


def left_by_this_code(out, start):
    """The record in a file if the code that is attacked here left it, else an empty one."""
    record = {
        "games": 0,
        "first_seed": start,
        "commit": commit(),
        "code": fingerprint(),
        "seconds": 0.0,
        "counts": {},
        "wrong": [],
    }
    if out is None or not out.exists():
        return record
    before = json.loads(out.read_text())
    same = all(before.get(name) == record[name] for name in ("first_seed", "code"))
    return before if same else record


def fingerprint():
    """A hash of the library's and the attacks' source: counts of one code are never added to those of another."""
    digest = hashlib.sha256()
    for folder in (Path(stackfu.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def commit():
    """The commit that is attacked, as git says it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout.strip() or "unknown"
