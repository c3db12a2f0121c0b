"""The channels-last pass keeps every value and name; work on weights alone moves out of the run."""

from __future__ import annotations

from typing import Any

import jax
import jax.extend
import numpy as np
import onnx
import onnx.helper as oh
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

import popart_jax
from popart_jax.lowering import Settings, evaluate
from popart_jax.lowering.on_load.hoist import split
from popart_jax.lowering.passes import channels_last
from popart_jax.model.files.load import load
from popart_jax.ops.kernels import tracing_for

from ..platforms import EXECUTED, ON_CPUS

OPSETS = {"": 11}


class Author:
    """Appends nodes and random weights; the last result is the output."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        value = np.abs(self.rng.normal(size=shape)) if len(shape) == 1 else self.rng.normal(size=shape) / 3
        self.weights.append(onnx.numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        names = [f"{kind}{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(oh.make_node(kind, inputs, names, name=names[0], **attributes))
        return names[0]

    def model(self, output: str, shape: tuple[int, ...] = (2, 3, 16, 16)) -> onnx.ModelProto:
        x = oh.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
        y = oh.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None)
        graph = oh.make_graph(self.nodes, "g", [x], [y], self.weights)
        return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 11)], ir_version=8)


def convolutional(a: Author) -> str:
    """Every operator the pass knows, a residual and a concatenation among them."""
    y = a.op("Conv", "x", a.weight(16, 3, 3, 3), a.weight(16), pads=[1] * 4, strides=[2, 2])
    y = a.op("BatchNormalization", y, *(a.weight(16) for _ in range(4)))
    y = a.op("Relu", y)
    z = a.op("MaxPool", y, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    z = a.op("Conv", z, a.weight(16, 1, 3, 3), pads=[1] * 4, group=16)
    z = a.op("Conv", z, a.weight(32, 8, 1, 3), auto_pad="SAME_UPPER", group=2)
    z = a.op("Conv", z, a.weight(16, 32, 1, 1))
    y = a.op("Add", y, z)
    y = a.op("Mul", y, a.weight(1, 16, 1, 1))
    y = a.op("Sub", y, a.weight(16, 1, 1))
    y = a.op("Concat", y, z, axis=-3)
    y = a.op("AveragePool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = a.op("Mul", y, a.op("Sigmoid", a.op("GlobalAveragePool", y)))
    return a.op("Flatten", y)


def in_other_ranks(a: Author, spatial: int) -> str:
    """The same with one or three spatial dimensions."""
    ones = (1,) * spatial
    y = a.op("Conv", "x", a.weight(6, 3, *(3 * n for n in ones)), a.weight(6), pads=[1, *ones[1:]] * 2)
    y = a.op("BatchNormalization", y, *(a.weight(6) for _ in range(4)))
    y = a.op("Conv", y, a.weight(6, 1, *(2 * n for n in ones)), group=6, strides=[2 * n for n in ones])
    y = a.op("MaxPool", a.op("Add", y, a.weight(6, *ones)), kernel_shape=[2] * spatial)
    y = a.op("Concat", y, a.op("Mul", y, a.weight(1, 6, *ones)), axis=1)
    y = a.op("AveragePool", y, kernel_shape=[2] * spatial)
    y = a.op("Relu", a.op("Conv", y, a.weight(4, 12, *ones)))
    return a.op("Concat", y, y, axis=-1)


def transposes_left(graph, output: str, x: np.ndarray, expected) -> list[tuple[int, ...]]:
    """Shapes of the transposes that every run makes; checks its result."""
    halves = split(two_arguments(graph, output, x), [True] * len(graph.initializers) + [False])
    assert halves is not None
    made = jax.jit(halves.early)(*jax.tree.leaves(weights_of(graph)))
    np.testing.assert_allclose(jax.jit(halves.late)(*made, x)[0], expected, rtol=1e-4, atol=1e-5)
    late = jax.make_jaxpr(halves.late)(*made, x)
    return [e.outvars[0].aval.shape for e in late.eqns if e.primitive.name == "transpose"]


@pytest.mark.parametrize("spatial", [1, 3])
def test_convolutions_of_other_ranks(spatial):
    author = Author()
    output = in_other_ranks(author, spatial)
    x = author.rng.normal(size=(2, 3, *[13] * spatial)).astype(np.float32)
    proto = author.model(output, x.shape)
    graph = load(proto).graph
    assert channels_last(graph)
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    shapes = transposes_left(graph, output, x, expected)
    assert len(shapes) == 2
    assert all(shape[0] == len(x) for shape in shapes)


def test_elementwise_operators_stay_in_layout():
    """Of one operand with parameters, of two and of three, whatever their names."""
    a = Author()
    scalars = {"lo": -0.5, "hi": 0.8, "zero": 0}
    a.weights += [onnx.numpy_helper.from_array(np.array(v, np.float32), n) for n, v in scalars.items()]
    y = a.op("Clip", a.op("Conv", "x", a.weight(4, 3, 3, 3)), "lo", "hi")
    y = a.op("Cos", y)
    y = a.op("Where", a.op("Greater", y, "zero"), y, a.op("PRelu", y, a.weight(1, 4, 1, 1)))
    output = a.op("AveragePool", y, kernel_shape=[2, 2])
    x = a.rng.normal(size=(2, 3, 16, 16)).astype(np.float32)
    proto = a.model(output)
    graph = load(proto).graph
    assert channels_last(graph)
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    assert len(transposes_left(graph, output, x, expected)) == 2


@pytest.mark.parametrize(
    ("kind", "attributes", "wholly"),
    [
        ("ReduceL1", {}, True),
        ("ReduceSumSquare", {"axes": [3, 0, -3, 2], "keepdims": 0}, True),
        ("ReduceMean", {"axes": [0, 1, 3]}, False),
    ],
)
def test_sums_of_all_elements_need_no_other_layout(kind, attributes, wholly):
    a = Author()
    output = a.op(kind, a.op("Sin", a.op("Conv", "x", a.weight(4, 3, 3, 3))), **attributes)
    x = a.rng.normal(size=(2, 3, 16, 16)).astype(np.float32)
    proto = a.model(output)
    graph = load(proto).graph
    assert channels_last(graph)
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    assert len(transposes_left(graph, output, x, expected)) == (1 if wholly else 2)


def quantised() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Operators on whole numbers and between quantisers, by one scale and by one a channel, of undeclared shapes."""
    text = """<ir_version: 9, opset_import: ["": 19]> g(float[2,3,9,8] x) => (y, b) {
        d = DequantizeLinear<axis=0>(w0, many, zeros) c = Conv<pads=[1,1,1,1]>(x, d)
        q = QuantizeLinear(c, s, z) p = MaxPool<kernel_shape=[2,2]>(q)
        a = QLinearConv<pads=[1,1,1,1]>(p, s, z, w1, many, zeros, t, z, bias) b = ConvInteger(a, w2, z)
        r = DequantizeLinear(a, t, z) k = QuantizeLinear<axis=1>(r, many, points)
        y = DequantizeLinear<axis=-3>(k, many, points) }"""
    rng, proto = np.random.default_rng(0), onnx.parser.parse_model(text)
    held: dict[str, Any] = {f"w{i}": rng.integers(-99, 99, s, np.int8) for i, s in enumerate(
        ((4, 3, 3, 3), (4, 4, 3, 3), (5, 4, 2, 2)))}  # fmt: skip
    held |= {"many": rng.uniform(0.01, 0.02, 4).astype(np.float32), "zeros": np.zeros(4, np.int8)}
    held |= {
        "s": np.float32(0.05),
        "t": np.float32(0.4),
        "z": np.uint8(120),
        "points": np.array([9, 99, 128, 200], np.uint8),
    }
    held |= {"bias": rng.integers(-999, 999, 4, np.int32)}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in held.items())
    return proto, {"x": rng.normal(size=(2, 3, 9, 8)).astype(np.float32)}


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # the reference pads bytes with NaN
@pytest.mark.parametrize("platform", EXECUTED)
def test_quantised_operators_stay_in_layout(platform):
    proto, feed = quantised()
    graph = load(proto).graph
    assert channels_last(graph)
    expected = ReferenceEvaluator(proto).run(None, feed)
    with tracing_for(platform):
        jitted = jax.jit(lambda feed: evaluate(graph, feed, ["y", "b"], Settings({"": 19})))
        found, traced = jitted(feed), jax.make_jaxpr(jitted)(feed)
    for name, wanted in zip(("y", "b"), expected, strict=True):
        np.testing.assert_allclose(found[name], np.asarray(wanted), rtol=1e-6)
    moved = [v.aval.shape for e in traced.jaxpr.eqns[0].params["jaxpr"].eqns if e.primitive.name == "transpose"
             for v in e.outvars if v.aval.shape[0] == 2]  # fmt: skip
    assert platform != "cpu" or len(moved) == 3  # the input and the two outputs


def test_elementwise_operators_on_whole_numbers_stay_in_layout():
    """Those that ONNX Runtime's quantiser writes."""
    text = """<ir_version: 8, opset_import: ["": 13, "com.microsoft": 1]> g(float[2,3,9,8] x) => (y) {
        c = Conv(x, w) q = QuantizeLinear(c, s, z) a = com.microsoft.QLinearSigmoid(q, s, z, t, z)
        b = com.microsoft.QLinearLeakyRelu<alpha=0.1>(q, s, z, s, z)
        d = com.microsoft.QLinearAdd(a, t, z, b, s, z, s, z) e = com.microsoft.QLinearMul(d, s, z, a, t, z, s, z)
        f = DequantizeLinear(e, s, z) y = AveragePool<kernel_shape=[2,2]>(f) }"""
    rng, proto = np.random.default_rng(0), onnx.parser.parse_model(text)
    held = {"w": rng.normal(size=(4, 3, 3, 3)), "s": 0.05, "t": 0.005}
    values = {n: np.asarray(v, np.float32) for n, v in held.items()} | {"z": np.asarray(120, np.uint8)}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in values.items())
    x, graph = rng.normal(size=(2, 3, 9, 8)).astype(np.float32), load(proto).graph
    assert channels_last(graph)
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    made = jax.make_jaxpr(lambda x: evaluate(graph, {"x": x}, ["y"], Settings({"": 13, "com.microsoft": 1})))(x)
    np.testing.assert_allclose(jax.jit(jax.extend.core.jaxpr_as_fun(made))(x)[0], expected, atol=0.051)
    moved = [e for e in made.jaxpr.eqns if e.primitive.name == "transpose" and e.outvars[0].aval.shape[0] == len(x)]
    assert len(moved) == 2


@pytest.fixture(scope="module")
def case():
    author = Author()
    output = convolutional(author)
    x = author.rng.normal(size=(2, 3, 16, 16)).astype(np.float32)
    return author.model(output), output, x


def weights_of(graph) -> dict[str, np.ndarray]:
    return {k: v.const_value.numpy() for k, v in graph.initializers.items()}


def run(graph, bindings, wanted):
    return jax.jit(lambda b: evaluate(graph, b, wanted, Settings(OPSETS)))(bindings)


def test_values_stay_and_inner_transposes_go(case):
    proto, output, x = case
    graph = load(proto).graph
    assert channels_last(graph)
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    bindings = {**weights_of(graph), "x": x}
    np.testing.assert_allclose(run(graph, bindings, [output])[output], expected, rtol=1e-4, atol=1e-5)
    transposed = transposes_left(graph, output, x, expected)
    assert len(transposed) == 2
    assert all(shape[0] == len(x) for shape in transposed)


def two_arguments(graph, output, x):
    def fn(weights, x):
        return evaluate(graph, {**weights, "x": x}, [output], Settings(OPSETS))[output]

    return jax.make_jaxpr(fn)(weights_of(graph), x)


def test_every_tensor_keeps_its_name_and_value(case):
    proto, _, x = case
    plain, laid_out = load(proto).graph, load(proto).graph
    channels_last(laid_out)
    wanted = [v.name for node in plain for v in node.outputs]
    bindings = {**weights_of(plain), "x": x}
    before, after = (run(graph, bindings, wanted) for graph in (plain, laid_out))
    for name in wanted:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_protected_tensor_is_what_its_consumers_read(case):
    proto, output, x = case
    probed = "Relu2_0"

    def gradient(graph):
        def loss(probe):
            settings = Settings(OPSETS, probes={probed: probe})
            return evaluate(graph, {**weights_of(graph), "x": x}, [output], settings)[output].sum()

        return jax.jit(jax.grad(loss))(np.zeros((2, 16, 8, 8), np.float32))

    plain, laid_out = load(proto).graph, load(proto).graph
    channels_last(laid_out, {probed})
    np.testing.assert_allclose(gradient(laid_out), gradient(plain), rtol=1e-4, atol=1e-5)


def test_a_graph_without_convolutions_is_left_alone():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> g(float[2,3,4,4] x) => (float[2,3,4,4] y) { y = Relu(x) }'
    )
    graph = load(model).graph
    assert not channels_last(graph)
    assert [n.op_type for n in graph] == ["Relu"]


BRANCHES = """<ir_version: 8, opset_import: ["": 13]>
g(float[1,3,8,8] x, bool c, float[4,3,3,3] w, float[4,4,1,1] v) => (float[1,4,8,8] z) {
    z = If(c) <
        then_branch = one() => (float[1,4,8,8] y) { a = Conv<pads = [1,1,1,1]>(x, w) r = Relu(a) y = Conv(r, v) },
        else_branch = two() => (float[1,4,8,8] y) { a = Conv<pads = [1,1,1,1]>(x, w) y = Neg(a) }
    >
}"""


@ON_CPUS
def test_branches_are_laid_out_and_their_weights_turned_when_they_are_loaded():
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model(BRANCHES)
    for name, shape in (("w", (4, 3, 3, 3)), ("v", (4, 4, 1, 1))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    del proto.graph.input[2:]
    x = rng.normal(size=(1, 3, 8, 8)).astype(np.float32)
    flow = popart_jax.DataFlow(1, {"z": popart_jax.AnchorReturnType("All")})
    device = popart_jax.DeviceManager().createCpuDevice()
    session = popart_jax.InferenceSession(proto.SerializeToString(), flow, device)
    session.prepareDevice()
    loaded = session._engine.programs[""]
    inside = {(node.domain, node.op_type) for graph in loaded.laid_out.program.graph.subgraphs() for node in graph}
    assert {kind for domain, kind in inside if domain == "popart_jax"} >= {"Conv"}
    assert loaded.laid_out.options
    turned = [one.parameters for one in loaded.executable.preparation.call.instructions if one.primitive == "transpose"]
    assert len(turned) >= 3
    for c in (True, False):
        out = session.initAnchorArrays()
        session.run(popart_jax.PyStepIO({"x": x, "c": np.array(c)}, out))
        (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x, "c": np.array(c)})
        np.testing.assert_allclose(out["z"], wanted, rtol=1e-4, atol=1e-5)


READERS = {
    "a product": "y = MatMul(a, v)",
    "a product with itself turned": "t = Transpose<perm=[0,1,3,2]>(a) y = MatMul(a, t)",
    "a product of two": "b = Conv(x, w) y = MatMul(a, b)",
    "softmax": "y = Softmax(a)",
    "layer norm": "y = LayerNormalization(a, s)",
    "sums of rows": "y = ReduceL2<axes=[3], keepdims=0>(a)",
    "places of maxima": "y = ArgMax<axis=1>(a)",
    "a running sum": "y = CumSum(a, last)",
    "einsum": 'y = Einsum<equation="bchw,wd->bdhc">(a, v)',
    "a slice": "y = Split<axis=1>(a)",
    "depth to space": "y = DepthToSpace<blocksize=2>(a)",
}


@pytest.mark.parametrize("name", READERS)
def test_what_knows_no_layout_reads_what_is_written(name: str) -> None:
    outputs = "(y, z)" if "Split" in READERS[name] else "(y)"
    nodes = READERS[name].replace("y = Split", "y, z = Split")
    head = '<ir_version: 8, opset_import: ["": 17]>'
    proto = onnx.parser.parse_model(f"{head} g (float[2,3,6,6] x) => {outputs} {{ a = Conv(x, w) {nodes} }}")
    rng = np.random.default_rng(0)
    for weight, shape in {"w": (4, 3, 1, 1), "v": (6, 5), "s": (6,)}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), weight))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.int64(3), "last"))
    x = rng.normal(size=(2, 3, 6, 6)).astype(np.float32)
    fn, params = popart_jax.to_jax(proto)
    wanted = ReferenceEvaluator(proto).run(None, {"x": x})
    for found, value in zip(jax.jit(fn)(params, {"x": x}).values(), wanted, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-4)
