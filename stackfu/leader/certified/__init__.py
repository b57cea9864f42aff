"""Payments with a certificate: the global optimum within a budget, and a lower bound that no payments can beat."""

from .certified_payments import certified

__all__ = ["certified"]
