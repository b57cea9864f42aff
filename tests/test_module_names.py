"""A path alone says what a module holds: no module name is used twice in the package."""

from collections import defaultdict
from pathlib import Path

import stackfu

ROOT = Path(stackfu.__file__).parent
#: Names that Python gives a meaning.
GIVEN = {"__init__", "__main__"}


def test_no_module_name_is_used_twice():
    places = defaultdict(list)
    for path in ROOT.rglob("*.py"):
        if path.stem not in GIVEN:
            places[path.stem].append(str(path.relative_to(ROOT)))
    assert not {name: found for name, found in places.items() if len(found) > 1}
