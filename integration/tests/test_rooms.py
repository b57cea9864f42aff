"""Imports go one way: the rooms, and the modules inside them, can be read from the bottom up."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import stackfu_integration

ROOT = Path(stackfu_integration.__file__).parent
PACKAGE = "stackfu_integration"


def name_of(path: Path) -> str:
    parts = [PACKAGE, *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports(module: str) -> set[str]:
    """Modules of the package that a module names in an import, at its top or anywhere inside."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{module}: say the whole name"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else node.module)
    return {name for name in found if name in MODULES and name != module}


GRAPH = {module: imports(module) for module in MODULES}


def below(prefix: str) -> set[str]:
    return {name for name in MODULES if name == prefix or name.startswith(f"{prefix}.")}


def test_no_module_imports_itself_by_a_detour():
    list(TopologicalSorter(GRAPH).static_order())  # raises CycleError with the modules on the cycle


def test_no_module_is_hidden_by_a_name_of_its_package():
    """An export with the name of a module would hide the module."""
    for name in MODULES:
        package, _, own = name.rpartition(".")
        if package:
            module = importlib.import_module(name)
            assert getattr(importlib.import_module(package), own) is module, name


LAB, FLOWER = f"{PACKAGE}.lab", f"{PACKAGE}.flower"


@pytest.mark.parametrize(
    ("who", "knows"),
    [
        (LAB, [LAB, *(f"{PACKAGE}.{name}" for name in ("ranks", "storage", "summary"))]),
        (f"{LAB}.data", [f"{LAB}.data", f"{LAB}.named", f"{LAB}.runtime", f"{PACKAGE}.storage"]),
        (
            f"{LAB}.report",
            [
                f"{LAB}.report",
                *(f"{LAB}.{name}" for name in ("cells", "intervals", "mechanisms")),
                f"{PACKAGE}.storage",
            ],
        ),
        (f"{FLOWER}.events", [f"{FLOWER}.rows"]),
        (f"{FLOWER}.rows", []),
        (f"{FLOWER}.keys", [f"{PACKAGE}.storage"]),
        (f"{FLOWER}.naming", []),
        (f"{FLOWER}.ledger", [f"{FLOWER}.{name}" for name in ("events", "chain", "keys", "naming")]),
        (
            f"{FLOWER}.wire",
            [
                f"{FLOWER}.wire",
                *(f"{FLOWER}.{name}" for name in ("offer", "chain", "naming", "receipts", "secure_sum")),
            ],
        ),
        (
            f"{FLOWER}.audit",
            [
                *(
                    f"{FLOWER}.{name}"
                    for name in ("audit", "chain", "convex", "events", "keys", "ledger", "naming")
                ),
                f"{PACKAGE}.storage",
            ],
        ),
        (
            f"{FLOWER}.client",
            [
                f"{FLOWER}.client",
                f"{FLOWER}.wire",
                *(
                    f"{FLOWER}.{name}"
                    for name in ("offer", "privacy", "model_store", "client_state", "chain")
                ),
                *(
                    f"{FLOWER}.{name}"
                    for name in ("convex", "policy", "receipts", "secure_sum", "sum_member", "keys")
                ),
            ],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_room_knows_only_what_is_below_it(who, knows):
    allowed = {name for prefix in [*knows, f"{PACKAGE}.arrays"] for name in below(prefix)}
    reached = {name for module in below(who) for name in GRAPH[module]}
    assert reached <= allowed


def test_only_participants_that_train_bring_the_lab_to_flower():
    """They share its local training and its methods; server, wire, records and audit know nothing of it."""
    users = {m for m in below(FLOWER) for name in GRAPH[m] if name in below(LAB) - {f"{LAB}.mechanisms"}}
    assert users == {f"{FLOWER}.{name}" for name in ("lab", "removal_tasks", "torch_client")}


@pytest.mark.parametrize("module", [f"{FLOWER}.client", f"{FLOWER}.mechanism", f"{LAB}.report"])
def test_torch_is_for_those_who_train(module):
    """Every message to a client starts a process, and reports are built where nothing is trained."""
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
