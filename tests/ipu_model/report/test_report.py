"""Renderings of one report agree with each other."""

from __future__ import annotations

import json
import math

import cbor2
import jax
import jax.numpy as jnp
import pytest

import ipu_model
from ipu_model.report.trace import events

from ..trained import trained


@pytest.fixture(scope="module")
def report():
    return trained(samples_per_step=16)


def test_json_round_trip(report):
    assert ipu_model.Report.from_json(report.to_json()) == report


def test_other_schema_is_refused(report):
    document = json.loads(report.to_json()) | {"schema": 99}
    with pytest.raises(ValueError, match="schema is 99"):
        ipu_model.Report.from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        (["operations"], {}, "the report.operations should be of type list, it is {}"),
        (["operations", 0], None, r"the report.operations\[0\] should be of type dict, it is None"),
        (["steps", 0, "cycles", "sync"], "4", r"steps\[0\].cycles.sync should be of type float, it is '4'"),
        (["memory", "peak_step"], 1.5, "memory.peak_step should be of type int, it is 1.5"),
        (["name"], 3, "the report.name should be of type str, it is 3"),
        (["target"], {}, r"the report.target lacks \['architecture', 'bytesPerIPU'"),
        (
            ["target", "clockFrequency"],
            0.0,
            "the report.target: clockFrequency is 0.0, expected a finite number above 0",
        ),
        (["target", "clockFrequency"], "1e9", "clockFrequency is '1e9', expected a finite number above 0"),
        (["target", "peakFlops"], math.nan, "NaN is no number that a report holds"),
        (["target", "tilesPerIPU"], -4, "tilesPerIPU is -4, expected a whole number of at least 1"),
        (["target", "tilesPerIPU"], 1471, "has 1 IPUs and 1472 tiles, expected 1 and 1471"),
        (["target", "name"], None, "the report.target: name is None, expected a text"),
        (["memory", "always_by_tile"], [1, 2], "memory.always_by_tile has 2 tiles, the target has 1472"),
        (["memory", "total_by_tile", 7], -1, "memory.total_by_tile has a negative number of bytes: -1"),
        (["schedule", "cycles"], -5.0, "the report.schedule.cycles is -5.0, expected a number of at least 0"),
        (["steps", 0, "cycles", "compute"], -1, r"steps\[0\].cycles.compute is -1, expected a number of at least 0"),
        (["memory", "peak_tile"], 1472, "the report.memory.peak_tile is 1472, expected 0 to 1471"),
        (["steps", 0, "ipu"], 1, r"the report.steps\[0\].ipu is 1, expected 0 to 0"),
        (["frames", 0, "end"], 10**6, r"the report.frames\[0\] holds steps 0 to 1000000 inside frame -1"),
        (["schedule", "nothing"], 3, r"the report.schedule should not hold \['nothing'\]"),
    ],
)
def test_what_does_not_fit_is_named_by_its_place(report, place, value, text):
    document = json.loads(report.to_json())
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(ValueError, match=text):
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
        assert cbor2.loads(cbor2.dumps(tree)) == tree


def test_summary_has_what_programs_parse(report):
    text = report.summary(show_execution_steps=True)
    memory = text[text.index("Memory Usage:") :]
    vertex = memory[memory.index("Vertex Data (") :]
    types = vertex[vertex.index("By Type:") :].splitlines()[1:]
    types = types[: types.index("")]
    assert any(line.split()[0].startswith("poplin::ConvPartial1x1Out<") for line in types)
    assert "OnTileExecute: fc1/matmulGrouped/Conv_1/Convolve" in text
    assert "Repeat: 3 times (loop)" in text


def test_an_unknown_option_of_the_summary_is_refused_by_its_public_name(report):
    with pytest.raises(TypeError, match=r"Report\.summary\(\) got an unexpected keyword argument 'foo'"):
        report.summary(foo=True)


def test_trace_has_counters_of_memory(report):
    counters = [e for e in events(report) if e["ph"] == "C"]
    assert len(counters) == sum(1 for s in report.steps if s.trips)
    assert {e["args"]["always live"] for e in counters} == {sum(report.memory.always_by_tile)}
    assert max(e["args"]["not always live"] for e in counters) == max(sum(s.not_always_live) for s in report.steps)


def test_a_trace_of_too_many_events_says_what_it_leaves_out(report):
    whole, short = events(report), events(report, most=10)
    drawn = [e for e in short if e["ph"] in "XC"]
    (told,) = (e for e in short if e["ph"] == "i")
    assert len(drawn) <= 10
    assert told["name"] == f"left out: {sum(e['ph'] in 'XC' for e in whole) - len(drawn):,} short events"
    longest = max(e["dur"] for e in whole if e["ph"] == "X")
    assert any(e.get("dur") == longest for e in drawn)
    assert not any(e["ph"] == "i" for e in whole)


def test_trace_covers_all_cycles(report, tmp_path):
    document = json.loads(report.save_trace(tmp_path / "trace.json").read_text())
    nodes = [e for e in document["traceEvents"] if e["ph"] == "X" and e["tid"] == 0]
    assert sum(e["args"]["cycles"] for e in nodes) == pytest.approx(report.total_cycles)
    leaves = [e for e in events(report) if e["ph"] == "X" and e["tid"] > 0]
    assert sum(e["args"]["cycles"] for e in leaves) == pytest.approx(report.total_cycles)


def test_printing_a_report_gives_ten_lines():
    def layer(x):
        for _ in range(9):
            x = jnp.tanh(x @ x)
        return x

    text = str(ipu_model.profile(layer, jnp.ones((64, 64))))
    lines = text.splitlines()
    assert len(lines) <= 10
    assert lines[0].startswith("layer on mk2")
    assert "fits: fullest tile" in lines[3]
    assert "%" in lines[-1]
    assert "test_report.py:" in lines[-1]


def test_plain_functions_are_shown_by_line_of_code():
    def two_lines(x):
        y = jnp.sin(x).sum()
        return y * jnp.cos(x)

    report = ipu_model.profile(two_lines, jnp.ones((640, 640)))
    first = two_lines.__code__.co_firstlineno
    assert {o.node for o in report.operations} == {f"test_report.py:{first + 1}", f"test_report.py:{first + 2}"}


def test_named_scopes_win_over_lines():
    def scoped(x):
        with jax.named_scope("block"):
            return jnp.sin(x)

    assert [o.node for o in ipu_model.profile(scoped, jnp.ones(64)).operations] == ["block"]


def test_many_small_operations_are_listed_by_scope():
    def fn(x):
        for k in range(60):
            with jax.named_scope(f"onnx[layer{k // 20}/op{k}]"):
                x = jnp.tanh(x)
        return x

    lines = str(ipu_model.profile(fn, jnp.ones(64))).splitlines()
    assert lines[4].strip() == "most expensive of 3 scopes:"
    assert lines[5].split() == ["33.3%", "layer0", "(forward)"]
    assert len(lines) <= 10


def test_the_short_summary_names_what_would_make_a_program_fit():
    def fn(x, w):
        return jnp.tanh(x @ w)

    half = jnp.float16
    operands = jax.ShapeDtypeStruct((262144, 1024), half), jax.ShapeDtypeStruct((1024, 1024), half)
    report = ipu_model.profile(fn, *operands)
    best = report.overflow.levers[0]
    assert best.enough
    assert str(report).splitlines()[3].endswith(f"; enough alone: {best.change}")


def test_memory_by_tile_is_the_sum_of_its_categories(report):
    m = report.memory
    assert m.total_by_tile == tuple(map(sum, zip(*m.categories.values(), strict=True)))
    assert m.total_by_tile == tuple(map(sum, zip(m.always_by_tile, m.not_always_by_tile, strict=True)))
    assert all(whole >= part for whole, part in zip(m.including_gaps_by_tile, m.total_by_tile, strict=True))


def test_explain_says_what_the_run_takes_beside_its_steps(report):
    assert "start of the program" not in report.explain()
    square = jax.ShapeDtypeStruct((64, 64), jnp.float16)
    on_gpu = ipu_model.profile(jnp.matmul, square, square, target="a100")
    beside = on_gpu.total_cycles - sum(step.cycles.total * step.trips for step in on_gpu.steps)
    assert f"{beside:+,.0f}  start of the program" in on_gpu.explain()


def test_explain_says_where_a_fused_step_runs():
    x = jax.ShapeDtypeStruct((64, 64), jnp.float16)
    assert "add float16[64,64]" in (said := ipu_model.profile(lambda x: jnp.tanh(x + 1) * 2, x).explain())
    assert "inside the vertex behind it" in said


@pytest.mark.parametrize("pipelined", [False, True])
def test_averages_over_tiles_of_several_ipus_add_up_to_the_run(pipelined):
    def step(x):
        def micro(x, _):
            for stage in range(2):
                with jax.named_scope(f"stage{stage}"):
                    x = jnp.tanh(x @ x)
            return x, None

        return jax.lax.scan(micro, x, None, length=4)[0]

    nodes = {f"stage{k}": ipu_model.NodePlacement(k, k) for k in range(2)}
    placement = ipu_model.Placement(nodes, 2, pipelined=pipelined)
    text = ipu_model.profile(step, jnp.ones((256, 256)), placement=placement).summary()
    shares = {
        line.split(":")[0].strip(): float(line.rpartition("(")[2].rstrip("%)"))
        for line in text.splitlines()
        if line.strip().startswith("Tile average")
    }
    part = "Tile average compute cycles (excluding idle threads)"
    assert 0 < shares[part] < 100
    assert sum(share for name, share in shares.items() if name != part) == pytest.approx(100, abs=1)
