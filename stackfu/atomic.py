"""Files that are complete or not there: written under a temporary name, flushed to the disk, then renamed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

__all__ = ["make_folder", "replace_atomically", "sync_folder", "write_atomically"]


def write_atomically(target: Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it, so that no reader ever sees half of it."""
    replace_atomically(target, lambda file: file.write(content))


def replace_atomically(target: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Let ``write`` fill a temporary file in the target's folder, then rename it; after a power cut either file is whole."""
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:  # with the permissions that the user's files have, unlike tempfile's
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
        sync_folder(target.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, and bring their names to the disk: what is in a folder is lost with its name."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk; some systems cannot do that for a folder, and do it automatically."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
