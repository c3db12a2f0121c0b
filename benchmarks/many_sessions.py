"""Memory that stays after many sessions of different shapes: ``python -m benchmarks.many_sessions [COUNT]``."""

from __future__ import annotations

import argparse
import ctypes
import gc
from pathlib import Path

import numpy as np

import popart_jax as popart

_WARM_UP = 20


def resident() -> float:
    """Resident memory of this process [MB], after free memory was returned to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def session(width: int) -> None:
    """Make a session of this width, run it once, drop it."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, width]), "x")
    w = builder.addInitializedInputTensor(np.zeros((width, 3), np.float32), "w")
    y = builder.aiOnnx.relu([builder.aiOnnx.matmul([x, w])])
    flow = popart.DataFlow(1, {y: popart.AnchorReturnType("All")})
    made = popart.InferenceSession(builder.getModelProto(), flow, popart.DeviceManager().createCpuDevice())
    made.prepareDevice()
    made.run(popart.PyStepIO({x: np.ones((2, width), np.float32)}, made.initAnchorArrays()))


def main(count: int) -> None:
    """Print MB that each session leaves behind, in ten stretches."""
    for width in range(_WARM_UP):
        session(4 + width)
    start = before = resident()
    step = max(1, count // 10)
    for done in range(0, count, step):
        for width in range(step):
            session(4 + _WARM_UP + done + width)
        now = resident()
        print(f"{done + step:5} sessions: {now:7.1f} MB, {(now - before) / step:6.3f} MB each", flush=True)
        before = now
    print(f"all: {(before - start) / count:.3f} MB each")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=1000, help="how many sessions (%(default)s)")
    main(parser.parse_args().count)
