"""Models that break a rule of ONNX, files that hold no model, external data that are not there: clear errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popart_jax as popart
from popart_jax import backend, popart_exception, to_jax

X = np.ones((2, 3), np.float32)
node = helper.make_node


def info(name: str, shape: tuple[int, ...] = (2, 3), kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(*nodes: onnx.NodeProto, weights=(), opsets=(("", 13),), ir_version: int = 8, inputs=None) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "g", inputs or [info("x")], [info("y")], list(weights))
    imports = [helper.make_opsetid(d, v) for d, v in opsets]
    made = helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
    del made.opset_import[len(imports) :]
    return made


def weight(**fields) -> onnx.TensorProto:
    return onnx.TensorProto(**{"name": "w", "data_type": TensorProto.FLOAT, "dims": [2, 3], **fields})


RELU, ADD = node("Relu", ["x"], ["y"]), node("Add", ["x", "w"], ["y"])
ONE, THREE = (numpy_helper.from_array(n * X, "w") for n in (1, 3))
BODY = helper.make_graph([node("Relu", ["x"], ["t"])], "t", [], [info("t")])
TWO = helper.make_graph([node("Neg", ["x"], ["e"]), node("Neg", ["e"], ["f"])], "e", [], [info("e"), info("f")])
FLAG = [info("x"), info("c", (), TensorProto.BOOL)]


def recursive() -> onnx.ModelProto:
    made = model(node("F", ["x"], ["y"], domain="l"), opsets=(("", 13), ("l", 1)))
    calls = [node("F", ["a"], ["b"], domain="l")]
    made.functions.append(helper.make_function("l", "F", ["a"], ["b"], calls, list(made.opset_import)))
    return made


def function(*calls: onnx.NodeProto, inputs: tuple[str, ...] = ("a",), output: str = "b") -> onnx.ModelProto:
    """A model that calls a function of these nodes, and has a tensor 't' beside it."""
    made = model(node("Relu", ["x"], ["t"]), node("F", ["t"], ["y"], domain="l"), opsets=(("", 13), ("l", 1)))
    made.functions.append(helper.make_function("l", "F", inputs, [output], calls, list(made.opset_import)))
    return made


def two_functions() -> onnx.ModelProto:
    made = model(node("F", ["x"], ["y"], domain="l"), opsets=(("", 13), ("l", 1)))
    for op in ("Neg", "Relu"):
        made.functions.append(
            helper.make_function("l", "F", ["a"], ["b"], [node(op, ["a"], ["b"])], [helper.make_opsetid("", 13)])
        )
    return made


def axis_twice() -> onnx.ModelProto:
    made = model(node("Softmax", ["x"], ["y"], axis=0))
    made.graph.node[0].attribute.add(name="axis", i=1, type=onnx.AttributeProto.INT)
    return made


def looped(body_inputs: list[onnx.ValueInfoProto], body_outputs: int = 2) -> onnx.ModelProto:
    calls = [node("Identity", ["c"], ["d"]), node("Neg", ["x"], ["w"]), node("Neg", ["x"], ["u"])]
    results = [info("d", (), TensorProto.BOOL), info("w"), info("u")][:body_outputs]
    body = helper.make_graph(calls, "b", body_inputs, results)
    return model(node("Loop", ["n", "", "x"], ["y"], body=body), weights=[numpy_helper.from_array(np.int64(3), "n")])


LOOP_INPUTS = [info("i", (), TensorProto.INT64), info("c", (), TensorProto.BOOL)]


def sparse(indices: list[int], values: list[float], dims: tuple[int, ...] = (1,)) -> onnx.ModelProto:
    made = model(ADD)
    held = helper.make_tensor("w", TensorProto.FLOAT, [len(values)], values)
    where = helper.make_tensor("w_indices", TensorProto.INT64, dims, indices)
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(held, where, [2, 3]))
    return made


SCALES = numpy_helper.from_array(np.array([1, -2], np.float32), "w")
SIZES = numpy_helper.from_array(np.array([2, 0]), "w")

BROKEN: dict[str, tuple[onnx.ModelProto, str]] = {
    "domain not imported": (model(node("Gelu", ["x"], ["y"], domain="com.microsoft")), "the model does not import"),
    "negative IR": (model(RELU, ir_version=-3), "IR version -3; versions count from 1"),
    "no IR": (model(RELU, ir_version=0), "IR version 0; versions count from 1"),
    "functions of one name": (two_functions(), r"Duplicate graph function\(s\) \['l.F'\]"),
    "attribute twice": (axis_twice(), r"attribute\(s\) \['axis'\] more than once"),
    "loop body of few inputs": (looped(LOOP_INPUTS), "its body takes 3 inputs; it has 2"),
    "loop body of few outputs": (looped([*LOOP_INPUTS, info("v")], 1), "its body makes 1, the condition included"),
    "negative sparse index": (sparse([-1], [5.0]), r"has the index \[-1\]"),
    "sparse index beyond": (sparse([6], [5.0]), r"has the index \[6\]"),
    "sparse index twice": (sparse([1, 1], [5.0, 6.0], (2,)), "has an index twice"),
    "sparse indices too few": (sparse([1], [5.0, 6.0]), "one index per value"),
    "newer opset": (model(RELU, opsets=(("", 99),)), "imports opset 99 of ai.onnx; known are 1 to 28"),
    "no such opset": (model(RELU, opsets=(("", 0),)), "imports opset 0 of ai.onnx"),
    "newer IR": (model(RELU, ir_version=99), r"Expecting ONNX IR version 1 to \d+, but got 99\."),
    "no opset": (model(RELU, opsets=()), "imports no opset of ai.onnx"),
    "two opsets": (model(RELU, opsets=(("", 13), ("", 11))), "Duplicate graph opset_import"),
    "cycle": (model(node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), RELU), "comes later or depends on it"),
    "made twice": (model(RELU, node("Neg", ["x"], ["y"])), "The model is invalid: Output 'y' is redeclared"),
    "inputs of one name": (
        model(RELU, inputs=[info("x"), info("x")]),
        r"repeated name: \(x\) in input list",
    ),
    "weights of one name": (model(ADD, weights=[ONE, ONE]), r"Duplicate graph initializer\(s\) \['w'\]"),
    "no such tensor": (model(node("Add", ["x", "w"], ["y"])), "'w', read by node 'Add': it is no input"),
    "output of nothing": (model(node("Relu", ["x"], ["z"])), "'y', read by an output of the graph"),
    "too few inputs": (model(node("Add", ["x"], ["y"])), "Add has 1 inputs; opset 13 has 2"),
    "too many inputs": (model(node("Relu", ["x", "x"], ["y"])), "Relu has 2 inputs; opset 13 has 1"),
    "too many outputs": (model(node("Relu", ["x"], ["y", "z"])), "Relu has 2 outputs; opset 13 has 1"),
    "type of attribute": (model(node("Softmax", ["x"], ["y"], axis=1.5)), "'axis' of type FLOAT; expected INT"),
    "no attribute": (model(node("Cast", ["x"], ["y"])), r"lacks the required attribute\(s\) \['to'\]"),
    "short typed data": (model(ADD, weights=[weight(float_data=[1, 2])]), "needs 6 elements, but holds 2"),
    "short raw data": (model(ADD, weights=[weight(raw_data=b"1234567")]), "needs 6 elements, but holds 1.75"),
    "data of another type": (model(ADD, weights=[weight(int64_data=[1] * 6)]), "of type FLOAT has data in int64_data"),
    "negative size": (model(ADD, weights=[weight(dims=[2, -3])]), r"invalid shape \[2, -3\]"),
    "branches": (
        model(node("If", ["c"], ["y"], then_branch=BODY, else_branch=TWO), inputs=FLAG),
        "If has 1 outputs, but its else_branch makes 2",
    ),
    "function that reads its caller's": (
        function(node("Add", ["a", "t"], ["b"])),
        r"Function 'F' of the domain 'l' reads 't' in node 'Add'; it takes \['a'\], and no node before makes it",
    ),
    "cycle in a function": (
        function(node("Add", ["a", "d"], ["c"]), node("Relu", ["c"], ["d"]), node("Neg", ["d"], ["b"])),
        "reads 'd' in node 'Add'",
    ),
    "recursion": (recursive(), "functions can't be inlined: Cyclic dependency"),
}


def session(source: onnx.ModelProto) -> None:
    flow = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")})
    popart.InferenceSession(source.SerializeToString(), flow, popart.DeviceManager().createIpuModelDevice({}))


@pytest.mark.parametrize("reader", [to_jax, backend.prepare, session])
@pytest.mark.parametrize("name", BROKEN)
def test_broken_models(name: str, reader: Callable[[onnx.ModelProto], object]) -> None:
    proto, message = BROKEN[name]
    with pytest.raises(popart_exception, match=message):
        reader(proto)


@pytest.mark.parametrize(
    ("inputs", "given", "what"), [(["x", "", "w"], SCALES, "scales"), (["x", "", "", "w"], SIZES, "sizes")]
)
def test_sizes_that_resize_to_nothing(inputs: list[str], given: onnx.TensorProto, what: str) -> None:
    made = model(node("Resize", inputs, ["y"]), weights=[given])
    fn, params = to_jax(made)
    with pytest.raises(popart_exception, match=f"{what} are greater than zero"):
        fn(params, X)
    with pytest.raises(popart_exception, match=f"{what} are greater than zero"):
        session(made)


def test_rules_that_only_onnx_has() -> None:
    """PopART keeps removed operators, and lets the body of a loop name tensors of the enclosing graph."""
    removed = model(node("Upsample", ["x", "w"], ["y"]), weights=[numpy_helper.from_array(np.ones(2, np.float32), "w")])
    with pytest.raises(popart_exception, match="Upsample was removed in opset 10"):
        to_jax(removed)
    session(removed)
    with pytest.raises(popart_exception, match="its body takes 3 inputs; it has 4"):
        to_jax(looped([*LOOP_INPUTS, info("v"), info("x2")]))


def test_nodes_may_come_before_what_they_read() -> None:
    """ONNX Runtime's float16 converter leaves its casts at the end, and its sessions sort."""
    branches = {
        "then_branch": helper.make_graph([node("Neg", ["a"], ["t"])], "t", [], [info("t")]),
        "else_branch": BODY,
    }
    made = model(node("If", ["c"], ["y"], **branches), node("Sub", ["x", "w"], ["a"]), inputs=FLAG, weights=[THREE])
    feeds = {"x": X, "c": np.array(True)}
    fn, params = to_jax(made)
    np.testing.assert_array_equal(fn(params, feeds)["y"], 2 * X)
    np.testing.assert_array_equal(backend.run_model(made, list(feeds.values()))[0], 2 * X)
    flow = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")})
    ready = popart.InferenceSession(made.SerializeToString(), flow, popart.DeviceManager().createCpuDevice())
    ready.prepareDevice()
    anchors = ready.initAnchorArrays()
    ready.run(popart.PyStepIO(feeds, anchors))
    np.testing.assert_array_equal(anchors["y"], 2 * X)


@pytest.mark.parametrize("text", [b"Relu", b"first"])
def test_names_that_are_no_text(text: bytes) -> None:
    data = model(node("Relu", ["x"], ["first"]), node("Neg", ["first"], ["y"])).SerializeToString()
    broken = data.replace(text, b"\xff" + text[1:])
    flow = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    for read in (to_jax, lambda m: popart.InferenceSession(m, flow, device)):
        with pytest.raises(popart_exception, match="no UTF-8 text"):
            read(broken)
    with pytest.raises((popart_exception, RuntimeError)):
        popart.Builder(broken)


def test_packed_halves_in_constants() -> None:
    """PopART copies memory: two halves in an entry of int32_data."""
    halves = np.array([1.5, -2, 3], np.float16)
    packed = np.append(halves, np.float16(0)).view(np.int32).tolist()
    value = onnx.TensorProto(data_type=TensorProto.FLOAT16, dims=[3], int32_data=packed)
    nodes = node("Constant", [], ["c"], value=value), node("Cast", ["c"], ["w"], to=TensorProto.FLOAT)
    made = model(*nodes, node("Add", ["x", "w"], ["y"]), opsets=(("", 10),), ir_version=4)
    fn, params = to_jax(made)
    np.testing.assert_array_equal(fn(params, {"x": X})["y"], X + halves)
    flow = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")})
    ready = popart.InferenceSession(made.SerializeToString(), flow, popart.DeviceManager().createCpuDevice())
    ready.prepareDevice()
    anchors = ready.initAnchorArrays()
    ready.run(popart.PyStepIO({"x": X}, anchors))
    np.testing.assert_array_equal(anchors["y"], X + halves)
    popart.Builder(made.SerializeToString())


def test_attributes_of_another_type() -> None:
    """ONNX has no schema for PopART's own operators, its builder knows what they take."""
    wrong = node("Scale", ["x"], ["y"], domain="ai.graphcore", scale=2)
    with pytest.raises(popart_exception, match="attribute 'scale' of type INT; expected FLOAT"):
        session(model(wrong, opsets=(("", 10), ("ai.graphcore", 1)), ir_version=4))


def test_the_transformer_looks_at_the_data_it_converts() -> None:
    short = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[], float_data=[1, 2, 3])
    made = model(ADD, weights=[short], opsets=(("", 10),), ir_version=4, inputs=[info("x"), info("w", ())])
    with pytest.raises((popart_exception, RuntimeError), match="3"):
        popart.GraphTransformer(made.SerializeToString()).convertFloatsToHalfs()


def test_attributes_that_the_operator_does_not_have() -> None:
    with pytest.raises(popart_exception, match="unknown attribute 'alhpa'"):
        to_jax(model(node("LeakyRelu", ["x"], ["y"], alhpa=0.5)))
    session(model(node("LeakyRelu", ["x"], ["y"], mine=0.5)))  # PopART's programs add attributes of their own


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "The file is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"),
        (model(ADD, weights=[ONE]).SerializeToString()[:-9], "cut short"),
        (b"PK\x03\x04" + bytes(99), "holds something else"),
    ],
)
def test_files_without_a_model(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(popart_exception, match=why):
        to_jax(path)
    with pytest.raises(popart_exception, match="It is a directory"):
        to_jax(tmp_path)
    with pytest.raises(popart_exception, match="Failed to load a ModelProto from the string"):
        to_jax(tmp_path / "none.onnx")
    with pytest.raises(popart_exception, match="not int"):
        to_jax(3)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "none.bin"}, "Unrecognised file name 'none.bin'"),
        ({"location": ""}, "No location information"),
        ({"location": "../w.bin"}, "outside the folder of the model"),
        ({"location": "/etc/hostname"}, "outside the folder of the model"),
        ({"location": "w.bin", "offset": "8"}, r"Invalid 'length' information \(24\)"),
        ({"location": "w.bin", "offset": "x"}, r"Invalid 'offset' information \(x\)"),
        ({"location": "w.bin", "offset": "-4"}, r"Invalid 'offset' information \(-4\)"),
        ({"location": "w.bin", "length": "8"}, r"Invalid 'length' information \(8\)"),
    ],
)
def test_external_data(tmp_path: Path, entries: dict[str, str], message: str) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    for place in (folder / "w.bin", tmp_path / "w.bin"):
        X.tofile(place)
    outside = weight(data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        outside.external_data.add(key=key, value=value)
    path = folder / "m.onnx"
    path.write_bytes(model(ADD, weights=[outside]).SerializeToString())
    with pytest.raises(popart_exception, match=message):
        to_jax(path)


def test_functions_of_another_opset_keep_its_rules() -> None:
    """Softmax of opset 11 runs over all dimensions from `axis` on, that of opset 13 over one."""
    made = model(node("F", ["x"], ["y"], domain="l"), opsets=(("", 13), ("l", 1)))
    old = [helper.make_opsetid("", 11)]
    calls = [node("Softmax", ["a"], ["b"], axis=0)]
    made.functions.append(helper.make_function("l", "F", ["a"], ["b"], calls, old))
    fn, params = to_jax(made)
    np.testing.assert_allclose(fn(params, {"x": X})["y"], np.full((2, 3), 1 / 6), rtol=1e-6)


def test_functions_may_pass_an_input_on() -> None:
    fn, params = to_jax(function(output="a"))
    np.testing.assert_array_equal(fn(params, {"x": X})["y"], np.maximum(X, 0))


FED = [
    (np.ones((2, 4), np.float32), r"shape \[2, 4\]; the model declares \[2, 3\]"),
    (np.ones(3, np.float32), r"shape \[3\]; the model declares"),
    (np.ones((2, 3), complex), "elements of type complex128"),
    (np.full((2, 3), "a", object), "elements of type object"),
]


@pytest.mark.parametrize(("array", "message"), FED)
def test_feeds_that_do_not_fit(array: np.ndarray, message: str) -> None:
    fn, params = to_jax(model(RELU))
    with pytest.raises(popart_exception, match=message):
        fn(params, {"x": array})


def test_whole_numbers_must_fit() -> None:
    fn, params = to_jax(model(RELU, opsets=(("", 14),), inputs=[info("x", kind=TensorProto.INT8)]))
    assert fn(params, {"x": np.full((2, 3), 7)})["y"].dtype == np.int8
    for bad in (np.full((2, 3), 300), np.full((2, 3), 0.5)):
        with pytest.raises(popart_exception, match="declares INT8, which can't hold them"):
            fn(params, {"x": bad})


def test_any_memory_layout_is_fine() -> None:
    fn, params = to_jax(model(RELU))
    values = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
    frozen = values.copy()
    frozen.flags.writeable = False
    for x in (values.astype(">f4"), np.asfortranarray(values), np.repeat(values, 2, 0)[::2], frozen):
        np.testing.assert_array_equal(fn(params, {"x": x})["y"], np.maximum(values, 0))


def test_programs_of_popart_read_its_text_of_a_missing_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("popart_jax.model.checks.signatures.imported_as_popart", lambda: True)
    with pytest.raises(popart_exception) as caught:
        session(model(node("Cast", ["x"], ["y"])))
    assert str(caught.value) == "no attribute key to"
    assert "lacks the required attribute(s) ['to']" in caught.value.__notes__[0]


def test_a_constant_without_a_value_says_so_wherever_it_is_read() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g(float[1,3,8,8] x) => (float[1,3,8,8] y) {
      w = Constant<value_float = 1.0>() c = Conv(x, w) b = Constant<value_float = 1.0>() y = Add(c, b) }"""
    proto = onnx.parser.parse_model(text)
    for one in proto.graph.node:
        del one.attribute[:]
    fn, params = to_jax(proto, trainable=())
    with pytest.raises(popart_exception, match="Constant takes exactly one value attribute, got 0"):
        fn(params, np.zeros((1, 3, 8, 8), np.float32))
