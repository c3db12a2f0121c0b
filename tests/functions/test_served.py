"""What the Builder writes is read by ONNX Runtime, PopART's own operators included."""

import jax
import numpy as np
import onnx
import pytest

import popart_jax as popart
from popart_jax.functions.served import inference_model, unknown_elsewhere
from popart_jax.model.files.load import load

runtime = pytest.importorskip("onnxruntime")

WEIGHT = np.arange(-6, 6, dtype=np.float32).reshape(4, 3)
BIAS = np.array([1, -2, 0.5], np.float32)
ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "leakyrelu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
}


def new(opset: int = 11) -> popart.Builder:
    return popart.Builder(opsets={"ai.onnx": opset, "ai.graphcore": 1})


def elsewhere(model: bytes, **feed) -> list[np.ndarray]:
    """What ONNX Runtime computes."""
    return runtime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("placed", [False, True])
def test_products_with_an_activation(activation, placed):
    """ONNX Runtime fuses the two, and refuses attributes of the activation that it does not know."""
    builder = new()
    x = builder.addInputTensor("FLOAT", [2, 4], "x")
    weight, bias = (builder.addInitializedInputTensor(w) for w in (WEIGHT, BIAS))
    out = getattr(builder.aiOnnx, activation)([builder.aiOnnx.gemm([x, weight, bias])])
    if placed:
        builder.virtualGraph(out, 0)
        builder.pipelineStage(out, 0)
    builder.addOutputTensor(out)
    model = builder.getModelProto()
    feed = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    (found,) = elsewhere(inference_model(model) if placed else model, x=feed)
    np.testing.assert_allclose(found, ACTIVATIONS[activation](feed @ WEIGHT + BIAS), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("layer", "gates"), [("rnn", 1), ("gru", 3), ("lstm", 4)])
def test_recurrent_layers_are_served_with_their_size(layer, gates):
    builder = new()
    x = builder.addInputTensor("FLOAT", [5, 1, 2], "x")
    shapes = (1, gates * 3, 2), (1, gates * 3, 3)
    weights = [builder.addInitializedInputTensor(np.full(s, 0.1, np.float32)) for s in shapes]
    (out,) = getattr(builder.aiOnnx, layer)([x, *weights], num_outputs=1)
    builder.addOutputTensor(out)
    model = inference_model(builder.getModelProto())
    assert elsewhere(model, x=np.ones((5, 1, 2), np.float32))[0].shape == (5, 1, 1, 3)


ODD = np.array([-88, -3.5, -2.5, -1, -1e-4, -1e-8, 0, 1e-8, 1e-3, 0.49999997, 0.5, 1.5, 2.5, 20, 80], np.float32)
ABOVE = np.concatenate([ODD[ODD > -1], [np.float32(-0.999)]])
SQUARE = np.arange(24, dtype=np.float32).reshape(1, 4, 2, 3) ** 2 - 50
BITS = np.array([0, 1, 6, 255], np.uint32), np.array([3, 1, 5, 254], np.uint32)
PAIR = np.array([-7.5, 7.5, -7.5, 7.5, 1], np.float32), np.array([2, 2, -2, -2, 3], np.float32)
FORMS = {
    "detach": ((ODD,), {}),
    "nop": ((ODD,), {}),
    "nearbyint": ((ODD,), {}),
    "round": ((ODD,), {}),
    "swish": ((ODD,), {}),
    "gelu": ((ODD,), {}),
    "geluerf": ((ODD,), {}),
    "expm1": ((ODD,), {}),
    "log1p": ((ABOVE,), {}),
    "scale": ((ODD,), {"scale": -0.3}),
    "scaledadd": (PAIR, {"scale0": 0.5, "scale1": -2.0}),
    "fmod": (PAIR, {}),
    "remainder": (PAIR, {}),
    "incrementmod": ((PAIR[0],), {"increment": 1.0, "modulus": 3.0}),
    "bitwisenot": (BITS[:1], {}),
    "bitwiseand": (BITS, {}),
    "bitwiseor": (BITS, {}),
    "bitwisexor": (BITS, {}),
    "bitwisexnor": (BITS, {}),
    "reshape": ((SQUARE,), {"shape": [2, -1]}),
    "slice": ((SQUARE,), {"starts": [1, 0], "ends": [3, 2], "axes": [1, 3]}),
    "reverse": ((SQUARE,), {"dimensions": [1, 3]}),
    "subsample": ((SQUARE,), {"strides": [1, 2, 2, 2]}),
    "depthtospace": ((SQUARE,), {"blocksize": 2, "mode": "CRD"}),
    "dynamicslice": ((SQUARE, np.array([1, 2], np.uint32)), {"axes": [1, 3], "sizes": [2, 1]}),
    "groupnormalization": ((SQUARE, ODD[2:6], ODD[3:7]), {"num_groups": 2}),
    "tensorremap": ((ODD,), {}),
    "printtensor": ((ODD,), {}),
}


def served(op: str, operands, attributes) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Results of ONNX Runtime for the exported file, and of this package for the original one."""
    builder = new(18 if op.startswith("bitwise") else 11)
    names = [builder.addInputTensor(popart.TensorInfo(x), f"x{i}") for i, x in enumerate(operands)]
    out = getattr(builder.aiGraphcore, op)(names[0] if op == "reshape" else names, **attributes)
    for name in [out] if isinstance(out, str) else out:
        builder.addOutputTensor(name)
    model = builder.getModelProto()
    exported, feed = inference_model(model), dict(zip(names, operands, strict=True))
    assert not unknown_elsewhere(load(exported))
    fn, params = popart.to_jax(model, trainable=[])
    return elsewhere(exported, **feed), [np.asarray(x) for x in fn(params, feed).values()]


@pytest.mark.parametrize("op", FORMS)
def test_operators_of_popart_in_onnx_words(op):
    found, ours = served(op, *FORMS[op])
    for one, other in zip(found, ours, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        atol = 1e-7 if op == "geluerf" else 1e-9  # 1 + erf cancels where ours has erfc
        rtol = 3e-6 if jax.default_backend() == "cpu" else 1e-5  # of tanh
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


@pytest.mark.parametrize("op", ["gelu", "scale", "expm1", "groupnormalization"])
def test_forms_hold_for_half_precision(op):
    operands, attributes = FORMS[op]
    found, ours = served(op, [np.clip(x, -10, 10).astype(np.float16) for x in operands], attributes)
    for one, other in zip(found, ours, strict=True):
        assert one.dtype == other.dtype == np.float16
        np.testing.assert_allclose(one, other, rtol=4e-3, atol=2e-3)


def test_the_command_names_what_has_no_form(tmp_path, capsys):
    builder = new()
    x = builder.addInputTensor("FLOAT", [4], "x")
    builder.addOutputTensor(builder.aiGraphcore.reducemedian([builder.aiGraphcore.swish([x])], axes=[0])[0])
    file = tmp_path / "model.onnx"
    builder.saveModelProto(str(file))
    from popart_jax.__main__ import main

    assert main(["export", str(file), str(tmp_path / "served.onnx")]) == 0
    told = (
        "other runtimes do not know ai.graphcore.ReduceMedian: ONNX has no words for them; --output says what to keep\n"
    )
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(
    ("opset", "norm", "drop"),
    [
        (15, "n, m1, v1 = BatchNormalization<training_mode=1>(x, s, b, m, v)", "d, mask = Dropout(n, , on)"),
        (13, "n, m1, v1, m2, v2 = BatchNormalization(x, s, b, m, v)", "d = Dropout(n, half, on)"),
        (9, "n, m1, v1, m2, v2 = BatchNormalization(x, s, b, m, v)", "d, mask = Dropout<ratio=0.5>(n)"),
    ],
)
def test_layers_of_a_file_that_trains_are_served_as_in_inference(opset, norm, drop):
    text = f'<ir_version: 8, opset_import: ["": {opset}]> g(float[4, 3] x) => (float[4, 3] d) {{ {norm} {drop} }}'
    model = onnx.parser.parse_model(text)
    of_batch_norm = {"s": [1, 2, 3], "b": [0, 1, 0], "m": [1, 0, -1], "v": [1, 4, 2]}
    scale, bias, mean, variance = (np.array(of_batch_norm[n], np.float32) for n in "sbmv")
    stored = {"s": scale, "b": bias, "m": mean, "v": variance, "half": np.float32(0.5), "on": np.bool_(True)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in stored.items())
    served = inference_model(model)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    (found,) = elsewhere(served, x=x)
    np.testing.assert_allclose(found, scale * (x - mean) / np.sqrt(variance + 1e-5) + bias, rtol=1e-5)
    assert "on" not in load(served).graph.initializers


def test_what_else_is_asked_of_a_layer_that_trains_stays():
    text = """<ir_version: 8, opset_import: ["": 15]> g(float[4, 3] x, bool on) => (float[4, 3] d, float[3] m1) {
        n, m1, v1 = BatchNormalization<training_mode=1>(x, s, b, m, v)
        d = Dropout(n, , on)
    }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.ones(3, np.float32), n) for n in "sbmv")
    served = load(inference_model(model)).graph
    assert [node.attributes.get_int("training_mode", 0) for node in served] == [1, 0]
    assert [v.name for v in served.inputs] == ["x", "on"]


def test_old_files_say_so_by_an_attribute():
    body = "n, m1, v1, m2, v2 = BatchNormalization<is_test=0>(x, s, b, m, v) d = Dropout<is_test=0>(n)"
    text = f'<ir_version: 3, opset_import: ["": 6]> g(float[4, 3] x) => (float[4, 3] d) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.ones(3, np.float32), n) for n in "sbmv")
    nodes = [*load(inference_model(model)).graph]
    assert [(node.attributes.get_int("is_test", 0), len(node.outputs)) for node in nodes] == [(1, 1), (1, 1)]
