"""Two runs of the small transformer on 4 replicas: `results`.

``process_worker.py PROCESSES INDEX PORT`` prints them, as one of several processes.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import jax
import numpy as np


def results(processes: int, index: int) -> tuple[list[Any], float]:
    """The losses of both runs on the replicas of this process, and a sum over a weight."""
    from popart_jax import popxl
    from tests.popxl.transformer import program

    ir, source, sink = program(layers=1, replication="popdist")
    local = ir.instance_replication_factor
    assert (ir.replication_factor, local) == (4, 4 // processes)
    data = np.random.default_rng(0).normal(size=(4, 8, 16)).astype(np.float32)
    mine = data[index * local : (index + 1) * local]
    weight = ir.main_graph.variables[0]
    session = popxl.Session(ir, "ipu_hw")
    with session:
        losses = [session.run({source: mine})[sink].tolist() for _ in range(2)]
        return losses, float(np.sum(session.get_tensor_data(weight)))


def losses_of_replicas() -> list[Any]:
    """Losses of three runs on as many devices as there are."""
    from popart_jax import popxl
    from tests.popxl.transformer import program

    ir, source, sink = program(layers=2, replication=4)
    data = np.random.default_rng(0).normal(size=(4, 8, 16)).astype(np.float32)
    with popxl.Session(ir, "ipu_hw") as session:
        return [session.run({source: data})[sink].tolist() for _ in range(3)]


def main(processes: int, index: int, port: int) -> None:
    jax.config.update("jax_num_cpu_devices", 4 // processes)
    os.environ["POPDIST_NUM_TOTAL_REPLICAS"] = "4"
    jax.distributed.initialize(f"localhost:{port}", processes, index)
    print("RESULT", results(processes, index))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
