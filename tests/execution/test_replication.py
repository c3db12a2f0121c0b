"""Four replicas on one device, on eight devices, and on two processes: the same weights and anchors.

With grouped and sharded weights, accumulation, momentum and clipping at once.
"""

from __future__ import annotations

import socket
import subprocess

import numpy as np
import pytest

from ..own_process import finish, start
from . import replica_worker

TOLERANCE = {"rtol": 2e-5, "atol": 1e-6}


def _start(*arguments: object) -> subprocess.Popen[str]:
    return start("tests.execution.replica_worker", *arguments)


@pytest.fixture(scope="module")
def one_device(tmp_path_factory) -> dict[str, np.ndarray]:
    path = tmp_path_factory.mktemp("one") / "out.npz"
    replica_worker.run(str(path))
    return dict(np.load(path))


def test_one_device_uses_vmap(one_device):
    assert abs(one_device["own"][0] - one_device["own"][1]).min() > 0
    assert one_device["devices"] == 0
    assert abs(one_device["anchor/loss"]).min() > 0
    assert one_device["anchor/loss"].shape == (2, 2, 4)


@pytest.mark.processes
def test_eight_devices(one_device, tmp_path):
    path = tmp_path / "eight.npz"
    finish(_start(path, 8))
    eight = dict(np.load(path))
    assert eight["devices"] == 4
    for name, value in one_device.items():
        if name != "devices":
            np.testing.assert_allclose(eight[name], value, err_msg=name, **TOLERANCE)


@pytest.mark.processes
def test_two_processes(one_device, tmp_path):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    paths = [tmp_path / f"{i}.npz" for i in range(2)]
    processes = [_start(path, 2, 2, i, port) for i, path in enumerate(paths)]
    for process in processes:
        finish(process)
    parts = [dict(np.load(path)) for path in paths]
    for name, value in one_device.items():
        if name == "devices":
            continue
        if name.startswith("anchor/"):
            axis = 2 if name == "anchor/loss" else 0
            joined = np.concatenate([p[name] for p in parts], axis)
            np.testing.assert_allclose(joined, value, err_msg=name, **TOLERANCE)
        else:
            for part in parts:
                np.testing.assert_allclose(part[name], value, err_msg=name, **TOLERANCE)
