"""Session options of an instance; those of PopART and PopXL alike."""

from __future__ import annotations

from typing import Any

from . import getNumInstances, getNumLocalReplicas, getNumTotalReplicas, getReplicaIndexOffset


def configureSessionOptions(options: Any) -> None:
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
