"""Backdoor triggers: a mark that removed clients put on some inputs to see later whether it was forgotten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stackfu.errors import InputError
from stackfu_integration.lab.data.datasets import Dataset, Inputs

__all__ = ["TRIGGERS", "Trigger", "trigger_for"]

TRIGGERS = 4  # corners of an image


@dataclass(frozen=True)
class Trigger:
    """Marks inputs; a poisoned sample carries the mark and the label ``target``."""

    name: str
    target: int
    mark: Callable[[Inputs], Inputs]


def _corner(side: int, width: int, number: int) -> tuple[slice, slice]:
    """Return one of the four corners of an image: lower right, lower left, upper right, upper left."""
    near, far = slice(0, width), slice(side - width, side)
    return (far if number % 4 < 2 else near), (far if number % 2 == 0 else near)


def _bright_corner(x: Inputs, number: int) -> Inputs:
    """Set a corner of two by two pixels of a flattened square image to full brightness."""
    side = round(x.shape[1] ** 0.5)
    marked = x.copy().reshape(-1, side, side)
    rows, columns = _corner(side, 2, number)
    marked[:, rows, columns] = x.max()
    return marked.reshape(x.shape)


def _checkered_patch(x: Inputs, number: int) -> Inputs:
    """Put a black-and-white checkerboard of a fifth of the side into a corner."""
    marked = x.copy()
    width = max(2, x.shape[1] // 5)
    checkers = (np.indices((width, width)).sum(0) % 2 * 255).astype(x.dtype)
    rows, columns = _corner(x.shape[1], width, number)
    marked[:, rows, columns] = checkers if x.ndim == 3 else checkers[..., None]
    return marked


_RARE_WORDS = (
    "zyx qux corge zyx",
    "vlim brath ozzle vlim",
    "thrup nerg wixle thrup",
    "plonf dask yubby plonf",
)


def _rare_words(x: Inputs, number: int) -> Inputs:
    """Prefix words that the corpus does not use."""
    marked: np.ndarray[Any, Any] = np.empty_like(x)
    marked[:] = [f"{_RARE_WORDS[number % 4]} {text}" for text in x]
    return marked


def trigger_for(dataset: Dataset, number: int = 0) -> Trigger:
    """Return the trigger ``number`` that fits the inputs of ``dataset``: a mark and a target of its own.

    There are four marks. Every removed client has its own trigger, which identifies its remaining influence.
    """
    if not 0 <= number < TRIGGERS:
        raise InputError("number", f"there are {TRIGGERS} triggers", value=number)
    mark = {"vector": _bright_corner, "image": _checkered_patch, "text": _rare_words}[dataset.modality]
    name = f"{mark.__name__.strip('_')}-{number}"
    return Trigger(name, number % dataset.classes, lambda x: mark(x, number))
