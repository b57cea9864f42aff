"""Models as files named by their content: a ledger row points at one; half a file never counts."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord

from stackfu.errors import FileFormatError
from stackfu_integration.storage import write_with

__all__ = ["ModelStore", "digest"]


_LIKE_A_HEADER = re.compile(r"/[<>=|]\w+/\(")  # a name like this could hold an array of another model


def digest(arrays: ArrayRecord) -> str:
    """SHA-256 over names, types, shapes and values."""
    sha = hashlib.sha256()
    for name, array in arrays.items():
        if _LIKE_A_HEADER.search(name):
            raise ValueError(f"an array of a model cannot have the name {name[:60]!r}")
        values = array.numpy()
        sha.update(f"{name}/{values.dtype.str}/{values.shape}/".encode())
        sha.update(np.ascontiguousarray(values).tobytes())
    return sha.hexdigest()


class ModelStore:
    """A folder of models."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, arrays: ArrayRecord) -> str:
        """Write a model and return its digest; a model that is there already is not written again."""
        name = digest(arrays)
        path = self.folder / f"{name}.npz"
        if not path.is_file():
            values = {key: array.numpy() for key, array in arrays.items()}
            write_with(path, lambda stream: np.savez(stream, **values))  # type: ignore[arg-type]
        return name

    def get(self, name: str) -> ArrayRecord:
        """Read a model; refuse a file with content that does not match its name."""
        path = self.folder / f"{name}.npz"
        try:
            with np.load(path, allow_pickle=False) as stored:
                arrays = ArrayRecord(OrderedDict((key, Array(stored[key])) for key in stored.files))
        except (OSError, ValueError) as error:
            raise FileFormatError(f"{path}: not a model ({error!r})") from error
        if digest(arrays) != name:
            raise FileFormatError(f"{path}: the content does not match its name")
        return arrays

    def has(self, name: str) -> bool:
        """Return True if there is a file of this name, whatever it holds."""
        return (self.folder / f"{name}.npz").is_file()

    def keep_only(self, names: set[str]) -> None:
        """Delete every other model."""
        for path in self.folder.glob("*.npz"):
            if path.stem not in names:
                path.unlink(missing_ok=True)
