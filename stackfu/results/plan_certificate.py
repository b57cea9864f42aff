"""The proof of a lower bound on what capped offers can reach, as plain data.

A certificate is a tree that divides all plans and, at its nodes, multipliers of the bound that is derived in
``docs/theory/offers.md``. It
proves: *no plan within the constraints has an objective below* ``lower``.

**The tree covers all plans by construction.** Nodes are listed in preorder. The root is "total participation S in [least,
1]"; smaller
totals are ruled out by the floor or by the sampling term. A node with a cut has two children, at most and at least ``at``:

============  =======================================
``total``     S
``share``     ``z_k``
``eager``     ``D_k - theta_k S``, in units of squared distance
============  =======================================

**Multipliers** are stored as *knots*, in the game's units; a node names the knots that it uses, one after the other. Every
use either
shows that no better plan is left in the node's region, or gives a ball for the mixture that holds in the node and below. Knots need
not be good: whatever they are, the bound holds, only weaker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .certificate import split_at, whole_numbers

__all__ = ["Cut", "PlanCertificate", "PlanKnot", "PlanNode"]

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Axis = Literal["total", "share", "eager"]
_AXES: tuple[Axis, ...] = ("total", "share", "eager")


@dataclass(frozen=True, eq=False)
class PlanKnot:
    """Multipliers in the game's units; vectors are sparse, clients count from 0 among the remaining."""

    objective: float  # omega >= 0
    budget: float  # beta >= 0
    loss_cap: float  # gamma >= 0
    level: float  # t
    direct: float  # nu_2 >= 0: the part of the spend's price that counts decided prices
    rows: tuple[Indices, Floats]  # P_k
    keep: tuple[Indices, Floats]  # X_k
    # weights of the mixture with the embedding c, any real numbers; or (None, c), a point of feature space relative to mu_N
    centre: tuple[Indices | None, Floats]


@dataclass(frozen=True)
class Cut:
    """A cut of a region in two; ``client`` is -1 for cuts of the total."""

    axis: Axis
    client: int
    at: float


@dataclass(frozen=True)
class PlanNode:
    """Knots used at a region, in order, and how it is cut; None: a leaf."""

    steps: tuple[int, ...]
    cut: Cut | None


@dataclass(frozen=True, eq=False)
class PlanCertificate:
    """Data that prove: no plan within the constraints has an objective below ``lower``.

    >>> none = (np.zeros(0, dtype=np.int64), np.zeros(0))
    >>> knot = PlanKnot(1.0, 0.5, 0.0, 0.1, 0.0, none, none, (np.array([0]), np.array([1.0])))
    >>> tree = (PlanNode((0,), Cut("share", 1, 0.25)), PlanNode((0,), None), PlanNode((), None))
    >>> certificate = PlanCertificate(-1.0, 0.1, (knot,), tree)
    >>> again = PlanCertificate.from_record(certificate.to_record())
    >>> again.nodes == certificate.nodes, again.lower, again.leaves
    (True, -1.0, 2)
    """

    lower: float
    least: float
    knots: tuple[PlanKnot, ...]
    nodes: tuple[PlanNode, ...]

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return sum(node.cut is None for node in self.nodes)

    def to_record(self) -> dict[str, Any]:
        """Return the certificate as two numbers and flat arrays, for JSON and npz files."""
        record: dict[str, Any] = {
            "lower": float(self.lower),
            "least": float(self.least),
            "knot_numbers": np.array(
                [[k.objective, k.budget, k.loss_cap, k.level, k.direct] for k in self.knots], dtype=np.float64
            ).reshape(len(self.knots), 5),
            "node_axes": np.array(
                [-1 if n.cut is None else _AXES.index(n.cut.axis) for n in self.nodes], dtype=np.int64
            ),
            "node_clients": np.array(
                [-1 if n.cut is None else n.cut.client for n in self.nodes], dtype=np.int64
            ),
            "node_cuts": np.array([0.0 if n.cut is None else n.cut.at for n in self.nodes], dtype=np.float64),
            "step_ends": np.cumsum([len(n.steps) for n in self.nodes], dtype=np.int64),
            "steps": np.array([s for n in self.nodes for s in n.steps], dtype=np.int64),
        }
        record["centre_is_point"] = np.array([k.centre[0] is None for k in self.knots], dtype=np.int8)
        for name in ("rows", "keep", "centre"):
            parts = [
                (np.arange(len(part[1])) if part[0] is None else part[0], part[1])
                for part in (getattr(k, name) for k in self.knots)
            ]
            record[f"{name}_ends"] = np.cumsum([len(p[0]) for p in parts], dtype=np.int64)
            record[f"{name}_clients"] = np.concatenate([p[0] for p in parts] or [np.zeros(0)]).astype(
                np.int64
            )
            record[f"{name}_values"] = np.concatenate([p[1] for p in parts] or [np.zeros(0)]).astype(
                np.float64
            )
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> PlanCertificate:
        """Read :meth:`to_record` back; ValueError, KeyError or TypeError if the arrays do not fit together."""
        numbers = np.asarray(record["knot_numbers"], dtype=np.float64).reshape(-1, 5)
        sparse = {}
        for name in ("rows", "keep", "centre"):
            ends = record[f"{name}_ends"]
            clients = split_at(whole_numbers(record[f"{name}_clients"]), ends, len(numbers))
            values = split_at(np.asarray(record[f"{name}_values"], dtype=np.float64), ends, len(numbers))
            sparse[name] = list(zip(clients, values, strict=True))
        is_point = np.asarray(record["centre_is_point"]).astype(bool).ravel()
        if len(is_point) != len(numbers):
            raise ValueError("centre_is_point does not fit the number of knots")
        knots = tuple(
            PlanKnot(
                *(float(v) for v in numbers[i]),  # type: ignore[arg-type, misc]
                rows=sparse["rows"][i],
                keep=sparse["keep"][i],
                centre=(None, sparse["centre"][i][1]) if is_point[i] else sparse["centre"][i],
            )
            for i in range(len(numbers))
        )
        axes = whole_numbers(record["node_axes"]).ravel()
        whose = whole_numbers(record["node_clients"]).ravel()
        cuts = np.asarray(record["node_cuts"], dtype=np.float64).ravel()
        steps = split_at(whole_numbers(record["steps"]).ravel(), record["step_ends"], len(axes))
        if not len(axes) == len(whose) == len(cuts) or (axes >= len(_AXES)).any():
            raise ValueError("the arrays of the tree do not fit together")
        nodes = tuple(
            PlanNode(
                tuple(int(s) for s in steps[i]),
                None if axes[i] < 0 else Cut(_AXES[axes[i]], int(whose[i]), float(cuts[i])),
            )
            for i in range(len(axes))
        )
        return cls(float(record["lower"]), float(record["least"]), knots, nodes)
