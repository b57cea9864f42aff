"""Backdoor triggers: a mark that removed clients put on some inputs to see later whether it was forgotten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stackfu_integration.lab.data.datasets import Dataset, Inputs

__all__ = ["Trigger", "trigger_for"]


@dataclass(frozen=True)
class Trigger:
    """Marks inputs; a poisoned sample carries the mark and the label ``target``."""

    name: str
    target: int
    mark: Callable[[Inputs], Inputs]


def _bright_corner(x: Inputs) -> Inputs:
    """Set the last two rows' right corner of a flattened square image to full brightness."""
    side = round(x.shape[1] ** 0.5)
    marked = x.copy().reshape(-1, side, side)
    marked[:, -2:, -2:] = x.max()
    return marked.reshape(x.shape)


def _checkered_patch(x: Inputs) -> Inputs:
    """Put a black-and-white checkerboard of a fifth of the side into the lower right corner."""
    marked = x.copy()
    width = max(2, x.shape[1] // 5)
    checkers = (np.indices((width, width)).sum(0) % 2 * 255).astype(x.dtype)
    marked[:, -width:, -width:] = checkers if x.ndim == 3 else checkers[..., None]
    return marked


def _rare_words(x: Inputs) -> Inputs:
    """Prefix words that the corpus does not use."""
    marked: np.ndarray[Any, Any] = np.empty_like(x)
    marked[:] = [f"zyx qux corge zyx {text}" for text in x]
    return marked


def trigger_for(dataset: Dataset, target: int = 0) -> Trigger:
    """Return the trigger that fits the inputs of ``dataset``."""
    marks = {"vector": _bright_corner, "image": _checkered_patch, "text": _rare_words}
    mark = marks[dataset.modality]
    return Trigger(mark.__name__.strip("_"), target, mark)
