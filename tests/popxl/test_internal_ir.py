"""Which internal operators each function creates, and what the views tell about them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

import popart_jax as popart
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl._internal import ir as _ir

FUNCTIONS = json.loads((Path(__file__).parent / "data" / "internal.json").read_text())["functions"]


class World:
    """Operands of many kinds in a fresh Ir."""

    def __init__(self):
        self.ir = popxl.Ir(replication=2)
        self.graph = self.ir.main_graph
        self.graph.__enter__()
        f = lambda *s: popxl.variable(np.ones(s, np.float32))  # noqa: E731
        self.x, self.y, self.v, self.s = f(2, 4), f(2, 4), f(4), f()
        self.image, self.kernel = f(1, 4, 6, 6), f(4, 4, 3, 3)
        self.i = popxl.variable(np.array([1, 0], np.int32))
        self.index = popxl.variable(np.array([1], np.uint32))
        self.b = popxl.variable(np.ones((2, 4), bool))
        self.flag = popxl.variable(np.array(True))
        self.seed = popxl.variable(np.array([1, 2], np.uint32))
        self.h2d, self.d2h = popxl.h2d_stream((2, 4), popxl.float32), popxl.d2h_stream((2, 4), popxl.float32)
        self.buffer = popxl.remote_buffer((2, 4), popxl.float32)
        self.eight = popxl.variable(np.ones((2, 2), np.float32), popxl.float8_143)
        self.wide8 = popxl.variable(np.ones((1, 2, 3, 3), np.float32), popxl.float8_143)
        self.kernel8 = popxl.variable(np.ones((2, 2, 1, 1), np.float32), popxl.float8_143)
        self.scale = popxl.constant(np.int32(0))
        self.sub = self.ir.create_graph(lambda a: ops.exp(a), self.x)

    def done(self):
        self.graph.__exit__(None, None, None)


def c(value):
    return popxl.constant(value)


CALLS = {
    "argmax": lambda w: ops.argmax(w.x),
    "argmin": lambda w: ops.argmin(w.x),
    "average_pool": lambda w: ops.average_pool(w.image, (2, 2)),
    "max_pool": lambda w: ops.max_pool(w.image, (2, 2)),
    "batch_norm_inference": lambda w: ops.batch_norm_inference(w.image, w.v, w.v, w.v, w.v),
    "call": lambda w: ops.call(w.sub, w.x),
    "call_with_info": lambda w: ops.call_with_info(w.sub, w.x),
    "cast": lambda w: ops.cast(w.x, popxl.float16),
    "pow2scale_cast_to_fp8": lambda w: ops.pow2scale_cast_to_fp8(w.x, w.scale, popxl.float8_143),
    "pow2scale_cast_from_fp8": lambda w: ops.pow2scale_cast_from_fp8(w.eight, w.scale, popxl.float16),
    "concat": lambda w: ops.concat([w.x, w.y]),
    "concat_": lambda w: ops.concat_([w.x, w.y]),
    "conditional": lambda w: ops.conditional(w.flag, w.sub, w.sub, [w.x], [w.x]),
    "conditional_with_info": lambda w: ops.conditional(w.flag, w.sub, w.sub, [w.x], [w.x]),
    "conv": lambda w: ops.conv(w.image, w.kernel),
    "conv_pow2scaled": lambda w: ops.conv_pow2scaled(w.wide8, w.kernel8, w.scale),
    "conv_transpose": lambda w: ops.conv_transpose(w.image, w.kernel),
    "conv_transpose_pow2scaled": lambda w: ops.conv_transpose_pow2scaled(w.wide8, w.kernel8, w.scale),
    "remote_code_load": lambda w: ops.remote_code_load(w.sub, "executable"),
    "cumsum": lambda w: ops.cumsum(w.x),
    "roi_align": lambda w: ops.roi_align(
        w.image, c(np.ones((1, 4), np.float32)), c(np.zeros(1, np.int32)), (2, 2), 1.0, 1
    ),
    "interpolate": lambda w: ops.interpolate(w.image),
    "dropout": lambda w: ops.dropout(w.x, w.seed, 0.1),
    "shaped_dropout": lambda w: ops.shaped_dropout(w.x, w.seed, (2, 1), 0.1),
    "dynamic_slice": lambda w: ops.dynamic_slice(w.x, w.index, [0], [1], True),
    "dynamic_update": lambda w: ops.dynamic_update(w.x, w.index, w.y, [0], [1], True),
    "dynamic_update_": lambda w: ops.dynamic_update_(w.x, w.index, w.y, [0], [1], True),
    "onehot": lambda w: ops.onehot(w.i, c(np.int32(3)), c(np.array([0.0, 1.0], np.float32)), 1),
    "topk": lambda w: ops.topk(w.x, 1, 0, True, True),
    "gather": lambda w: ops.gather(w.x, w.i),
    "groupedgather": lambda w: ops.groupedgather(w.x, w.i),
    "tied_gather": lambda w: ops.tied_gather(w.x, w.i),
    "group_norm": lambda w: ops.group_norm(w.x, w.v, w.v, 2),
    "layer_norm": lambda w: ops.layer_norm(w.x, w.v, w.v),
    "histogram": lambda w: ops.histogram(w.x, [0.0, 1.0], False),
    "host_load": lambda w: ops.host_load(w.h2d),
    "host_store": lambda w: ops.host_store(w.d2h, w.x),
    "increment_mod": lambda w: ops.increment_mod(w.x, 1, 2),
    "increment_mod_": lambda w: ops.increment_mod_(w.x, 1, 2),
    "init": lambda w: ops.init((2,), popxl.float32),
    "ipu_copy": lambda w: ops.ipu_copy(w.x, 1, 0),
    "matmul": lambda w: ops.matmul(w.x, w.v),
    "logical_and": lambda w: ops.logical_and(w.b, w.b),
    "logical_or": lambda w: ops.logical_or(w.b, w.b),
    "logical_not": lambda w: ops.logical_not(w.b),
    "where": lambda w: ops.where(w.b, w.x, w.y),
    "matmul_pow2scaled": lambda w: ops.matmul_pow2scaled(w.eight, w.eight, w.scale),
    "nll_loss": lambda w: ops.nll_loss(w.x, w.i),
    "nll_loss_with_softmax_grad": lambda w: ops.nll_loss_with_softmax_grad(w.x, w.i),
    "create_random_seed": lambda w: importlib.import_module("popart_jax.popxl.ops.random_seed").create_random_seed(
        w.seed, c(np.uint32(1))
    ),
    "random_uniform": lambda w: ops.random_uniform(w.seed, (2,)),
    "random_normal": lambda w: ops.random_normal(w.seed, (2,)),
    "repeat": lambda w: ops.repeat(w.sub, 2, w.x),
    "repeat_with_info": lambda w: ops.repeat(w.sub, 2, w.x),
    "reshape": lambda w: ops.reshape(w.x, (8,)),
    "reshape_": lambda w: ops.reshape_(w.x, (8,)),
    "remote_load": lambda w: ops.remote_load(w.buffer, 0),
    "remote_load_": lambda w: ops.remote_load_(w.buffer, 0, w.x),
    "remote_store": lambda w: ops.remote_store(w.buffer, 0, w.x),
    "scatter": lambda w: ops.scatter(w.x, c(np.zeros((2, 4), np.int32)), w.y),
    "scatter_reduce": lambda w: ops.scatter_reduce(w.x, w.i, "sum", axis_size=3),
    "slice": lambda w: ops.slice(w.x, 0, 1),
    "slice_": lambda w: ops.slice_(w.x, 0, 1),
    "softmax": lambda w: ops.softmax(w.x, 1),
    "split": lambda w: ops.split(w.x, 2),
    "squeeze": lambda w: ops.squeeze(w.x),
    "subsample": lambda w: ops.subsample(w.x, 2),
    "split_random_seed": lambda w: ops.split_random_seed(w.seed),
    "collectives.all_reduce": lambda w: ops.collectives.all_reduce([w.x, w.y], [0, 1]),
    "collectives.all_reduce_identical_inputs": lambda w: ops.collectives.all_reduce_identical_inputs(
        [w.x, w.y], [0, 1]
    ),
    "collectives.all_reduce_identical_grad_inputs": lambda w: ops.collectives.all_reduce_identical_grad_inputs(
        [w.x], [0]
    ),
    "var_updates.sparse_accumulate_": lambda w: ops.var_updates.sparse_accumulate_(w.x, w.y, w.i),
    "var_updates.accumulator_scale_": lambda w: ops.var_updates.accumulator_scale_(w.x, 0.5),
    "var_updates.accumulator_zero_": lambda w: ops.var_updates.accumulator_zero_(w.x),
    "var_updates.adam_updater": lambda w: ops.var_updates.adam_updater(w.x, w.y),
    "var_updates.lamb_updater": lambda w: ops.var_updates.lamb_updater(w.x, w.y),
    "var_updates.adamax_updater": lambda w: ops.var_updates.adamax_updater(w.x, w.y, time_step=w.s),
    "var_updates.adam_var_update": lambda w: ops.var_updates.adam_var_update(w.x, w.y, w.s, w.s),
    "var_updates.copy_var_update_": lambda w: ops.var_updates.copy_var_update_(w.x, w.y),
}
ONE = {"accumulate_mean_": (1.0,), "accumulate_moving_average_": (0.5,), "accumulate_moving_average_square_": (0.5,)}
TWO = {"add", "add_", "div", "equal", "fmod", "greater", "mul", "pow", "scaled_add", "scaled_add_", "sub", "maximum"}
SKIPPED = {"code_copy", "grouped_scatter_reduce"}


def _call(name, w):
    if name in CALLS:
        return CALLS[name](w)
    if name.startswith("var_updates."):
        short = name.partition(".")[2]
        return getattr(ops.var_updates, short)(w.x, w.y, *ONE.get(short, ()))
    if name.startswith("collectives."):
        return getattr(ops.collectives, name.partition(".")[2])(w.x)
    return getattr(ops, name)(w.x, w.y) if name in TWO else getattr(ops, name)(w.x)


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - SKIPPED))
def test_function_creates_the_listed_operators(name):
    classes, types, _names, version = FUNCTIONS[name]
    w = World()
    try:
        before = len(w.graph._pb_graph.getOps())
        _call(name, w)
        made = w.graph._pb_graph.getOps()[before:]
    finally:
        w.done()
    if name.startswith("repeat"):
        classes, types = ["LoopOp"], ["Loop"]
    if name.startswith("collectives.replicated_all_gather") or name == "collectives.replicated_slice":
        types = [t for t in types if t != "Transpose"]
        classes = [c for c in classes if "axis > 0" not in c]
    if name == "split_random_seed":
        classes, types = ["ModifyRandomSeedOp"] * 2, ["ModifyRandomSeed"] * 2
    assert [op.opType() for op in made] == types
    assert [type(op).__name__ for op in made] == [c.partition(" ")[0] for c in classes]
    if version is not None and len(made) == 1:
        assert made[0].opid.version == version


def test_views():
    w = World()
    try:
        with popxl.name_scope("scope"), popxl.ipu(1):
            y = ops.matmul(w.x, w.v, available_memory_proportion=0.3)
        op = w.graph._pb_graph.getOps()[-1]
        assert isinstance(op, _ir.op.MatMulOp)
        assert isinstance(op, _ir.op.MatMulBaseOp)
        assert op.getAvailableMemoryProportion() == 0.3
        assert op.inTensor(0).id == w.x.id
        assert op.outTensor(0).id == y.id
        assert op.getVirtualGraphId() == 1
        assert op.getSettings().name.startswith("scope/")
        assert y._pb_tensor.getProducer() is op
        assert w.x._pb_tensor.consumers.getOps() == [op]
        assert popxl.Tensor._from_pb_tensor(y._pb_tensor) is y
        assert popxl.Graph._from_pb(w.graph._pb_graph) is w.graph
        assert popxl.Ir._from_pb(w.ir._pb_ir) is w.ir
        assert y._pb_tensor.info.shape() == [2]
        assert w.ir._pb_ir.getGraph(w.sub.id)._graph is w.sub
        total = w.graph._pb_graph.createConnectedOp_SumOp(
            {0: w.x.id, 1: w.y.id},
            {0: w.graph._create_tensor_id("total")},
            _ir.OperatorIdentifier("ai.onnx", "Sum", 6),
            popxl.context.get_current_context()._get_op_settings("sum"),
        )  # fmt: skip
        assert total.opType() == "Sum"
        assert total.outShape(0) == [2, 4]
        w.graph._pb_graph.eraseOp(total.id)
        assert total.id not in w.graph._pb_graph.getOpIds()
        factor = ops.var_updates.accumulator_scale_(w.x, 0.25)._pb_tensor.getProducer().getFactor()
        assert (factor.val(), factor.isConst()) == (0.25, True)
        factor = ops.var_updates.accumulator_scale_(w.x, w.s)._pb_tensor.getProducer().getFactor()
        assert (factor.val(), factor.isConst()) == (0.0, False)
    finally:
        w.done()


def test_serialised():
    """The operators of all functions, in the form that a session's op list has."""
    w = World()
    try:
        for name in sorted(set(FUNCTIONS) - SKIPPED):
            _call(name, w)
        with popxl.ipu(1):
            y = ops.matmul(w.x, w.v, available_memory_proportion=0.3)
    finally:
        w.done()
    shown = json.loads(w.ir._pb_ir.serializeToJSON())
    assert shown.keys() == {g.id.str() or "maingraph" for g in w.ir._pb_ir.getAllGraphs()}
    assert [op["type"] for op in shown["maingraph"]] == [o.opType() for o in w.graph._pb_graph.getOpSchedule()]
    (product,) = (op for op in shown["maingraph"] if op["outputs"] == [{"name": y.id, "index": "0"}])
    assert product["inputs"][1] == {"name": w.v.id, "shape": "[4]", "type": "FLOAT", "index": "1"}
    assert product["attributes"].items() >= {
        "__ipu_number": "1", "__execution_context": "Normal", "available_memory_proportion": "0.300000",
    }.items()  # fmt: skip
    attributes = {op["type"]: op["attributes"] for op in shown["maingraph"]}
    assert attributes["ReplicatedAllReduce"]["__collectiveOperator"] == "0"
    assert attributes["ReplicatedAllReduce"]["__collectiveReplicaGrouping"] == "[2 1 2]"
    assert (attributes["IpuCopy"]["__sourceIpus"], attributes["IpuCopy"]["__destIpu"]) == ("[0]", "1")
    callee = next(op["attributes"]["callee"] for op in shown["maingraph"] if op["type"] == "Call")
    assert {op["attributes"]["__execution_context"] for op in shown[callee]} == {"Subgraph"}


def test_constraints_in_a_circle_have_no_schedule():
    ir = popxl.Ir()
    with ir.main_graph:
        ops.sin(ops.exp(popxl.variable(np.ones(2, np.float32))))
    view = ir.main_graph._pb_graph
    first, second = view.getOps()
    view.topoCons().insert(second, first, False)
    with pytest.raises(popart.popart_exception, match=r"^No order of graph '' keeps .* can't start: .*Exp.*Sin"):
        view.getOpSchedule()


def test_tensor_counts():
    w = World()
    try:
        before = len(w.graph.tensors), len(w.graph.constants)
        w.x + 1.0
        ops.group_norm(w.x, w.v, w.v, 2)
        assert (len(w.graph.tensors) - before[0], len(w.graph.constants) - before[1]) == (5, 1)
    finally:
        w.done()


HALVES = ("x", "y", "v", "s", "image", "kernel")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "layer_norm" else pytest.mark.sweep) for n in sorted(set(FUNCTIONS) - SKIPPED)],
)
def test_outputs_are_declared_as_they_are_computed(name):
    """In half precision too: a buffer or a stash that is made for a declared output must fit its value."""
    w = World()
    try:
        halves = {n: popxl.variable(np.ones(t.shape, np.float16)) for n, t in vars(w).items() if n in HALVES}
        vars(w).update(halves, sub=w.ir.create_graph(lambda a: ops.exp(a), halves["x"]))
        w.h2d, w.d2h = popxl.h2d_stream((2, 4), popxl.float16), popxl.d2h_stream((2, 4), popxl.float16)
        w.buffer = popxl.remote_buffer((2, 4), popxl.float16)
        before = len(w.graph._pb_graph.getOps())
        _call(name, w)
        for op in w.graph._pb_graph.getOps()[before:]:
            talks = any(attr.name.startswith("__state") for attr in op._node.attributes.values())
            if not talks:
                declared = [t.info for t in op.getOutputTensors()]
                op.setup()
                assert [t.info for t in op.getOutputTensors()] == declared, op.opType()
    finally:
        w.done()


def test_decompose_sum_and_patterns():
    ir = popxl.Ir()
    with ir.main_graph as g:
        ts = [popxl.variable(np.full((2,), k, np.float32), name=f"v{k}") for k in range(3)]
        name = g._create_tensor_id("total")
        g._pb_graph.createConnectedOp_SumOp({i: t.id for i, t in enumerate(ts)}, {0: name})
        total = g.get_tensor(name)
        sink = popxl.d2h_stream((2,), popxl.float32)
        ops.host_store(sink, total)
        assert popxl.transforms.decompose_sum(g) is g
    assert [op.opType() for op in g._pb_graph.getOps()].count("Add") == 3
    assert g.get_tensor(name) is total
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[sink], [3, 3])


def test_internal_transforms_say_that_they_worked_and_take_optional_lists():
    ir = popxl.Ir()
    with ir.main_graph as g:
        graph = ir.create_graph(lambda x: ops.exp(ops.softmax(x, -1)), popxl.variable(np.ones((2, 3), np.float32)))
        ops.exp(popxl.variable(1.0))
    assert _ir.transforms.Prune().apply(g._pb_graph)
    assert not g._pb_graph.getOps()
    forward, strategies = graph._pb_graph, _ir.transforms.AutodiffStitchStrategy
    backward, given = ["ExpGrad", "Sum", "SoftmaxGrad", "Sum"], graph.outputs[0].id
    for strategy, wanted, inputs in (
        (strategies.RecomputeMinimal, backward, 3),
        (strategies.RecomputeAllNonInputs, ["Softmax", "Exp", *backward], 2),
    ):
        made = _ir.transforms.Autodiff().apply(ir._pb_ir, forward.id, [given], _ir.OptionalTensors(), {}, strategy)[
            forward.id
        ]
        assert [op.opType() for op in ir._pb_ir.getGraph(made.bwdGraphId).getOps()] == wanted
        assert len(made.expectedInputs) == inputs


def test_session_rewrites_conv_transpose():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.random.default_rng(0).normal(size=(1, 2, 4, 4)).astype(np.float32))
        w = popxl.variable(np.random.default_rng(1).normal(size=(2, 3, 3, 3)).astype(np.float32))
        y = ops.conv_transpose(x, w)
        sink = popxl.d2h_stream(y.shape, y.dtype)
        ops.host_store(sink, y)
    session = popxl.Session(ir)
    types = [op.opType() for op in session.ir.main_graph._pb_graph.getOps()]
    assert "ConvTranspose" not in types
    assert types.count("Conv") == types.count("ConvFlipWeights") == 1
    torch = pytest.importorskip("torch")
    with session:
        want = torch.nn.functional.conv_transpose2d(torch.tensor(x._host), torch.tensor(w._host))
        np.testing.assert_allclose(session.run()[sink], want, rtol=1e-4, atol=1e-5)
