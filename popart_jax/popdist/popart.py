"""PopDist for PopART sessions: ``import popdist.popart``."""

from __future__ import annotations

from ..enums import DeviceConnectionType
from ..session.devices.devices import DeviceInfo, DeviceManager
from . import getNumLocalIpus
from .options import configureSessionOptions as configureSessionOptions


def getDevice(connectionType: DeviceConnectionType = DeviceConnectionType.Always) -> DeviceInfo:
    """A device with the IPUs of this instance.

    Raises
    ------
    popart_exception
        There is none of that size.
    """
    return DeviceManager().acquireAvailableDevice(getNumLocalIpus(), connectionType=connectionType)
