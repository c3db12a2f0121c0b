"""What XLA makes of the board's programs for a GPU or TPU, on a machine without one.

    python -m benchmarks.compiled_for gpu [--only TEXT ...] [--batch SIZE ...] [--training]
    python -m benchmarks.compiled_for tpu ...

The plug-ins compile for a device that they are told of, an H200 and a TPU v5e. They are not installed with us; those of
JAX's own version are ``pip install --no-deps jax-cuda13-plugin jax-cuda13-pjrt`` and ``pip install libtpu requests``.
The table has MB of temporary memory of our program and of the one by hand, for a GPU the number of kernels, for a TPU
millions of cycles as XLA estimates them, a loop's body once. For a GPU XLA measures nothing here; on one it may choose
other kernels for products. A program at which XLA ends the process has no numbers. For a TPU it takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, cast
from unittest import mock

import jax
import numpy as np
from jax.experimental import topologies
from jax.extend.core import jaxpr_as_fun
from rich.console import Console
from rich.table import Table

from popart_jax.ops.kernels import tracing_for

from . import engines, training
from .networks import NETWORKS, resnet18

STEPS = 2
_H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 62914560 device_memory_size: 150754820096
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 12 }
device_description_str: "sm_90a"
"""
_DEVICES = {
    "gpu": {"platform": "cuda", "topology_name": "", "target_config": _H200, "topology": "1x1x1"},
    "tpu": {"platform": "tpu", "topology_name": "v5e:2x2"},
}
_SHOWN = {"gpu": ("kernels", "MB"), "tpu": ("MB", "Mcycles")}
_KERNEL = re.compile(r" = (?:\([^=]*?\)|\S+) (?:fusion|custom-call|sort|fft)\(")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')


class _Traced(Exception):
    """Carries the program that a session was about to compile."""


def _stop(traced: Any, _: Any = None) -> Any:
    raise _Traced(traced)


def ours(make: Callable[[], Any]) -> tuple[Any, list[Any], tuple[int, ...]]:
    """The program of a session that `make` prepares, types of its arguments, and which of them are donated."""
    try:
        with mock.patch("popart_jax.session.engine.compile_traced", _stop):
            make()
    except _Traced as found:
        traced = found.args[0]
        return cast("Any", jaxpr_as_fun(traced.jaxpr)), traced.jaxpr.in_avals, tuple(range(len(traced.step.taken)))
    raise RuntimeError("the session compiled nothing")


def program(name: str, batch: int, side: str, trains: bool) -> tuple[Any, Any, tuple[int, ...]]:
    """A function, its arguments and those that are donated."""
    make = partial(resnet18, training=True) if trains and name == "resnet18" else NETWORKS[name]
    network = make(batch)
    if not trains:
        if side == "ours":
            return ours(lambda: engines.ours_inference(network))
        return network.forward, [network.lay_out(network.params), network.feed["x"]], ()
    data = training.batches(network, STEPS)
    if side == "ours":
        return ours(lambda: training.ours_training(network, data, "sgd-m"))
    jitted, state = training.program_by_hand(network, "sgd-m")
    return jitted.__wrapped__, [state, data.x, data.y], (0,)


def compiled(platform: str, name: str, batch: int, side: str, trains: bool) -> dict[str, float]:
    """Kernels, temporary memory [MB] and estimated cycles [millions] of one program."""
    topology: Any = topologies.get_topology_desc(**_DEVICES[platform])
    place = jax.sharding.SingleDeviceSharding(topology.devices[0])
    jax.config.update("jax_default_matmul_precision", "highest")
    with tracing_for(platform):
        function, arguments, donated = program(name, batch, side, trains)

    def typed(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(np.shape(x), x.dtype, sharding=place)

    specs = jax.tree.map(typed, list(arguments))
    with tracing_for(platform):
        jitted = jax.jit(function, out_shardings=place, donate_argnums=donated)
        made = cast("Any", jitted.lower(*specs).compile())
    text, memory = made.as_text(), made.memory_analysis()
    cycles = sum(map(int, _CYCLES.findall(text)))
    return {"kernels": len(_KERNEL.findall(text)), "MB": memory.temp_size_in_bytes / 1e6, "Mcycles": cycles / 1e6}


def in_a_process(platform: str, name: str, batch: int, side: str, trains: bool) -> dict[str, float] | None:
    """The same in a process of its own; None where XLA ended it."""
    one = [sys.executable, "-m", __spec__.name, platform, "--one", name, str(batch), side, str(int(trains))]
    done = subprocess.run(
        one,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode < 0:
        return None
    if done.returncode:
        raise RuntimeError(f"{name} b{batch} {side}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    """Print the table; the exit status counts our programs at which XLA ended the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("platform", choices=_DEVICES)
    parser.add_argument("--only", nargs="+", default=list(NETWORKS), help="networks")
    parser.add_argument("--batch", type=int, nargs="+", default=[64])
    parser.add_argument("--training", action="store_true", help="training steps in place of inference")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        name, batch, side, trains = given.one
        print(json.dumps(compiled(given.platform, name, int(batch), side, bool(int(trains)))))
        return 0
    table, ended = Table("program", *(x for key in _SHOWN[given.platform] for x in (key, "by hand"))), 0
    for name in given.only:
        for batch in given.batch:
            mine, hand = (in_a_process(given.platform, name, batch, side, given.training) for side in ("ours", "hand"))
            ended += mine is None
            shown = _SHOWN[given.platform]
            cells = (f"{x[key]:.3g}" if x else "XLA ended" for key in shown for x in (mine, hand))
            table.add_row(f"{name} b{batch}", *cells)
    Console(width=100).print(table)
    return ended


if __name__ == "__main__":
    sys.exit(main())
