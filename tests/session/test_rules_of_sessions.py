"""Models that PopART refuses and `to_jax` computes: the error says so, and it is true."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import pytest

import popart_jax as popart

from . import nets

pytestmark = pytest.mark.usefixtures("popart_names")

IMAGE = "(float[1,1,4,4] x) => (float[{out}] y) <float[1,1,4,4] w = {{1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}}, {more}>"
ROWS = "(float[2,2] x) => (float[{out}] y) <float[2,2] w = {{1,2,3,4}} {more}>"
SEQUENCE = "(float[3,1,2] x) => (float[3,2,1,1] y) <float[2,{k},2] w, float[2,{k},1] r>"
SCALES = "float[0] roi = {}, float[4] s = {1,1,2,2}"
NORM = "float[1] s = {1}, float[1] b = {0}, float[1] m = {0}, float[1] v = {1}"
PADDED = "p = Constant<value_ints = [1,1,1,1]>() "
CASES: dict[str, str] = {
    "Resize": IMAGE.format(out="1,1,8,8", more=SCALES) + '{ h = Add(x, w) y = Resize<mode = "linear">(h, roi, s) }',
    "BatchNormalization": IMAGE.format(out="1,1,4,4", more=NORM)
    + "{ h = Add(x, w) y = BatchNormalization(h, s, b, m, v) }",
    "Pad": ROWS.format(out="4,4", more="") + "{ h = MatMul(x, w) " + PADDED + 'y = Pad<mode = "reflect">(h, p) }',
    "LSTM": SEQUENCE.format(k=4) + '{ y = LSTM<hidden_size = 1, direction = "bidirectional">(x, w, r) }',
    "GRU": SEQUENCE.format(k=3) + '{ y = GRU<hidden_size = 1, direction = "bidirectional">(x, w, r) }',
    "RNN": SEQUENCE.format(k=1) + '{ y = RNN<hidden_size = 1, direction = "bidirectional">(x, w, r) }',
    "MaxPool": IMAGE.format(out="1,1,3,3", more=NORM)
    + "{ h = Mul(x, w) y = MaxPool<kernel_shape = [2,2], dilations = [2,2]>(h) }",
    "AveragePool": IMAGE.format(out="1,1,5,5", more=NORM)
    + "{ h = Mul(x, w) y = AveragePool<kernel_shape = [2,2], pads = [1,1,1,1], count_include_pad = 1>(h) }",
    "bfloat16": ROWS.format(out="2,2", more="").replace("float[", "bfloat16[") + "{ y = MatMul(x, w) }",
    "double": ROWS.format(out="2,2", more="").replace("float[", "double[") + "{ y = MatMul(x, w) }",
}


def model_of(name: str) -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["": 13]> g {CASES[name]}'
    for size in (1, 3, 4):
        numbers = [f"{{{','.join(str(i % 5 / 5) for i in range(2 * size * k))}}}" for k in (2, 1)]
        text = text.replace(f"<float[2,{size},2] w, float[2,{size},1] r>",
                            f"<float[2,{size},2] w = {numbers[0]}, float[2,{size},1] r = {numbers[1]}>")  # fmt: skip
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize("name", CASES)
def test_what_only_sessions_refuse_is_said_to_be_taken_by_to_jax_and_is(name: str) -> None:
    model = model_of(name)
    builder = popart.Builder(model.SerializeToString())
    loss = builder.aiGraphcore.identityloss(["y"])
    with pytest.raises(popart.popart_exception) as caught:
        nets.train(builder.getModelProto(), {loss: "All"}, nets.sgd(), loss=loss)
    assert any("popart_jax.to_jax takes the model" in note for note in caught.value.__notes__)
    fn, params = popart.to_jax(model)
    declared = model.graph.input[0].type.tensor_type
    x = np.ones([d.dim_value for d in declared.shape.dim], onnx.helper.tensor_dtype_to_np_dtype(declared.elem_type))

    def loss_of(p: Any) -> Any:
        return fn(p, x)["y"].astype(np.float32).sum()

    gradients = fn.exactly(jax.grad(loss_of))(params)
    assert all(np.isfinite(np.asarray(g, np.float32)).all() for g in gradients.values())


def test_what_both_refuse_is_not_said_to_be_taken() -> None:
    model = nets.model("g (float[2,2] x) => (float[2,2] y) { y = MatMul(x, w) }", w=np.ones((3, 2), np.float32))
    with pytest.raises(popart.popart_exception) as caught:
        nets.infer(model, {"y": "All"})
    assert not any("to_jax" in note for note in getattr(caught.value, "__notes__", []))
