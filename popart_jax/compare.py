"""Comparison with another runtime, node by node: which nodes of a model give different results.

Every node gets the *other* runtime's inputs, so that one wrong node does not make all following ones differ.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir

from ._compat.jax import enable_x64
from .errors import popart_exception
from .functions.inputs import as_declared
from .lowering.attributes import array
from .lowering.interpreter import Settings, evaluate
from .lowering.resolve import check_supported, find, label, needs
from .model.files.external import in_memory
from .model.files.load import load

RUNTIMES = ("onnxruntime", "reference")


@dataclass(frozen=True)
class Difference:
    """One output of one node that differs."""

    # name and operator type of the node, name of the output
    node: str
    op: str
    tensor: str
    ulps: float  # largest distance in units in the last place of the output's type (inf: shape, type or NaN differs)
    absolute: float  # largest absolute difference
    # both values
    ours: Any
    theirs: Any
    inputs: Mapping[str, Any]  # the node's inputs


def compare(
    model: Any, feeds: Mapping[str, Any], runtime: str = "onnxruntime", rtol: float = 1e-3, atol: float = 1e-5
) -> Iterator[Difference]:
    """Differences of node outputs from those of another runtime, in the order of the graph.

    The runtime is "onnxruntime" or "reference" (`onnx.reference`). The model's functions are inlined first; an element
    differs beyond ``atol + rtol * |theirs|``. Raises popart_exception for an unknown runtime, and where the model has
    operators without a translation.
    """
    loaded = load(model)
    check_supported(loaded.graph, loaded.opset_imports)
    theirs = {**feeds, **intermediates(loaded, feeds, runtime)}
    settings = Settings(dict(loaded.opset_imports))
    constants = {n: array(v.const_value) for n, v in loaded.graph.initializers.items() if v.const_value is not None}
    known = {**constants, **theirs}
    for node in loaded.graph:
        row = find(node, loaded.opset_imports)
        wanted = [v.name for v in node.outputs if v.name and v.name in theirs]
        if not wanted or (row is not None and "key" in row.context):
            continue
        read = dict.fromkeys(v.name for v in needs(node) if v.name)
        inputs = {name: known[name] for name in read if name in known}
        with enable_x64():
            ours = evaluate(loaded.graph, {n: as_declared(None, x) for n, x in inputs.items()}, wanted, settings)
        for name in wanted:
            yield from _difference(label(node), node.op_type, name, ours[name], theirs[name], inputs, rtol, atol)


def _difference(
    node: str, op: str, name: str, ours: Any, theirs: Any, inputs: Mapping[str, Any], rtol: float, atol: float
) -> Iterator[Difference]:
    if isinstance(theirs, (list, tuple)):
        for i, (a, b) in enumerate(zip(ours, cast("Sequence[Any]", theirs), strict=True)):
            yield from _difference(node, op, f"{name}[{i}]", a, b, inputs, rtol, atol)
        return
    if theirs is None or isinstance(theirs, dict):
        return
    a, b = np.asarray(ours), np.asarray(theirs)
    if not _close(a, b, rtol, atol):
        yield Difference(node, op, name, *distance(a, b), a, b, inputs)


def _close(a: np.ndarray, b: np.ndarray, rtol: float, atol: float) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "OUSb":
        return bool(np.all(a == b))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    return np.allclose(a.astype(wide), b.astype(wide), rtol, atol, equal_nan=True)


def distance(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Largest difference of two arrays, in units in the last place of their type and as an absolute number."""
    if a.shape != b.shape or a.dtype != b.dtype or a.dtype.kind in "OUSbc":
        return np.inf, np.inf
    x, y = a.astype(np.float64), b.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    gap = np.where(same, 0.0, np.abs(x - y))
    if a.dtype.kind in "iu" or not gap.size:
        return float(gap.max(initial=0)), float(gap.max(initial=0))
    largest = np.asarray(ml_dtypes.finfo(a.dtype).max, a.dtype)
    below = np.nextafter(largest, np.zeros_like(largest))  # the spacing of float16's largest number overflows
    step = np.spacing(np.minimum(np.abs(b), below)).astype(np.float64)
    ulps = np.where(np.isnan(gap), np.inf, gap / step)
    return float(ulps.max()), float(np.nan_to_num(gap, nan=np.inf).max())


def intermediates(model: ir.Model, feeds: Mapping[str, Any], runtime: str) -> dict[str, Any]:
    """All outputs of all nodes of the main graph, computed by the other runtime without graph optimisation."""
    inside = in_memory(model.clone())  # as bytes the model has no folder for external data
    proto = ir.to_proto(inside)
    names = list(dict.fromkeys(name for node in proto.graph.node for name in node.output if name))
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    if runtime == "reference":
        from onnx.reference import ReferenceEvaluator

        with refusing("onnx.reference"):
            return dict(zip(names, ReferenceEvaluator(proto).run(None, dict(feeds)), strict=True))
    if runtime != "onnxruntime":
        raise popart_exception(f"compare: {runtime!r} is none of {list(RUNTIMES)}")
    run = onnxruntime_call(proto.SerializeToString(), feeds, optimized=False)
    return dict(zip(names, run(), strict=True))


@contextlib.contextmanager
def refusing(runtime: str) -> Generator[None]:
    """Scope that turns another runtime's exceptions into a popart_exception with their text in one line."""
    try:
        yield
    except Exception as err:  # the classes differ between runtimes
        raise popart_exception(f"{runtime} can't run this model: {' '.join(str(err).split())}") from err


def onnxruntime_call(
    model: str | bytes, feeds: Mapping[str, Any], *, optimized: bool = True
) -> Callable[[], Sequence[Any]]:
    """A function that runs a model with ONNX Runtime on these inputs.

    Raises popart_exception where ONNX Runtime is not installed or refuses the model; when called, where it refuses the
    inputs.
    """
    try:
        import onnxruntime
    except ImportError as err:
        raise popart_exception("ONNX Runtime is not installed.\n  fix: pip install 'popart_jax[compare]'.") from err
    options = cast("Any", onnxruntime.SessionOptions())
    options.log_severity_level = 4  # errors are raised, so they need no log
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with refusing("ONNX Runtime"):
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def run() -> Sequence[Any]:
        with refusing("ONNX Runtime"):
            return cast("Sequence[Any]", session.run(None, dict(feeds)))

    return run


def minimal_model(model: Any, difference: Difference) -> onnx.ModelProto:
    """A model of the differing node alone, with its inputs as initializers, that reproduces the difference."""
    loaded = load(model)
    node = next(n for n in loaded.graph if label(n) == difference.node)
    proto = ir.to_proto(node)
    tensors = {
        n: np.asarray(x)
        for n, x in difference.inputs.items()
        if not isinstance(x, (list, tuple, dict)) and x is not None
    }
    graph = onnx.helper.make_graph(
        [proto],
        f"minimal_{difference.op}",
        [onnx.helper.make_empty_tensor_value_info(n) for n in difference.inputs if n not in tensors],
        [onnx.helper.make_empty_tensor_value_info(n) for n in proto.output if n],
        [onnx.numpy_helper.from_array(x, n) for n, x in tensors.items()],
    )
    opsets = [onnx.helper.make_opsetid(d, v) for d, v in loaded.opset_imports.items()]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=loaded.ir_version)
