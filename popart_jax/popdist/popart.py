"""PopDist for PopART sessions: ``import popdist.popart``."""

from __future__ import annotations

from ..enums import DeviceConnectionType
from ..session.devices import DeviceInfo, DeviceManager
from ..session.options import SessionOptions
from . import getNumInstances, getNumLocalIpus, getNumLocalReplicas, getNumTotalReplicas, getReplicaIndexOffset


def configureSessionOptions(options: SessionOptions) -> None:
    """Set the options about replicas to what the launcher was told.

    Parameters
    ----------
    options : SessionOptions
        Changed in place: local and global replicas, and the number of the first local one.
    """
    local = getNumLocalReplicas()
    options.enableReplicatedGraphs = local > 1
    options.replicatedGraphCount = local
    if getNumInstances() > 1:
        options.enableDistributedReplicatedGraphs = True
        options.globalReplicationFactor = getNumTotalReplicas()
        options.globalReplicaOffset = getReplicaIndexOffset()


def getDevice(connectionType: DeviceConnectionType = DeviceConnectionType.Always) -> DeviceInfo:
    """A device with the IPUs of this instance.

    Raises
    ------
    popart_exception
        There is none of that size.
    """
    return DeviceManager().acquireAvailableDevice(getNumLocalIpus(), connectionType=connectionType)
