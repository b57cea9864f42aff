"""``python -m stackfu_bench.records``: take the paths of this machine out of asv's records.

asv names a record after the interpreter's path. What matters of it is the version of Python, so a record becomes
``<commit>-existing-py3.11.json``; a pass over the same commit with the same version is merged into it, the newer figure
winning.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "asv"


def without_paths(record: dict[str, Any], version: str) -> dict[str, Any]:
    """The record with the version of Python wherever asv wrote the path of the interpreter.

    >>> without_paths({"env_name": "existing-py_home_me_python3", "python": "/home/me/python3", "params": {}}, "3.11")
    {'env_name': 'existing-py3.11', 'python': '3.11', 'params': {'python': '3.11'}}
    """
    return {
        **record,
        "env_name": f"existing-py{version}",
        "python": version,
        "params": {**record["params"], "python": version},
    }


def merged(older: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any]:
    """Both records' benchmarks; where both have one, the newer.

    >>> merged({"date": 1, "results": {"a": 1, "b": 1}}, {"date": 2, "results": {"b": 2}})
    {'date': 2, 'results': {'a': 1, 'b': 2}}
    """
    return {**older, **newer, "results": {**older["results"], **newer["results"]}}


def tidy(folder: Path = RESULTS, version: str = f"{sys.version_info[0]}.{sys.version_info[1]}") -> list[Path]:
    """Rewrite every record that asv named after a path; the interpreter that runs this is the one that measured."""
    written = []
    for path in sorted(folder.glob("*/*-existing-py_*.json")):
        record = without_paths(json.loads(path.read_text()), version)
        target = path.with_name(re.sub(r"existing-py_.*", f"existing-py{version}.json", path.name))
        if target.exists():
            record = merged(json.loads(target.read_text()), record)
        temporary = target.with_suffix(".json.tmp")
        temporary.write_text(json.dumps(record) + "\n")
        os.replace(temporary, target)
        path.unlink()
        written.append(target)
    return written


if __name__ == "__main__":
    for record in tidy():
        print(record)
