"""Description of the machine of a measurement."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> dict[str, object]:
    """Processor, cores, load, system and Python."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": model,
        "cores": cores,
        "load_at_start": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "python": platform.python_version(),
    }
