"""Files that are either whole or absent: everything is written under a temporary name and then renamed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

__all__ = ["write_atomically", "write_checkpoint", "write_json", "write_npy", "write_text"]


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> Path:
    """Let ``write`` fill a temporary file beside ``path``, then rename it to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            write(stream)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path


def write_text(path: Path, text: str) -> Path:
    """Write UTF-8 text."""
    return write_atomically(path, lambda stream: stream.write(text.encode()))


def write_json(path: Path, value: Any) -> Path:
    """Write JSON with sorted keys, so that equal content gives equal files."""
    return write_text(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def write_npy(path: Path, array: np.ndarray[Any, Any]) -> Path:
    """Write one array."""
    return write_atomically(path, lambda stream: np.save(stream, array))


def write_checkpoint(path: Path, value: dict[str, Any]) -> Path:
    """Write tensors and plain values that ``torch.load(weights_only=True)`` reads back."""
    import torch  # the Flower side writes files too, and its clients need not have torch

    return write_atomically(path, lambda stream: torch.save(value, stream))
