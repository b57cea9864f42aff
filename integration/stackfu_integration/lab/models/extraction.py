"""Run the frozen prefix over a data set once and keep the result on disk, keyed by content."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stackfu_integration.lab.data.datasets import Inputs, content_hash
from stackfu_integration.lab.models.backbones import Backbone
from stackfu_integration.storage import write_json, write_npy

__all__ = ["default_cache", "extract", "extract_timed"]

_PART = 1024  # rows that are kept as soon as they are computed: an interrupted extraction goes on from there


def default_cache() -> Path:
    """Folder of cached features: ``$XDG_CACHE_HOME/stackfu-lab``, usually below ``~/.cache``."""
    import os

    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "stackfu-lab"


def extract_timed(
    backbone: Backbone,
    inputs: Inputs,
    *,
    cache: Path | None = None,
    device: torch.device | None = None,
    batch: int = 128,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[np.ndarray[Any, Any], float]:
    """Return the prefix's tensors for ``inputs``, and how many seconds it took to compute them.

    What is in ``cache`` is read from there, with the seconds that were spent when it was computed. The key is
    a hash of the inputs and of the backbone's weights and settings: a changed data set, model or cut never
    finds an old entry. An extraction that was interrupted goes on where it stopped.
    """
    device = torch.device("cpu") if device is None else device
    key = hashlib.sha256(f"{backbone.fingerprint}/{content_hash(inputs)}".encode()).hexdigest()[:32]
    path = None if cache is None else cache / "features" / f"{key}.npy"
    # the record is written after the array: with it, both are whole
    if path is not None and path.is_file() and path.with_suffix(".json").is_file():
        cached: np.ndarray[Any, Any] = np.load(path)
        progress(len(inputs), len(inputs))
        return cached, float(json.loads(path.with_suffix(".json").read_text())["seconds"])
    parts, seconds = [], 0.0
    for start in range(0, len(inputs), _PART):
        part = None if path is None else path.with_suffix("") / f"{start}.npy"
        took = None if part is None else part.with_suffix(".json")
        rows = inputs[start : start + _PART]
        if part is not None and took is not None and part.is_file() and took.is_file():
            parts.append(np.load(part))
            seconds += float(json.loads(took.read_text())["seconds"])
        else:
            began = time.perf_counter()
            with torch.inference_mode():
                done = [backbone.prefix(rows[i : i + batch], device) for i in range(0, len(rows), batch)]
            parts.append(np.concatenate(done))
            spent = time.perf_counter() - began
            seconds += spent
            if part is not None and took is not None and len(inputs) > _PART:
                write_npy(part, parts[-1])
                write_json(took, {"seconds": spent, "rows": len(rows)})
        progress(start + len(rows), len(inputs))
    extracted = np.concatenate(parts)
    if path is not None:
        write_npy(path, extracted)
        write_json(path.with_suffix(".json"), {"seconds": seconds, "rows": len(inputs)})
        shutil.rmtree(path.with_suffix(""), ignore_errors=True)
    return extracted, seconds


def extract(backbone: Backbone, inputs: Inputs, **options: Any) -> np.ndarray[Any, Any]:
    """Return the tensors alone; ``options`` as for :func:`extract_timed`."""
    return extract_timed(backbone, inputs, **options)[0]
