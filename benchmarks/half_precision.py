"""Transformers in half precision, prepared and trained: ``python -m benchmarks.half_precision --layers 2 4``.

Stochastic rounding and dropout draw random numbers in every operator or layer, so they show whether equal kernels are
compiled once. CPU time of the constructor and `prepareDevice`, then elapsed time of a step; each row in a process of
its own, without a compile cache. A first start, which writes Python's byte code, does not count.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from .timing import installed_environment

KINDS = ("plain", "dropout", "rounding", "both")
TOKENS, WIDTH, HEADS = 32, 64, 4
STEPS = 20


def model(layers: int, drops: bool) -> tuple[bytes, str, str, str]:
    """A small classifier of tokens by the Builder; with the names of its input, labels and loss."""
    import popart_jax as popart

    draw = np.random.default_rng(0)
    builder = popart.Builder(opsets={"ai.onnx": 10, "ai.graphcore": 1})
    onnx, graphcore = builder.aiOnnx, builder.aiGraphcore
    x = builder.addInputTensor(popart.TensorInfo("FLOAT16", [TOKENS, WIDTH]))
    labels = builder.addInputTensor(popart.TensorInfo("INT32", [TOKENS]))

    def weight(*shape: int) -> str:
        return builder.addInitializedInputTensor((draw.standard_normal(shape) * 0.05).astype(np.float16))

    def dense(t: str, size: int, out: int) -> str:
        return onnx.add([onnx.matmul([t, weight(size, out)]), weight(out)])

    def split(t: str) -> str:
        return onnx.transpose([builder.reshape_const(onnx, [t], [TOKENS, HEADS, WIDTH // HEADS])], [1, 0, 2])

    def dropped(t: str) -> str:
        return onnx.dropout([t], 1, 0.1)[0] if drops else t

    def added(t: str, change: str) -> str:
        both = onnx.add([t, dropped(change)])
        return graphcore.groupnormalization([both, weight(WIDTH), weight(WIDTH)], num_groups=1)[0]

    h = x
    for _ in range(layers):
        q, k, v = (split(dense(h, WIDTH, WIDTH)) for _ in range(3))
        scores = onnx.softmax([onnx.matmul([q, onnx.transpose([k], [0, 2, 1])])], axis=2)
        joined = onnx.transpose([onnx.matmul([dropped(scores), v])], [1, 0, 2])
        h = added(h, dense(builder.reshape_const(onnx, [joined], [TOKENS, WIDTH]), WIDTH, WIDTH))
        h = added(h, dense(graphcore.gelu([dense(h, WIDTH, 4 * WIDTH)]), 4 * WIDTH, WIDTH))
    loss = graphcore.nllloss([onnx.softmax([h]), labels])
    return builder.getModelProto(), x, labels, loss


def measured_here(kind: str, layers: int) -> dict[str, float]:
    """CPU time [s] until a session is prepared, and elapsed time [s] of a step, in this process."""
    import popart_jax as popart

    proto, x, labels, loss = model(layers, kind in ("dropout", "both"))
    options = popart.SessionOptions()
    options.enableStochasticRounding = kind in ("rounding", "both")
    flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")})
    draw = np.random.default_rng(1)
    feed = {
        x: draw.standard_normal((TOKENS, WIDTH)).astype(np.float16),
        labels: draw.integers(0, WIDTH, TOKENS).astype(np.int32),
    }
    with popart.DeviceManager().acquireAvailableDevice(1) as device:
        started = time.process_time()
        optimizer = popart.SGD({"defaultLearningRate": (0.01, False), "defaultMomentum": (0.9, False)})
        session = popart.TrainingSession(proto, flow, loss, optimizer, device, userOptions=options)
        session.prepareDevice()
        prepared = time.process_time() - started
        session.weightsFromHost()
        io: Any = popart.PyStepIO(feed, session.initAnchorArrays())
        session.run(io)
        started = time.perf_counter()
        for _ in range(STEPS):
            session.run(io)
        return {"prepared": prepared, "step": (time.perf_counter() - started) / STEPS}


def measure(kind: str, layers: int, bytecode: Path) -> dict[str, float]:
    """The same in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.half_precision", "--layers", str(layers), "--kind", kind]
    environment = installed_environment(bytecode)
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print a row for each kind and number of layers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--kind", choices=KINDS, help="measure this in the process itself, and print it as JSON")
    chosen = parser.parse_args()
    if chosen.kind:
        print(json.dumps(measured_here(chosen.kind, chosen.layers[0])))
        return
    table = Table("layers", "kind", "prepared [s of CPU]", "a step [ms]")
    with tempfile.TemporaryDirectory() as folder:
        measure(KINDS[0], 1, Path(folder))
        for layers in chosen.layers:
            for kind in KINDS:
                found = measure(kind, layers, Path(folder))
                table.add_row(str(layers), kind, f"{found['prepared']:.1f}", f"{1e3 * found['step']:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
