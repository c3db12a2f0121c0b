"""A PopART program with dropout and Adam on four replicas: the same weights however processes share them."""

from __future__ import annotations

import numpy as np
import pytest

from .job import finish, script, start
from .test_checkpoints import PROGRAM

LAYOUTS = {
    "one process, one device": ("popart_jax", "launch", "-n", 1, "--replicas", 4),
    "one process, two devices": ("popart_jax", "launch", "-n", 1, "--devices", 2, "--replicas", 4),
    "one process, four devices": ("popart_jax.launching.poprun", "--num-replicas", 4, "--num-instances", 1),
    "two processes, two devices each": ("popart_jax.launching.poprun", "--num-replicas", 4, "--num-instances", 2),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, list[np.ndarray]]:
    every = {}
    for name, (module, *options) in LAYOUTS.items():
        folder = tmp_path_factory.mktemp("layout")
        code, _, err = finish(start(*options, script(folder, PROGRAM), folder, "none", module=module))
        assert code == 0, err
        every[name] = [np.load(path) for path in sorted(folder.glob("w?.npy"))]
    return every


@pytest.mark.parametrize("layout", LAYOUTS)
def test_same_weights(found, layout):
    want = found["one process, one device"][0]
    assert len(found[layout]) == (2 if layout.startswith("two") else 1)
    for got in found[layout]:
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)
