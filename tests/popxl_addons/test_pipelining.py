"""The graphs of a pipeline, its cycles, and its queues."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons.transforms.pipelining import PipelineBoundGraph, Restore, Stash

SPEC = popxl.TensorSpec((2,), popxl.float32)


def streams(shape=()):
    return popxl.h2d_stream(shape, popxl.float32), popxl.d2h_stream(shape, popxl.float32)


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("extra", [0, 3])
def test_a_chain_of_stages_is_the_composition_of_their_functions(stages, extra):
    steps = 2 * stages + extra
    ir = popxl.Ir()
    ir.num_host_transfers = steps
    with ir.main_graph, popxl.in_sequence():
        feed, out = streams((3,))
        x = popxl.constant(0.0)
        with addons.pipelined_execution(steps) as pipe:
            for i in range(stages):
                with pipe.stage(i), popxl.ipu(i):
                    x = ops.host_load(feed) if i == 0 else x
                    x = x * float(i + 2) + 1.0
                    if i + 1 < stages:
                        x = x.copy_to_ipu(i + 1)
                    else:
                        ops.host_store(out, x)
    xs = np.random.RandomState(0).rand(steps, 3).astype(np.float32)
    with popxl.Session(ir, "ipu_hw") as session:
        found = session.run({feed: xs})[out]
    expected = xs.astype(np.float64)
    for i in range(stages):
        expected = expected * (i + 2) + 1
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_value_that_crosses_several_stages_belongs_to_the_same_micro_batch():
    steps = 8
    ir = popxl.Ir()
    ir.num_host_transfers = steps
    with ir.main_graph, popxl.in_sequence():
        feed, out = streams()
        with addons.pipelined_execution(steps) as pipe:
            with pipe.stage(0):
                x = ops.host_load(feed)
                y = x * 2.0
            with pipe.stage(1):
                z = y + 1.0
            with pipe.stage(2):
                w = z * 3.0
            with pipe.stage(3):
                ops.host_store(out, w + x + pipe.stash_and_restore_tensor(y))
    xs = np.arange(1, steps + 1, dtype=np.float32)
    with popxl.Session(ir) as session:
        for _ in range(3):
            np.testing.assert_array_equal(session.run({feed: xs})[out], (2 * xs + 1) * 3 + xs + 2 * xs)


@pytest.mark.parametrize("ipus", [2, 3])
def test_a_value_handed_from_ipu_to_ipu_keeps_its_micro_batch(ipus):
    """The copy of a copy, while the next value arrives: what an encoder makes passes through a decoder in this way."""
    steps, stages = 8, 4
    ir = popxl.Ir()
    ir.num_host_transfers = steps
    with ir.main_graph, popxl.in_sequence():
        feed, out = streams()
        with addons.pipelined_execution(steps) as pipe:
            with pipe.stage(0), popxl.ipu(0):
                made = passed = ops.host_load(feed) * 1.0
            for stage in range(1, stages):
                before, now = (stage - 1) % ipus, stage % ipus
                with pipe.stage(stage - 1), popxl.ipu(before):
                    made, passed = (t.copy_to_ipu(now, before) for t in (made, passed))
                with pipe.stage(stage), popxl.ipu(now):
                    made = made * 2.0 + passed
            with pipe.stage(stages - 1), popxl.ipu((stages - 1) % ipus):
                ops.host_store(out, made)
    xs = np.arange(1, steps + 1, dtype=np.float32)
    with popxl.Session(ir, "ipu_hw") as session:
        for _ in range(2):
            np.testing.assert_array_equal(session.run({feed: xs})[out], 15 * xs)


def test_the_order_within_a_stage_holds_across_what_moved_elsewhere():
    """A read of `w`, a store, and a change of `w`: only the store, which is another part, ordered the two."""
    steps = 4
    ir = popxl.Ir()
    ir.num_host_transfers = steps
    with ir.main_graph:
        feed, out = streams()
        w = popxl.variable(np.float32(1.0))
        with popxl.in_sequence(), addons.pipelined_execution(steps) as pipe:
            with pipe.stage(0):
                y = ops.host_load(feed) * w
                ops.host_store(out, y)
                ops.var_updates.accumulate_(w, popxl.constant(np.float32(1.0)))
            with pipe.stage(1):
                y + 1.0
    with popxl.Session(ir) as session:
        found = session.run({feed: np.ones(steps, np.float32)})[out]
        np.testing.assert_array_equal(found, [1, 2, 3, 4])
        assert session.get_tensor_data(w) == 5


def test_a_stage_cannot_read_what_a_later_one_makes():
    def backwards():
        with addons.pipelined_execution(4) as pipe:
            with pipe.stage(1):
                x = popxl.constant(1.0) * 2.0
            with pipe.stage(0):
                x + 1.0

    with popxl.Ir().main_graph, pytest.raises(ValueError, match="stage 0 reads tensor"):
        backwards()


def test_graphs_and_variables_of_a_pipeline():
    steps = 6
    ir = popxl.Ir()
    ir.num_host_transfers = steps
    main = ir.main_graph
    with main, popxl.in_sequence():
        feed, out = streams((2,))
        with addons.pipelined_execution(steps) as pipe:
            with pipe.stage(0), popxl.ipu(0):
                x = ops.host_load(feed)
                y = (x + 1.0).copy_to_ipu(1)
            with pipe.stage(1), popxl.ipu(1):
                y = (y * 2.0).copy_to_ipu(0)
            with pipe.stage(2), popxl.ipu(0):
                ops.host_store(out, y + pipe.stash_and_restore_tensor(x))
    assert sorted(v.shape for v in main.variables) == [(1,), (1,), (3, 2)]
    (site,) = main._pb_graph.getOps()
    assert (site.opType(), site.getCalledGraph().id.split("_subgraph")[0]) == ("Call", "pipeline_graph")
    driver = popxl.Graph._from_pb(site.getCalledGraph())
    called = [popxl.Graph._from_pb(op.getCalledGraph()).id.split("_subgraph")[0] for op in driver._pb_graph.getOps()
              if op.opType() in ("Call", "Loop")]  # fmt: skip
    up, down = called.index("main_cycle"), len(called)
    assert called[:up] == [
        "loads_stage_0",
        "stage_0",
        "ipu_copies",
        "loads_stage_0",
        "stage_0",
        "stage_1",
        "ipu_copies",
    ]
    assert called[up + 1 : down] == ["stage_1", "stage_2", "stores_stage_2", "ipu_copies", "stage_2", "stores_stage_2",
                                     "ipu_copies"]  # fmt: skip
    (loop,) = [op for op in driver._pb_graph.getOps() if op.opType() == "Loop"]
    assert loop.getTripCountValue() == steps - 2


def test_stash_and_restore_are_a_queue():
    ir = popxl.Ir()
    ir.num_host_transfers = 5
    with ir.main_graph, popxl.in_sequence():
        feed, out = streams((2,))
        factories, stash = Stash().create_graph(SPEC, 3)
        assert sorted(factories.keys()) == ["counter", "stash"]
        written = factories.init("a")
        read_factories, restore = Restore().create_graph(written.stash)
        read = read_factories.init("b")

        def step():
            return None

        body = ir.create_graph(step)
        with body, popxl.in_sequence():
            state = {k: popxl.graph_input(t.shape, t.dtype, k, by_ref=True) for k, t in written.to_dict().items()}
            mine = popxl.graph_input((1,), popxl.uint32, "mine", by_ref=True)
            stash.bind(addons.NamedTensors.from_dict(state)).call(ops.host_load(feed))
            (found,) = restore.bind(addons.NamedTensors(counter=mine)).call(state["stash"])
            ops.host_store(out, found)
        inputs = {state[k]: written[k] for k in state} | {mine: read.counter}
        ops.repeat(body, 5, inputs_dict=inputs)
    xs = np.random.RandomState(1).rand(5, 2).astype(np.float32)
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run({feed: xs})[out], xs)
        assert session.get_tensor_data(read.counter) == [2]


def test_a_part_knows_its_ends_by_the_ids_they_had():
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        w, x, y = (popxl.variable(np.full(2, v, np.float32), name=n) for n, v in (("w", 2), ("x", 3), ("y", 5)))
        part = PipelineBoundGraph(ir.create_empty_graph("part"))
        inner, other = part.add_variable_input(w), part.add_crossing_input(x, x.id, 0)
        assert part.add_variable_input(w) is inner
        with part.graph:
            product = inner * other
        part.add_output_tensor(product, "gone")
        assert part.original_output_ids == ("gone",)
        assert [t in part for t in (w, x.id, y)] == [True, True, False]
        part.reconnect_input("w", w)
        part.reconnect_input("x", y)
        out = addons.ops.host_store(part.call()[0])
        over = addons.ops.host_store(part.call(inputs_dict={other: x})[0])
    with popxl.Session(ir) as session:
        found = session.run()
    np.testing.assert_array_equal(found[out], [10, 10])
    np.testing.assert_array_equal(found[over], [6, 6])
