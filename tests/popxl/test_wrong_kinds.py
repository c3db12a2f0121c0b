"""Arguments of the wrong kind are refused where they are given, with the parameter's name."""

# pyright: reportArgumentType=false, reportCallIssue=false
# (wrong arguments are what is tested)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popart_jax.popxl as popxl
from popart_jax import popart_exception
from popart_jax.popxl import ops


def _index() -> popxl.Tensor:
    return popxl.constant([0, 1], popxl.int32)


Case = tuple[Callable[[popxl.Tensor, popxl.Graph], Any], type[Exception], str]
CASES: list[Case] = [
    (lambda t, g: popxl.variable(np.zeros(2), "name"), TypeError, "`dtype` must be a type of PopXL"),
    (lambda t, g: popxl.constant(1, np.float32), TypeError, "`dtype` must be a type of PopXL"),
    (lambda t, g: popxl.h2d_stream((2,), np.float32), TypeError, "`dtype` must be a type of PopXL"),
    (lambda t, g: popxl.RemoteBuffer((2,), "float32", 1), TypeError, "`tensor_dtype` must be a type of PopXL"),
    (lambda t, g: ops.cast(t, "float16"), TypeError, "`data_type` must be a type of PopXL"),
    (lambda t, g: popxl.d2h_stream(2, popxl.float32), TypeError, r"tuple of whole numbers such as \(2, 3\), got 2"),
    (lambda t, g: popxl.graph_input((-2,), popxl.float32), ValueError, r"can't be negative, got \(-2,\)"),
    (lambda t, g: ops.call(lambda x: x, t), TypeError, "`graph` must be a popxl.Graph"),
    (lambda t, g: ops.repeat(3, g, t), TypeError, "`graph` must be a popxl.Graph, got 3"),
    (lambda t, g: ops.repeat(g, 1.5, t), TypeError, "`repeat_count` must be a whole number, got 1.5"),
    (lambda t, g: ops.host_load(t), TypeError, "`h2d_stream` must be a popxl.HostToDeviceStream"),
    (lambda t, g: ops.host_store(t, t), TypeError, "`d2h_stream` must be a popxl.DeviceToHostStream"),
    (lambda t, g: ops.remote_load(None, 0), TypeError, "`remote_buffer` must be a popxl.RemoteBuffer"),
    (lambda t, g: popxl.remote_variable(1.0, None), TypeError, "`remote_buffer` must be a popxl.RemoteBuffer"),
    (lambda t, g: popxl.transforms.autodiff(lambda x: x), TypeError, "`graph` must be a popxl.Graph"),
    (lambda t, g: popxl.Session(g), TypeError, "`ir` must be a popxl.Ir"),
    (lambda t, g: popxl.Session(t.ir).write_variables_data([(t, 1)]), TypeError, "`tensors` must be a mapping"),
    (lambda t, g: popxl.Session(t.ir, 3), TypeError, "`device_desc` must be 'cpu'"),
    (lambda t, g: ops.gather(t, t), TypeError, "indices of a gather must be whole numbers"),
    (lambda t, g: popxl.ipu("0").__enter__(), TypeError, "`ipu` must be a whole number, got '0'"),
    (lambda t, g: popxl.name_scope(3).__enter__(), TypeError, "`name` must be text, got 3"),
    (lambda t, g: ops.concat([]), ValueError, "at least one tensor"),
    (lambda t, g: t[5], ValueError, "Index 5 is out of range for axis 0 of .*, which has 2"),
    (lambda t, g: ops.dropout(t, popxl.constant([0, 0], popxl.uint32), 1.5), popart_exception, r"interval \[0,1\)"),
    (lambda t, g: popxl.Ir(replication=0), ValueError, "`replication` must be at least 1, got 0"),
    (lambda t, g: setattr(t.ir, "num_host_transfers", 0), ValueError, "`num_host_transfers` must be at least 1"),
    (lambda t, g: ops.init((2,), np.float32), TypeError, "`dtype` must be a type of PopXL"),
    (lambda t, g: ops.init((2.5,), popxl.float32), TypeError, r"tuple of whole numbers such as \(2, 3\), got \(2.5"),
    (lambda t, g: ops.matmul(t, t.T, output_type=np.float16), TypeError, "`dtype` must be a type of PopXL"),
    (lambda t, g: ops.random_normal(popxl.constant([0, 0], popxl.uint32), (-1,)), ValueError, "can't be negative"),
    (lambda t, g: ops.split(t, [-1, 3]), ValueError, r"can't be negative, got \(-1, 3\)"),
    (lambda t, g: ops.split(t, [0.5, 1.5]), TypeError, r"tuple of whole numbers such as"),
    (lambda t, g: ops.topk(t, -1, 0, True, True), ValueError, r"can't be negative, got \(-1, 3\)"),
    (lambda t, g: ops.remote_load(popxl.remote_buffer((2,), popxl.float32), 0.5), TypeError, "`offset` must be a"),
    (lambda t, g: popxl.variable(1.0, name=3), TypeError, "`name` must be text, got 3"),
    (lambda t, g: ops.var_updates.accumulator_scale_(t, None), TypeError, "`f` must be a number or a tensor, got None"),
    (lambda t, g: ops.var_updates.accumulate_mean_(t, t, None), TypeError, "`step` must be a number or a tensor"),
    (lambda t, g: ops.var_updates.accumulate_moving_average_(t, t, None), TypeError, "`f` must be a number or a"),
    (lambda t, g: ops.sum(t, [1.5]), TypeError, "`axis` must be a whole number, got 1.5"),
    (lambda t, g: ops.softmax(t, 0.5), TypeError, "`axis` must be a whole number, got 0.5"),
    (lambda t, g: ops.argmax(t, 0.5), TypeError, "`axis` must be a whole number, got 0.5"),
    (lambda t, g: ops.slice(t, 0, 1, 1.5), TypeError, "`step` must be a whole number, got 1.5"),
    (lambda t, g: ops.transpose(t, [0.0, 1.0]), TypeError, "`permutation` must be a whole number, got 0.0"),
    (lambda t, g: ops.subsample(t, [1.5]), TypeError, "`strides` must be a whole number, got 1.5"),
    (lambda t, g: ops.subsample(t, None), TypeError, "`strides` must be a whole number, got None"),
    (lambda t, g: ops.transpose((2, 3)), TypeError, "The input `t` is not a Tensor"),
    (lambda t, g: ops.squeeze([t], [0]), TypeError, "The input `t` is not a Tensor"),
    (lambda t, g: ops.call(g, inputs_dict=t), TypeError, "`inputs_dict` must map inputs of the called graph to values"),
    (lambda t, g: ops.topk(popxl.constant(1.0), 1, 0, True, True), popart_exception, "rank must be greater than 0"),
    (lambda t, g: ops.collectives.replicated_slice(popxl.constant(1.0)), ValueError, "needs an axis"),
    (lambda t, g: ops.nll_loss(t, _index(), ignore_index="x"), TypeError, "`ignore_index` must be a whole number"),
    (lambda t, g: ops.nll_loss_with_softmax_grad(t, _index(), 1, 1.5), TypeError, "`ignore_index` must be a whole"),
    (lambda t, g: ops.average_pool(t.reshape((1, 1, 2, 3)), (1.5, 1)), TypeError, "`kernel_size` must be a whole"),
    (lambda t, g: ops.conv(*[t.reshape((1, 1, 2, 3))] * 2, (1.5, 1)), TypeError, "`stride` must be a whole number"),
    (lambda t, g: ops.conv(*[t.reshape((1, 1, 2, 3))] * 2, groups=1.5), TypeError, "`groups` must be a whole number"),
    (lambda t, g: ops.conv_transpose(*[t.reshape((1, 1, 2, 3))] * 2, groups=2), popart_exception, "2 groups do not"),
    (lambda t, g: ops.group_norm(t, t, t, 0), popart_exception, "0 groups do not divide the channels"),
    (lambda t, g: ops.group_norm(t, t, t, -1), popart_exception, "-1 groups do not divide the channels"),
    (lambda t, g: ops.groupedgather(t, _index(), 0, -1), ValueError, "`group_size` must be at least 1, got -1"),
    (lambda t, g: ops.shaped_dropout(t, popxl.constant([0, 0], popxl.uint32), (4,), 0.5), popart_exception, "aligned"),
    (lambda t, g: ops.shaped_dropout(t, popxl.constant([0, 0], popxl.uint32), (2, 1, 3), 0.5), popart_exception, "fit"),
    (lambda t, g: ops.dynamic_update(t, _index(), t, [0], ["x"], True), TypeError, "`sizes` must be a whole number"),
    (lambda t, g: ops.init((2,), popxl.float32, meta_shape="x"), TypeError, "tuple of whole numbers"),
    (lambda t, g: ops.print_tensor(t, digits="x"), TypeError, "`digits` must be a whole number, got 'x'"),
    (lambda t, g: ops.print_tensor(t, separator=["a"]), ValueError, "Parameter separator must be 1 character"),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{i} {text[:30]}" for i, (_, _, text) in enumerate(CASES)])
def test_the_parameter_is_named(case: Case) -> None:
    ask, kind, text = case
    ir = popxl.Ir()
    with ir.main_graph:
        t = popxl.variable(np.ones((2, 3), np.float32))
        graph = ir.create_graph(lambda x: x + 1, t)
        with pytest.raises(kind, match=text):
            ask(t, graph)


def test_a_run_takes_a_mapping() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        ops.print_tensor(popxl.constant(1.0))
    with popxl.Session(ir) as session, pytest.raises(TypeError, match="`inputs` must be a mapping from streams to"):
        session.run([np.ones(2)])


def test_entries_of_a_remote_buffer_may_be_numbers_of_numpy() -> None:
    with popxl.Ir().main_graph:
        assert popxl.remote_buffer((2,), popxl.float32, entries=np.int64(4)).entries == 4


def _calls_itself() -> tuple[popxl.Ir, popxl.Graph]:
    ir = popxl.Ir()
    outer, inner = ir.create_empty_graph("outer"), ir.create_empty_graph("inner")
    for graph in (outer, inner):
        with graph:
            popxl.graph_input((2,), popxl.float32)
    for graph, called in ((inner, outer), (outer, inner)):
        with graph:
            ops.call(called, graph.inputs[0])
            popxl.graph_output(graph.inputs[0] + 1)
    return ir, outer


def test_a_graph_that_calls_itself_is_refused() -> None:
    ir, outer = _calls_itself()
    with ir.main_graph:
        ops.call(outer, popxl.constant(np.ones(2, np.float32)))
        refused = pytest.raises(popart_exception, match=r"can't call itself: outer_\S+ calls inner_\S+ calls outer")
        with refused:
            popxl.transforms.autodiff(outer)
    with refused:
        popxl.Session(ir)


def test_whole_numbers_that_a_stream_cannot_hold_are_refused() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        stream, out = popxl.h2d_stream((2,), popxl.int32), popxl.d2h_stream((2,), popxl.int32)
        ops.host_store(out, ops.host_load(stream))
    with popxl.Session(ir) as session:
        assert session.run({stream: np.array([-1, 2**31 - 1])})[out].tolist() == [-1, 2**31 - 1]
        with pytest.raises(ValueError, match="int32 does not hold all values of this array of int64"):
            session.run({stream: np.array([0, 2**40])})
        with pytest.raises(ValueError, match="int32 does not hold all values of this array of uint32"):
            session.run({stream: np.array([0, 2**31], np.uint32)})


def test_numbers_cut_to_32_bits_are_told(capfd: pytest.CaptureFixture[str]) -> None:
    with popxl.Ir().main_graph:
        popxl.constant([1, 2**31 - 1])
        assert "cut to their lower 32 bits" not in capfd.readouterr().err
        popxl.constant(2**40)
    assert "cut to their lower 32 bits" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (np.zeros((2, 2), np.int32), "NumPy arrays of type float32; got int32"),
        (np.zeros((2, 2)).tolist(), "got list"),
        (np.broadcast_to(np.float32(0), (2, 2)), "this array is read-only"),
    ],
    ids=["whole numbers", "list", "read-only"],
)
def test_outputs_that_would_lose_what_a_run_sends_are_refused_before_it(target: Any, text: str) -> None:
    session, out = _two_transfers()
    with session:
        with pytest.raises(TypeError, match=text):
            session.run_with_outputs({}, {out: target})
        assert not session._has_run


def test_outputs_may_have_room_for_more_transfers_and_wider_numbers() -> None:
    session, out = _two_transfers()
    wide = np.full((3, 2), -1.0)
    with session:
        session.run_with_outputs({}, {out: wide})
    assert wide.tolist() == [[1, 1], [1, 1], [-1, -1]]


def _two_transfers() -> tuple[popxl.Session, popxl.DeviceToHostStream]:
    ir = popxl.Ir()
    ir.num_host_transfers = 2
    with ir.main_graph:
        out = popxl.d2h_stream((2,), popxl.float32)
        ops.repeat(ir.create_graph(lambda: ops.host_store(out, popxl.constant(np.ones(2, np.float32)))), 2)
    return popxl.Session(ir), out
