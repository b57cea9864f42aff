"""Runs the JavaScript checker on many files in one process of node."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import stackfu

CHECKER = Path(stackfu.__file__).parent / "explorer" / "check.mjs"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(
    NODE is None,
    reason="no node here to run the second checker (apt-get install nodejs, or make test as root)",
)
BATCH = """
import { readFileSync } from "node:fs";
const { check } = await import(process.argv[1]);
const paths = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(paths.map((path) => check(readFileSync(path, "utf8")))));
"""


def check_again(paths, checker=CHECKER, timeout=300):
    """Return the second checker's report on every file."""
    command = [NODE, "--input-type=module", "-e", BATCH, Path(checker).as_uri()]
    done = subprocess.run(
        command,
        input=json.dumps([str(p) for p in paths]),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=True,
    )
    return json.loads(done.stdout)


def said(report, verdict="refused"):
    """Return everything that a report says with one verdict, in one line."""
    return "; ".join(
        f"{line['what']}: {line['said']}" for line in report["lines"] if line["verdict"] == verdict
    )
