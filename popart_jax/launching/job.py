"""Description of one process of a job, which the launcher passes to it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

RESUME = "POPART_JAX_RESUME"


@dataclass(frozen=True)
class Job:
    """One process of a job."""

    coordinator: str | None  # address of process 0; None if JAX reads it from the cluster's environment
    processes: int = 1
    index: int = 0  # of this process
    replicas: int | None = None  # replicas of all processes; None: as many as the job has devices
    devices: int = 1  # devices of each process
    first_device: int | None = None  # index on the host of this process's first accelerator; None: it has all of them
    ipus: int = 1  # IPUs per replica, as PopDist tells programs
    timeout: int = 300  # seconds within which all processes must have joined
    cluster: str | None = None  # JAX's name of the cluster's kind; None if JAX detects it

    def text(self) -> str:
        """The job as one argument of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Job:
        """The job from `text`."""
        return cls(**json.loads(text))

    def tell(self, processes: int, index: int) -> None:
        """Set the variables that PopDist's functions read, in this process and those it starts."""
        total = self.replicas or processes * self.devices
        os.environ.update(popdist_variables(processes, index, total, self.ipus))


def popdist_variables(processes: int, index: int, replicas: int, ipus: int) -> Mapping[str, str]:
    """PopDist's environment of one instance, under Graphcore's names."""
    local = replicas // processes
    facts = {
        "NUM_INSTANCES": processes,
        "INSTANCE_INDEX": index,
        "NUM_TOTAL_REPLICAS": replicas,
        "NUM_LOCAL_REPLICAS": local,
        "REPLICA_INDEX_OFFSET": index * local,
        "NUM_IPUS_PER_REPLICA": ipus,
    }
    return {f"POPDIST_{name}": str(value) for name, value in facts.items()}
