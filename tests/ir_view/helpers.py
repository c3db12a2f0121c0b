"""Small training graphs as facts, and the view's JSON as Python data."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common

import patterns
from popart_jax.ir_view import IrFacts, OptimizerFacts, ViewOptions, serialize_ir, tensor_types

HEADER = '<ir_version: 8, opset_import: ["" : 11, "ai.graphcore": 1]>\n'
FLOAT = ir.DataType.FLOAT

MLP = """BuilderGraph_1 (float[2,3] x, float[3,4] w, float[4] b, float[4,4] v, int32[2] t) => () {
  a = MatMul(x, w)
  c = Add(a, b)
  r = Relu(c)
  d = MatMul(r, v)
  p = Softmax<axis=1>(d)
  l = ai.graphcore.Nll<reduction="Sum">(p, t)
}"""
MLP_TYPES = {"l": ()} | dict.fromkeys("acrdp", (2, 4))

CONV = """BuilderGraph_1 (float[2,3,8,8] x, float[4,3,3,3] w, float[4] b, float[4,4,3,3] v) => () {
  a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w, b)
  r = Relu(a)
  d = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(r, v)
  e = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(d, v)
  l = ReduceSum<keepdims=0>(e)
}"""
CONV_TYPES = {"l": ()} | dict.fromkeys("arde", (2, 4, 8, 8))


def parse(text: str, variables: str = "") -> ir.Graph:
    """The graph of ONNX text; the named inputs become initializers."""
    model = common.ShapeInferencePass()(ir.from_onnx_text(HEADER + text)).model
    for value in list(model.graph.inputs):
        if value.name in variables.split():
            value.const_value = ir.tensor(np.ones(patterns.static_shape(value), value.dtype.numpy()), name=value.name)
            model.graph.inputs.remove(value)
            model.graph.register_initializer(value)
    return model.graph


def sgd(weights: str = "", **fields: Any) -> OptimizerFacts:
    momentum = frozenset(weights.split())
    return OptimizerFacts("SGD", fields.pop("mode", "Combined"), momentum=momentum, **fields)


def training(
    text: str,
    variables: str,
    types: dict[str, tuple[int, ...]],
    anchors: str = "",
    optimizer: OptimizerFacts | None = None,
    **options: Any,
) -> IrFacts:
    return IrFacts(
        graph=parse(text, variables),
        types={n: (FLOAT, s) for n, s in types.items()},
        variables=frozenset(variables.split()),
        anchors=frozenset(anchors.split()),
        loss="l",
        optimizer=optimizer or sgd(),
        options=ViewOptions(**{"outlining": False, **options}),
    )


def mlp(anchors: str = "", **options: Any) -> IrFacts:
    return training(MLP, "w b v", MLP_TYPES, anchors, **options)


def conv(anchors: str = "", **options: Any) -> IrFacts:
    return training(CONV, "w b v", CONV_TYPES, anchors, **options)


def inference(facts: IrFacts, anchors: str) -> IrFacts:
    return replace(facts, loss=None, optimizer=None, variables=frozenset(), anchors=frozenset(anchors.split()))


def with_patterns(facts: IrFacts, level: str = "Default", **switches: bool) -> IrFacts:
    selection = patterns.at_level(level)
    for name, on in switches.items():
        enabled = selection.enabled | {name} if on else selection.enabled - {name}
        selection = patterns.PatternSet(enabled, runtime_asserts=False)
    return replace(facts, selection=selection)


def view(facts: IrFacts) -> dict[str, list[dict[str, Any]]]:
    return json.loads(serialize_ir(facts))


def ops(facts: IrFacts, graph: str = "maingraph") -> list[dict[str, Any]]:
    return view(facts)[graph]


def counts(facts: IrFacts, graph: str = "maingraph") -> Counter[str]:
    return Counter(op["type"] for op in ops(facts, graph))


def find(facts: IrFacts, op_type: str) -> list[dict[str, Any]]:
    return [op for op in ops(facts) if op["type"] == op_type]


def tensor_ids(facts: IrFacts) -> set[str]:
    """Names of all tensors of the main graph."""
    return set(tensor_types(facts))
