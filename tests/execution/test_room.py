"""Memory of runs: what a program needs is kept between its runs, and counts as available for the next one."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from popart_jax import buffers
from popart_jax._process import heap
from popart_jax.errors import popart_exception
from popart_jax.execution import placement, room
from popart_jax.execution.room import Room

PROGRAM = """
import resource
import numpy as np
import popart_jax as popart
from popart_jax._process import heap

builder = popart.Builder()
x = builder.addInputTensor("FLOAT", [4096, 8])
y = builder.addInputTensor("FLOAT", [8, 4096])
wide = builder.aiOnnx.relu([builder.aiOnnx.matmul([x, y])])  # 64 MB
out = builder.aiOnnx.matmul([wide, x])
flow = popart.DataFlow(1, {out: popart.AnchorReturnType("All")})
session = popart.InferenceSession(builder.getModelProto(), flow, popart.DeviceManager().createCpuDevice())
session.prepareDevice()
feed = {x: np.ones((4096, 8), np.float32), y: np.ones((8, 4096), np.float32)}
stepio = popart.PyStepIO(feed, session.initAnchorArrays())
for _ in range(3):
    session.run(stepio)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    session.run(stepio)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, heap.kept())
"""
PAGES = 64 << 20 >> 12


def faults_and_kept(**environment: str) -> tuple[int, int]:
    """Pages that four runs took from the system, and bytes kept after them, in a fresh process."""
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, env={**os.environ, **environment}
    )
    faults, kept = found.stdout.split()
    return int(faults), int(kept)


@pytest.mark.processes
@pytest.mark.skipif(heap._counters() is None, reason="not this C library")
def test_a_program_keeps_its_memory_between_runs() -> None:
    """In most processes; in one of five a few blocks are taken anew, perhaps where another thread of XLA allocates."""
    tries = [faults_and_kept() for _ in range(4)]
    assert any(faults < 2 * PAGES and kept > 64 << 20 for faults, kept in tries), tries


@pytest.mark.processes
@pytest.mark.skipif(heap._counters() is None, reason="not this C library")
def test_what_the_user_told_the_c_library_counts() -> None:
    faults, _ = faults_and_kept(MALLOC_MMAP_THRESHOLD_="1000000")
    assert faults > 2 * PAGES


def test_kept_memory_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = Room.of(64 << 20)
    monkeypatch.setattr(room, "memory_free", lambda: 40 << 20)
    monkeypatch.setattr(room, "keep", Room.of)
    monkeypatch.setattr(room, "kept", lambda: 30 << 20)
    needed.ensure()
    monkeypatch.setattr(room, "kept", lambda: 20 << 20)
    with pytest.raises(popart_exception, match="A run of the program"):
        needed.ensure()


def test_large_arrays_that_are_not_aligned_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA would copy them in another thread."""
    monkeypatch.setattr(placement, "_stays_here", lambda: True)
    whole = buffers.aligned_empty((40_001,), np.float32)
    whole[:] = np.arange(40_001)
    aligned, shifted, small = whole[:-1], whole[1:], whole[1:100]
    assert placement.as_argument(aligned) is placement.at_each_run(aligned) is aligned
    assert placement.as_argument(small) is placement.at_each_run(small) is small
    each = placement.at_each_run(shifted)
    assert callable(each)
    for copied in (placement.as_argument(shifted), each()):
        assert isinstance(copied, np.ndarray)
        assert copied.ctypes.data % buffers.ALIGNMENT == 0
        np.testing.assert_array_equal(copied, shifted)
    shifted[:] = 3
    np.testing.assert_array_equal(each(), shifted)


def test_arrays_stay_as_they_are_where_programs_run_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "_stays_here", lambda: False)
    shifted = buffers.aligned_empty((40_001,), np.float32)[1:]
    assert placement.as_argument(shifted) is placement.at_each_run(shifted) is shifted
