"""Whole texts of calls at the wrong time, and of operators without a gradient or with wrong shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import popart_jax as popart

from . import nets

pytestmark = pytest.mark.usefixtures("popart_names")
All = popart.AnchorReturnType("All")


def session(training: bool = True, **options: Any) -> Any:
    proto, _ = nets.linear()
    if not training:
        return popart.InferenceSession(proto, nets.flow(1, {"loss": "All"}), nets.device())
    made = nets.make_options(**options)
    flow = nets.flow(1, {"loss": "All"})
    return popart.TrainingSession(proto, flow, "loss", popart.ConstSGD(0.1), nets.device(), userOptions=made)


def prepared(**options: Any) -> Any:
    made = session(**options)
    made.prepareDevice()
    return made


def step(made: Any, *handle: str) -> None:
    made.run(*handle, popart.PyStepIO({"x": np.ones(3, np.float32)}, made.initAnchorArrays()))


START = "Devicex::prepare() must be called before Devicex::"
RNG = "Trying to get the RNG state, but the session option enableLoadAndOffloadRNGState must be set to True."
CALLS: list[tuple[str, Callable[[], Any]]] = [
    (f"{START}weightsToHost(const std::map<TensorId, MutableVoidData> &) is called.",
     lambda: session().modelToHost("m.onnx")),
    (f"{START}run(const IStepIO &) is called.", lambda: step(session(training=False))),
    (RNG, lambda: prepared().getRNGState()),
    (f"{START}getRngStateToHost is called.", lambda: session(enableLoadAndOffloadRNGState=True).getRNGState()),
    (("Must call weightsFromHost before run as the model has initializers and the session has been created in training "
     "mode"), lambda: step(prepared())),
    (("Cannot call writeWeights when constantWeights is set. Set `constantWeights` to False in the `SessionOption`s "
     "when initialising the session to enable this behaviour."),
     lambda: session(training=False).writeWeights(popart.PyWeightsIO({"w": np.zeros(3, np.float32)}))),
    ("There is no executatable. Try calling Session::prepareDevice first.",
     lambda: session().resetHostWeights(other("w"))),
    ("sizes (in bytes) of src (12) and dst (16) differ in hostStreamToHost for w", lambda: read_too_much()),
    ("resetWeights, no tensor 'v' in tensors", lambda: prepared().resetHostWeights(other("v"))),
    ("Trying to reset weights using tensor with non matching tensor info. Tensor ID: w",
     lambda: prepared().resetHostWeights(other("w"))),
]  # fmt: skip


def read_too_much() -> None:
    made = prepared()
    made.weightsFromHost()
    made.weightsToHost()
    made.readWeights(popart.PyWeightsIO({"w": np.zeros(4, np.float32)}))


def other(name: str) -> bytes:
    b = popart.Builder()
    b.addOutputTensor(b.aiOnnx.relu([b.addInitializedInputTensor(np.zeros(4, np.float32), name)]))
    return b.getModelProto()


@pytest.mark.parametrize(("text", "call"), CALLS, ids=[f"{i}-{text[:40]}" for i, (text, _) in enumerate(CALLS)])
def test_calls(text, call):
    with pytest.raises(popart.popart_runtime_error) as caught:
        call()
    assert caught.value.args[0] == text


def test_an_unknown_program():
    made = prepared()
    made.weightsFromHost()
    with pytest.raises(popart.popart_exception) as caught:
        step(made, "nope")
    assert caught.value.args[0] == "[Devicex::run] Program nope not found."


def x(b: popart.Builder, *shape: int, kind: str = "FLOAT") -> str:
    return b.addInputTensor(kind, list(shape))


def norm(b: popart.Builder) -> Any:
    ones = [b.addInitializedInputTensor(np.ones(3, np.float32)) for _ in range(4)]
    return b.aiOnnx.batchnormalization([x(b, 2, 3, 4, 4), *ones], num_outputs=1)


def float8(b: popart.Builder) -> Any:
    scale = b.aiOnnx.constant(np.array(0, np.int32))

    def rounded(*shape: int) -> str:
        halves = b.addInitializedInputTensor(np.ones(shape, np.float16))
        return b.customOp("Pow2ScaleThenCast", 1, "ai.graphcore", [halves, scale], {"to": "FLOAT8_143"}, 1)[0]

    return b.aiOnnx.conv([rounded(1, 2, 4, 4), rounded(3, 2, 3, 3), scale])


EIGHT = ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz
MATMUL = "Op(ai.onnx.MatMul:9, inputs=[x, y{}], outputs=[MatMul:0])"
CONV = "Op(ai.onnx.Conv:1, inputs=[x, y, Constant:0], outputs=[Conv:0])"
HALF = {"__partials_type": "half"}


def product(
    op: str, attributes: dict[str, str], kinds: str = "FLOAT8_143 FLOAT8_152", *, scaled: bool = True
) -> popart.InferenceSession:
    """A product of float8 inputs ``x`` and ``y``, times 1/4."""
    images = [1, 2, 4, 4]
    shapes = {"MatMul": ([2, 3], [3, 2]), "Conv": (images, [3, 2, 3, 3]), "ConvTranspose": (images, [2, 3, 3, 3])}[op]
    b = popart.Builder()
    operands = [b.addInputTensor(kind, s, n) for kind, s, n in zip(kinds.split(), shapes, "xy", strict=True)]
    scale = [b.aiOnnx.constant(np.array(-2, np.int32))] if scaled else []
    out = b.customOp(op, 10, "ai.onnx", [*operands, *scale], attributes, 1)[0]
    flow, device = popart.DataFlow(1, {out: popart.AnchorReturnType("All")}), popart.DeviceManager().createCpuDevice()
    return popart.InferenceSession(b.getModelProto(), flow, device)


@pytest.mark.parametrize("op", ["MatMul", "Conv", "ConvTranspose"])
def test_products_of_float8_have_a_scale(op: str) -> None:
    session, rng = product(op, HALF), np.random.default_rng(1)
    session.prepareDevice()
    x, y = (rng.normal(size=session.getInfo(n).shape()).astype(kind) for n, kind in zip("xy", EIGHT, strict=True))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": x.view(np.uint8), "y": y.view(np.uint8)}, anchors))
    wide = [t.astype(np.float64) for t in (x, y)]
    if op == "MatMul":
        want = wide[0] @ wide[1]
    elif op == "Conv":
        windows = np.lib.stride_tricks.sliding_window_view(wide[0][0], (3, 3), axis=(1, 2))
        want = np.einsum("cijkl,mckl->mij", windows, wide[1])[None]
    else:
        want = np.zeros((1, 3, 6, 6))
        for i, j in np.ndindex(4, 4):
            want[0, :, i : i + 3, j : j + 3] += np.einsum("c,cmkl->mkl", wide[0][0, :, i, j], wide[1])
    (found,) = anchors.values()
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(float), want / 4, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize(("text", "arguments"), [
    (f"Log2 scale input tensor must be provided for FLOAT8 input types in op {MATMUL.format('')}",
     ("MatMul", HALF, "FLOAT8_143 FLOAT8_143", False)),
    (f"Log2 scale input tensor not accepted for non-FLOAT8 input types in op {MATMUL.format(', Constant:0')}",
     ("MatMul", {}, "FLOAT16 FLOAT16")),
    ((f"Invalid operand type: FLOAT in op {MATMUL.format(', Constant:0')}.  If using a FLOAT8 input, all op operands "
     "must be a FLOAT8 type"), ("MatMul", HALF, "FLOAT8_143 FLOAT")),
    (f"Invalid operand type: FLOAT16 in op {CONV}.  If using a FLOAT8 input, all op operands must be a FLOAT8 type",
     ("Conv", HALF, "FLOAT16 FLOAT8_152")),
    ("Invalid output type: float32. Output type must be float16 for FLOAT8_* matmul operands. ",
     ("MatMul", {**HALF, "__output_type": "FLOAT"})),
    (("Invalid partials type: MatMulPartialsType::FLOAT. Partials type must be MatMulPartialsType::HALF for FLOAT8_* "
     "matmul operands. "), ("MatMul", {})),
    ("Invalid partials type: float. Partials type must be half for FLOAT8 conv operand types. ",
     ("Conv", {"__partials_type": "float"})),
])  # fmt: skip
def test_products_of_float8_are_refused(text: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(popart.popart_exception) as caught:
        product(*arguments[:3], **({"scaled": False} if len(arguments) > 3 else {}))
    assert caught.value.args[0] == text


NO_GRADIENT = "PopART does not have a valid grad op corresponding to "
GRADIENTS: list[tuple[str, Callable[[popart.Builder], Any]]] = [
    (('BatchNorm Op "0 (ai.onnx.BatchNormalization:9)" has 1 output(s) which means it is in inference mode, but its '
     "gradient Op is being created. To use the BatchNorm Op in inference mode during training, it has to be detached "
     "first."), norm),
    ('At this time, PopART does not support PadGradOp when mode is not "constant".',
     lambda b: b.aiOnnx.pad([x(b, 4)], [1, 1], mode="edge")),
    (("Floating point 8 is not supported for training. This is for op Op(ai.onnx.Conv:1, "
     "inputs=[Pow2ScaleThenCast:0, Pow2ScaleThenCast:0/1, Constant:0], outputs=[Conv:0])."), float8),
    ("Grad op has not been implemented for SquareOp",
     lambda b: b.customOp("Square", 1, "ai.graphcore", [x(b, 2)], {}, 1)),
    (f"{NO_GRADIENT}EqualOp", lambda b: b.aiOnnx.equal([x(b, 2), x(b, 2)])),
    (f"{NO_GRADIENT}BitwiseBinaryOp", lambda b: b.aiGraphcore.bitwiseand([x(b, 2, kind="INT32")] * 2)),
    (f"{NO_GRADIENT}BitwiseNotOp", lambda b: b.aiGraphcore.bitwisenot([x(b, 2, kind="INT32")])),
    (f"{NO_GRADIENT}NotOp", lambda b: b.aiOnnx.logical_not([x(b, 2, kind="BOOL")])),
]  # fmt: skip


@pytest.mark.parametrize(("text", "build"), GRADIENTS, ids=[text[:60] for text, _ in GRADIENTS])
def test_operators_without_a_gradient_are_refused_when_a_session_is_made(text, build):
    b = popart.Builder()
    made = build(b)
    loss = b.aiGraphcore.identityloss([made if isinstance(made, str) else made[0]])
    with pytest.raises(popart.popart_exception) as caught:
        popart.TrainingSession(b.getModelProto(), popart.DataFlow(1, {}), loss, popart.ConstSGD(0.1), nets.device())
    assert caught.value.args[0] == text


SHAPES: list[tuple[str, Callable[[popart.Builder], Any]]] = [
    ("Bad weights shape 1, should be [4 6 2]",
     lambda b: b.aiGraphcore.lstm([x(b, 3, 2, 4), x(b, 4, 5, 2), x(b, 4, 2)])),
    (("Unexpected number of channels in the input tensor: 2. Given non-transposed weight tensor of shape [3 2 3 3], "
     "transposed convolution expects input tensor of size [1 2 4 4] to have 3 channels."),
     lambda b: b.aiOnnx.convtranspose([x(b, 1, 2, 4, 4), x(b, 3, 2, 3, 3)])),
    (("Failure in BasePadOp::runtimeConfirmShapes, for 0 (ai.onnx.Pad:11). This with pads of size 3, and input tensor "
     "of rank 1. Expected pads to be exactly 2x the unput Tensor's rank. "),
     lambda b: b.aiOnnxOpset11.pad([x(b, 4), b.aiOnnxOpset11.constant(np.array([1, 1, 1]))])),
]  # fmt: skip


@pytest.mark.parametrize(("text", "build"), SHAPES, ids=[text[:40] for text, _ in SHAPES])
def test_shapes(text, build):
    b = popart.Builder()
    made = build(b)
    out = made if isinstance(made, str) else made[0]
    with pytest.raises(popart.popart_exception) as caught:
        popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, {out: All}), nets.device())
    assert caught.value.args[0] == text
