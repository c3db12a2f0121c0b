"""The builder's shapes and types are those that sessions find, for every opset and for axes counted from the end."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax as popart

from .tester import Recorder, session_of

INDICES = {"ArgMax", "ArgMin", "TopK"}  # INT64 in ONNX, INT32 in sessions


def f(*shape):
    return np.linspace(0.1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def ints(n, *values):
    return n.constant(np.array(values, np.int64))


def floats(n, *values):
    return n.constant(np.array(values, np.float32))


ROIS = (f(1, 1, 4, 4), f(2, 4), np.zeros(2, np.int32))
LSTM = (f(3, 2, 4), f(1, 8, 4), f(1, 8, 2))
EVERY = range(6, 12)
PROGRAMS = [
    (EVERY, lambda n, i: n.squeeze(i, axes=[-1]), (f(1, 2, 1),)),
    (EVERY, lambda n, i: n.unsqueeze(i, axes=[-1]), (f(1, 2, 1),)),
    (EVERY, lambda n, i: n.unsqueeze(i, axes=[-2, 0]), (f(3, 2, 4),)),
    (EVERY, lambda n, i: n.reducesum(i, axes=[-1], keepdims=0), (f(3, 2, 4),)),
    (EVERY, lambda n, i: n.argmax(i, -1, 0), (f(3, 2, 4),)),
    (EVERY, lambda n, i: n.argmin(i, -2, 1), (f(3, 2, 4),)),
    (EVERY, lambda n, i: n.flatten(i, -1), (f(3, 2, 4),)),
    (EVERY, lambda n, i: n.concat(i, -2), (f(3, 2, 4), f(3, 1, 4))),
    (EVERY, lambda n, i: n.split(i, 2, -1), (f(3, 2, 4),)),
    (EVERY, lambda n, i: n.split(i, 2, -1, [1, 3]), (f(3, 2, 4),)),
    (EVERY, lambda n, i: n.gather(i, -1), (f(3, 2, 4), np.array([[0, 1]], np.int32))),
    (range(6, 10), lambda n, i: n.slice(i, [-1], [0], [-1]), (f(3, 2, 4),)),
    (range(10, 12), lambda n, i: n.slice([*i, ints(n, 0), ints(n, -1), ints(n, -1)]), (f(3, 2, 4),)),
    (range(6, 11), lambda n, i: n.pad(i, [-1, 0, 0, 0, 0, 1]), (f(3, 2, 4),)),
    (range(6, 10), lambda n, i: n.topk(i, 2, -1), (f(3, 2, 4),)),
    (range(10, 12), lambda n, i: n.topk([*i, ints(n, 2)], -1), (f(3, 2, 4),)),
    (EVERY, lambda n, i: n.dropout(i, 2), (f(3, 2),)),
    (EVERY, lambda n, i: n.lstm(i, 3), LSTM),
    (EVERY, lambda n, i: n.lstm(i, 1), LSTM),
    (EVERY, lambda n, i: n.gru(i, 2), (f(3, 2, 4), f(1, 6, 4), f(1, 6, 2))),
    (EVERY, lambda n, i: n.rnn(i, 2), (f(3, 2, 4), f(1, 2, 4), f(1, 2, 2))),
    (EVERY, lambda n, i: n.batchnormalization(i, 5), (f(3, 2, 4), f(2), f(2), f(2), f(2))),
    (EVERY, lambda n, i: n.convtranspose(i, strides=[2, 2]), (f(1, 2, 4, 4), f(2, 3, 3, 3))),
    (EVERY, lambda n, i: n.convtranspose(i, strides=[2, 2], output_shape=[8, 7]), (f(1, 2, 4, 4), f(2, 3, 3, 3))),
    (range(9, 10), lambda n, i: n.upsample([*i, floats(n, 1, 1, 2, 1.5)]), (f(1, 1, 4, 4),)),
    (range(10, 11), lambda n, i: n.resize([*i, floats(n, 1, 1, 2, 1.5)]), (f(1, 1, 4, 4),)),
    (range(11, 12), lambda n, i: n.resize([*i, "", floats(n, 1, 1, 2, 1.5)]), (f(1, 1, 4, 4),)),
    (range(11, 12), lambda n, i: n.resize([*i, "", "", ints(n, 1, 1, 8, 3)]), (f(1, 1, 4, 4),)),
    (range(10, 12), lambda n, i: n.roialign(i, output_height=2, output_width=3, sampling_ratio=1), ROIS),
    (range(10, 12), lambda n, i: n.reshape([*i, n.constant(np.array([4, 6], np.int32))]), (f(3, 2, 4),)),
]
CASES = [(opset, program, inputs) for opsets, program, inputs in PROGRAMS for opset in opsets]


@pytest.mark.parametrize(("opset", "program", "inputs"), CASES)
def test_shapes_while_building(opset, program, inputs):
    builder = Recorder()
    made = program(builder.onnx(opset), [builder.feed(x) for x in inputs])
    made = made if isinstance(made, list) else [made]
    session = session_of(builder, made)
    for name in made:
        assert builder.getTensorShape(name) == list(session.getInfo(name).shape())
        if name.partition(":")[0] not in INDICES:
            assert builder.getTensorDtypeString(name) == session.getInfo(name).data_type_lcase()


def test_whole_numbers_of_64_bits_stay_so():
    """ONNX's Max of opset 10 knows no integers; the operator is traced."""
    builder = Recorder()
    out = builder.aiOnnx.max([builder.feed(np.array([1, 2]))] * 2)
    assert (builder.getTensorShape(out), builder.getTensorDtypeString(out)) == ([2], "int64")
    assert session_of(builder, [out]).initAnchorArrays()[out].dtype == np.int64


def test_squeezing_a_counted_axis_is_no_identity():
    """A wrong shape here would make the pattern OpToIdentity remove the operator."""
    builder = Recorder()
    out = builder.aiOnnx.squeeze([builder.feed(f(1, 2, 1))], axes=[-1])
    session = session_of(builder, [out, popart.reservedGradientPrefix() + out], train=True)
    assert session.initAnchorArrays()[out].shape == (1, 2)


@pytest.mark.parametrize("build", [
    lambda b, x: b.aiOnnx.matmul([x, x]),
    lambda b, x: b.aiGraphcore.reshape(x, [-1, -1]),
    lambda b, x: b.aiOnnx.reshape([x, b.addInputTensor("INT64", [1])]),
])  # fmt: skip
def test_what_only_a_session_refuses_has_no_shape(build):
    builder = Recorder()
    out = build(builder, builder.feed(f(2, 3)))
    with pytest.raises(popart.popart_exception, match="is not an known tensor"):
        builder.getTensorShape(out)
