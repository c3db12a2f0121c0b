"""What the IPU model says of PopXL programs: what is moved, between which replicas, and in which pass."""

from __future__ import annotations

import numpy as np
import pytest

import ipu_model
from popart_jax import popxl
from popart_jax.popxl import ops

from .transformer import program

MK2 = ipu_model.get_target("mk2")
ROW = (64, 128)


def priced(build, replication=1):
    ir = popxl.Ir(replication=replication)
    with ir.main_graph, popxl.in_sequence():
        x = build(ir)
        ops.host_store(popxl.d2h_stream(x.shape, x.dtype), x)
    report = popxl.Session(ir, "ipu_hw")._pb_session.getReport().model
    assert ipu_model.Report.from_json(report.to_json()) == report
    return report


@pytest.mark.parametrize("rows", [2, 16])
def test_a_remote_load_or_store_moves_one_row_of_its_buffer(rows):
    def build(ir):
        buffer = popxl.remote_buffer(ROW, popxl.float32, rows)
        for k in range(rows):
            popxl.remote_variable(np.zeros(ROW, np.float32), buffer, k)
        x = ops.remote_load(buffer, 0)
        for k in (1, 0, 1):
            x = x + ops.remote_load(buffer, k)
        ops.remote_store(buffer, 1, x)
        return x

    report = priced(build)
    moved = sum(s.cycles.host for s in report.steps if s.primitive in ("remote_read", "remote_write"))
    assert moved == pytest.approx(5 * 4 * np.prod(ROW) / MK2.streaming_bytes_per_second * MK2.clock_hz)
    assert max(v.bytes for v in report.memory.variables) <= 4 * np.prod(ROW)


@pytest.mark.parametrize("kind", ["replicated_all_reduce", "replicated_reduce_scatter", "replicated_all_gather"])
@pytest.mark.parametrize(("group", "size"), [(None, 8), ((1, 2), 2), ((4, 2), 2), ((2, 4), 4)])
def test_half_crosses_the_links_of_the_group_as_half(kind, group, size):
    def build(ir):
        x = popxl.variable(np.zeros(ROW, np.float16))
        return getattr(ops.collectives, kind)(x, group=group and ir.replica_grouping(*group))

    times, hops, parts = {"all_reduce": (2, 2, 1), "reduce_scatter": (1, 1, 1), "all_gather": (1, 1, size)}[
        kind.removeprefix("replicated_")
    ]
    wire = times * (size - 1) / size * parts * 2 * np.prod(ROW) / MK2.link_rate * MK2.clock_hz
    found = priced(build, 8).cycles.inter_ipu
    assert found == pytest.approx(wire + hops * (size - 1) * MK2.external_sync_cycles)


def test_code_that_is_loaded_is_a_part_of_the_code():
    def build(ir, load):
        x = popxl.variable(np.zeros(ROW, np.float32))
        graph = ir.create_graph(lambda t: ops.gelu(t), x)
        if load:
            ops.remote_code_load(graph, "executable")
        return ops.call(graph, x)[0]

    report, without = priced(lambda ir: build(ir, True)), priced(lambda ir: build(ir, False))
    (load,) = (s for s in report.steps if s.primitive == "remote_code_load")
    code = sum(sum(by) for name, by in report.memory.categories.items() if name.endswith("Code"))
    assert 0 < load.cycles.total * MK2.streaming_bytes_per_second / MK2.clock_hz < code
    added = pytest.approx(load.cycles.total)
    assert report.total_cycles - without.total_cycles == added
    assert report.schedule.seconds == pytest.approx(MK2.seconds(report.total_cycles))
    for rows in (lambda r: r.operations, lambda r: r.ipus):
        assert sum(x.cycles.total for x in rows(report)) - sum(x.cycles.total for x in rows(without)) == added


def test_gradient_graphs_are_the_backward_pass_and_variables_change_in_the_update():
    ir, *_ = program(layers=1)
    report = popxl.Session(ir, "ipu_hw")._pb_session.getReport().model
    phase = {row.node: row.phase for row in report.operations}
    assert {p for node, p in phase.items() if "_bwd/" in node} == {"backward"}
    assert {p for node, p in phase.items() if "/AdamUpdater" in node} == {"update"}
    assert {p for node, p in phase.items() if node.startswith("Layer_subgraph(0)/")} == {"forward"}
    assert not [node for node in phase if ".py:" in node]  # lines of our own say nothing to the user
