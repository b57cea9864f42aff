"""Cost of a training or unlearning run: time at the clients, traffic, and stored data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

__all__ = ["Effort"]


@dataclass
class Effort:
    """Running totals; ``samples`` counts gradients of single samples, which no machine's load distorts."""

    client_seconds: float = 0.0
    samples: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    stored_bytes: int = 0
    rounds: int = 0

    @contextmanager
    def client_work(self) -> Iterator[None]:
        """Count the time of the block as time of a client."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.client_seconds += time.perf_counter() - start

    def exchange(self, down: int, up: int) -> None:
        """Count one client's download and upload, in numbers of four bytes."""
        self.bytes_down += 4 * down
        self.bytes_up += 4 * up

    def as_dict(self) -> dict[str, float]:
        """Plain numbers for a report."""
        return asdict(self)
