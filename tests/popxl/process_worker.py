"""Two runs of the small transformer on 4 replicas.

``process_worker.py PROCESSES INDEX PORT`` prints loss and a weight.
"""

from __future__ import annotations

import os
import sys

import jax
import numpy as np


def main(processes: int, index: int, port: int) -> None:
    jax.config.update("jax_num_cpu_devices", 4 // processes)
    os.environ["POPDIST_NUM_TOTAL_REPLICAS"] = "4"
    if processes > 1:
        jax.distributed.initialize(f"localhost:{port}", processes, index)
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
    print("RESULT", [losses, float(np.sum(session.get_tensor_data(weight)))])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
