from __future__ import annotations

import logging

import pytest
from scene import Scene


@pytest.fixture(autouse=True, scope="session")
def _quiet():
    logging.getLogger("flwr").setLevel(logging.ERROR)


@pytest.fixture
def scene(tmp_path) -> Scene:
    return Scene(tmp_path / "run")


@pytest.fixture(scope="session")
def sound(tmp_path_factory) -> Scene:
    """A run in which nothing goes wrong."""
    scene = Scene(tmp_path_factory.mktemp("sound") / "run")
    scene.run()
    return scene
