"""The proof of a lower bound for contracts: certificates for capped offers with a larger lambda, one per interval of totals.

A contract pays client k at least ``rho z_k (kappa_k S - 2 lam phi D_k)_+`` for every ``rho`` in (0, 1] with ``phi = (2 - x) /
(2 (1 - x)^2)``, ``x = rho h_k < 1`` and ``z_k <= h_k``: what bringing ``1 - rho`` of the share unpaid would save
(``docs/theory/offers.md``). So whatever bounds capped offers with ``phi lam`` and the budget ``B / rho`` bounds contracts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .plan_certificate import PlanCertificate

__all__ = ["ContractCertificate", "ContractPiece"]


@dataclass(frozen=True, eq=False)
class ContractPiece:
    """An interval of totals, the larger lambda and the share of the price that go with it, and their certificate."""

    low: float
    high: float
    larger: float  # phi
    share: float  # rho
    certificate: PlanCertificate


@dataclass(frozen=True, eq=False)
class ContractCertificate:
    """Pieces that cover ``[least, 1]``; the bound is the least of theirs."""

    lower: float
    pieces: tuple[ContractPiece, ...]

    def to_record(self) -> dict[str, Any]:
        """Return the certificate as plain values."""
        return {
            "lower": self.lower,
            "pieces": [
                {
                    "low": p.low,
                    "high": p.high,
                    "larger": p.larger,
                    "share": p.share,
                    "certificate": p.certificate.to_record(),
                }
                for p in self.pieces
            ],
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> ContractCertificate:
        """Read :meth:`to_record` back."""
        pieces = tuple(
            ContractPiece(
                float(p["low"]),
                float(p["high"]),
                float(p["larger"]),
                float(p["share"]),
                PlanCertificate.from_record(p["certificate"]),
            )
            for p in record["pieces"]
        )
        return cls(float(record["lower"]), pieces)
