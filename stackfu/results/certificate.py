"""The proof of a lower bound on what the leader can reach, as plain data.

A certificate is a tree that divides the leader's search space and, at every leaf, multipliers of the one bound that is
derived in ``docs/theory/leader.md``. It proves: *no payments within the constraints have an objective below* ``lower``.

**The tree covers the space by construction.** Its nodes are listed in preorder. The root is "total participation S in
(floor, 1], nothing known about any client"; :class:`Split` cuts the interval of S at a value (first child: below, second: above);
:class:`Decide` asks whether one client is a volunteer (first child: no, so ``D_k <= theta_k S``; second child: yes, so
``D_k >= theta_k S`` and the client takes part fully). There is no way to write down a tree with a hole.

**Multipliers** are stored at a few *knots*, each meant for one value of S, in the game's own units. A leaf on ``[a, b]`` names two
knots; its multipliers at S are the straight line through theirs (the two may be the same: constant multipliers). They need
not be good, nor dual feasible, nor optimal: whatever they are, the bound holds, only weaker.

**Steps.** A leaf may argue in several steps: every step but the last one shows that a point better than ``lower`` would have its
mixture embedding in a ball, which narrows the distances ``d_k`` that the next step may assume.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Decide", "Knot", "LeaderCertificate", "Leaf", "Node", "Split", "split_at", "whole_numbers"]

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Knot:
    """Multipliers at one value of total participation, in the game's units; clients count from 0 among the remaining.

    The bound they give at S is that of the Lagrangian

        objective (F - lower) + budget (spend - B) + loss_cap (loss - cap) + sum_k rows_k (D_k - theta_k S - e_k),

    minimised over mixtures with the tangent of ``||m||^2`` at ``centre`` and ``level`` as the multiplier of ``sum z = 1``,
    embeddings measured from ``mu_N``. (From another origin b, seen from ``mu_N``, and with the ideal point ``away`` from b, the
    same bound has ``level - 2 <b, T c - M - ell W away> - nu ||b||^2``.)
    """

    total: float  # S at which the multipliers were computed
    objective: float  # weight of the objective: 1, or 0 where the box is shown to hold no feasible point
    budget: float  # >= 0, and 0 without a budget
    loss_cap: float  # >= 0, and 0 without a cap on the loss
    level: float  # t
    clients: Indices  # clients with a non-zero row multiplier, ascending
    rows: Floats  # their multipliers P_k; negative ones are allowed for volunteers only
    support: Indices | None  # clients mixed in the centre; None: the centre is a point in feature space
    centre: Floats  # weights of the mixture (any real numbers), or a feature vector, in the coordinates of the features


@dataclass(frozen=True)
class Split:
    """Cut the interval of S: first child ``S <= at``, second child ``S >= at``."""

    at: float


@dataclass(frozen=True)
class Decide:
    """First child: the client is no volunteer (``D_k <= theta_k S``); second: it is one (``D_k >= theta_k S``, at full)."""

    client: int


@dataclass(frozen=True)
class Leaf:
    """Pairs of knots (lower end, upper end); all but the last give balls, the last one closes the box."""

    steps: tuple[tuple[int, int], ...]


Node = Split | Decide | Leaf


@dataclass(frozen=True, eq=False)
class LeaderCertificate:
    """Data that prove: no payments within the constraints have an objective below ``lower``.

    >>> knot = Knot(1.0, 1.0, 0.0, 0.0, 0.0, np.array([], dtype=np.int64), np.array([]), None, np.zeros(2))
    >>> certificate = LeaderCertificate(-1.0, (knot,), (Split(0.5), Leaf(((0, 0),)), Leaf(((0, 0),))))
    >>> again = LeaderCertificate.from_record(certificate.to_record())
    >>> again.tree == certificate.tree, again.lower
    (True, -1.0)
    """

    lower: float
    knots: tuple[Knot, ...]
    tree: tuple[Node, ...]  # preorder

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return sum(isinstance(node, Leaf) for node in self.tree)

    def to_record(self) -> dict[str, Any]:
        """Return the certificate as one number and flat arrays, for JSON and npz files."""
        knots, tree = self.knots, self.tree
        leaves = [node for node in tree if isinstance(node, Leaf)]
        supports = [k.support if k.support is not None else np.arange(len(k.centre)) for k in knots]
        return {
            "lower": float(self.lower),
            "knot_numbers": np.array(
                [[k.total, k.objective, k.budget, k.loss_cap, k.level] for k in knots], dtype=np.float64
            ).reshape(len(knots), 5),
            "row_ends": _ends([k.clients for k in knots]),
            "row_clients": _joined([k.clients for k in knots], np.int64),
            "row_values": _joined([k.rows for k in knots], np.float64),
            "centre_is_point": np.array([k.support is None for k in knots], dtype=np.int8),
            "centre_ends": _ends([k.centre for k in knots]),
            "centre_clients": _joined(supports, np.int64),
            "centre_values": _joined([k.centre for k in knots], np.float64),
            "node_kinds": np.array([_KINDS.index(type(node)) for node in tree], dtype=np.int8),
            "node_splits": np.array([n.at for n in tree if isinstance(n, Split)], dtype=np.float64),
            "node_clients": np.array([n.client for n in tree if isinstance(n, Decide)], dtype=np.int64),
            "leaf_ends": _ends([leaf.steps for leaf in leaves]),
            "leaf_steps": np.array([s for leaf in leaves for s in leaf.steps], dtype=np.int64).reshape(-1, 2),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> LeaderCertificate:
        """Read :meth:`to_record` back; ValueError, KeyError or TypeError if the arrays do not fit together."""
        numbers = np.asarray(record["knot_numbers"], dtype=np.float64).reshape(-1, 5)
        clients = split_at(whole_numbers(record["row_clients"]), record["row_ends"], len(numbers))
        rows = split_at(np.asarray(record["row_values"], dtype=np.float64), record["row_ends"], len(numbers))
        mixed = split_at(whole_numbers(record["centre_clients"]), record["centre_ends"], len(numbers))
        centres = split_at(
            np.asarray(record["centre_values"], dtype=np.float64), record["centre_ends"], len(numbers)
        )
        is_point = np.asarray(record["centre_is_point"]).astype(bool)
        if len(is_point) != len(numbers):
            raise ValueError("centre_is_point does not fit the number of knots")
        knots = tuple(
            Knot(
                *_five(numbers[i]),
                clients[i],
                rows[i],
                None if is_point[i] else mixed[i],
                centres[i],
            )
            for i in range(len(numbers))
        )
        kinds = whole_numbers(record["node_kinds"]).ravel().tolist()
        pairs = whole_numbers(record["leaf_steps"]).reshape(-1, 2)
        leaves = iter(split_at(pairs, record["leaf_ends"], kinds.count(2)))
        splits = iter(np.asarray(record["node_splits"], dtype=np.float64).ravel())
        decided = iter(whole_numbers(record["node_clients"]).ravel())
        tree: list[Node] = []
        try:
            for kind in kinds:
                if kind == 0:
                    tree.append(Split(float(next(splits))))
                elif kind == 1:
                    tree.append(Decide(int(next(decided))))
                elif kind == 2:
                    tree.append(Leaf(tuple((int(i), int(j)) for i, j in next(leaves))))
                else:
                    raise ValueError(f"unknown kind of node {kind}")
        except StopIteration:
            raise ValueError("fewer numbers than nodes in the tree") from None
        if any(True for left in (splits, decided, leaves) for _ in left):
            raise ValueError("more numbers than nodes in the tree")
        return cls(float(record["lower"]), knots, tuple(tree))


_KINDS: tuple[type, ...] = (Split, Decide, Leaf)


def _five(values: Floats) -> tuple[float, float, float, float, float]:
    a, b, c, d, e = (float(v) for v in values)
    return a, b, c, d, e


def _ends(parts: Sequence[Any]) -> Indices:
    return np.cumsum([len(part) for part in parts], dtype=np.int64)


def _joined(parts: Sequence[Any], dtype: Any) -> Any:
    return np.concatenate([np.asarray(p, dtype=dtype) for p in parts]) if parts else np.zeros(0, dtype=dtype)


def whole_numbers(values: Any) -> Indices:
    """Return an array of indices; ValueError where a number is no whole one, which would otherwise be rounded."""
    read = np.asarray(values)
    with np.errstate(invalid="ignore"):  # NaN and infinity are cast to some number, which then differs
        found = read.astype(np.int64)
    if read.size and not np.array_equal(found, read):
        raise ValueError("an index is no whole number")
    return found


def split_at(array: Any, ends: Any, count: int) -> list[Any]:
    """Return the parts of an array that end at the given places; ValueError where they are not ``count`` parts of all of it."""
    stops = whole_numbers(ends).ravel().tolist()
    starts = [0, *stops[:-1]]
    fits = len(stops) == count and (stops[-1] if stops else 0) == len(array)
    if not fits or any(i > j for i, j in zip(starts, stops, strict=True)):
        raise ValueError("the parts of an array do not fit its length")
    return [array[i:j] for i, j in zip(starts, stops, strict=True)]
