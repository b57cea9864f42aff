"""The boxes of a certificate's tree: why nothing is left out, for every checker of lower bounds.

The root is "total participation in (floor, 1], nothing known about any client". A split hands both parts of its interval on, a
decision both answers, so the leaves cover everything whatever the tree says; a tree that ends too early or too late is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import VerificationError
from ..results.certificate import Decide, LeaderCertificate, Leaf, Split

__all__ = ["Box", "boxes_of"]

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Box:
    """A leaf with the interval and the decisions that the tree hands it."""

    leaf: Leaf
    low: float
    high: float
    paid: Mask
    volunteer: Mask


def boxes_of(clients: int, floor: float, certificate: LeaderCertificate) -> Iterator[Box]:
    """The leaves in the tree's order, one at a time; an error as soon as the tree is found not to be one."""
    if not math.isfinite(certificate.lower):
        raise VerificationError("the claimed lower bound is not a finite number")
    nodes = iter(certificate.tree)
    nobody = np.zeros(clients, dtype=bool)
    stack = [(float(floor), 1.0, nobody, nobody)]
    while stack:
        low, high, paid, volunteer = stack.pop()
        node = next(nodes, None)
        if node is None:
            raise VerificationError("the tree ends before everything is covered")
        if isinstance(node, Split):
            if not low < node.at < high:
                raise VerificationError(f"a split at {node.at!r} lies outside ({low!r}, {high!r})")
            stack += [(node.at, high, paid, volunteer), (low, node.at, paid, volunteer)]
        elif isinstance(node, Decide):
            if not 0 <= node.client < clients:
                raise VerificationError(f"the tree decides about client {node.client}, who does not exist")
            both = paid.copy(), volunteer.copy()
            both[0][node.client] = both[1][node.client] = True
            stack += [(low, high, paid, both[1]), (low, high, both[0], volunteer)]
        else:
            yield Box(node, low, high, paid, volunteer)
    if next(nodes, None) is not None:
        raise VerificationError("the tree goes on after everything is covered")
