"""Devices by name: the CPU, models, emulated hardware, and named systems to compile for."""

from __future__ import annotations

import re
from typing import Any

from ...enums import DeviceConnectionType, DeviceType
from ...session.devices.devices import TARGETS, DeviceManager
from ...session.devices.ipu_pool import POOL

HW_DEVICE_CONNECTION_TIMEOUT = int(1e4)
_SYSTEM = re.compile(r"(?:ipu|bow|classic)?[-_]?(?:pod|m|c)[-_]?(\d+).*", re.IGNORECASE)


def _to_device_info(device_type: str, num_ipus: int = 1, use_popdist: bool = False) -> Any:
    """The device of a description: "cpu", "ipu_model", "ipu_hw" (IPUs to compile for), or the name of a system.

    Processes share no IPUs here, so `use_popdist` changes nothing. Raises ValueError for an unknown description, or
    "cpu" for several devices; RuntimeError where there are not so many IPUs.
    """
    if device_type == "cpu":
        if num_ipus > 1:
            raise ValueError(f"For a cpu device, multiple devices (provided: {num_ipus}) are not supported.")
        return DeviceManager().createCpuDevice()
    if device_type == "ipu_model":
        return DeviceManager().createIpuModelDevice({"numIPUs": num_ipus})
    if device_type == "ipu_hw":
        if not POOL.groups(num_ipus):
            raise _no_device(num_ipus)
        return hardware_to_compile_for(num_ipus)
    try:
        return _offline_device_from_str(device_type, num_ipus)
    except ValueError:
        raise ValueError(
            f"Incorrect device type provided: {device_type}, must be one of: `ipu_hw`, `ipu_model`, `cpu`"
        ) from None


def hardware_to_compile_for(num_ipus: int) -> Any:
    """That many IPUs, of the kind that is emulated, without taking any."""
    return DeviceManager().createOfflineIPUDevice({"numIPUs": num_ipus})


def _offline_device_from_str(name: str, num_ipus: int | None = None) -> Any:
    """IPUs of a named system to compile for; by default as many as its name says. ValueError for unknown systems."""
    found = _SYSTEM.fullmatch(name)
    if found is None and name not in TARGETS:
        raise ValueError(f"Unknown system {name!r}; there are {', '.join(TARGETS)} and names such as IPU-POD16.")
    size = num_ipus or (int(found[1]) if found else 1)
    return DeviceManager().createOfflineIpuFromSystemString(name, size)


def _acquire_hw_device_with_timeout(num_ipus: int = 1, timeout: int = HW_DEVICE_CONNECTION_TIMEOUT) -> Any:
    """An (emulated) device of that many IPUs, attached when it is used; RuntimeError where there is none."""
    manager = DeviceManager()
    manager.setOnDemandAttachTimeout(timeout)
    found = manager.tryAcquireAvailableDevice(num_ipus, connectionType=DeviceConnectionType.OnDemand)
    if found is None:
        raise _no_device(num_ipus)
    return found


def _no_device(num_ipus: int) -> RuntimeError:
    return RuntimeError(f"Failed to acquire device with {num_ipus} IPUs. {POOL.size} are emulated.")


def kind(device: Any) -> str:
    """What a program is compiled for: "hardware", "model" or "cpu"."""
    if device.type in (DeviceType.Ipu, DeviceType.OfflineIpu):
        return "hardware"
    return "cpu" if device.type is DeviceType.Cpu else "model"
