"""Writes every forgery as a whole file, for checkers of your own: ``python tests/forgeries/expand.py FOLDER``.

``honest`` holds true files. Each other file says what was moved in one of them (``moved``), the values that were put there
(``changes``, pairs of a path and a value), and what each checker must say (``python``, ``javascript``: patterns; both must refuse,
unless ``still_true`` says why the file claims nothing false). A forger can compute digests too: where ``claim`` is "again", the
certificate names the claim of the forged file, so that the proof itself has to fail; where it is "kept", the old digest stays.
"""

import copy
import json
import sys
from pathlib import Path

import stackfu as sf
from stackfu.io import loads
from stackfu.results.claim import claim_digest

HERE = Path(__file__).parent


def forgeries():
    """Return the names of all forgeries, and what their files say."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(HERE.glob("*.json"))}


def honest(name):
    """Return the record of an honest file."""
    return json.loads((HERE / "honest" / f"{name}.json").read_text())


def forged_text(forgery):
    """Return the whole file of a forgery as text."""
    record = copy.deepcopy(honest(forgery["honest"]))
    if "certificate_of" in forgery:
        record["certificate"] = honest(forgery["certificate_of"])["certificate"]
    for (*way, last), value in forgery.get("changes", ()):
        place = record
        for step in way:
            place = place[step]
        if value == {"left out": True}:
            del place[last]
        else:
            place[last] = value
    if forgery["claim"] == "again":
        record = _claimed_again(record)
    text = json.dumps(record)
    return text[: int(len(text) * forgery["part"])] if "part" in forgery else text


def _claimed_again(record):
    unclaimed = copy.deepcopy(record)
    del unclaimed["certificate"]["claim"]
    try:
        claim = claim_digest(loads(json.dumps({**unclaimed, "version": 2}).encode(), "forged"))
    except (sf.StackfuError, ValueError):
        return {**unclaimed, "version": 2} if record["version"] == 3 else record
    record["certificate"]["claim"] = claim
    return record


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, forgery in forgeries().items():
        (folder / f"{name}.json").write_text(forged_text(forgery))
