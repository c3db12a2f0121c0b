"""Session options of an instance, for both PopART and PopXL."""

from __future__ import annotations

from typing import Any

import jax

from ..session.options.session_options import local_replicas
from . import getNumInstances, getNumLocalReplicas, getNumTotalReplicas, getReplicaIndexOffset


def configureSessionOptions(options: Any) -> None:
    """Set the replication options to the launcher's values.

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


def unlike_the_job(options: Any) -> str:
    """An error text if the global replicas are not the local ones of all processes together, else ''."""
    factor, processes = options.getGlobalReplicationFactor(), jax.process_count()
    local = local_replicas(options)
    if not options.enableDistributedReplicatedGraphs or local * processes == factor:
        return ""
    return (
        f"globalReplicationFactor is {factor}, but the processes of this job times the replicas of each are "
        f"{processes} * {local}. Call jax.distributed.initialize in each of {factor / local:g} processes before a "
        f"session is made."
    )
