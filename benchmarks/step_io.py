"""What step I/O costs: ``python -m benchmarks.step_io [--budget SECONDS] [--priority N]``.

Layers with large results by a session, which takes: the arrays of `initAnchorArrays`, that runs write into; others,
that results are copied into; and a new `PyStepIO` for each run, with the former. ONNX Runtime beside them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

import popart_jax as popart

from . import board
from .timing import interleave

LAYERS = {
    "one row times 64 x 64": "float[1,64] x) => (float[1,64] y) <float[64,64] w> {y = MatMul (x, w)}",
    "Relu of 8 x 64 x 64 x 64": "float[8,64,64,64] x) => (float[8,64,64,64] y) {y = Relu (x)}",
    "softmax of 512 x 4,096": "float[512,4096] x) => (float[512,4096] y) {y = Softmax <axis = -1> (x)}",
    "3 to 64 channels of 224 x 224 by 3 x 3": "float[1,3,224,224] x) => (float[1,64,224,224] y) "
    "<float[64,3,3,3] w> {y = Conv <pads = [1, 1, 1, 1]> (x, w)}",
    "1,024 x 64 times 64 x 8,192": "float[1024,64] x) => (float[1024,8192] y) <float[64,8192] w> {y = MatMul (x, w)}",
}


def model(text: str) -> onnx.ModelProto:
    """A layer, with weights drawn for the shapes that its text holds."""
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 13]> g ({text}')
    rng = np.random.default_rng(0)
    for kind in made.graph.value_info:
        values = rng.normal(size=sizes(kind)).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(values, kind.name))
    return made


def sizes(kind: onnx.ValueInfoProto) -> list[int]:
    """A tensor's dimensions."""
    return [d.dim_value for d in kind.type.tensor_type.shape.dim]


def ways(proto: onnx.ModelProto) -> dict[str, Callable[[], object]]:
    """The calls to time, by name."""
    import onnxruntime

    source, (given,) = proto.SerializeToString(), proto.graph.input
    x = np.random.default_rng(1).normal(size=sizes(given)).astype(np.float32)
    flow, device = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")}), popart.DeviceManager().createCpuDevice()
    session = popart.InferenceSession(source, flow, device)
    session.prepareDevice()
    theirs: Any = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    arrays = session.initAnchorArrays()
    own = {name: np.zeros_like(array) for name, array in arrays.items()}
    kept, copied = popart.PyStepIO({"x": x}, arrays), popart.PyStepIO({"x": x}, own)
    session.run(copied)
    return {
        "in place": lambda: session.run(kept),
        "copied": lambda: session.run(copied),
        "new step I/O": lambda: session.run(popart.PyStepIO({"x": x}, arrays)),
        "onnxruntime": lambda: theirs.run(None, {"x": x}),
    }


def main(argv: list[str] | None = None) -> int:
    """Print medians in microseconds, and how much longer the others take than results in place."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    board.add_timing(parser, 4.0)
    args = parser.parse_args(argv)
    table = Table("layer", "in place (us)", "copied", "new step I/O", "onnxruntime (us)")
    for name, text in LAYERS.items():
        calls = ways(model(text))
        with board.quiet(args.priority):
            found = interleave(calls, budget=args.budget)
        first, *others, theirs = (timing.median * 1e6 for timing in found.values())
        table.add_row(name, f"{first:.0f}", *(f"x{other / first:.2f}" for other in others), f"{theirs:.0f}")
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
