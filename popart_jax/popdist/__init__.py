"""PopDist: which instance (process) of a distributed program this is, and which replicas it holds.

The values come from the launcher's environment variables; without these from `jax.distributed` if the program has
initialised it; otherwise there is one instance that holds all replicas.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import jax

from ..errors import popart_runtime_error

T = TypeVar("T")
_MARK = "POPDIST_NUM_TOTAL_REPLICAS"


def isPopdistEnvSet() -> bool:
    """Whether a launcher started this process."""
    return _MARK in os.environ


def init() -> None:
    """Check that this process has joined its job; a program that was started alone needs none.

    Raises
    ------
    popart_runtime_error
        The environment names several instances, but no job was joined.
    """
    if getNumInstances() > 1 and not jax.distributed.is_initialized():
        raise popart_runtime_error(
            f"The environment says {getNumInstances()} instances, but this process has joined no job.\n"
            "  fix: start the program by poprun or by python -m popart_jax launch."
        )


initializeBackend = init


def finalizeBackend() -> None:
    """Leave the job, once all instances have called this; ending the program does the same."""
    if jax.distributed.is_initialized():
        jax.distributed.shutdown()


def getNumInstances() -> int:
    """Number of instances."""
    return _number("NUM_INSTANCES", jax.process_count() if jax.distributed.is_initialized() else 1)


def getInstanceIndex() -> int:
    """Which instance this is, from 0."""
    return _number("INSTANCE_INDEX", jax.process_index() if jax.distributed.is_initialized() else 0)


def getNumTotalReplicas() -> int:
    """Replicas of all instances."""
    return _number("NUM_TOTAL_REPLICAS", getNumInstances())


def getNumLocalReplicas() -> int:
    """Replicas of this instance.

    Raises
    ------
    popart_runtime_error
        The replicas do not divide into the instances.
    """
    total, instances = getNumTotalReplicas(), getNumInstances()
    if total % instances:
        raise popart_runtime_error(f"{total} replicas do not divide into {instances} instances.")
    return _number("NUM_LOCAL_REPLICAS", total // instances)


def getReplicaIndexOffset() -> int:
    """Number of this instance's first replica among all."""
    return _number("REPLICA_INDEX_OFFSET", getInstanceIndex() * getNumLocalReplicas())


def getNumIpusPerReplica() -> int:
    """IPUs of each replica."""
    return _number("NUM_IPUS_PER_REPLICA", 1)


def getNumLocalIpus() -> int:
    """IPUs of this instance."""
    return getNumLocalReplicas() * getNumIpusPerReplica()


def checkNumIpusPerReplica(numIpus: int) -> None:
    """Compare the number that a program needs with the launcher's.

    Raises
    ------
    popart_runtime_error
        They differ.
    """
    given = getNumIpusPerReplica()
    if isPopdistEnvSet() and numIpus != given:
        raise popart_runtime_error(
            f"The program uses {numIpus} IPUs per replica; it was launched with {given}.\n"
            f"  fix: poprun --ipus-per-replica {numIpus}"
        )


def getDeviceId(numIpus: int | None = None) -> int:
    """Id of this instance's device; every process here has devices of its own, so it is the first of that size."""
    checkNumIpusPerReplica(getNumIpusPerReplica() if numIpus is None else numIpus // getNumLocalReplicas())
    return 0


def synchronize(identifier: str = "") -> None:
    """Wait until all instances have called this."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(f"popdist {identifier}")


def execute_on_instances(instances: Collection[int], func: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
    """Call a function in some instances; the others get None. Instances do not wait for each other."""
    return func(*args, **kwargs) if getInstanceIndex() in instances else None


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(f"POPDIST_{name}")
    if text is None:
        return otherwise
    if not text.isdecimal():
        raise popart_runtime_error(f"POPDIST_{name} is {text!r}: expected a number.")
    return int(text)
