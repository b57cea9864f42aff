"""Forged records: every leaf of a saved file, moved one at a time."""

import copy
import json

import stackfu as sf


def read_unclaimed(path):
    """Read a saved solution as files of version 2 hold it: without the digest of its claim, which a forger would compute again."""
    record = json.loads(path.read_text())
    if record.get("certificate") is not None:
        del record["certificate"]["claim"]
    return {**record, "version": 2}


def leaves(value, path=(), but=()):
    """Every number, word and switch of a record with the way to it, except what lies under the names in ``but``."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in but:
                yield from leaves(item, (*path, key), but)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from leaves(item, (*path, i), but)
    else:
        yield path, value


def name_of(path):
    return ".".join(str(p) for p in path if not isinstance(p, int) and p != "array")


def forgeries(value, switches=False):
    """Forged values of a number: a millionth and 1 further, NaN, the other sign, another word; the other way for ``switches``."""
    if value is None:
        return
    if isinstance(value, bool):
        if switches:
            yield not value
    elif isinstance(value, str):
        for words in (sf.Status, sf.Uniqueness):
            if value in words.__members__:
                yield from (word for word in words.__members__ if word != value)
    else:
        yield value * (1 + 1e-6) if value else 1e-6
        yield value + 1
        yield {"number": "nan"}
        if value:
            yield -value


def changed(record, path, value):
    """A copy of the record with another value at one place."""
    forged = copy.deepcopy(record)
    place = forged
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return forged
