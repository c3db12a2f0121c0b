"""Session options of an instance; those of PopART and PopXL alike."""

from __future__ import annotations

from typing import Any

import jax

from ..session.options import local_replicas
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


def unlike_the_job(options: Any) -> str:
    """What is wrong when the global replicas are not the local ones of all processes; '' when they are."""
    factor, processes = options.getGlobalReplicationFactor(), jax.process_count()
    local = local_replicas(options)
    if not options.enableDistributedReplicatedGraphs or local * processes == factor:
        return ""
    return (
        f"globalReplicationFactor is {factor}, but the processes of this job times the replicas of each are "
        f"{processes} * {local}. Call jax.distributed.initialize in each of {factor / local:g} processes before a "
        f"session is made."
    )
