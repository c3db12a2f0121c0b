"""Pipeline stages on devices of their own, beside one device: ``python -m benchmarks.processes.stages``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

import popart_jax as popart
from popart_jax.session.devices.staging import STAGES

from .command import Figures, command

_DEVICES, _STAGES, _ROWS, _BATCHES, _FACTOR, _STEPS = 6, 3, 4, 2, 6, 2
_NET = """g (float[ROWS,WIDTH] x) => (float loss) {
    a0 = MatMul(x, shared)
    s0 = Shape(a0)
    t0 = Tanh(a0)
    d0 = Dropout<ratio = 0.25>(t0)
    a1 = MatMul(d0, w1)
    n1, m1, v1, m2, v2 = BatchNormalization(a1, scale, bias, mean, var)
    r1 = Reshape(n1, s0)
    b1 = Add(r1, x)
    e1 = Dropout<ratio = 0.25>(b1)
    a2 = MatMul(e1, shared)
    b2 = Add(a2, t0)
    c2 = MatMul(b2, w2)
    loss = ai.graphcore.L1<lambda = 0.5, reduction = "Mean">(c2)
}"""
_STAGE = {"a0": 0, "s0": 0, "t0": 0, "d0": 0, "a1": 1, "n1": 1, "r1": 1, "b1": 1, "e1": 1, "a2": 2, "b2": 2, "c2": 2,
          "loss": 2}  # fmt: skip
_ANCHORS = {"loss": "All", "t0": "Final", "b1": "All", "Gradient___d0": "Sum", "Gradient___c2": "All",
            "Gradient___shared": "All", "Gradient___x": "Sum", "w2": "Final",
            "Gradient___w1": "Final", "Accl___shared": "All", "mean": "All", "UpdatedVar___w1": "Final"}  # fmt: skip


def model(width: int, dtype: type = np.float32) -> onnx.ModelProto:
    """Three stages: a weight read by the first and the last, a residual over all, running statistics in between."""
    rng = np.random.default_rng(0)
    values = {n: rng.normal(0, width**-0.5, (width, width)) for n in ("shared", "w1", "w2")}
    values |= {n: np.ones(width) for n in ("scale", "var")} | {n: np.zeros(width) for n in ("bias", "mean")}
    text = _NET.replace("ROWS", str(_ROWS)).replace("WIDTH", str(width))
    text = text if dtype is np.float32 else text.replace("float[", "float16[").replace("float loss", "float16 loss")
    proto = parser.parse_model(f'<ir_version: 4, opset_import: ["": 10, "ai.graphcore": 1]> {text}')
    for node in proto.graph.node:
        stage = _STAGE[node.output[0]]
        node.attribute.append(helper.make_attribute("__ipu_number", stage))
        node.attribute.append(helper.make_attribute("__pipeline_stage", stage))
    proto.graph.initializer.extend(numpy_helper.from_array(v.astype(dtype), n) for n, v in values.items())
    return proto


def _optimizer(kind: str, scale: float) -> popart.Optimizer:
    if kind == "adam":
        return popart.Adam({"defaultLearningRate": (0.01, False)})
    if kind == "scaled adam":
        values = {"defaultLearningRate": (0.01, False), "lossScaling": (scale, False)}
        return popart.Adam(values, scaled_optimizer_state=True)
    if scale != 1:
        return popart.SGD({"defaultLearningRate": (0.1, False), "lossScaling": (scale, False)})
    if kind == "clipped":
        clip = popart.ClipNormSettings(["shared", "w1", "w2"], 0.01)
        return popart.SGD(
            {"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)}, clip_norm_settings=[clip]
        )
    return popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)})


def _options(stages: str, *, pipelined: bool, replicas: int, automatic: bool, at_random: bool) -> popart.SessionOptions:
    options = popart.SessionOptions()
    options.virtualGraphMode, options.enablePipelining = popart.VirtualGraphMode.Manual, pipelined
    options.engineOptions[STAGES] = stages
    options.enableReplicatedGraphs, options.replicatedGraphCount = replicas > 1, replicas
    options.ensureFp32LossScaleTensor = True
    options.enableStochasticRounding = options.enableLoadAndOffloadRNGState = at_random
    options.automaticLossScalingSettings.enabled = automatic
    options.automaticLossScalingSettings.thresholdUpperCountProportion = 0.2
    options.automaticLossScalingSettings.binEdgeLocation = 1e-3
    if pipelined:
        options.enableGradientAccumulation, options.accumulationFactor = True, _FACTOR
    return options


def run(
    width: int,
    stages: str,
    *,
    pipelined: bool,
    kind: str = "sgd",
    replicas: int = 1,
    dtype: type = np.float32,
    scale: float = 1,
    automatic: bool = False,
    at_random: bool = False,
) -> dict[str, Any]:
    """Run two steps; returns anchors, weights, and the devices and bytes of the resident arrays."""
    options = _options(stages, pipelined=pipelined, replicas=replicas, automatic=automatic, at_random=at_random)
    proto = model(width, dtype)
    wanted = {n: k for n, k in _ANCHORS.items() if (kind, scale) == ("sgd", 1) or n[:4] != "Accl"}
    if automatic:
        wanted |= {"finalLossScale": "All", "UpdatedVar___lossScaleUpdateFactor": "All"}
    flow = popart.DataFlow(_BATCHES, {n: popart.AnchorReturnType(k) for n, k in wanted.items()})
    manager, ipus = popart.DeviceManager(), _STAGES * replicas
    if at_random:  # the IPU model device rounds to nearest; real IPUs come in powers of two
        device = manager.acquireAvailableDevice(1 << (ipus - 1).bit_length())
    else:
        device = manager.createIpuModelDevice({"numIPUs": ipus})
    session = popart.TrainingSession(
        proto.SerializeToString(), flow, "loss", _optimizer(kind, scale), device, userOptions=options
    )  # fmt: skip
    session.prepareDevice()
    session.setRandomSeed(3)
    session.weightsFromHost()
    rng, found = np.random.default_rng(1), session.initAnchorArrays()
    shown: dict[str, Any] = {}
    for step in range(_STEPS):
        size = (_BATCHES, _FACTOR if pipelined else 1, replicas, _ROWS, width)
        x = cast("np.ndarray", rng.normal(size=size).astype(dtype))
        session.run(popart.PyStepIO({"x": x}, found))
        shown |= {f"{n}, step {step}": a.copy() for n, a in found.items()}
        if scale != 1:
            session.updateOptimizerFromHost(_optimizer(kind, scale / 4))
    weights: dict[str, np.ndarray] = {t.name: np.empty(tuple(t.dims), dtype) for t in proto.graph.initializer}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(weights))
    generators = {"generators": np.asarray(session.getRNGState())} if at_random else {}
    held = session._held().arrays
    places = {n: sorted(d.id for d in x.devices()) for n, x in held.items()}
    resting = [sum(x.nbytes for n, x in held.items() if places[n] == [i]) for i in range(_DEVICES)]
    seed = np.asarray(session.getRandomSeed())
    device.detach()
    return {"shown": {**shown, **weights, **generators, "seed": seed}, "places": places, "resting": resting}


CASES: dict[str, dict[str, Any]] = {
    "pipeline": {"pipelined": True},
    "pipeline, Adam": {"pipelined": True, "kind": "adam"},
    "virtual graphs": {"pipelined": False},
    "two replicas": {"pipelined": True, "replicas": 2},
    "two replicas, Adam whose state follows the loss scale": {
        "pipelined": False, "replicas": 2, "kind": "scaled adam", "scale": 8.0
    },
    "three replicas, two devices short": {"pipelined": True, "replicas": 3, "kind": "adam"},
    "two replicas, weights clipped together": {"pipelined": False, "replicas": 2, "kind": "clipped"},
    "half precision, a large loss scale": {"pipelined": True, "dtype": np.float16, "scale": 2.0**17},
    "half precision, rounded at random": {"pipelined": True, "dtype": np.float16, "at_random": True, "replicas": 2},
    "automatic loss scaling": {"pipelined": True, "dtype": np.float16, "scale": 64.0, "automatic": True},
    "automatic loss scaling, two replicas": {"pipelined": False, "replicas": 2, "dtype": np.float16, "scale": 64.0,
                                              "automatic": True},
}  # fmt: skip


def measure(width: int, cases: Collection[str]) -> dict[str, dict[str, Any]]:
    """Run some cases on one device and on several: the largest difference of any number, and the resident bytes."""
    found: dict[str, dict[str, Any]] = {}
    for name in cases:
        case = CASES[name]
        one, parts = (run(width, stages, **case) for stages in ("in order", "devices"))
        gaps = {n: _gap(parts["shown"][n], x) for n, x in one["shown"].items()}
        found[name] = {"gaps": gaps, "places": parts["places"], "resting": [one["resting"], parts["resting"]]}
    return found


def _gap(one: np.ndarray, other: np.ndarray) -> float:
    """Largest difference, relative to the larger of 1 and the largest absolute number."""
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return float(np.max(np.abs(one - other))) / max(1.0, float(np.max(np.abs(other))))


def main(argv: list[str] | None = None) -> int:
    """Print the table, or the figures as JSON."""
    columns = ("program", "largest gap", "resting on one device [MB]", "on each [MB]")
    return command(argv, __doc__, _DEVICES, CASES, measure, columns, _row)


def _row(one: Figures) -> tuple[str, ...]:
    whole, parts = ([f"{b / 1e6:.2f}" for b in sizes] for sizes in one["resting"])
    return f"{max(one['gaps'].values()):.1e}", whole[0], ", ".join(parts)


if __name__ == "__main__":
    raise SystemExit(main())
