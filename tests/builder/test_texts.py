"""Whole texts of what the builder and the Python layer refuse (supplement, sections 2 and 3)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popart_jax as popart
from popart_jax import builder as builders

pytestmark = pytest.mark.usefixtures("popart_names")
TURNED = np.zeros((4, 4), np.float32)[:, ::2]


class Made:
    """A builder with an input, a relu and a top-k."""

    def __init__(self) -> None:
        self.b = popart.Builder()
        self.x = self.b.addInputTensor("FLOAT", [2, 3])
        self.relu = self.b.aiOnnx.relu([self.x])
        self.top = self.b.aiOnnx.topk([self.relu, self.b.aiOnnx.constant(np.array([1]))])
        self.b.addNodeAttribute("a", 1, {self.relu})
        self.b.addNodeAttribute("f", 1.5, {self.relu})

    def conv(self, **given: Any) -> str:
        sizes = ([1, 1, 5, 5], [1, 1, 3, 3])
        return self.b.aiOnnx.conv([self.b.addInputTensor("FLOAT", size) for size in sizes], **given)

    def custom(self, value: Any) -> Any:
        return self.b.customOp("A", 1, "d", [self.x], {"k": value})

    def tiled(self) -> str:
        return self.b.aiOnnx.tile([self.x, self.b.aiOnnx.constant(np.array([-2, 1]))])

    def nested(self) -> str:
        outer = popart.Builder()
        outer.addInputTensor("FLOAT", [2], "x")
        inner = outer.createSubgraphBuilder()
        inner.addInputTensor("FLOAT", [2], "y")
        innermost = inner.createSubgraphBuilder()
        innermost.addInputTensor("FLOAT", [2], "z")
        return innermost.aiOnnx.relu(["q"])

    def other_opset(self) -> Any:
        b = popart.Builder()
        b.addOutputTensor(b.aiOnnxOpset10.relu([b.addInputTensor("FLOAT", [2])]))
        return popart.Builder(b.getModelProto()).aiOnnxOpset9.relu(["Relu:0"])


Case = tuple[str, Callable[[Made], Any]]
REFUSED: list[Case] = [
    ("Invalid opset 9 used to add an operation. Opset for domain ai.onnx already defined as 10", Made.other_opset),
    ("Invalid or mismatched python list type provided in custom op attribute 'k'", lambda m: m.custom([1, 2.0])),
    *(("Invalid or mismatched python list type provided in custom op attribute 'k'", lambda m, v=v: m.custom([v]))
      for v in (None, {}, b"a", [1])),
    *(("Invalid type provided in custom op attribute 'k'", lambda m, v=v: m.custom(v)) for v in ({}, None, b"a")),
    ("Conv requires at least two inputs: data, and weights. 0 inputs provided.", lambda m: m.b.aiOnnx.conv([])),
    ("Conv requires at least two inputs: data, and weights. 1 inputs provided.", lambda m: m.b.aiOnnx.conv([m.x])),
    ("No numpy type float64 registered in map to DataType", lambda _: popart.getTensorInfo(np.zeros(2))),
    ("No numpy type >f4 registered in map to DataType", lambda _: popart.getTensorInfo(np.zeros(2, ">f4"))),
    ("No numpy type >f4 registered in map to DataType", lambda m: m.b.aiOnnx.constant(np.zeros(2, ">f4"))),
    ("No numpy type <U1 registered in map to DataType", lambda m: m.b.aiOnnx.constant(np.array(["a"]))),
    ("Unsupported data type for initialized data (>f4     [2])",
     lambda m: m.b.addInitializedInputTensor(np.zeros(2, ">f4"))),
    ("invalid string for shape", lambda _: popart.TensorInfo("FLOAT", "2,3")),
    ("s contains a space : not valid shape string", lambda _: popart.TensorInfo("FLOAT", "(2, 3)")),
    ("Unsupported data type for initialized data (DOUBLE  [2 3])",
     lambda m: m.b.addInitializedInputTensor(np.zeros((2, 3)))),
    ("Output 'Tile:0' of node '' has invalid shape, [-4 3]. Values must be non-negative in each shape dimension.",
     Made.tiled),
    ("enableConvDithering must be a bool value", lambda m: m.b.setEnableConvDithering(m.conv(), 2)),
    ("Builder::setEnableConvDithering should only be called on convolutions but was given: Relu",
     lambda m: m.b.setEnableConvDithering(m.relu, 1)),
    ("copyvarupdate should have two args.", lambda m: m.b.aiGraphcore.copyvarupdate([m.x])),
    ("The first arg of copyvarupdate should be an initalised tensor.",
     lambda m: m.b.aiGraphcore.copyvarupdate([m.x, m.x])),
    ("Strides invalid. 0 stride at index 1", lambda m: m.b.aiGraphcore.subsample([m.x], [1, 0])),
    ("Strides invalid. 0 stride at index 0", lambda m: m.conv(strides=[0, 1])),
    ("Dilations invalid. 0 dilation at index 1", lambda m: m.conv(dilations=[1, 0])),
    ("Could not find a node with outputs Relu:0 ,TopK:1. Must specify all outputs of a node",
     lambda m: m.b.addNodeAttribute("q", 1, {m.top[1], m.relu})),
    ("Attribute a is not a float vector.", lambda m: m.b.getFloatVectorNodeAttribute("a", {m.relu})),
    ("Attribute f is not an integer.", lambda m: m.b.getInt64NodeAttribute("f", {m.relu})),
    ("Dropout has an invalid number of outputs 3. Must be between 0..2", lambda m: m.b.aiOnnx.dropout([m.x], 3)),
    ("Concat has invalid number of inputs 0. Must be between 1..inf", lambda m: m.b.aiOnnx.concat([], 0)),
    ("Unknown tensor 'q' (there are no valid tensors yet).", lambda _: popart.Builder().aiOnnx.relu(["q"])),
    ("Unknown tensor 'q' (valid tensors are x).",
     lambda _: (b := popart.Builder()).aiOnnx.add([b.addInputTensor("FLOAT", [2], "x"), "q"])),
    ("Unknown tensor 'q' (valid tensors are z, y, x).", Made.nested),
    ("Node already has attribute a.", lambda m: m.b.addNodeAttribute("a", 2, {m.relu})),
    ("Node does not have an attribute q.", lambda m: m.b.getInt64NodeAttribute("q", {m.relu})),
    ("Cannot remove attribute q as it does not exist.", lambda m: m.b.removeNodeAttribute("q", {m.relu})),
    *((f"Attribute {name} is not {what}.", lambda m, get=get, name=name: getattr(m.b, get)(name, {m.relu}))
      for name, what, get in (
          ("f", "an integer vector", "getInt64VectorNodeAttribute"), ("a", "a float", "getFloatNodeAttribute"),
          ("a", "a string", "getStringNodeAttribute"), ("a", "a string vector", "getStringVectorNodeAttribute"))),
    *((f"{what} not set in current scope.", lambda m, get=get: getattr(m.b, get)())
      for what, get in (("Virtual graph", "getVirtualGraph"), ("Pipeline stage", "getPipelineStage"),
                        ("Execution phase", "getExecutionPhase"))),
    ("Builder::setPartialsType should only be called on operators: Conv, MatMul; but was given: Relu",
     lambda m: m.b.setPartialsType(m.relu, "HALF")),
    ("availableMemoryProportion must be in (0,1]", lambda m: m.b.setAvailableMemoryProportion(m.conv(), 1.5)),
    (("Can not add untyped tensors to the top-level graph. Use Builder::addInputTensor(const TensorInfo &tensorInfo, "
      "const std::string &debugPrefix) instead."), lambda m: m.b.addUntypedInputTensor()),
    (("Failed to add unrecognised Tensor q from higher scope, Currently, a Tensor must already exist in a higher "
      "(parent) scope to add it as an input in a lower scope."),
     lambda m: m.b.createSubgraphBuilder().addInputTensorFromParentGraph("q")),
    ("Saving tensor data to file nowhere/w, but its parent directory does not exist",
     lambda m: m.b.saveInitializersExternally([m.b.addInitializedInputTensor(TURNED.copy())], "nowhere/w")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "call"), REFUSED, ids=[text[:40] for text, _ in REFUSED])
def test_refused(text, call):
    made = Made()
    with pytest.raises(popart.popart_exception) as caught:
        call(made)
    assert caught.value.args[0] == text


def test_a_second_opset():
    builder = popart.Builder()
    assert str(builder.aiOnnxOpset9) == "AiOnnx9"
    with pytest.raises(RuntimeError) as caught:
        _ = builder.aiOnnxOpset8
    assert caught.value.args[0] == (
        "Invalid opset 'aiOnnxOpset8' selected. Opset for domain ai.onnx already defined as 9"
    )


def test_default_opsets_and_classes():
    assert (popart.defaultAiOnnxOpset, popart.defaultAiOnnxMlOpset, popart.defaultAiGraphcoreOpset) == (10, 1, 1)
    chain = [getattr(builders, f"AiOnnx{n}") for n in range(6, 12)]
    assert all(issubclass(newer, older) for older, newer in itertools.pairwise(chain))


@pytest.mark.parametrize("opset", [12, 18, 20])
def test_files_of_todays_exporters_open_under_the_name_popart_too(opset):
    """What PopART documents, export with PyTorch and go on with the file, works with the exporters of today."""
    proto = popart.Builder(opsets={"ai.onnx": opset, "ai.graphcore": 1})
    proto.addOutputTensor(proto.aiOnnx.relu([proto.addInputTensor("FLOAT", [2])]))
    again = popart.Builder(proto.getModelProto())
    loss = again.aiGraphcore.l1loss([again.getOutputTensorIds()[0]], 0.1)
    assert again.getTensorShape(loss) == []


@pytest.mark.parametrize("args", [(1,), (np.float32,), ("FLOAT", [1], 2, 3)])
def test_tensor_infos_of_wrong_arguments(args):
    with pytest.raises(TypeError) as caught:
        popart.TensorInfo(*args)
    assert caught.value.args[0] == f"Can not create TensorInfo with args {args}"


def test_subsample_rounds_down_in_the_builder():
    made = Made()
    assert made.b.getTensorShape(made.b.aiGraphcore.subsample([made.x], [1, 2])) == [2, 1]


def test_results_that_are_outputs_stay_values():
    made = Made()
    made.b.addOutputTensor(made.relu)
    assert made.b.getValueTensorIds() == ["Relu:0", "Constant:0", "TopK:0", "TopK:1"]
