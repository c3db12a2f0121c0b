"""The device that a session was asked for."""

from __future__ import annotations

import math
import os
from typing import Any

from ..logs import module_logger
from ..session.devices import DeviceManager
from .ir import Ir

_said: set[str] = set()


def count(ir: Ir) -> int:
    """Devices before rounding: IPUs of one replica times replicas of this process (RuntimeError without operators)."""
    ops = [op for g in ir._graphs.values() for op in g._ops.values()]
    if not ops:
        raise RuntimeError(
            f"The Ir {ir.id} has no graphs. The graphs may have all been optimised to nothing, try adding more "
            "operations to your graphs."
        )
    ids = [op._settings.vgraphId or 0 for op in ops] + [op._options.get("destination", 0) for op in ops]
    return (1 + max(ids)) * ir.instance_replication_factor


def choose_device(ir: Ir, description: Any) -> Any:
    """The device of that description.

    Raises
    ------
    ValueError
        Unknown description, or 'cpu' for several devices.
    RuntimeError
        The Ir has no operators.
    """
    n = 2 ** math.ceil(math.log2(count(ir)))
    if not isinstance(description, str):
        return description
    manager = DeviceManager()
    if description == "cpu":
        if n > 1:
            raise ValueError(f"For a cpu device, multiple devices (provided: {n}) are not supported.")
        return manager.createCpuDevice()
    if description == "ipu_model":
        return manager.createIpuModelDevice({"numIPUs": n})
    offline = os.environ.get("POPXL_OFFLINE_DEVICE")
    if description == "ipu_hw" and offline:
        return manager.createOfflineIpuFromSystemString(offline, n)
    if description == "ipu_hw":
        if "ipu_hw" not in _said:
            _said.add("ipu_hw")
            text = "No IPU is used: 'ipu_hw' runs on JAX's default device, with the IPU model's costs."
            module_logger("session").info(text)
        return manager.createIpuModelDevice({"numIPUs": n})
    raise ValueError(f"Incorrect device type provided: {description}, must be one of: `ipu_hw`, `ipu_model`, `cpu`")
