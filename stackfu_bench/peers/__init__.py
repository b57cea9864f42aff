"""stackfu and its alternatives, measured in one run.

One module per section. A section module defines

    run(quick: bool) -> list[Row]

and is listed in ``SECTIONS``; ``python -m stackfu_bench.peers [section ...]`` prints its table and writes
``stackfu_bench/results/<section>.json``.
"""

from stackfu_bench.peers.table import Row, fitted_exponent, interleaved

SECTIONS = {
    "embedding": "stackfu_bench.peers.embedding",
    "derivatives": "stackfu_bench.peers.derivatives",
    "followers": "stackfu_bench.peers.followers",
    "leader": "stackfu_bench.peers.leader",
    "scale": "stackfu_bench.peers.scale",
    "values": "stackfu_bench.peers.values",
}

__all__ = ["SECTIONS", "Row", "fitted_exponent", "interleaved"]
