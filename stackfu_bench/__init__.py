"""Measurements of stackfu: an asv suite (``benchmarks``) and side-by-side tables (``peers``)."""
