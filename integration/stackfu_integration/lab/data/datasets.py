"""A labelled data set in memory: raw inputs, integer labels, and a hash of its content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from stackfu.errors import InputError
from stackfu_integration.arrays import IntArray

__all__ = ["Dataset", "Inputs", "Modality", "Split", "content_hash"]

Inputs: TypeAlias = "np.ndarray[Any, Any]"  # (n, ...) numbers, or (n,) objects holding str
Modality = Literal["vector", "image", "text"]


def content_hash(*arrays: np.ndarray[Any, Any]) -> str:
    """SHA-256 over dtype, shape and bytes of arrays; an array of objects is hashed as its texts.

    >>> content_hash(np.arange(3)) == content_hash(np.arange(3))
    True
    """
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.kind}{array.dtype.itemsize}{array.shape}".encode())
        if array.dtype == object:
            for text in array:
                encoded = str(text).encode()
                digest.update(len(encoded).to_bytes(8, "little") + encoded)
        else:
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Split:
    """Inputs and labels of equal length."""

    x: Inputs
    y: IntArray

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise InputError("split", f"{len(self.x)} inputs but {len(self.y)} labels")

    def __len__(self) -> int:
        return len(self.y)

    def take(self, indices: IntArray) -> Split:
        """Return the samples at ``indices``, in that order."""
        return Split(self.x[indices], self.y[indices])

    def thin(self, size: int | None, seed: int) -> Split:
        """Keep ``size`` samples, every class in the proportion it has (largest remainders), in file order."""
        if size is None or size >= len(self):
            return self
        classes, counts = np.unique(self.y, return_counts=True)
        exact = counts * (size / len(self))
        keep = np.floor(exact).astype(int)
        keep[np.argsort(keep - exact, kind="stable")[: size - keep.sum()]] += 1
        rng = np.random.default_rng(seed)
        chosen = [
            rng.choice(np.flatnonzero(self.y == label), k, replace=False)
            for label, k in zip(classes, keep, strict=True)
        ]
        return self.take(np.sort(np.concatenate(chosen)))


@dataclass(frozen=True)
class Dataset:
    """A training and a test pool with the same classes.

    ``origin`` is one sentence on what the samples are; it is repeated in every report, because a subset of a
    benchmark must not be mistaken for the benchmark.
    """

    name: str
    modality: Modality
    train: Split
    test: Split
    classes: int
    origin: str
    digest: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for pool, split in (("train", self.train), ("test", self.test)):
            if len(split) == 0:
                raise InputError(f"{self.name}.{pool}", "has no samples")
            if split.y.min() < 0 or split.y.max() >= self.classes:
                raise InputError(
                    f"{self.name}.{pool}", f"labels must be in 0..{self.classes - 1}", value=split.y
                )
        digest = content_hash(self.train.x, self.train.y, self.test.x, self.test.y)
        object.__setattr__(self, "digest", digest)

    def subset(self, train: int | None = None, test: int | None = None, seed: int = 0) -> Dataset:
        """Return a class-balanced subset; sizes of ``None`` keep the pool."""
        thinned = replace(self, train=self.train.thin(train, seed), test=self.test.thin(test, seed))
        if len(thinned.train) == len(self.train) and len(thinned.test) == len(self.test):
            return self
        used = f"{len(thinned.train):,} + {len(thinned.test):,} samples of it used"
        return replace(thinned, origin=f"{self.origin}; {used}")
