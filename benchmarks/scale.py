"""Scale of the graph: ``python -m benchmarks.scale``.

Loading, PopART's patterns, layout passes and tracing at 25,000 to 100,000 nodes (time per node must not grow), and peak
memory of loading a model with several GB of external weights over the size of those weights.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import onnx
import onnx.helper as oh
from rich.console import Console
from rich.table import Table

import patterns
import popart_jax
from popart_jax.lowering.passes import channels_last
from popart_jax.model.files.load import load
from popart_jax.ops import facts

from .peak import peak_mib

FLOAT = onnx.TensorProto.FLOAT


def chain(count: int) -> onnx.ModelProto:
    """Alternating Add, Mul and Relu on one small tensor."""
    nodes: list[onnx.NodeProto] = []
    for i in range(count):
        kind, inputs = (("Relu", [f"t{i}"]), ("Add", [f"t{i}", "w"]), ("Mul", [f"t{i}", "w"]))[i % 3]
        nodes.append(oh.make_node(kind, inputs, [f"t{i + 1}"], name=f"n{i}"))
    x, y = (oh.make_tensor_value_info(f"t{i}", FLOAT, [4]) for i in (0, count))
    weight = onnx.numpy_helper.from_array(np.full(4, 1.0, np.float32), "w")
    graph = oh.make_graph(nodes, "chain", [x], [y], [weight])
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 13)], ir_version=8)


def time_graph(count: int) -> list[float]:
    """CPU seconds to load, rewrite, lay out and trace a chain of `count` nodes."""
    proto, times = chain(count), list[float]()

    def clock(work: Callable[[], Any]):
        started = time.process_time()  # of this process: other programs slow the longer ones down more often
        result = work()
        times.append(time.process_time() - started)
        return result

    model = clock(lambda: load(proto))
    clock(lambda: patterns.apply(model, patterns.at_level("Default"), facts))
    clock(lambda: channels_last(model.graph))
    fn, params = popart_jax.to_jax(proto)
    clock(lambda: jax.make_jaxpr(fn)(params, {"t0": np.ones(4, np.float32)}))
    return times


def graphs() -> Table:
    """Times by number of nodes."""
    table = Table("nodes", "load (CPU s)", "patterns (CPU s)", "layout (CPU s)", "trace (CPU s)", "us per node")
    for count in (25_000, 50_000, 100_000):
        times = time_graph(count)
        table.add_row(f"{count:,}", *(f"{t:.2f}" for t in times), f"{sum(times) / count * 1e6:.0f}")
    return table


def write_large(folder: Path, gigabytes: float) -> Path:
    """A model of dense layers whose weights lie in one sparse external file."""
    side, nodes, weights = 8192, list[onnx.NodeProto](), list[onnx.TensorProto]()
    for i in range(max(1, round(gigabytes * 1e9 / (side * side * 4)))):
        tensor = onnx.TensorProto(name=f"w{i}", data_type=FLOAT, dims=[side, side])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        entries = {"location": "weights.bin", "offset": str(i * side * side * 4), "length": str(side * side * 4)}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
        weights.append(tensor)
        nodes.append(oh.make_node("MatMul", [f"t{i}", f"w{i}"], [f"t{i + 1}"]))
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(len(weights) * side * side * 4)
    x, y = (oh.make_tensor_value_info(f"t{i}", FLOAT, [1, side]) for i in (0, len(nodes)))
    graph = oh.make_graph(nodes, "large", [x], [y], weights)
    path = folder / "large.onnx"
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 13)], ir_version=8), path)
    return path


def load_large(path: Path) -> None:
    """Load the model and run it once; prints peak memory over the size of its weights."""
    fn, params = popart_jax.to_jax(path)
    size = sum(p.nbytes for p in params.values())
    x = np.zeros((1, 8192), np.float32)
    jax.block_until_ready(cast("Callable[..., Any]", jax.jit(fn))(params, {"t0": x}))
    peak = peak_mib() * 2**20
    print(f"{size / 1e9:.2f} GB of weights, peak {peak / 1e9:.2f} GB, ratio {peak / size:.2f}")


def main(argv: list[str] | None = None) -> int:
    """Print both measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", type=Path, help="be the measured process")
    parser.add_argument("--gigabytes", type=float, default=3.0)
    args = parser.parse_args(argv)
    if args.load:
        load_large(args.load)
        return 0
    console = Console()
    console.print(graphs())
    with tempfile.TemporaryDirectory() as name:
        path = write_large(Path(name), args.gigabytes)
        command = [sys.executable, "-m", "benchmarks.scale", "--load", str(path)]
        console.print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
