"""Engines compared in inference: ours, hand-written JAX, and the installed peers."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import onnx
import onnx_ir as ir

import popart_jax as popart
from popart_jax._compat.jax import setting
from popart_jax.lowering.passes.compiler import compiler_options

from .networks import Network

Call = Callable[[], np.ndarray]
Model = bytes | Path


def multiply_in(precision: str) -> None:
    """Let all engines compute float32 products on a GPU alike: in float32 (`highest`) or in `tensorfloat32`."""
    if jax.default_backend() == "cpu":
        return
    jax.config.update("jax_default_matmul_precision", precision)
    if importlib.util.find_spec("torch") is not None:
        from .torch_engine import multiply_in as torch_multiplies_in

        torch_multiplies_in(precision)


def ours_inference(network: Network) -> Call:
    """`InferenceSession.run`, NumPy in and out."""
    return session_call(network.model, network.logits, network.feed)


def session_call(
    model: Model, output: str, feed: Mapping[str, np.ndarray], shapes: popart.InputShapeInfo | None = None
) -> Call:
    """One `InferenceSession.run` of a model, NumPy in and out."""
    flow = popart.DataFlow(1, {output: popart.AnchorReturnType("All")})
    source = model if isinstance(model, bytes) else str(model)
    session = popart.InferenceSession(source, flow, popart.DeviceManager().createCpuDevice(), shapes)
    return prepared_call(session, feed, output)


def prepared_call(
    session: popart.InferenceSession | popart.TrainingSession, feed: Mapping[str, np.ndarray], output: str
) -> Call:
    """Prepare a session; the call is one `run` of the same arrays, which returns one anchor."""
    session.prepareDevice()
    if isinstance(session, popart.TrainingSession):
        session.weightsFromHost()
    anchors = session.initAnchorArrays()
    stepio = popart.PyStepIO(dict(feed), anchors)

    def call() -> np.ndarray:
        session.run(stepio)
        return anchors[output]

    return call


def by_hand_inference(network: Network) -> Call:
    """The hand-written network under jit, NumPy in and out, with the compiler options that suit it."""
    fn = cast("Callable[..., Any]", jax.jit(network.forward, compiler_options=options_by_hand(network)))
    params, x = network.lay_out(network.params), network.feed["x"]
    return lambda: np.asarray(fn(params, x))


def options_by_hand(network: Network) -> dict[str, str]:
    """XLA's options for a hand-written network: those that we found best for such graphs, and give ours."""
    graph = ir.from_proto(onnx.load_from_string(network.model)).graph
    return compiler_options(graph, training=False, platform=jax.default_backend())


def onnxruntime_inference(model: Model, feed: Mapping[str, np.ndarray]) -> Call:
    """ONNX Runtime, on the CPU with as many threads as cores, or on the GPU if JAX runs there.

    Raises
    ------
    ImportError
        On a GPU, if the installed ONNX Runtime has no provider for it.
    """
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    source = model if isinstance(model, bytes) else str(model)
    provider = "CUDAExecutionProvider" if jax.default_backend() == "gpu" else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise ImportError(f"ONNX Runtime has no {provider}: install onnxruntime-gpu")
    settings = {"use_tf32": int(setting("jax_default_matmul_precision") == "tensorfloat32")}  # read on GPUs alone
    session = onnxruntime_session(source, provider if provider.startswith("CPU") else (provider, settings))
    names = [session.get_outputs()[0].name]
    return lambda: np.asarray(session.run(names, dict(feed))[0])


def onnxruntime_session(source: Any, provider: str | tuple[str, dict[str, int]] = "CPUExecutionProvider") -> Any:
    """A session of ONNX Runtime, which raises its errors and logs none."""
    import onnxruntime

    options = cast("Any", onnxruntime.SessionOptions())
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(source, options, providers=[provider])


def openvino_inference(model: Model, feed: Mapping[str, np.ndarray]) -> Call:
    """OpenVINO for latency, in float32, with as many threads as cores."""
    import openvino  # pyright: ignore[reportMissingImports]

    core = cast("Any", openvino).Core()  # which has no types where it is not installed
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    threads = {"INFERENCE_NUM_THREADS": os.cpu_count() or 1}
    compiled = core.compile_model(core.read_model(model), "CPU", hints | threads)
    request = compiled.create_infer_request()
    return lambda: request.infer(feed)[compiled.outputs[0]]


def torch_inference(network: Network, compiled: bool = False) -> Call:
    """PyTorch, eager or compiled."""
    from .torch_engine import torch_inference as make

    return make(network, compiled)
