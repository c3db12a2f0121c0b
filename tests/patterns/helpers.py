"""Run a graph before and after its rewrites with the onnx reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common
import onnxruntime
from onnx.reference import ReferenceEvaluator

import patterns
from popart_jax.ops import facts

from .reference_ops import CUSTOM_OPS

HEADER = '<ir_version: 8, opset_import: ["" : {opset}, "ai.graphcore": 1]>\n'


def model(text: str, opset: int = 11, infer: bool = False) -> ir.Model:
    """Parse ONNX text, without its header; optionally infer shapes."""
    parsed = ir.from_onnx_text(HEADER.format(opset=opset) + text)
    return common.ShapeInferencePass()(parsed).model if infer else parsed


def set_shapes(m: ir.Model, dtype: ir.DataType = ir.DataType.FLOAT, **shapes: tuple[int, ...]) -> ir.Model:
    """Give intermediate values a dtype and shape, where the parser leaves them out."""
    for value in all_values(m.graph):
        if value.name in shapes:
            value.type = ir.TensorType(dtype)
            value.shape = ir.Shape(shapes[value.name])
    return m


def all_values(graph: ir.Graph) -> list[ir.Value]:
    return [*graph.inputs, *(o for n in graph.all_nodes() for o in n.outputs)]


def run(m: ir.Model, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    proto = ir.to_proto(m)
    for node in proto.graph.node:  # the evaluator passes every attribute on
        kept = [a for a in node.attribute if not a.name.startswith("__")]
        del node.attribute[:]
        node.attribute.extend(kept)
    evaluator = ReferenceEvaluator(proto, new_ops=list(CUSTOM_OPS))
    names = [o.name for o in m.graph.outputs]
    return dict(zip(names, evaluator.run(None, dict(feeds)), strict=True))


def run_ort_all(m: ir.Model, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Outputs of a model of plain ONNX ops, from ONNX Runtime."""
    plain = m.clone()
    plain.graph.opset_imports.pop("ai.graphcore", None)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(ir.to_proto(plain).SerializeToString(), options).run(None, dict(feeds))


def run_ort(m: ir.Model, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first output."""
    return run_ort_all(m, feeds)[0]


def feeds_of(m: ir.Model, seed: int = 0) -> dict[str, np.ndarray]:
    """Random positive inputs; integer inputs count up from 0 and stay below 3."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for value in m.graph.inputs:
        if value.const_value is not None:
            continue
        shape = patterns.static_shape(value) or ()
        dtype = value.dtype.numpy()
        if np.issubdtype(dtype, np.integer):
            feeds[value.name] = (np.arange(int(np.prod(shape))) % 3).reshape(shape).astype(dtype)
        else:
            feeds[value.name] = rng.uniform(0.5, 1.5, shape).astype(dtype)
    return feeds


def sweep_one(
    m: ir.Model, *names: str, mode: patterns.Mode = "inference", protected: tuple[str, ...] = ()
) -> patterns.SweepLog:
    """Sweep with the rules of these patterns only, at every stage."""
    selection = patterns.from_names(names)
    rules = [r for s in ("model", "view") for r in patterns.rules_of(selection, s, mode)]
    unique = list(dict.fromkeys(rules))
    log = patterns.sweep(m.graph, unique, facts, mode=mode, protected=frozenset(protected))
    patterns.remove_unused(m.graph, facts, frozenset(protected))
    return log


def op_types(m: ir.Model) -> list[str]:
    return [n.op_type for n in m.graph if n.op_type != "Constant"]


def assert_same_outputs(before: ir.Model, after: ir.Model, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    feeds = feeds_of(before)
    wanted, got = run(before, feeds), run(after, feeds)
    assert wanted.keys() == got.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=rtol, atol=atol, err_msg=name)


def check_fires(
    m: ir.Model, *names: str, expect: list[str] | None = None, mode: patterns.Mode = "inference"
) -> ir.Model:
    """The patterns fire, leave the op types `expect`, and keep every output."""
    before = m.clone()
    log = sweep_one(m, *names, mode=mode)
    assert set(log.counts()) >= {names[0]}, str(log)
    if expect is not None:
        assert sorted(op_types(m)) == sorted(expect)
    assert_same_outputs(before, m)
    return m


def check_declines(m: ir.Model, *names: str, why: str | None = None, mode: patterns.Mode = "inference") -> None:
    """The patterns leave the graph alone, with the given reason in the log if there is one."""
    before = op_types(m)
    log = sweep_one(m, *names, mode=mode)
    assert not log.fired, str(log)
    assert op_types(m) == before
    if why is not None:
        assert any(why in e.outcome for e in log.declined), str(log)
