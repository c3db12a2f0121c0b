"""Renderings of one report agree with each other."""

from __future__ import annotations

import json

import cbor2
import jax
import jax.numpy as jnp
import pytest
from jax import lax

import ipu_model
from ipu_model import pva
from ipu_model.report.graph import encode_cbor
from ipu_model.report.trace import events


@pytest.fixture(scope="module")
def report():
    def loss(p, x):
        with jax.named_scope("onnx[fc1]"):
            h = jnp.tanh(x @ p["a"])
        with jax.named_scope("onnx[loop]"):
            h, _ = lax.scan(lambda h, _: (jnp.sin(h), None), h, None, length=3)
        with jax.named_scope("onnx[fc2]"):
            return (h @ p["b"]).sum()

    def step(p, x):
        g = jax.grad(loss)(p, x)
        with jax.named_scope("update"):
            return jax.tree.map(lambda w, d: w - 0.1 * d, p, g)

    p = {"a": jnp.ones((64, 128)), "b": jnp.ones((128, 32))}
    A = ipu_model.Argument
    return ipu_model.profile(
        step, p, jnp.ones((16, 64)), samples_per_step=16,
        inputs=[A("a", "weight", donated_to=0), A("b", "weight", donated_to=1), A("x", "stream")],
    )  # fmt: skip


def test_json_round_trip(report):
    assert ipu_model.Report.from_json(report.to_json()) == report


def test_other_schema_is_refused(report):
    document = json.loads(report.to_json()) | {"schema": 99}
    with pytest.raises(ValueError, match="schema 99"):
        ipu_model.Report.from_json(json.dumps(document))


def test_reports_are_deterministic(report):
    assert report.to_json() == ipu_model.Report.from_json(report.to_json()).to_json()


def test_throughput_is_samples_over_time(report):
    assert report.schedule.samples_per_second == pytest.approx(16 / report.schedule.seconds)
    assert report.schedule.seconds == pytest.approx(report.total_cycles / report.target["clockFrequency"])


def test_graph_report_is_consistent(report):
    g = report.graph_report()
    tiles = g["target"]["tilesPerIPU"] * g["target"]["numIPUs"]
    m = g["memory"]
    assert g["target"]["numTiles"] == tiles
    for by_tile in (
        m["byTile"]["total"],
        m["byTile"]["totalIncludingGaps"],
        m["liveness"]["alwaysLive"]["bytesByTile"],
    ):
        assert len(by_tile) == tiles
    assert all(a <= b for a, b in zip(m["byTile"]["total"], m["byTile"]["totalIncludingGaps"], strict=True))
    sums = [0] * tiles
    for regions in m["byCategory"].values():
        for part in regions.values():
            sums = [s + a + b for s, a, b in zip(sums, part["nonOverlapped"], part["overlapped"], strict=True)]
    assert all(abs(s - t) <= len(m["byCategory"]) for s, t in zip(sums, m["byTile"]["total"], strict=True))
    for program in g["programs"]:
        assert all(0 <= c < len(g["programs"]) for c in program.get("children", ()))


def test_execution_report_is_consistent(report):
    e = report.execution_report()
    steps = e["simulation"]["steps"]
    assert e["profilerMode"] == "IPU_MODEL"
    assert steps[-1]["cyclesTo"] == pytest.approx(report.total_cycles)
    assert sum(s["cycles"] for s in steps) == pytest.approx(report.total_cycles)
    tiles = report.target["tilesPerIPU"]
    sums = e["simulation"]["tileCycles"]
    assert sums["sync"] / tiles == pytest.approx(report.cycles.sync)
    assert sums["doExchange"] / tiles == pytest.approx(report.cycles.exchange)
    assert sums["compute"] / tiles == pytest.approx(report.cycles.compute)
    assert sums["streamCopy"] / tiles == pytest.approx(report.cycles.host)


def test_cbor_is_the_same_tree(report):
    for tree in (report.graph_report(), report.execution_report()):
        assert cbor2.loads(encode_cbor(tree)) == tree


def test_summary_has_what_programs_parse(report):
    text = report.summary(show_execution_steps=True)
    memory = text[text.index("Memory Usage:") :]
    vertex = memory[memory.index("Vertex Data (") :]
    types = vertex[vertex.index("By Type:") :].splitlines()[1:]
    types = types[: types.index("")]
    assert any(line.split()[0].startswith("poplin::ConvPartial") for line in types)
    assert "OnTileExecute: fc1/matmulGrouped/Conv_1/Convolve" in text
    assert "Repeat: 3 times (loop)" in text


def test_pva_reads_back_what_was_saved(report, tmp_path):
    read = pva.openReport(str(pva.save_profile(report, tmp_path)))
    c = read.compilation
    assert c.target.architecture == "Ipu2"
    assert sum(t.memory.total.includingGaps for t in c.tiles) == sum(report.memory.including_gaps_by_tile)
    assert c.tiles[0].memory.category.stack.total == report.memory.categories["stack"][0]
    assert sum(t.memory.total.excludingGaps for t in c.ipus[0].tiles) == report.memory.total
    assert {v.name for v in c.alwaysLiveVariables} == {"a", "b"}
    assert read.execution.totalCycles == round(report.total_cycles)
    assert sum(s.ipus[0].cycles for s in read.execution.steps) == pytest.approx(report.total_cycles)
    assert read.execution.runs[0].microseconds.end == pytest.approx(report.schedule.seconds * 1e6)

    class Count(pva.ProgramVisitor):
        executed = 0

        def visitOnTileExecute(self, program):
            self.executed += 1

    visitor = Count()
    c.programs[0].accept(visitor)
    assert visitor.executed == c.graph.numComputeSets


def test_pva_liveness_names_what_is_alive(report):
    c = pva.fromReport(report).compilation
    steps = c.livenessProgramSteps
    assert len(steps) == len(report.steps)
    peak = steps[report.memory.peak_step]
    assert peak.notAlwaysLiveMemory.bytes == sum(report.steps[report.memory.peak_step].not_always_live)
    assert peak.notAlwaysLiveVariables
    assert 0 < peak.notAlwaysLiveMemoryForTile(0).bytes <= report.memory.not_always_by_tile[0] + 8
    assert peak.notAlwaysLiveMemoryForTile(1471).bytes <= peak.notAlwaysLiveMemoryForTile(0).bytes
    assert {v.name for v in c.alwaysLiveVariablesForTile(0)} == {"a", "b"}


def test_pva_refuses_other_files(tmp_path):
    other = tmp_path / "profile.pop"
    other.write_bytes(b"\x00\x01nonsense")
    with pytest.raises(ValueError, match="no profile of ipu_model"):
        pva.openReport(other)


def test_trace_covers_all_cycles(report, tmp_path):
    document = json.loads(report.save_trace(tmp_path / "trace.json").read_text())
    nodes = [e for e in document["traceEvents"] if e["ph"] == "X" and e["tid"] == 0]
    assert sum(e["args"]["cycles"] for e in nodes) == pytest.approx(report.total_cycles)
    leaves = [e for e in events(report) if e["ph"] == "X" and e["tid"] > 0]
    assert sum(e["args"]["cycles"] for e in leaves) == pytest.approx(report.total_cycles)
