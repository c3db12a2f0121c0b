"""Rules of PopART's operators that differ from ONNX's, by small sessions."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import popart_jax as popart

from .tester import GRADIENT, Recorder, run

OPSET_9 = {"ai.onnx": 9, "ai.graphcore": 1}
rng = np.random.default_rng(3)


def f32(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def gradients(out, *names):
    return [out, *(GRADIENT + n for n in names)]


def _scan(b: Recorder, rows: np.ndarray, **attributes) -> list[str]:
    """A body that adds the rows up and yields the sum so far."""
    row = np.delete(np.array(rows.shape), attributes.get("scan_input_axes", [0])[0]) if rows.ndim > 1 else [1]
    total = b.feed(np.zeros(row, np.float32))
    body = b.createSubgraphBuilder()
    x, y = body.addUntypedInputTensor("a"), body.addUntypedInputTensor("b")
    new = body.aiOnnx.add([x, y])
    body.addOutputTensor(new)
    body.addOutputTensor(body.aiOnnx.identity([new]))
    return b.aiOnnx.scan([total, b.feed(rows)], 2, body, 1, **attributes)


def test_scan_joins_its_outputs_end_to_end():
    rows = f32(3, 2)
    final, sums = run(lambda b: _scan(b, rows), OPSET_9)
    np.testing.assert_allclose(final, rows.sum(0), rtol=1e-6)
    np.testing.assert_allclose(sums, np.cumsum(rows, 0).ravel(), rtol=1e-6)


def test_scan_joins_along_the_output_axis():
    rows = f32(3, 2, 4)
    sums = run(lambda b: _scan(b, rows, scan_output_axes=[-1]), OPSET_9)[1]
    np.testing.assert_allclose(sums, np.concatenate(np.cumsum(rows, 0), -1), rtol=1e-6)


def test_scan_hands_over_elements_of_vectors_with_shape_one():
    rows = f32(5)
    final, sums = run(lambda b: _scan(b, rows, scan_output_directions=[1]), OPSET_9)
    assert final.shape == (1,)
    np.testing.assert_allclose(sums, np.cumsum(rows)[::-1], rtol=1e-6)


@pytest.mark.parametrize("first", [True, False])
def test_mul_lets_one_single_precision_element_scale_halves(first):
    factor, halves = np.array([1.5], np.float32), f32(2, 3).astype(np.float16)

    def program(b):
        names = [b.feed(factor), b.feed(halves)]
        return gradients(b.aiOnnx.mul(names if first else names[::-1]), *names)

    out, to_factor, to_halves = run(program, train=True)
    assert (out.dtype, to_factor.dtype, to_halves.dtype) == (np.float16, np.float32, np.float16)
    np.testing.assert_allclose(out, halves * np.float16(1.5), rtol=1e-3)
    np.testing.assert_allclose(to_factor, [halves.astype(np.float32).sum()], rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(to_halves, np.full((2, 3), 1.5))


def test_slopes_of_powers_at_zero():
    x = np.array([0, 0, 2, np.inf, 0, 3], np.float32)
    y = np.array([0, 2, 0, 0, 1, 2], np.float32)

    def program(b):
        names = [b.feed(x), b.feed(y)]
        return gradients(b.aiOnnx.pow(names), *names)

    _, to_x, to_y = run(program, train=True)
    np.testing.assert_allclose(to_x, [0, 0, 0, 0, 1, 6], rtol=1e-6)
    np.testing.assert_allclose(to_y[[0, 1, 2, 4, 5]], [0, 0, np.log(2), 0, 9 * np.log(3)], rtol=1e-6)


REDUCTIONS = {
    "reducesum": lambda x: x,
    "reducemean": lambda x: x,
    "reducemax": lambda x: x,
    "reduceprod": lambda x: x,
    "reducel1": np.abs,
    "reducel2": np.abs,
    "reducesumsquare": np.square,
    "reducelogsumexp": lambda x: x,
}


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
def test_an_empty_list_of_axes_reduces_nothing(name):
    x = f32(2, 3)
    (out,) = run(lambda b: getattr(b.aiOnnx, name)([b.feed(x)], axes=[], keepdims=0))
    np.testing.assert_allclose(out, REDUCTIONS[name](x), rtol=1e-5)


def test_patterns_see_the_shapes_of_popart_where_onnx_infers_others():
    """ONNX takes an empty list for all axes, so the second reduction would look like one of a scalar."""

    def program(b):
        return b.aiOnnx.reducesum([b.aiOnnx.reducel1([b.feed(np.ones((2, 3), np.float32))], axes=[], keepdims=0)])

    np.testing.assert_array_equal(run(program), [[[6]]])


@pytest.mark.parametrize("name", ["reducel1", "l1loss"])
def test_the_absolute_value_has_no_slope_at_zero(name):
    x = np.array([-2, 0, 3], np.float32)

    def program(b):
        fed = b.feed(x)
        made = b.aiGraphcore.l1loss([fed], 1.0, popart.ReductionType.Sum) if name == "l1loss" else None
        return gradients(made or b.aiOnnx.reducel1([fed], axes=[0]), fed)

    np.testing.assert_array_equal(run(program, train=True)[1], [-1, 0, 1])


def test_scatter_writes_the_block_of_its_indices():
    data, updates = f32(4, 5), f32(3, 4)
    index = np.array([[2, 0], [1, 3]], np.int32)
    (out,) = run(lambda b: b.onnx(9).scatter([b.feed(data), b.feed(index), b.feed(updates)]))
    expected = data.copy()
    for r, c in np.ndindex(2, 2):
        expected[index[r, c], c] = updates[r, c]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("vector", [True, False])
def test_scatterreduce_reduces_into_a_block_of_the_initial_values(vector):
    src, start = f32(3, 2, 4), f32(5, 6, 7)
    index = rng.integers(0, 6, 2).astype(np.int32) if vector else rng.integers(0, 6, src.shape).astype(np.int32)
    whole = np.broadcast_to(index[None, :, None], src.shape) if vector else index
    expected = start.copy()
    for i in np.ndindex(*src.shape):
        expected[i[0], whole[i], i[2]] += src[i]

    def program(b):
        names = [b.feed(src), b.feed(index), b.feed(start)]
        return gradients(b.aiGraphcore.scatterreduce(names, axis_size=6, axis=1), names[0], names[2])

    out, to_src, to_start = run(program, train=True)
    np.testing.assert_allclose(out, expected, rtol=1e-5)
    np.testing.assert_array_equal(to_src, np.ones_like(src))
    np.testing.assert_array_equal(to_start, np.ones_like(start))


def test_an_index_of_few_dimensions_gets_unit_dimensions_at_the_end():
    src, index = f32(3, 4), np.array([[2], [0], [1]], np.int32)
    (out,) = run(lambda b: b.aiGraphcore.scatterreduce([b.feed(src), b.feed(index)], axis_size=3, axis=0))
    np.testing.assert_allclose(out, src[[1, 2, 0]], rtol=1e-6)


@pytest.mark.parametrize("alone", [0, 1])
def test_dynamicupdate_of_separate_slices_leaves_the_gradient_as_it_is(alone):
    x, part = f32(6), f32(2)

    def program(b):
        names = [b.feed(x), b.feed(part)]
        offset = b.feed(np.array([2], np.uint32))
        out = b.aiGraphcore.dynamicupdate([names[0], offset, names[1]], axes=[0], sizes=[2], noOverlap=alone)
        return gradients(out, *names)

    out, to_x, to_part = run(program, train=True)
    np.testing.assert_array_equal(out, [*x[:2], *part, *x[4:]])
    np.testing.assert_array_equal(to_x, np.ones(6) if alone else [1, 1, 0, 0, 1, 1])
    np.testing.assert_array_equal(to_part, [1, 1])


@pytest.mark.parametrize("alone", [0, 1])
def test_the_last_of_slices_that_promise_not_to_overlap_has_the_gradient(alone):
    x, factors, starts = f32(3, 7), f32(3, 3, 4), (0, 3, 2)

    def program(b):
        name = b.feed(x)
        parts = [
            b.aiGraphcore.dynamicslice([name, b.feed(np.array([at], np.uint32))], [1], [4], noOverlap=alone)
            for at in starts
        ]
        return gradients(
            b.aiOnnx.sum([b.aiOnnx.mul([p, b.feed(f)]) for p, f in zip(parts, factors, strict=True)]), name
        )

    expected = np.zeros_like(x)
    for at, factor in zip(starts, factors, strict=True):
        expected[:, at : at + 4] = factor + (0 if alone else expected[:, at : at + 4])
    out, to_x = run(program, train=True)
    np.testing.assert_allclose(
        out, sum(x[:, at : at + 4] * f for at, f in zip(starts, factors, strict=True)), rtol=1e-5
    )
    np.testing.assert_allclose(to_x, expected, rtol=1e-6)


def test_only_the_block_of_the_indices_has_a_gradient_in_updates_of_a_scatter():
    data, updates, index = f32(3, 5), f32(3, 4), np.array([[0, 4], [2, 3]], np.int32)

    def program(b):
        name = b.feed(updates)
        return gradients(b.aiOnnx.scatter([b.feed(data), b.feed(index), name], axis=1), name)

    expected = data.copy()
    np.put_along_axis(expected[:2], index, updates[:2, :2], 1)
    out, to_updates = run(program, {"ai.onnx": 10, "ai.graphcore": 1}, train=True)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(to_updates, np.ones((2, 2)))


@pytest.mark.parametrize(
    ("mode", "coordinates", "places"),
    [
        (None, None, [0, 0, 1, 1, 2, 2]),
        ("ceil", "asymmetric", [0, 1, 1, 2, 2, 2]),
        ("floor", None, [0, 0, 0, 1, 1, 2]),
    ],
)
def test_resize_of_opset_10_reads_attributes_that_its_schema_lacks(mode, coordinates, places):
    x = f32(1, 1, 3)

    def program(b):
        out = b.aiOnnx.resize([b.feed(x), b.aiOnnx.constant(np.array([1, 1, 2], np.float16))])
        for name, value in (("nearest_mode", mode), ("coordinate_transformation_mode", coordinates)):
            if value is not None:
                b.addNodeAttribute(name, value, {out})
        return out

    np.testing.assert_array_equal(run(program)[0], x[:, :, places])


def test_dynamicslice_takes_the_shape_of_a_third_input():
    x = f32(3, 4)

    def program(b):
        offset = b.feed(np.array([1], np.uint32))
        like = b.aiGraphcore.init([4], popart.DataType.FLOAT, popart.InitType.Zero)
        return b.aiGraphcore.dynamicslice([b.feed(x), offset, like], axes=[0], sizes=[1])

    np.testing.assert_array_equal(run(program)[0], x[1])


def test_each_convolution_of_a_multiconv_has_its_own_options(monkeypatch, capsys):
    monkeypatch.setenv("POPLIBS_LOG_LEVEL", "DEBUG")
    groups = [[f32(1, 2, 4, 4), f32(3, 2, 3, 3)], [f32(1, 1, 5, 5), f32(2, 1, 1, 1)]]

    def program(b):
        names = [[b.feed(x) for x in group] for group in groups]
        return b.aiGraphcore.multiconv(names, availableMemoryProportions=[0.9, 0.25], enableConvDithering=[0, 1])

    assert [x.shape for x in run(program)] == [(1, 3, 2, 2), (1, 2, 5, 5)]
    shown = dict.fromkeys(("availableMemoryProportion", "enableConvDithering"), "")
    for name, value in (line.split() for line in capsys.readouterr().err.splitlines() if line.startswith("    ")):
        shown[name] = f"{shown.get(name, '')} {value}"
    assert (shown["availableMemoryProportion"], shown["enableConvDithering"]) == (" 0.9 0.25", " 0 1")


@pytest.mark.usefixtures("optimised")
def test_slopes_of_an_rnn_where_tanh_saturates():
    x = np.linspace(1, 4, 2001, dtype=np.float32).reshape(1, -1, 1)

    def program(b):
        one, none = (b.feed(np.full((1, 1, 1), value, np.float32)) for value in (1, 0))
        name = b.feed(x)
        return gradients(b.aiOnnx.rnn([name, one, none], 1)[0], name)

    out, slopes = run(program, train=True)
    exact = np.tanh(x.astype(np.float64))
    np.testing.assert_allclose(out[:, 0], exact, rtol=7e-8)
    np.testing.assert_allclose(slopes, 1 - exact**2, rtol=6e-5 if jax.default_backend() == "cpu" else 1e-4)


def test_doubles_are_refused_in_poplar_s_words():
    with pytest.raises(popart.popart_exception) as error:
        run(lambda b: b.aiOnnx.relu([b.feed(np.zeros(2))]))
    assert error.value.args[0] == "The data type DOUBLE is not supported in Poplar"
    assert "convertDoublesToFloats" in error.value.__notes__[0]


def test_a_call_that_fits_no_overload_lists_the_signatures():
    builder = popart.Builder()
    with pytest.raises(TypeError) as error:
        builder.aiOnnx.add(["a", "b"], [1.5])
    head = "add(): incompatible function arguments. The following argument types are supported:\n    1. add("
    assert error.value.args[0].startswith(head)
    assert "Invoked with: ['a', 'b'], [1.5]" in error.value.args[0]
