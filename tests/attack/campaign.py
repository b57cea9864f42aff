"""Many attacks, counted: what `make attack` and the short version in the suite run."""

from __future__ import annotations

import argparse
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


def outcome(attack, seed):
    """The verdict on one seed; whatever is raised and not foreseen is a crash."""
    try:
        return attack(seed)
    except Exception:
        return "crash", {"seed": seed, "error": traceback.format_exc(limit=-6)}


def campaign(attack, wrong, seeds, jobs=1, report=None):
    """Counts by verdict, and the cases that must not happen."""
    counts, cases = Counter(), []
    pool = ProcessPoolExecutor(jobs) if jobs > 1 else None
    outcomes = (
        pool.map(partial(outcome, attack), seeds, chunksize=8)
        if pool
        else (outcome(attack, s) for s in seeds)
    )
    for done, (verdict, case) in enumerate(outcomes, 1):
        counts[verdict] += 1
        if verdict in wrong:
            cases.append({"verdict": verdict, **case})
        if report is not None:
            report(done, sum(counts[word] for word in wrong))
    if pool:
        pool.shutdown()
    return counts, cases


def main(description, attack, wrong, games):
    """The command line of an attack; exits with 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--games", type=int, default=games)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    began = time.perf_counter()

    def report(done, bad):
        if done % 50 == 0 or done == options.games:
            print(f"\r{done}/{options.games}, {bad} wrong", end="", file=sys.stderr, flush=True)

    seeds = range(options.start, options.start + options.games)
    counts, cases = campaign(attack, wrong, seeds, options.jobs, report)
    print(file=sys.stderr)
    record = {
        "games": options.games,
        "first_seed": options.start,
        "commit": commit(),
        "seconds": round(time.perf_counter() - began, 1),
        "counts": dict(sorted(counts.items())),
        "wrong": cases,
    }
    text = json.dumps(record, indent=1, default=str) + "\n"
    print(text, end="")
    if options.out is not None:
        partial_file = options.out.with_suffix(".partial")
        partial_file.write_text(text)
        partial_file.replace(options.out)
    return 1 if cases else 0


def commit():
    """The commit that is attacked, as git says it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return said.stdout.strip() or "unknown"
