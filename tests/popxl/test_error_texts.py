"""Refusals of PopXL, word for word as the specification has them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popart_jax.popxl as popxl
from popart_jax import popart_exception
from popart_jax.popxl import ops

vu = ops.var_updates


def _op_cases() -> list[tuple[str, Callable[[Any], Any], type[Exception], str]]:
    return [
        ("no tensor", lambda e: ops.abs(3), TypeError, "The input `t` is not a Tensor. Type: <class 'int'>. Value: 3."),
        ("reshape 0", lambda e: e.m.reshape((0,)), ValueError,
         "Invalid shape value in reshape. Must be '>0' or '-1'. Provided (0,)."),
        ("reshape -1 -1", lambda e: e.m.reshape((-1, -1)), ValueError,
         "Reshape shape can contain at most one '-1' value. Provided (-1, -1)."),
        ("transpose", lambda e: e.m.transpose((5, 2)), ValueError,
         "Values in permutation must be less than the tensor's rank 2. Found (5, 2)"),
        ("permutation", lambda e: e.m.transpose((0,)), popart_exception,
         "Rank of permutation tensor [0], rank 1 must be equal to rank of input tensor, shape [2 3], rank 2."),
        ("tile sets", lambda e: e.on("io") + e.on("compute"), ValueError,
         "The input tensors `lhs` and `rhs` are located on different tile sets: io != compute."),
        ("squeeze twice", lambda e: ops.squeeze(e.one, [0, 0]), ValueError, "Axes contains duplicates"),
        ("squeeze rank", lambda e: ops.squeeze(e.one, [4]), ValueError,
         "Can't squeeze axis '4' as tensor has rank '2'"),
        ("squeeze long", lambda e: ops.squeeze(e.m, [1]), ValueError,
         "Can't squeeze axis '1' as length of axis is >1: 3"),
        ("split", lambda e: ops.split(e.m, 2, 1), ValueError,
         "Split 2 does not equally divide tensor axis 1 of length 3."),
        ("slice", lambda e: ops.slice(e.m, [0, 0], [1]), ValueError,
         "All inputs must have same length. `stop` has length 1 != 2."),
        ("subsample", lambda e: ops.subsample(e.m, [1, 1, 1]), ValueError,
         "The length of subsample `strides` must not be greater than the rank of the input tensor."),
        ("concat types", lambda e: ops.concat([e.m, e.i]), TypeError,
         "All inputs to a concat operation must have the same type: [popxl.dtypes.float32, popxl.dtypes.int32]"),
        ("histogram", lambda e: ops.histogram(e.m, [1.0, 1.0], False), ValueError,
         "The input levels `[1.0, 1.0]` is not a monotonically increasing list."),
        ("scatter_reduce", lambda e: ops.scatter_reduce(e.m, e.i, "sum"), ValueError,
         "One of initial_values and axis_size must be specified"),
        ("partials", lambda e: ops.matmul(e.m, e.m.T, partials_type=popxl.int8), ValueError,
         "dtype popxl.dtypes.int8 is not valid, must be float16 or float32"),
        ("reduction", lambda e: ops.nll_loss(e.m, e.i, reduction="x"), ValueError,
         "Not a valid reduction: x. Must choose from: mean, sum, none"),
        ("collective", lambda e: ops.collectives.replicated_all_reduce(3, "x"), ValueError,  # pyright: ignore
         "Not a valid op: x. Must choose from: add, mean, mul, min, max, and, or, square_add"),
        ("gathered axis", lambda e: ops.collectives.replicated_all_gather(e.m, "0"), ValueError,  # pyright: ignore
         "Axis should be an int. Type: <class 'str'>. Value: 0"),
        ("decay first", lambda e: vu.adam_updater(e.m, e.m, time_step=e.m, weight_decay=1.0), ValueError,
         "Weight decay requires weight to not be None."),
        ("adamax", lambda e: vu.adamax_updater(e.m, e.m, weight_decay=1.0), ValueError,
         "Weight decay requires weight to not be None."),
        ("print", lambda e: ops.print_tensor(e.m, separator=""), ValueError,
         "Parameter separator must be 1 character exactly. Not length 0 and value ."),
        ("no axes", lambda e: ops.sum(e.m) @ e.m, popart_exception, "doesn't support scalar tensor"),
        ("matmul", lambda e: e.m @ e.m, popart_exception,
         "contracting dimensions unequal: lhs 'm' [2 3], rhs 'm' [2 3]"),
        ("types", lambda e: e.m + e.i, popart_exception,
         "incompatible types FLOAT and INT32 (shapes [2 3] and [2 3])"),
        ("top", lambda e: ops.topk(e.m, 9, 1, True, True), popart_exception, "Cannot take top-9 on dim of size 3"),
        ("argmax", lambda e: ops.argmax(e.m, 4), popart_exception, "Axis 4 is out of acceptable range [-2, 1]"),
        ("gather", lambda e: ops.gather(e.m, e.i, 7), popart_exception,
         "GatherOp::setup axis = 7 is outside the acceptable range [-2, 1]"),
        ("labels", lambda e: ops.nll_loss(e.m, e.i), popart_exception,
         ("The label tensor (INT32   [2 3]) must have shape [2] to match all but the final dimension of the "
         "probabilities tensor (FLOAT   [2 3]) in Op ")),
        ("step", lambda e: ops.slice(e.m, 0, 2, 2), popart_exception, "Only steps of '1' or '-1' are supported."),
        ("concat axis", lambda e: ops.concat([e.m, e.m], 2), popart_exception,
         "Attribute 'axis' of ConcatOp, 2, is outside of acceptable range [-2, 1]"),
        ("index", lambda e: e.m["x"], TypeError,
         ("Only integers, slices (`:`), integer tensors and boolean tensors are valid indices. "
         "Not a valid Type: <class 'str'>. Value: x.")),
        ("index in a tuple", lambda e: e.m[0, None], TypeError,
         ("Only integers, slices (`:`), integer tensors and boolean tensors are valid indices. "
         "Not a valid Type: <class 'tuple'>. Value: (0, None).")),
        ("no tensor", lambda e: ops.detach_("x"), TypeError,
         "The input `t` is not a Tensor. Type: <class 'str'>. Value: x."),
        ("diag", lambda e: e.v.diag(), ValueError, "Diag expected a 2d tensor."),
        ("len", lambda e: len(popxl.constant(1.0)), ValueError, "Tensor is a scalar and doesn't have a length."),
        ("entries", lambda e: popxl.remote_buffer((2,), popxl.float32, 0), ValueError,
         "Entries must be a non-zero, positive integer. Got 0"),
        ("sharded", lambda e: popxl.replica_sharded_variable(np.ones(4, np.float32)), ValueError,
         "The IR's global replication factor is 1. It must be greater than 1 to create a replica sharded variable."),
    ]  # fmt: skip


class _Operands:
    def __init__(self) -> None:
        self.m = popxl.variable(np.ones((2, 3), np.float32), name="m")
        self.i = popxl.variable(np.ones((2, 3), np.int32), name="i")
        self.v = popxl.variable(np.ones(3, np.float32), name="v")
        self.one = popxl.variable(np.ones((1, 3), np.float32), name="one")

    def on(self, tile_set: str) -> popxl.Tensor:
        with contextlib.ExitStack() as stack:
            if tile_set == "io":
                stack.enter_context(popxl.io_tiles())
            return popxl.constant(np.ones(3, np.float32)) * 2.0


@pytest.mark.parametrize(("make", "kind", "text"), [pytest.param(*c[1:], id=c[0]) for c in _op_cases()])
def test_operators_refuse_in_the_specified_words(make, kind, text):
    with popxl.Ir().main_graph, pytest.raises(kind, match=re.escape(text)) as caught:
        make(_Operands())
    if kind is not popart_exception:
        assert str(caught.value) == text


def test_call_sites_refuse_in_the_specified_words():
    ir = popxl.Ir()
    with ir.main_graph:
        a = popxl.variable(np.ones(2, np.float32), name="a")
        g = ir.create_graph(lambda x, y: x + y, a, a)
        x, _ = g.inputs
        cases: list[tuple[Callable[[], Any], type[Exception], str]] = [
            (lambda: ops.call(g, a, a, a), ValueError,
             ("Too many inputs have been provided to the called graph. The number of positional inputs exceeds the "
             f"number of inputs of the graph. 3 > 2. For graph: {g!r}")),
            (lambda: ops.call(g, a, x), ValueError,
             f'Parent input tensor "{x}" is not in parent graph "{ir.main_graph!r}".'),
            (lambda: ops.call(g, a, inputs_dict={a: a}), ValueError,
             f'The graph input tensor "{a}" is not in the called graph ({g!r}).'),
            (lambda: ops.call(g, inputs_dict={x: x}), ValueError,
             f'The parent input tensor "{x}" is not in the parent graph ({ir.main_graph!r}).'),
            (lambda: ops.call(g, a, inputs_dict={x: a}), ValueError,
             ("Graph input tensor is specified twice for the called graph, in `inputs_dict` and positionally in "
             f"`inputs`: {x}")),
            (lambda: ops.call(g, a, "word"), TypeError,
             ("Input at position \"1\" could not be coerced into a tensor for the called graph: Type <class 'str'>. "
             "Value: word")),
            (lambda: ops.repeat(g, -1, a, a), ValueError, f"Repeat count must be >= 0. Repeat count: -1. Graph: {g!r}"),
        ]  # fmt: skip
        for run, kind, text in cases:
            with pytest.raises(kind) as caught:
                run()
            assert str(caught.value) == text
        with pytest.raises(ValueError, match=re.escape(f"called graph ({g!r}).\n\nMissing inputs:\nIndex | Graph")):
            ops.call(g, a)


def test_sessions_refuse_in_the_specified_words():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.h2d_stream((2,), popxl.float32, "x")
        v = popxl.variable(np.ones(2, np.float32), name="v")
        ops.add_(v, ops.host_load(x))
    session = popxl.Session(ir)
    with pytest.raises(ValueError, match=r"^Must be attached to device before calling a runtime function\. Put the"):
        session.run({x: np.ones(2, np.float32)})
    with session:
        with pytest.raises(ValueError, match=r"^Unexpected/Missing input\.\n  Unexpected: set\(\)\n  Missing: \{"):
            session.run({})
        with pytest.raises(ValueError, match=re.escape("Shape mismatch for input stream x:\nStream shape = (2,)")):
            session.run({x: np.ones(3, np.float32)})
        with pytest.raises(TypeError, match=r"must match the equivalent type of the tensor v : float32$"):
            session.write_variable_data(v, np.ones(2, np.int32))
        session.write_variable_data(v, np.array([4, 5], np.float32))
        with pytest.raises(
            ValueError, match=r"^The shape of the input array \(3,\) must match the shape of the tensor"
        ):
            session.write_variables_data({v: np.zeros(3, np.float32)})
        np.testing.assert_array_equal(session.get_tensor_data(v), [4, 5])


def test_contexts_refuse_in_the_specified_words():
    with pytest.raises(RuntimeError, match=r"^Trying to access a graph, but no graph has been selected\. Hint - try"):
        popxl.gcg()
    with pytest.raises(RuntimeError, match=r"^Trying to access the ir,"):
        popxl.gcg.__globals__["get_ir"]()
    with popxl.Ir().main_graph, pytest.raises(TypeError, match=r"^`None` cannot be passed to `in_sequence`\. Try"):
        popxl.in_sequence(None).__enter__()  # pyright: ignore[reportArgumentType]
