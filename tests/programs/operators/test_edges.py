"""Ties, kinks, indices out of range and integer arithmetic: values and gradients as PopART has them."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax as popart

from .tester import GRADIENT, run

X = np.arange(1, 5, dtype=np.float32)


def i32(*values):
    return np.array(values, np.int32)


def u32(*values):
    return np.array(values, np.uint32)


def f32(*values):
    return np.array(values, np.float32)


def trained(program, *inputs):
    """Output and the gradients of the floating-point inputs, for a loss that is the sum of the output."""

    def build(b):
        names = [b.feed(x) for x in inputs]
        out = program(b, names)
        return [out, *(GRADIENT + n for n, x in zip(names, inputs, strict=True) if x.dtype.kind == "f")]

    return run(build, train=True)


def scattering(reduction, axis_size=5):
    return lambda b, n: b.aiGraphcore.scatterreduce(n, axis_size, 0, getattr(popart.ScatterReduction, reduction))


SRC, INDEX, START = f32(10, -20, 30, 10), i32(1, 2, 1, 1), f32(1, 2, 3, 4, 30)
CASES = {
    "gather past the end": (lambda b, n: b.aiOnnx.gather(n), (X, i32(0, 7, 1)), None, [[1, 1, 0, 0]]),
    "scatter": (
        lambda b, n: b.aiOnnx.scatter(n),
        (X, i32(-1, 9, 1), f32(10, 20, 30)),
        [1, 30, 3, 4],
        [[1, 0, 1, 1], [0, 0, 1]],
    ),
    "scatterelements": (
        lambda b, n: b.onnx(11).scatterelements(n),
        (X, i32(-1, 9, 1), f32(10, 20, 30)),
        [1, 30, 3, 4],
        [[1, 0, 1, 1], [0, 0, 1]],
    ),
    "scatterreduce out of range": (
        scattering("Sum", 4),
        (f32(10, 20, 30), i32(-1, 9, 1)),
        [0, 30, 0, 0],
        [[0, 0, 1]],
    ),
    "scatterreduce max": (scattering("Max"), (SRC, INDEX), [0, 30, -20, 0, 0], [[0, 1, 1, 0]]),
    "scatterreduce min, tied": (scattering("Min"), (SRC, INDEX), [0, 10, -20, 0, 0], [[1, 1, 0, 1]]),
    "scatterreduce mul": (scattering("Mul"), (SRC, INDEX), [1, 3000, -20, 1, 1], [[300, 1, 100, 300]]),
    "scatterreduce none": (scattering("NoReduction"), (SRC, INDEX), [0, 10, -20, 0, 0], [[1, 1, 1, 1]]),
    "scatterreduce sum, started": (
        scattering("Sum"),
        (SRC, INDEX, START),
        [1, 52, -17, 4, 30],
        [[1, 1, 1, 1], [1, 1, 1, 1, 1]],
    ),
    "scatterreduce max, started": (
        scattering("Max"),
        (SRC, INDEX, START),
        [1, 30, 3, 4, 30],
        [[0, 0, 1, 0], [1, 0, 1, 1, 1]],
    ),
    "scatterreduce mul, started": (
        scattering("Mul"),
        (SRC, INDEX, START),
        [1, 6000, -60, 4, 30],
        [[600, 3, 200, 600], [1, 3000, -20, 1, 1]],
    ),
    "scatterreduce none, started": (
        scattering("NoReduction"),
        (SRC, INDEX, START),
        [1, 10, -20, 4, 30],
        [[1, 1, 1, 1], [1, 0, 0, 1, 1]],
    ),
    "dynamicslice wraps": (
        lambda b, n: b.aiGraphcore.dynamicslice(n, [0], [3]),
        (X, u32(2)),
        [3, 4, 1],
        [[1, 0, 1, 1]],
    ),
    "dynamicupdate wraps": (
        lambda b, n: b.aiGraphcore.dynamicupdate(n, [0], [3]),
        (X, u32(2), f32(10, 20, 30)),
        [30, 2, 10, 20],
        [[0, 1, 0, 0], [1, 1, 1]],
    ),
    "dynamicadd wraps": (
        lambda b, n: b.aiGraphcore.dynamicadd(n, [0], [3]),
        (X, u32(2), f32(10, 20, 30)),
        [31, 2, 13, 24],
        [[1, 1, 1, 1], [1, 1, 1]],
    ),
    "dynamiczero wraps": (
        lambda b, n: b.aiGraphcore.dynamiczero(n, [0], [3]),
        (X, u32(2)),
        [0, 2, 0, 0],
        [[0, 1, 0, 0]],
    ),
    "remainder": (
        lambda b, n: b.aiGraphcore.remainder(n),
        (f32(5, -5, 7), f32(3, 3, -4)),
        [2, 1, -1],
        [[1, 1, 1], [1, 1, 1]],
    ),
    "mod of floats": (
        lambda b, n: b.aiOnnx.mod(n),
        (f32(5, -5, 7), f32(3, 3, -4)),
        [2, 1, -1],
        [[1, 1, 1], [1, 1, 1]],
    ),
    "max": (lambda b, n: b.aiOnnx.max(n), (X, X), X, [[1] * 4, [1] * 4]),
    "min": (lambda b, n: b.aiOnnx.min(n), (X, X), X, [[1] * 4, [1] * 4]),
    "reducemax": (lambda b, n: b.aiOnnx.reducemax(n, [0], 0), (np.ones(3, np.float32),), 1, [[1, 1, 1]]),
    "maxpool": (
        lambda b, n: b.aiOnnx.maxpool(n, 1, [2, 2])[0],
        (np.ones((1, 1, 2, 2), np.float32),),
        [[[[1]]]],
        [np.ones((1, 1, 2, 2))],
    ),
    "globalmaxpool": (
        lambda b, n: b.aiOnnx.globalmaxpool(n),
        (np.ones((1, 1, 2, 2), np.float32),),
        [[[[1]]]],
        [np.ones((1, 1, 2, 2))],
    ),
    "clip at its bounds": (
        lambda b, n: b.aiOnnx.clip(n, 2.0, 1.0),
        (f32(0, 1, 1.5, 2, 3),),
        [1, 1, 1.5, 2, 2],
        [[0, 0, 1, 0, 0]],
    ),
    "reduceprod with a zero": (lambda b, n: b.aiOnnx.reduceprod(n, [0], 0), (f32(0, 2, 3),), 0, [[6, 0, 0]]),
    "pow of a negative base": (
        lambda b, n: b.aiOnnx.pow(n),
        (f32(-2, 2), f32(2, 3)),
        [4, 8],
        [[-4, 12], [np.nan, 8 * np.log(2)]],
    ),
    "lower median": (
        lambda b, n: b.aiGraphcore.reducemedian(n, None, 0)[0],
        (np.array([[3, 1], [2, 4]], np.float32),),
        2,
        [[[0, 0], [1, 0]]],
    ),
    "relu": (lambda b, n: b.aiOnnx.relu(n), (f32(0),), [0], [[0]]),
    "abs": (lambda b, n: b.aiOnnx.abs(n), (f32(0),), [0], [[0]]),
    "leakyrelu": (lambda b, n: b.aiOnnx.leakyrelu(n), (f32(0, -1),), [0, -0.01], [[1, 0.01]]),
    "elu": (lambda b, n: b.aiOnnx.elu(n, 0.5), (f32(0),), [0], [[0.75]]),
    "selu": (lambda b, n: b.aiOnnx.selu(n), (f32(0),), [0], [[1.0507 * (1 + 1.67326) / 2]]),
    "hardsigmoid": (
        lambda b, n: b.aiOnnx.hardsigmoid(n),
        (f32(2.5, -3, 0, -2.5),),
        [1, 0, 0.5, 0],
        [[0.1, 0, 0.2, 0.1]],
    ),
    "shrink": (lambda b, n: b.aiOnnx.shrink(n, 0.0, 0.5), (f32(0.5, -0.5, 0, 1),), [0, 0, 0, 1], [[0.5, 0.5, 0, 1]]),
    "thresholdedrelu": (lambda b, n: b.aiOnnx.thresholdedrelu(n, 1.0), (f32(1, 2),), [0, 2], [[0, 1]]),
    "sqrt": (lambda b, n: b.aiOnnx.sqrt(n), (f32(0),), [0], [[np.inf]]),
    "reducel2 of zeros": (lambda b, n: b.aiOnnx.reducel2(n, [0], 0), (f32(0, 0),), 0, [[np.nan, np.nan]]),
    **{
        op: (lambda b, n, op=op: getattr(b.aiOnnx, op)(n), (f32(0.5),), [v], [[0]])
        for op, v in (("sign", 1), ("floor", 0), ("ceil", 1))
    },
    "onehot": (
        lambda b, n: b.aiOnnx.onehot([n[0], b.aiOnnx.constant(np.array(3)), n[1]]),
        (i32(-1, 5, 1), f32(2, 7)),
        [[2, 2, 2], [2, 2, 2], [2, 7, 2]],
        [[8, 1]],
    ),
    "nll of labels outside": (
        lambda b, n: b.aiGraphcore.nllloss(n, popart.ReductionType.NoReduction),
        (np.full((3, 2), 0.5, np.float32), i32(-1, 2, 1)),
        [-np.log(1e-7), -np.log(1e-7), np.log(2)],
        [[[0, 0], [0, 0], [0, -2]]],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case):
    program, inputs, value, gradients = CASES[case]
    out, *found = trained(program, *inputs)
    if value is not None:
        np.testing.assert_allclose(out, value, rtol=1e-6)
    for got, wanted in zip(found, gradients, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


INTEGERS = {
    "div": (lambda b, n: b.aiOnnx.div(n), [1, -1, -1]),
    "mod": (lambda b, n: b.aiOnnx.mod(n), [2, 1, -1]),
    "mod with fmod": (lambda b, n: b.aiOnnx.mod(n, 1), [2, -2, 3]),
    "fmod": (lambda b, n: b.aiGraphcore.fmod(n), [2, -2, 3]),
    "remainder": (lambda b, n: b.aiGraphcore.remainder(n), [2, 1, -1]),
    "incrementmod": (lambda b, n: b.aiGraphcore.incrementmod(n[:1], -2.0, 4.0), [3, -3, 1]),
    "scale": (lambda b, n: b.aiGraphcore.scale(n[:1], 2.0), [10, -10, 14]),
    "xor": (lambda b, n: b.aiGraphcore.bitwisexor(n), [6, -8, -5]),
    "xnor": (lambda b, n: b.aiGraphcore.bitwisexnor(n), [~6, 7, 4]),
    "matmul": (lambda b, n: b.aiOnnx.matmul(n), 15 - 15 - 28),
}


@pytest.mark.parametrize("case", INTEGERS)
def test_integers(case):
    program, wanted = INTEGERS[case]
    (out,) = run(lambda b: program(b, [b.feed(i32(5, -5, 7)), b.feed(i32(3, 3, -4))]))
    np.testing.assert_array_equal(out, wanted)
    assert out.dtype == np.int32


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        (lambda b, x: b.aiGraphcore.round(x), [1, 2, -3, -0.0]),
        (lambda b, x: b.onnx(11).round(x), [1, 2, -3, -0.0]),
        (lambda b, x: b.aiGraphcore.nearbyint(x), [0, 2, -2, -0.0]),
        (lambda b, x: b.aiOnnx.cast(x, "INT32"), [0, 1, -2, 0]),
        (lambda b, x: b.aiOnnx.cast(x, "BOOL"), [True, True, True, True]),
        (lambda b, x: b.aiOnnx.cast(x, "INT8"), [0, 1, -2, 0]),
    ],
)
def test_rounding(program, wanted):
    (out,) = run(lambda b: program(b, [b.feed(f32(0.5, 1.5, -2.5, -0.25))]))
    np.testing.assert_array_equal(out, wanted)


def test_bucketize_sides():
    build = lambda b: [  # noqa: E731
        b.aiGraphcore.bucketize([b.feed(f32(1, 2, np.nan, 9)), b.feed(f32(1, 2, 3))], right) for right in (0, 1)
    ]
    left, right = run(build)
    np.testing.assert_array_equal(left, [0, 1, 3, 3])
    np.testing.assert_array_equal(right, [1, 2, 3, 3])


def test_comparison_with_infinities_ignores_the_sign_attributes():
    (out,) = run(lambda b: b.aiOnnx.isinf([b.feed(f32(np.inf, -np.inf, np.nan))], 0, 0))
    np.testing.assert_array_equal(out, [True, True, False])


def test_no_gradient_tensor_where_the_operator_gives_none():
    regions = (np.ones((1, 1, 4, 4), np.float32), np.array([[0, 0, 2, 2]], np.float32), i32(0))
    for program, inputs in (
        (lambda b, n: b.aiOnnx.roialign(n, output_height=1, output_width=1, sampling_ratio=1), regions),
        (lambda b, n: b.aiOnnx.mod(n, 1), (X, X)),
        (lambda b, n: b.aiGraphcore.fmod(n), (X, X)),
    ):
        with pytest.raises(popart.popart_exception, match="Gradient___input/1' not in Ir Tensors"):
            trained(program, *inputs)


@pytest.mark.parametrize("train", [False, True])
def test_result_type_of_a_matrix_product(train):
    def build(b):
        x, y = b.feed(np.full((2, 3), 300, np.float16)), b.feed(np.full((3, 2), 300, np.float16))
        out = b.aiOnnx.matmul([x, y])
        b.addNodeAttribute("__output_type", "FLOAT", {out})
        return [out, *([GRADIENT + x] if train else [])]

    out, *gradient = run(build, train=train)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, np.full((2, 2), 270000))  # too large for 16 bits
    for g in gradient:
        assert g.dtype == np.float16
        np.testing.assert_array_equal(g, np.full((2, 3), 600))


@pytest.mark.parametrize("replicas", [1, 2])
def test_nothing_flows_back_between_replicas(replicas):
    def build(b):
        w = b.addInitializedInputTensor(np.ones(3, np.float32), "w")
        x = b.feed(np.ones(3, np.float32))
        out = b.aiGraphcore.replicatedallreduce([b.aiOnnx.add([w, x])])
        return [out, GRADIENT + w]

    if replicas == 1:
        out, gradient = run(build, train=True)
        np.testing.assert_array_equal(gradient, np.ones(3))
        np.testing.assert_array_equal(out, np.full(3, 2))
        return
    with pytest.raises(popart.popart_exception, match="Gradient___w' not in Ir Tensors"):
        run(build, train=True, options={"enableReplicatedGraphs": True, "replicatedGraphCount": replicas})
