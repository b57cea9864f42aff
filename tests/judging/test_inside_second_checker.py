"""Inside the second checker: its arithmetic against exact fractions, and the numbers that its verdicts on honest files depend on.

``tests/forgeries/numbers`` holds a digest of those numbers to the last of 256 binary digits. With 200 digits no bound may come out
better. Who changes a formula on purpose writes the digests again:
``PYTHONPATH=tests python tests/judging/test_inside_second_checker.py``.
"""

import json
import subprocess
from pathlib import Path

from second_checker import CHECKER, NODE, needs_node

HERE = Path(__file__).parent
HONEST = HERE.parent / "forgeries" / "honest"
NUMBERS = HERE.parent / "forgeries" / "numbers" / "of_second_checker.json"
pytestmark = needs_node


def look_inside(checker=CHECKER, names="*"):
    """Return the first unit test that fails, and what was found in the honest files of such names."""
    files = {path.stem: path.read_text() for path in sorted(HONEST.glob(f"{names}.json"))}
    done = subprocess.run(
        [NODE, HERE / "second_checker.mjs", checker],
        input=json.dumps(files),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_arithmetic_is_exact_and_numbers_of_honest_files_are_what_they_were():
    found = look_inside()
    assert found["failure"] is None
    known = json.loads(NUMBERS.read_text())
    assert sorted(known) == sorted(found["files"])
    for name, file in found["files"].items():
        assert file["tooGood"] is None, name
        assert file["heard"] > 40, name
        assert {key: file[key] for key in known[name]} == known[name], name


def test_a_broken_rounding_is_noticed(tmp_path):
    text = CHECKER.read_text()
    for right, wrong, test in (
        ("ceilShift = (n) => -(-n >> BITS)", "ceilShift = (n) => n >> BITS", "products"),
        ("high * high === top ? high : high + 1n", "high", "square roots"),
        ("4n * bend", "3n * bend", "parabola"),
    ):
        assert text.count(right) == 1
        (tmp_path / "broken.mjs").write_text(text.replace(right, wrong))
        assert test in look_inside(tmp_path / "broken.mjs", "none")["failure"]


def test_a_bound_from_the_wrong_end_is_noticed(tmp_path):
    """An upper bound of a distance, read as a lower one, changes no verdict here, and the numbers tell."""
    text = CHECKER.read_text()
    right = "lowest(g[0].lo, g[1].lo, delta.lo)"
    assert text.count(right) == 1
    (tmp_path / "broken.mjs").write_text(text.replace(right, "lowest(g[0].hi, g[1].lo, delta.lo)"))
    found, known = (
        look_inside(tmp_path / "broken.mjs", "linear")["files"]["linear"],
        json.loads(NUMBERS.read_text()),
    )
    assert found["verdicts"] == known["linear"]["verdicts"]
    assert found["numbers"] != known["linear"]["numbers"]


def write_numbers():
    """Write what the checker finds now."""
    kept = {
        name: {"verdicts": file["verdicts"], "numbers": file["numbers"]}
        for name, file in look_inside()["files"].items()
    }
    NUMBERS.parent.mkdir(exist_ok=True)
    NUMBERS.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    write_numbers()
