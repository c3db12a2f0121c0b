"""Peak memory of this process."""

from __future__ import annotations

import resource
from pathlib import Path


def peak_mib() -> float:
    """Largest resident memory of this process so far [MiB].

    Linux's own high-water mark where there is one: `ru_maxrss` of a started program begins at its parent's peak.
    """
    status = Path("/proc/self/status")
    if status.exists():
        found = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        if found:
            return float(found[0].split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
