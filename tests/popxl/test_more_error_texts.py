"""Refusals of PopXL that `test_error_texts` leaves out; `*` stands for names and lists of objects."""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportCallIssue=false
# (wrong arguments are what is tested)

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pytest

import popart_jax.popxl as popxl
from popart_jax import popart_exception
from popart_jax.popxl import ops

vu, collectives = ops.var_updates, ops.collectives
F32, I32 = popxl.float32, popxl.int32


class Operands:
    """Tensors of the current main graph."""

    def __init__(self) -> None:
        self.m = popxl.variable(np.ones((2, 3), np.float32), name="m")
        self.i = popxl.variable(np.ones((2, 3), np.int32), name="i")
        self.v = popxl.variable(np.ones(2, np.float32), name="v")
        self.image = popxl.variable(np.ones((1, 2, 4, 4), np.float32), name="image")
        self.ir = popxl.gcg().ir
        self.sub = self.ir.create_graph(lambda a: a + 1, popxl.TensorSpec((2, 3), F32))

    def on(self, ipu: int) -> popxl.Tensor:
        with popxl.ipu(ipu):
            return popxl.constant(np.ones(3, np.float32)) * 2.0

    def variable_below(self) -> None:
        with self.ir.create_empty_graph("below"):
            popxl.variable(1.0)


def _grouped(count: int, **settings: Any) -> Callable[[Operands], Any]:
    return lambda _: popxl.Ir(replication=count).replica_grouping(**settings)


def _assigned(*groups: int) -> Callable[[Operands], Any]:
    return lambda _: popxl.Ir(replication=4).replica_grouping_from_assignments(list(groups))


def _stored(shape: tuple[int, ...], dtype: Any) -> Callable[[Operands], Any]:
    return lambda e: ops.host_store(popxl.d2h_stream(shape, dtype, "s"), e.m)


def _resized(**how: str) -> Callable[[Operands], Any]:
    return lambda e: ops.interpolate(e.m, [1.0, 2.0], **how)


Case = tuple[Callable[[Operands], Any], type[Exception], str]
CASES: list[Case] = [
    (lambda e: e.on(0) + e.on(1), ValueError,
     "The input tensors `lhs` and `rhs` are located on different IPUs: 0 != 1."),
    (lambda e: ops.scatter_reduce(e.m, e.i, "foo", axis_size=3), ValueError, "The reduction must be one of *"),
    (_resized(mode="foo"), ValueError, "interpolate type foo is not valid, must be nearest, linear or cubic."),
    (_resized(nearest_mode="foo"), ValueError,
     "interpolate type foo is not valid, must be round_prefer_floor, round_prefer_ceil, floor or ceil."),
    (_resized(coordinate_transformation_mode="foo"), ValueError,
     ("interpolate type foo is not valid, must be half_pixel, pytorch_half_pixel, align_corners, asymmetric or "
      "tf_crop_and_resize.")),
    (lambda e: ops.conv(e.image, e.image, pad_type="foo"), ValueError,
     "pad type foo is not valid, must be not_set, same_upper, same_lower or valid"),
    (lambda _: ops.init((2,), F32, "a", "foo"), ValueError, "Unknown init_type: foo"),
    (lambda e: ops.cast(e.m, popxl.float8_143), TypeError,
     "*not supported for*please consider pow2scale_cast_to_fp8 or pow2scale_cast_from_fp8*"),
    (lambda e: ops.conv_pow2scaled(e.image, e.image, popxl.constant(0, I32)), TypeError,
     "Scaled conv operands must be of dtype popxl.float8_143 or popxl.float8_152"),
    (lambda e: ops.matmul_pow2scaled(e.m, e.m, popxl.constant(0, I32)), TypeError,
     "Scaled matmul operands must be of dtype popxl.float8_143 or popxl.float8_152"),
    (_stored((2, 3), I32), ValueError,
     "dtype of stream s `popxl.dtypes.int32` does not match dtype of provided tensor `popxl.dtypes.float32`*"),
    (_stored((3, 3), F32), ValueError,
     "shape of stream s `(3, 3)` does not match shape of provided tensor `(2, 3)`*"),
    (lambda e: ops.ipu_copy(e.m, 1), ValueError,
     ('Could not infer the ipu for Tensor to be copied "*" . Please specify `source` when copying for this tensor.')),
    (lambda _: ops.remote_code_load(popxl.gcg(), "executable"), ValueError,
     "The remote_code_load op cannot load the code for the graph it resides in (*)."),
    (lambda e: ops.remote_code_load(e.sub, "io_buffer"), NotImplementedError,
     "destination == 'io_buffer' for remote_code_load op, graph *not supported."),
    (lambda e: vu.adam_updater(e.m, e.m, time_step=popxl.constant(1.0)), ValueError,
     "Bias correction requires both beta1 and beta2 to not be None."),
    (lambda e: vu.adamax_updater(e.m, e.m), ValueError, "AdaMax requires time_step to not be None."),
    (lambda e: collectives.replicated_all_gather(e.m, 0, output_shape="foo"), ValueError,
     "output_shape must equal one of 'new_axis', 'concat', 'meta_shape', 'auto'. Value: foo"),
    (lambda e: collectives.all_reduce([e.m, e.m]), ValueError,
     ("Could not automatically infer the IPU of all input Tensors `ts`. Please specify the IPUs via the `ipus` "
      "parameter.")),
    (lambda e: collectives.all_reduce([e.m, e.m], ipus=[0]), ValueError,
     "Number of specified tensor does not equal number of specified IPUs. 2 != 1"),
    (lambda e: ops.repeat(e.ir.create_graph(lambda a: (a + 1, a), popxl.TensorSpec((), F32)), 2, 1.0), ValueError,
     "To repeat the subgraph (*) the number of inputs must be greater than or equal to the number of outputs. 1 < 2"),
    (lambda e: popxl.gcg().remove_op_created_hook(99), ValueError, "Unknown op created hook 99"),
    (lambda e: e.ir.create_graph(3), TypeError,
     "Callable `fn` must be either a function or a class that extends popxl.Module"),
    (lambda e: e.ir.create_graph(lambda a: a, e.m, e.m), ValueError,
     "The arguments, `args` and `kwargs`, do not match the signature of the function `fn`.*"),
    (lambda e: e.ir.create_graph(lambda a: 3, e.m), ValueError,
     "Output of subgraph must be None, a Tensor or an iterable of Tensors. Output type: <class 'int'>. Value 3"),
    (lambda e: e.ir == 3, TypeError, "Value must be of type popxl.Ir. Type: <class 'int'>. Value: 3."),
    (lambda e: e.sub == 3, TypeError, "Value must be of type popxl.Graph. Value: 3. Type: <class 'int'>"),
    (lambda e: e.ir.replica_grouping() == 3, TypeError,
     "Value must be of type popxl.ReplicaGrouping. Type: <class 'int'>. Value: 3."),
    (lambda e: 3 in e.sub, TypeError, "Value must be of type popxl.Tensor. Value: 3. Type: <class 'int'>"),
    (lambda _: popxl.Tensor(), RuntimeError, "popxl.Tensor cannot be constructed directly."),
    (lambda _: popxl.Graph(), TypeError, "Cannot create popxl.graph.Graph instances using the constructor."),
    (lambda _: popxl.streams.Stream(), NotImplementedError,
     "Cannot construct a popxl.Stream directly. Use `h2d_stream` or `d2h_stream`."),
    (lambda _: popxl.ReplicaGrouping(), RuntimeError,
     "popxl.ReplicaGrouping cannot be constructed directly (use `ir.replica_grouping`)."),
    (lambda _: popxl.dtype(), TypeError, "Cannot create popxl.dtypes.dtype instances."),
    (lambda _: popxl.Module().build(), NotImplementedError, "Your popxl.Module must override `build` method"),
    (lambda e: e.m.ipu, Exception, "Tensor's IPU is undefined."),
    (lambda e: e.m.tile_set, Exception, "Tensor's tile set is undefined."),
    (lambda e: e.variable_below(), ValueError,
     ("You cannot initialise a variable tensor within a graph. It can only be initialised within the main graph.*")),
    (_grouped(8, stride=9), ValueError,
     ("Stride must be greater than zero and less than or equal to number of replicas. Stride: 9. Replicas: 8")),
    (_grouped(8, stride=3), ValueError, "Stride must be a factor of the number of replicas. Stride: 3. Replicas: 8"),
    (_grouped(8, group_size=9), ValueError,
     ("Group size must be greater than zero and less than or equal to number of replicas. Group size: 9. "
      "Replicas: 8")),
    (_assigned(0, 0, 0, 1), ValueError, "All groups should have the same size but they dont. (Group, Sizes): *"),
    (_assigned(0, 0, 2, 2), ValueError,
     "The group numbers are not numbered consecutively and/or do not start at 0. Groups: *"),
    (_assigned(1, 1, 0, 0), ValueError,
     "When ordered by first appearance, the group numbers are not monotonically increasing. Ordering: *"),
    (_assigned(0, 0, 1), ValueError, "The length of `assignment` (3) does not equal the number of replicas (4)."),
    (lambda _: popxl.variable(1.0, retrieval_mode="foo"), ValueError, "Invalid retrieval_mode: foo"),
    (lambda _: popxl.variable(np.ones(2, np.int32), popxl.float8_143), TypeError,
     "Type * is not supported for float8 tensors.Please use float16, float32 or float64 types."),
    (lambda e: ops.remote_store(popxl.remote_buffer((3,), F32, 1), 0, e.m), ValueError,
     ("Tensor * does not match buffer.\nExisting remote buffer has shape=(3,) and dtype=*.\n"
      "The tensor has shape=(2, 3), dtype=*.")),
    (lambda e: e.m.reshape((4,)), popart_exception,
     ("Failure in ReshapeOp::setup() for *. Trying to reshape from [[]2 3] to [[]4]. The number of elements of the "
      "input is 6, while the number of elements of the output is 4. The number of elements cannot change for a "
      "ReshapeOp")),
    (lambda e: ops.nll_loss(e.m, e.v), popart_exception,
     "Expected the label tensor NllOp to be an integer data type (fixed point), not the case for input with info: *"),
    (lambda e: ops.call(e.sub, e.v), popart_exception,
     "CallOp input (@0) does not match callee input tensor (@0):\n*"),
    (lambda _: popxl.dtype.from_name("foo"), ValueError, "There is not a `popxl.dtype` that has a name: foo."),
    (lambda _: popxl.dtype.as_dtype("foo"), ValueError,
     "There is not a `popxl.dtype` that is compatible with value: foo, type: <class 'str'>."),
    (lambda e: popxl.transforms.autodiff(e.sub, grads_required=[]), popart_exception,
     "*with defined but empty vector `gradsRequiredForFwdId`. You must either specify*"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[text[:50] for _, _, text in CASES])
def test_the_text_is_the_specified_one(case: Case) -> None:
    make, kind, text = case
    with popxl.Ir().main_graph, pytest.raises(kind) as caught:
        make(Operands())
    assert fnmatchcase(str(caught.value.args[0]), text), caught.value.args[0]


UNFIT: dict[str, tuple[Callable[[Operands], Any], str]] = {
    "parts": (lambda e: ops.split(e.m, 0), "Split 0 does not equally divide tensor axis 0 of length 2."),
    "rank": (lambda e: ops.scatter_reduce(e.m, popxl.constant([0, 1]), "sum", e.v), "scatter_reduce: .* differ"),
    "size": (lambda e: ops.scatter_reduce(e.m, e.i, "sum", e.m, axis_size=3), "scatter_reduce: axis_size 3 is not"),
    "axes": (lambda e: ops.dynamic_slice(e.m, e.i, [0], [1, 1], True), "dynamic_slice: axes .0. and sizes .1, 1."),
    "axis": (lambda e: ops.dynamic_slice(e.m, e.i, [2], [1], True), "dynamic_slice: axis 2 of .* is outside"),
    "regions": (lambda e: ops.roi_align(e.image, popxl.constant(np.ones((2, 4), np.float32)), popxl.constant([0]),
                                        (2, 2), 1.0, 1), "roi_align: 2 regions, but 1 indices of images"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_operands_that_do_not_fit_each_other(name: str) -> None:
    make, text = UNFIT[name]
    with popxl.Ir().main_graph, pytest.raises((ValueError, popart_exception), match=f"^{text}"):
        make(Operands())


AXES: dict[str, Callable[[Operands, int], Any]] = {
    "topk": lambda e, axis: ops.topk(e.m, 1, axis, True, True),
    "cumsum": lambda e, axis: ops.cumsum(e.m, axis),
    "softmax": lambda e, axis: ops.softmax(e.m, axis),
    "onehot": lambda e, axis: ops.onehot(e.i, popxl.constant(3), e.v, axis),
    "scatter": lambda e, axis: ops.scatter(e.m, e.i, e.m, axis),
    "replicated_slice": lambda e, axis: collectives.replicated_slice(e.m, axis),
    "replicated_all_gather": lambda e, axis: collectives.replicated_all_gather(e.m, axis),
}


@pytest.mark.parametrize("name", AXES)
def test_axes_that_a_tensor_has_not_are_refused(name: str) -> None:
    last = 2 if name == "onehot" else 1
    with popxl.Ir().main_graph:
        operands = Operands()
        AXES[name](operands, -last - 1)
        for axis in (last + 1, -last - 2):
            bounds = rf"{name}: axis {axis} of .* is outside the acceptable range \[{-last - 1}, {last}\]"
            with pytest.raises(popart_exception, match=bounds):
                AXES[name](operands, axis)
