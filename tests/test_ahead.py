"""What the first run compiles ahead is what a solve calls, and a process that fails to bring it costs only time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import stackfu
from stackfu import ahead, jit

#: Plays the demo's game and prints every compiled function that Python called, with its argument types.
PLAY = """
import json, sys
from numba.core import event
from numba.core.dispatcher import Dispatcher
from stackfu.ahead import compile_ahead
compiled = []
class Watch(event.Listener):
    def on_start(self, event): compiled.append(str(event.data["dispatcher"]))
    def on_end(self, event): pass
event.register("numba:compile", Watch())
from stackfu.cli import main
with compile_ahead():
    assert main(["demo", "--output", sys.argv[1], "--json"]) == 0
used = {
    f"{name}.{key}": [str(signature) for signature in value.signatures]
    for name, module in list(sys.modules.items()) if name.startswith("stackfu")
    for key, value in vars(module).items()
    if isinstance(value, Dispatcher) and value.py_func.__module__ == name and value.signatures
}
print("\\n" + json.dumps({"compiled": compiled, "used": used}))
"""


def python(*arguments, **environment):
    root = str(Path(stackfu.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": root, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_list_is_what_the_demo_calls(tmp_path):
    """Neither less, which would be compiled by one core in the middle of the work, nor more, which nobody waits for."""
    done = python("-c", PLAY, str(tmp_path / "demo"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["compiled"] == []
    assert found["used"] == {
        ahead._full_name(entry): [str(ahead.argument_types(entry.types))] for entry in ahead.ENTRIES
    }


def test_what_a_process_compiled_is_kept_whole(tmp_path):
    """From disk, the function answers; the inner ones, which have no wrapper, are not kept."""
    smallest = next(i for i, entry in enumerate(ahead.ENTRIES) if entry.name == "pack_rows")
    cache = tmp_path / "cache"
    done = python("-m", "stackfu.ahead", str(smallest), NUMBA_CACHE_DIR=str(cache))
    assert done.stdout.split() == ["stackfu.embedding._kernels.pack_rows"], done.stderr
    assert {path.name.split("-")[0] for path in cache.rglob("*.nbi")} == {"_kernels.pack_rows"}
    use = """
from stackfu import ahead
from stackfu.embedding import _kernels
entry = next(entry for entry in ahead.ENTRIES if entry.name == "pack_rows")
assert ahead._is_kept(entry)
_kernels.pack_rows.compile(ahead.argument_types(entry.types))
print(sum(_kernels.pack_rows.stats.cache_hits.values()))
"""
    done = python("-c", use, NUMBA_CACHE_DIR=str(cache))
    assert done.stdout.strip() == "1", done.stderr


def test_inner_functions_work_within_what_is_kept(tmp_path):
    """They got no machine code of their own; whoever calls them, taken from disk, answers as if compiled here."""
    number = next(i for i, entry in enumerate(ahead.ENTRIES) if entry.name == "judge")
    cache = str(tmp_path / "cache")
    done = python("-m", "stackfu.ahead", str(number), NUMBA_CACHE_DIR=cache)
    assert done.stdout.split() == ["stackfu.model._geometry_kernels.judge"], done.stderr
    use = """
import numpy as np
from stackfu.model._geometry_kernels import judge
rng = np.random.default_rng(0)
fixed = lambda values: (values.setflags(write=False), values)[1]
for a in (0.0, 0.3):  # the second asks an inner function for the root of a cubic
    values = [values.copy() for values in rng.uniform(0.1, 1.0, (7, 5))]
    values[6] *= values[2]  # no more than the caps
    given = [fixed(values[i]) if i else values[i] for i in range(7)]
    assert judge.py_func(*values, a) == judge(*given, a)
print(sum(judge.stats.cache_hits.values()), sum(judge.stats.cache_misses.values()))
"""
    done = python("-c", use, NUMBA_CACHE_DIR=cache)
    assert done.stdout.split() == ["1", "0"], done.stderr


def test_options_compare_as_numba_compares_them():
    """In a process of its own, which the quicker comparison would otherwise outlive."""
    done = python(
        "-c",
        """
from itertools import product
from numba.core.compiler import Flags
from numba.core.targetconfig import TargetConfig
def flags(**chosen):
    made = Flags()
    for name, value in chosen.items():
        setattr(made, name, value)
    return made
samples = [flags()] + [
    flags(**dict(zip(names, values)))
    for names in [("nrt", "boundscheck"), ("error_model",), ("nrt", "no_cpython_wrapper", "release_gil")]
    for values in product(*[("numpy", "python") if name == "error_model" else (False, True) for name in names])
]
slow = [[a == b for b in samples] for a in samples]
from stackfu.ahead import _compare_options_quickly
before = TargetConfig.__eq__
_compare_options_quickly()
assert TargetConfig.__eq__ is not before
assert [[a == b for b in samples] for a in samples] == slow
assert all(hash(a) == hash(b) for a in samples for b in samples if a == b)
assert samples[0] != 1
print(sum(map(sum, slow)), len(samples))
""",
    )
    assert done.returncode == 0, done.stderr
    equal, count = map(int, done.stdout.split())
    assert count < equal < count**2


@pytest.fixture
def nothing_is_kept(monkeypatch):
    monkeypatch.setattr(ahead, "_is_kept", lambda entry: False)


@pytest.mark.parametrize(
    "command", ["raise SystemExit(3)", "print('nonsense')", "import os; os.kill(os.getpid(), 9)"]
)
def test_a_process_that_fails_keeps_nobody_waiting(nothing_is_kept, monkeypatch, command):
    real = subprocess.Popen
    monkeypatch.setattr(
        ahead.subprocess, "Popen", lambda words, **options: real([sys.executable, "-c", command], **options)
    )
    with ahead.compile_ahead(cores=2) as first:
        assert first
        assert all(jit.awaited(ahead._full_name(entry)) for entry in ahead.ENTRIES)
        assert not jit.awaited("stackfu.elsewhere.unknown")
    assert jit.awaited is None


def test_without_processes_everything_is_compiled_as_ever(nothing_is_kept, monkeypatch):
    def refused(*words, **options):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(ahead.subprocess, "Popen", refused)
    with ahead.compile_ahead() as first:
        assert not first
        assert jit.awaited is None


def test_an_interruption_ends_the_processes(nothing_is_kept, monkeypatch):
    started = []
    real = subprocess.Popen

    def slow(words, **options):
        started.append(real([sys.executable, "-c", "import time; time.sleep(600)"], **options))
        return started[-1]

    monkeypatch.setattr(ahead.subprocess, "Popen", slow)
    with pytest.raises(KeyboardInterrupt), ahead.compile_ahead(cores=2):
        raise KeyboardInterrupt
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def test_shares_hold_every_entry_once():
    for cores in (1, 2, 3, 64):
        shares = ahead._deal(list(ahead.ENTRIES), cores)
        assert len(shares) == min(cores, 3)
        assert sorted(entry for share in shares for entry in share) == sorted(ahead.ENTRIES)
        assert all(share == sorted(share, key=ahead.ENTRIES.index) for share in shares)
