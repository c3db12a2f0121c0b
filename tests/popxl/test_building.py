"""Names, context, tensors, counters, order, errors while building."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from popart_jax import popxl
from popart_jax.errors import popart_exception
from popart_jax.popxl import ops
from popart_jax.popxl._internal.schedule import print_schedule

ONES = np.ones((2, 4), np.float32)


def test_names_and_suffixes():
    ir = popxl.Ir()
    with ir.main_graph:
        a, b = popxl.variable(1.0, name="bias"), popxl.variable(1.0, name="weight")
        c, d = popxl.variable(1.0, name="bias"), popxl.variable(1.0, name="weight")
        assert [t.id for t in (a, b, c, d)] == ["bias", "weight", "bias__t0", "weight__t1"]
        with popxl.name_scope("outer"), popxl.name_scope("inner") as scopes:
            assert scopes == ["outer", "inner"]
            assert popxl.variable(1.0).id == "outer/inner/t"
        g = ir.create_graph(lambda x: x + 1.0, a)
        assert g.inputs[0].id == f"{g.id}/x"
        assert g.inputs[0].name == "x"
        assert g.inputs[0].scope == g.name == g.id
        assert ops.reshape(a, (1,)).name == "bias_reshaped"
        assert ops.cast(a, popxl.float16).name == "bias_float16"
    assert repr(a) == "Variable[bias popxl.dtypes.float32 ()]"
    assert repr(g.inputs[0]) == f"Tensor[{g.id}/x popxl.dtypes.float32 ()]"
    assert repr(ir.main_graph) == "Graph[id= name=]"


def test_print_schedule_example():
    ir = popxl.Ir()
    with ir.main_graph:
        g = ir.create_graph(
            lambda x, b: ops.relu(x * 2.0) + b,
            popxl.TensorSpec((3, 2), popxl.float32),
            popxl.TensorSpec((2,), popxl.float32),
        )
    lines = print_schedule(g, {g.inputs[1]: "b"}).splitlines()
    assert lines[1:] == [
        "  (%1, b=%2) -> (%6) {",
        "    Mul.100 (%1 [(3, 2) float32], %3 [() float32]) -> (%4 [(3, 2) float32])",
        "    Relu.101 (%4 [(3, 2) float32]) -> (%5 [(3, 2) float32])",
        "    Add.102 (%5 [(3, 2) float32], %2 [(2,) float32]) -> (%6 [(3, 2) float32])",
        "  }",
    ]


def test_context_errors():
    for fn in (popxl.gcg, popxl.gmg, popxl.gir):
        with pytest.raises(RuntimeError):
            fn()
    one, two = popxl.Ir(), popxl.Ir()
    assert one != two
    assert two.id > one.id
    with one.main_graph:
        assert popxl.gcg() is one.main_graph
        with pytest.raises(RuntimeError), two.main_graph:
            pass
        sub = one.create_empty_graph()
        assert sub.id == "graph_subgraph(0)"
        with sub, pytest.raises(ValueError):
            popxl.variable(1.0)
    with pytest.raises(TypeError):
        _ = one == 3
    with pytest.raises(TypeError):
        popxl.Graph()
    with pytest.raises(RuntimeError):
        popxl.Tensor()


def test_operand_checks():
    ir = popxl.Ir()
    with ir.main_graph:
        a = popxl.variable(ONES, name="a")
        g = ir.create_empty_graph()
        with pytest.raises(TypeError, match="is not a Tensor"):
            ops.add(a, 1.0)
        with g, pytest.raises(ValueError, match="is not in the current Graph"):
            ops.exp(a)
        with pytest.raises(popart_exception):
            ops.add(a, popxl.constant(np.ones(3, np.float32)))
        with pytest.raises(popart_exception):
            ops.add(a, popxl.constant(ONES.astype(np.int32)))
        with pytest.raises(popart_exception):
            ops.matmul(a, a)
        with pytest.raises(ValueError):
            ops.reshape(a, (0, 8))
        with pytest.raises(popart_exception):
            ops.reshape(a, (3, 3))
        with pytest.raises(popart_exception):
            ops.split(a, [1, 5], 1)
        with pytest.raises(ValueError):
            ops.split(a, 3, 1)
        with pytest.raises(TypeError):
            a["x"]
        with pytest.raises(ValueError):
            a + []  # noqa: RUF005


def test_placement():
    ir = popxl.Ir()
    with ir.main_graph:
        a, b = popxl.variable(ONES, name="a"), popxl.variable(ONES, name="b")
        with pytest.raises(popxl.errors.UndefinedValue):
            _ = a.ipu
        with popxl.ipu(1):
            x = ops.exp(a)
        assert x.ipu == 1
        assert a.ipu == 1
        with popxl.io_tiles():
            y = ops.exp(b)
        assert y.tile_set == "io"
        with pytest.raises(ValueError, match="are located on different IPUs"):
            ops.add(x, y)
        with pytest.raises(ValueError, match="are located on different tile sets"):
            ops.add(ops.exp(b), y)
        moved = x.copy_to_ipu(0)
        assert moved.ipu == 0
        assert moved.name == f"{x.name}_c0"
        with pytest.raises(ValueError, match="Could not infer the ipu"):
            ops.ipu_copy(b, 1)
        with popxl.ipu(None):
            z = ops.exp(popxl.constant(1.0))
        with pytest.raises(ValueError, match="Please specify `source`"):
            z.copy_to_ipu(1)


def order(graph):
    return [op.id for op in graph._pb_graph.getOpSchedule(True)]


def test_in_sequence():
    ir = popxl.Ir()
    with ir.main_graph as g:
        a = popxl.variable(np.ones((100,), np.float32), name="a")
        small = popxl.variable(1.0, name="s")
        with popxl.in_sequence():
            ops.exp(a)
            ops.exp(small)
            with popxl.in_sequence(False):
                ops.exp(a)
                ops.exp(small)
            ops.exp(a)
        with pytest.raises(TypeError, match="`None` cannot be passed to"), popxl.in_sequence(None):
            pass
        with pytest.raises(ValueError), popxl.in_sequence("other"):
            ops.exp(a)
    found = order(g)
    assert found.index(100) < found.index(101) < found.index(103) < found.index(102) < found.index(104)


def test_the_order_may_be_set_without_a_block():
    ir = popxl.Ir()
    with ir.main_graph:
        v, current = popxl.variable(ONES), popxl.context.get_current_context()
        current.in_sequence = True
        ops.add_(v, 1 * v)
        ops.add_(v, 2 * v)
        assert current.in_sequence is True
        del current.in_sequence
        assert current.in_sequence is None
    popxl.Session(ir)  # without order it would be refused


def test_hooks():
    ir = popxl.Ir()
    seen = []
    with ir.main_graph as g:
        handle = g.register_op_created_hook(lambda op: seen.append(op.opType()))
        ops.exp(popxl.variable(1.0))
        g.remove_op_created_hook(handle)
        ops.exp(popxl.variable(1.0))
        with pytest.raises(ValueError):
            g.remove_op_created_hook(handle)
    assert seen == ["Exp"]


AMBIGUOUS = {
    "two writes": lambda a, x: (ops.exp_(a), ops.swish_(a)),
    "read and write": lambda a, x: (ops.tanh(a), ops.add_(a, x)),
    "twice": lambda a, x: (ops.add_(a, x), ops.add_(a, x)),
}
FINE = {
    "chained": lambda a, x: ops.swish_(ops.exp_(a)),
    "through the value": lambda a, x: ops.scaled_add_(a, ops.tanh(a)),
}


@pytest.mark.parametrize("name", [*AMBIGUOUS, *FINE])
@pytest.mark.parametrize("ordered", [False, True])
def test_ambiguity(name, ordered):
    ir = popxl.Ir()
    with ir.main_graph:
        a, x = popxl.variable(ONES, name="a"), popxl.constant(ONES)
        with popxl.in_sequence(ordered):
            {**AMBIGUOUS, **FINE}[name](a, x)
    if name in FINE or ordered:
        popxl.Session(ir)
        return
    with pytest.raises(popart_exception, match=r"^Inplacing ambiguity detected\."):
        popxl.Session(ir)


def test_views_see_writes():
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        a = popxl.variable(np.arange(6, dtype=np.float32).reshape(2, 3), name="a")
        part = ops.slice_(ops.transpose_(a), 1, 2)
        ops.add_(part, popxl.constant(np.full((1, 2), 10, np.float32)))
        joined = ops.concat_([a, ops.reshape_(a, (2, 3))], 0)
        ops.scaled_add_(joined, popxl.constant(np.zeros((4, 3), np.float32)), a=2.0)
        sink = popxl.d2h_stream((2, 3), popxl.float32)
        ops.host_store(sink, a)
    with popxl.Session(ir) as session:
        got = session.run()[sink]
    want = np.arange(6, dtype=np.float32).reshape(2, 3)
    want[:, 1] += 10
    np.testing.assert_array_equal(got, want * 2)


def test_iadd_keeps_the_object():
    ir = popxl.Ir()
    with ir.main_graph:
        a = popxl.variable(ONES, name="a")
        b = a
        a += 1.0
        assert a is b
        assert len(a) == 2
        assert hash(a) == hash(b)
        with pytest.raises(TypeError):
            iter(a)
    assert [op.opType() for op in ir.main_graph._pb_graph.getOps()] == ["AddLhsInplace"]


def test_tensor_spec():
    spec = popxl.TensorSpec((2, 3), popxl.float16)
    assert dict(**spec) == {"shape": (2, 3), "dtype": popxl.float16, "meta_shape": ()}
    assert repr(spec) == "TensorSpec(shape=(2, 3), dtype=popxl.dtypes.float16, meta_shape=())"


def test_dtypes():
    torch = pytest.importorskip("torch")

    assert popxl.dtype.as_dtype("half") is popxl.float16
    assert popxl.dtype.as_dtype(torch.float32) is popxl.float32
    assert popxl.dtype.as_dtype(np.int8) is popxl.int8
    assert popxl.dtype.as_dtype(int) is popxl.int64
    assert popxl.float32.as_torch() is torch.float32
    with pytest.raises(TypeError):
        popxl.uint16.as_torch()
    with pytest.raises(TypeError):
        popxl.dtype()
    with pytest.raises(ValueError):
        popxl.dtype.as_dtype("no such type")


def test_data_of_other_machines_and_frameworks():
    """Big-endian numbers of files, and bfloat16, which NumPy and PopXL lack."""
    torch = pytest.importorskip("torch")
    x = np.array([1.5, -2.0])
    with popxl.Ir().main_graph:
        for given, dtype in (
            (x.astype(">f8"), popxl.float32),
            (x.astype(">f2"), popxl.float16),
            (torch.tensor(x, dtype=torch.bfloat16), popxl.float32),
            (jnp.asarray(x, jnp.bfloat16), popxl.float32),
        ):
            v = popxl.variable(given)
            assert v.dtype == dtype
            np.testing.assert_array_equal(v._host, x)


def test_seeds():
    seeds = popxl.create_seeds(42, batches_per_step=3, replicas=2)
    words = np.random.default_rng(42).integers(0, 2**64 - 1, (3, 1, 2), np.uint64, endpoint=True).reshape(3, 2)
    np.testing.assert_array_equal(seeds[..., 0], words >> np.uint64(32))
    assert seeds.dtype == np.uint32
    from popart_jax.popxl.random_seed import two_uint32_to_uint64, uint64_to_two_uint32

    assert two_uint32_to_uint64(*uint64_to_two_uint32(2**40 + 7)) == 2**40 + 7
    with pytest.raises(ValueError):
        uint64_to_two_uint32(2**64)


def test_no_slots():
    ir = popxl.Ir()
    ir.anything = 1
    ir._pb_ir.getSessionOptions().someUnknownOption = 5
    assert ir._pb_ir.getSessionOptions().someUnknownOption == 5


def test_shapes_and_strides_as_lists_and_arrays():
    ir, strides = popxl.Ir(), [2]
    with ir.main_graph:
        t = popxl.variable(np.zeros((4, 6), np.float32))
        assert ops.subsample(t, strides).shape == (2, 6)
        assert ops.reshape(t, np.array([3, -1])).shape == t.reshape([3, 8]).shape == (3, 8)
    assert strides == [2]
