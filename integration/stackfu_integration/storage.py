"""Files that are either whole or absent, also after a power cut (:mod:`stackfu.atomic`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from stackfu.atomic import make_folder, replace_atomically

__all__ = ["write_checkpoint", "write_json", "write_npy", "write_text", "write_with"]


def write_with(path: Path, write: Callable[[IO[bytes]], object]) -> Path:
    """Let ``write`` fill a temporary file in the folder of ``path``, then rename it to ``path``; the folder is created."""
    make_folder(path.parent)
    replace_atomically(path, write)
    return path


def write_text(path: Path, text: str) -> Path:
    """Write UTF-8 text."""
    return write_with(path, lambda stream: stream.write(text.encode()))


def write_json(path: Path, value: Any) -> Path:
    """Write JSON with sorted keys, so that equal content gives equal files."""
    return write_text(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def write_npy(path: Path, array: np.ndarray[Any, Any]) -> Path:
    """Write one array."""
    return write_with(path, lambda stream: np.save(stream, array))


def write_checkpoint(path: Path, value: dict[str, Any]) -> Path:
    """Write tensors and plain values that ``torch.load(weights_only=True)`` reads back."""
    import torch  # here: clients of a federation, and pages that only read results, need not have it

    return write_with(path, lambda stream: torch.save(value, stream))
