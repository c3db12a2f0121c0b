"""Rules of the supplement to PopXL's specification: devices, float8, refusals."""

from __future__ import annotations

import re

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax.enums import DeviceType
from popart_jax.errors import popart_exception
from popart_jax.popxl import fp8_utils, ops, utils
from popart_jax.popxl.transforms import autodiff
from popart_jax.session.devices.devices import DeviceManager

from ..texts import says
from .run import forward

# --- devices, sessions ---------------------------------------------------------------------------------------------


def test_devices_of_a_name():
    for name, n, kind in (
        ("cpu", 1, DeviceType.Cpu),
        ("ipu_model", 4, DeviceType.IpuModel),
        ("ipu_hw", 2, DeviceType.OfflineIpu),
        ("ipu2", 2, DeviceType.OfflineIpu),
    ):
        device = utils._to_device_info(name, n)
        assert (device.type, device.numIpus) == (kind, n)
    assert utils._offline_device_from_str("IPU-POD16").numIpus == 16
    with says(ValueError, "For a cpu device, multiple devices (provided: 2) are not supported."):
        utils._to_device_info("cpu", 2)
    with says(ValueError, "Incorrect device type provided: x, must be one of: `ipu_hw`, `ipu_model`, `cpu`"):
        utils._to_device_info("x")
    with says(RuntimeError, "Failed to acquire device with 1024 IPUs."):
        utils._to_device_info("ipu_hw", 1024)
    with says(RuntimeError, "Failed to acquire device with 1024 IPUs."):
        utils._acquire_hw_device_with_timeout(1024, 1)


def small():
    ir = popxl.Ir()
    with ir.main_graph:
        v = popxl.variable(1.0)
        sink = popxl.d2h_stream((), popxl.float32)
        ops.host_store(sink, v + 1.0)
    return ir, sink


@pytest.mark.parametrize(
    ("compiled", "entered", "fits"),
    [
        ("ipu_hw", "hardware", True), ("ipu_hw", "model", False), ("ipu_hw", "cpu", False),
        ("ipu_model", "model", True),
        ("ipu_model", "hardware", False), ("ipu_model", "cpu", True), ("cpu", "cpu", True), ("cpu", "hardware", False),
    ],
)  # fmt: skip
def test_another_device_must_be_of_the_kind_compiled_for(compiled, entered, fits):
    ir, sink = small()
    session, manager = popxl.Session(ir, compiled), DeviceManager()
    make = {
        "hardware": lambda: utils._acquire_hw_device_with_timeout(1, 1),
        "model": lambda: manager.createIpuModelDevice({"numIPUs": 1}),
        "cpu": manager.createCpuDevice,
    }[entered]
    session._set_device(make())
    if fits:
        with session:
            assert session.run()[sink] == 2
    else:
        with pytest.raises(popart_exception), session:
            pass
    assert not session.is_attached
    assert session._was_attached_stack == []


def test_the_number_of_devices_must_fit():
    session = popxl.Session(small()[0], "ipu_model")
    session._set_device(DeviceManager().createIpuModelDevice({"numIPUs": 2}))
    with pytest.raises(popart_exception), session:
        pass


def test_a_failing_upload_leaves_the_session_detached(monkeypatch):
    session = popxl.Session(small()[0])
    monkeypatch.setattr(session._state, "upload", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError), session:
        pass
    assert not session.is_attached


def test_memory_maps_are_the_hosts_copy(tmp_path):
    data = np.memmap(tmp_path / "w", np.float32, "w+", shape=(4,))
    ir = popxl.Ir(replication=4)
    with ir.main_graph:
        v, plain = popxl.variable(data), popxl.variable(np.zeros(4, np.float32))
        pairs = ir.replica_grouping_from_assignments([0, 1, 1, 0])
        two = np.memmap(tmp_path / "two", np.float32, "w+", shape=(2, 4))
        assert popxl.variable(two, replica_grouping=pairs)._memmap_arr is None
        assert v._memmap_arr is data
        assert plain._memmap_arr is None
        for dtype, kwargs in ((None, {}), (popxl.float64, {"dtype": popxl.float64}), (None, {"downcast": False})):
            wide = np.memmap(tmp_path / "x", np.float64, "w+", shape=(4,))
            with pytest.raises(ValueError, match=re.escape(f"the dtype {dtype} is not supported, as it requires")):
                popxl.variable(wide, **kwargs)


# --- float8 --------------------------------------------------------------------------------------------------------


def test_infinities_are_no_float8_numbers():
    x = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30], np.float32)
    found = fp8_utils.host_pow2scale_cast_to_fp8(x, popxl.float8_143, 0, False)
    np.testing.assert_array_equal(found.view(np.uint8), [0x80, 0x80, 0x80, 0x7F, 0xFF])


def searched(src, kind):
    """The search of the specification, written out with loops."""
    lo, hi, tm = {"float8_143": (-10, 7, 3), "float8_152": (-17, 15, 2)}[kind]
    limits = [2.0**i for i in range(-126, 127)]
    h = [0.0] * 254
    for x in np.abs(src.astype(np.float64)).ravel():
        if x < limits[0]:
            place = 0
        elif x > limits[-1]:
            place = 253
        else:
            place = int(np.frexp(x)[1]) + 126
        h[place] += 1
    h = [n / src.size for n in h]
    span, q = hi - lo + 1, 2.0 ** (-2 * ((10 if src.dtype == np.float16 else 23) - tm))
    errors = []
    for k, b in enumerate(range(max(0, lo - 31 + 126), min(lo + 31 + 126, 253) + 1)):
        error = (limits[0] / 2) ** 2 if b > 0 else 0.0
        for i in range(253):
            if i < b:
                error += limits[i] ** 2 * h[i + 1]
            elif i < b + span:
                error += limits[i] ** 2 * h[i + 1] * q
            else:
                error += (limits[k + span - 1] - limits[i]) ** 2 * h[i + 1]
        errors.append(error)
    best = [k for k, error in enumerate(errors) if error == min(errors)]
    return min(errors), 31 - best[len(best) // 2]


@pytest.mark.parametrize("kind", ["float8_143", "float8_152"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_scale_search_is_the_specified_one(kind, dtype):
    rng = np.random.default_rng(0)
    cases = [rng.normal(0, s, (20, 10)) for s in (1e-4, 1.0, 300.0)] + [
        np.ones(7),
        np.zeros(5),
        np.array([2.0**-126, 3]),
    ]
    for values in cases:
        src = values.astype(dtype)
        metric, scale = fp8_utils.host_fp8_mse_scale(src, getattr(popxl, kind))
        expected = searched(src, kind)
        assert scale == expected[1]
        assert metric == pytest.approx(expected[0], rel=1e-12)
    assert fp8_utils.host_fp8_mse_scale_pb(src, getattr(popxl, kind)) == scale


def test_words_of_float8_scales():
    with says(RuntimeError, "dtype float64 not currently supported."):
        fp8_utils.host_fp8_mse_scale(np.zeros(2))
    with pytest.raises(RuntimeError):
        fp8_utils.host_fp8_mse_scale_pb(np.zeros(2, np.float32))
    assert fp8_utils.host_fp8_mse_scale(np.ones(3, np.float32)) == fp8_utils.host_fp8_mse_scale(
        np.ones(3, np.float32), popxl.float8_143
    )
    histogram, limits = fp8_utils.log_histogram(np.ones(3, np.float32), fp8_utils.ieee_fp32_no_denorms)
    assert (len(histogram), len(limits), histogram[127]) == (254, 253, 1)
    assert fp8_utils.find_exponential_range(fp8_utils.ieee_fp32_no_denorms) == (-126, 127)
    with says(RuntimeError, "Only MSE metric is supported."):
        fp8_utils.calculate_candidate_metric(histogram, limits, None, "x")


def test_names_of_types():
    as_dtype = popxl.dtype.as_dtype
    assert [as_dtype(n) for n in ("half", "double", "float")] == [popxl.float16, popxl.float64, popxl.float64]
    for name in ("half", "x"):
        with says(ValueError, f"There is not a `popxl.dtype` that has a name: {name}."):
            popxl.dtype.from_name(name)
    with says(ValueError, "There is not a `popxl.dtype` that is compatible with value: "):
        as_dtype(popxl.float32)


def test_tables_have_a_line_as_long_as_their_rows():
    text = utils.table_to_string([["a", "bb"], ["ccc", "d"]])
    assert text == "a   | bb\n---------\nccc | d \n"


# --- what operators refuse -----------------------------------------------------------------------------------------


def refused(fn, *shapes, dtypes=()):
    """The text with which an operator refuses variables of these shapes."""
    with popxl.Ir().main_graph:
        kinds = [*dtypes, *[np.float32] * len(shapes)]
        tensors = [popxl.variable(np.ones(s, k)) for s, k in zip(shapes, kinds, strict=False)]
        with pytest.raises(popart_exception) as caught:
            fn(*tensors)
    return str(caught.value)


@pytest.mark.parametrize(
    ("fn", "shapes", "text"),
    [
        (ops.add, [(2,), (3,)], "np broadcasting failed on '"),
        (ops.add, [(2,), (3,)], "frames [2] and [3] are not aligned"),
        (ops.matmul, [(2, 3), (2, 3)], "contracting dimensions unequal: lhs '"),
        (ops.matmul, [(), (2, 3)], "doesn't support scalar tensor"),
        (lambda t: ops.reshape(t, (5,)), [(2, 3)], "Failure in ReshapeOp::setup() for "),
        (
            lambda t: ops.reshape(t, (5,)), [(2, 3)],
            "The number of elements of the input is 6, while the number of elements of the output is 5. The number of",
        ),
        (lambda t: ops.transpose(t, (0,)), [(2, 3)], "Rank of permutation tensor [0], rank 1 must be equal"),
        (lambda a, b: ops.concat([a, b], 3), [(2,), (2,)], "Attribute 'axis' of ConcatOp, 3, is outside of"),
        (lambda a, b: ops.concat([a, b]), [(2,), (2, 2)], "to concat does not have matching output rank."),
        (lambda a, b: ops.concat([a, b]), [(2, 3), (2, 2)], "to concat does not have matching shape."),
        (lambda t: ops.split(t, [1, 2]), [(2,)], "splits 3 invalid for dimension of size 2"),
        (lambda t: ops.split(t, [1], 3), [(2,)], "Axis 3 is out of range for tensor with 1 dims"),
        (lambda t: ops.gather(t, popxl.constant([0]), 4), [(2,)], "GatherOp::setup axis = 4 is outside the acceptable"),
        (lambda t: ops.argmax(t, 3), [(2,)], "Axis 3 is out of acceptable range ["),
        (ops.argmax, [()], "ArgExtremaOp input rank must be greater than 0"),
        (lambda t: ops.topk(t, 5, 0, True, True), [(2,)], "Cannot take top-5 on dim of size 2, invalid Op "),
        (lambda t: ops.subsample(t, [0]), [(2,)], "Strides invalid. 0 stride at index 0"),
    ],
)  # fmt: skip
def test_words_of_the_level_below(fn, shapes, text):
    assert text in refused(fn, *shapes)


SLICE = "This error is for Op 100 (ai.onnx.Slice:11)."
RANKS = (
    "Input 1 of 2 to concat does not have matching output rank. Input 1 has rank 2 ([2 2]) while the output has rank 1 "
    "([2]).Concat axis 0."
)
AXIS = (
    "Invalid input shape in BaseSliceOp::getSlices. The input shape has rank 2, but axis = 7. axis must be less than "
    f"the input shape's rank. {SLICE}"
)
STEP = (
    "Please enable pattern \"Slice2SliceSubsample\" first. Invalid 'step' value, 2, in BaseSliceOp::getSlices. Only "
    f"steps of '1' or '-1' are supported. {SLICE}"
)
PRODUCT = "Op(MatMul (ai.onnx.MatMul:9), inputs=[t, t__t0], outputs=[matmul_out])"
WHOLE = [
    (ops.add, [(2,), (3,)], "np broadcasting failed on 'Op 100 (ai.onnx.Add:6)', frames [2] and [3] are not aligned"),
    (
        ops.matmul, [(2, 1, 3), (3, 3, 1)],
        "np broadcasting failed on 'Op 100 (ai.onnx.MatMul:9)', frames [2] and [3] are not aligned",
    ),
    (
        ops.matmul, [(2, 3), (2, 3)],
        f"{PRODUCT} contracting dimensions unequal: lhs 't' [2 3], rhs 't__t0' [2 3]",
    ),
    (ops.matmul, [(), (2, 3)], f"{PRODUCT} doesn't support scalar tensor t as the lhs input"),
    (
        lambda a, b: ops.concat([a, b]), [(2,), (2, 2)],
        RANKS,
    ),
    (
        lambda a, b: ops.concat([a, b]), [(2, 3), (2, 2)],
        "Input 1 to concat does not have matching shape. [2 3] [2 2]",
    ),
    (ops.argmax, [()], "ArgExtremaOp input rank must be greater than 0, invalid ArgExtremaOp 100 (ai.onnx.ArgMax:11)."),
    (
        lambda t: ops.slice(t, [0], [1], [1], [7]), [(2, 3)],
        AXIS,
    ),
    (
        lambda t: ops.slice(t, [0], [2], [2], [0]), [(2, 3)],
        STEP,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "shapes", "text"), WHOLE)
def test_whole_texts_name_the_operator_that_was_about_to_be_made(fn, shapes, text):
    assert refused(fn, *shapes) == text


@pytest.mark.parametrize(("op", "named"), [(ops.add, "Op 100 (ai.onnx.Add:6)"), (ops.mul, "100 (ai.onnx.Mul:7)")])
def test_whole_texts_of_mixed_types(op, named):
    text = refused(op, (2,), (2,), dtypes=[np.float32, np.float16])
    assert text == f"np broadcasting failed on {named}, incompatible types FLOAT and FLOAT16 (shapes [2] and [2])"


def test_words_of_labels():
    text = refused(ops.nll_loss, (4, 3), (5,), dtypes=[np.float32, np.int32])
    assert text.startswith("The label tensor (")
    assert "to match all but the final dimension of the probabilities tensor (" in text
    text = refused(ops.nll_loss, (4, 3), (4,))
    assert text.startswith(
        "Expected the label tensor NllOp to be an integer data type (fixed point), not the case for input"
    )


def test_probabilities_of_zero_count_as_the_smallest():
    p = np.array([[0, 1]], np.float32)
    np.testing.assert_allclose(forward(ops.nll_loss, p, np.array([0], np.int32)), -np.log(1e-7), rtol=1e-6)
    half = forward(ops.nll_loss, p.astype(np.float16), np.array([0], np.int32))
    np.testing.assert_allclose(np.float32(half), -np.log(6.104e-05), rtol=1e-3)


def test_words_of_building():
    image = popxl.TensorSpec((1, 1, 3, 3), popxl.float32)
    ir = popxl.Ir()
    with ir.main_graph:
        text = "The arguments, `args` and `kwargs`, do not match the signature of the function `fn`."
        with says(ValueError, text):
            ir.create_graph(lambda a: a)
        with says(TypeError, "Cannot create popxl.dtypes.dtype instances."):
            popxl.dtype()
        with says(NotImplementedError, "TensorByRef should only be used as an annotation."):
            popxl.TensorByRef()
        with pytest.raises(KeyError):
            ir.create_graph(lambda t: ops.max_pool(t, (2, 2), auto_pad="x"), image)


def trained_resize(t):
    graph = popxl.gcg().ir.create_graph(lambda u: ops.interpolate(u, (1.0, 1.0, 2.0, 2.0), "linear"), t)
    info = autodiff(graph)
    site = ops.call_with_info(graph, t)
    ops.call(info.graph, site.outputs[0], inputs_dict=info.inputs_dict(site))


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda t: ops.scaled_add(t, t, popxl.constant(2.0), 3.0), "Unsupported tensor scale0 with non-tensor scale1."),
        (lambda t: ops.scaled_add_(t, t, 2.0, popxl.constant(2.0)), "Unsupported scale0 2 with tensor scale1."),
        (lambda t: ops.var_updates.accumulate_(t, t + 1, 0.0), ""),
        (
            lambda t: ops.interpolate(t, (1.0, 1.0, 2.0, 2.0), coordinate_transformation_mode="tf_crop_and_resize"),
            "Unsupported coordinate transformation mode",
        ),
        (trained_resize, "Resize mode 'linear' is not supported when training."),
    ],
)
def test_what_sessions_refuse(build, text):
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        build(popxl.variable(np.ones((1, 1, 2, 3), np.float32)))
    with says(popart_exception, text):
        popxl.Session(ir)


def test_products_of_float8_need_scales():
    with popxl.Ir().main_graph:
        small, wide = popxl.variable(np.ones((2, 2)), popxl.float8_143), popxl.variable(np.ones((2, 2), np.float32))
        with says(popart_exception, "Invalid operand type: FLOAT in op "):
            ops.matmul(small, wide)
        with says(popart_exception, "Log2 scale input tensor must be provided for FLOAT8 input types in op "):
            ops.matmul(small, small)


def test_products_of_vectors_have_gradients():
    a, b = np.arange(3, dtype=np.float32), np.array([2, 5, 7], np.float32)
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        x, y = popxl.variable(a), popxl.variable(b)
        graph = ir.create_graph(lambda p, q: p @ q, x, y)
        info = autodiff(graph)
        site = ops.call_with_info(graph, x, y)
        found = ops.call(info.graph, popxl.constant(2.0), inputs_dict=info.inputs_dict(site))
        sinks = [popxl.d2h_stream(g.shape, g.dtype) for g in found]
        for sink, g in zip(sinks, found, strict=True):
            ops.host_store(sink, g)
    with popxl.Session(ir) as session:
        out = session.run()
    np.testing.assert_array_equal(out[sinks[0]], 2 * b)
    np.testing.assert_array_equal(out[sinks[1]], 2 * a)


@pytest.mark.parametrize(
    ("op", "name", "shapes"),
    [
        (ops.matmul_pow2scaled, "matmul", ((2, 2), (2, 2))),
        (ops.conv_pow2scaled, "convolution", ((1, 2, 4, 4), (2, 2, 3, 3))),
    ],
)
def test_scaled_products_of_float8_have_no_gradient(op, name, shapes):
    ir = popxl.Ir()
    with ir.main_graph:
        operands = [ops.init(shape, popxl.float8_143) for shape in shapes]
        graph = ir.create_graph(op, *operands, popxl.constant(0, popxl.int32))
        with pytest.raises(popart_exception) as caught:
            autodiff(graph)
    assert caught.value.args[0] == f"Using a scaled {name} in a backwards pass is currently not supported."


@pytest.mark.parametrize("value", [[], (), np.zeros(0, np.float32), np.zeros((2, 0))], ids=str)
def test_operands_without_elements(value):
    ir = popxl.Ir()
    with ir.main_graph, pytest.raises(ValueError, match=r"^The value has 0 elements - this is most likely a mistake\."):
        popxl.variable([1.0, 2.0]) + value


@pytest.mark.parametrize("kinds", [(popxl.float32, popxl.int32), (popxl.int32, popxl.float32)])
def test_a_cast_has_a_gradient_if_it_reads_floats(kinds):
    ir = popxl.Ir()
    with ir.main_graph:
        graph = ir.create_graph(lambda t: ops.cast(t, kinds[1]) + 1, popxl.variable([1, 2], kinds[0]))
        if kinds[0] is popxl.float32:
            assert autodiff(graph).graph.outputs[0].dtype == popxl.float32
        else:
            with pytest.raises(popart_exception, match=r"^\[Autodiff\] Unable to provide required gradient output"):
                autodiff(graph)
