"""Choice of the device of a session from its description."""

from __future__ import annotations

import math
import os
from typing import Any

from ..errors import popart_exception
from ..logs import module_logger
from ..session.devices.devices import DeviceInfo
from ._running.devices import _offline_device_from_str, _to_device_info, hardware_to_compile_for, kind
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

    Raises ValueError for an unknown description, or 'cpu' for several devices; RuntimeError where the Ir has no
    operators.
    """
    n = 2 ** math.ceil(math.log2(count(ir)))
    if not isinstance(description, str):
        if not isinstance(description, DeviceInfo):
            raise TypeError(
                f"`device_desc` must be 'cpu', 'ipu_model', 'ipu_hw' or a popart.DeviceInfo, got {description!r}."
            )
        return description
    if description != "ipu_hw":
        return _to_device_info(description, n)
    offline = os.environ.get("POPXL_OFFLINE_DEVICE")
    if offline:
        return _offline_device_from_str(offline, n)
    if "ipu_hw" not in _said:
        _said.add("ipu_hw")
        text = "No IPU is used: 'ipu_hw' runs on JAX's default device, with the IPU model's costs."
        module_logger("session").info(text)
    return hardware_to_compile_for(n)


def check_device(compiled_for: Any, device: Any) -> None:
    """Check that a device can run a program that was compiled for another device.

    Raises popart_exception where it is of another kind, or has another number of IPUs.
    """
    wanted, given = kind(compiled_for), kind(device)
    if given != wanted and (wanted, given) != ("model", "cpu"):
        raise popart_exception(f"The program was compiled for a device of kind {wanted}, got {device}.")
    if given == wanted and device.numIpus != compiled_for.numIpus:
        raise popart_exception(f"The program was compiled for {compiled_for.numIpus} IPUs, got {device}.")
