"""pva's read API: every name that the profile documentation gives, read from a stored profile, consistently."""

from __future__ import annotations

import pytest

from ipu_model import pva

from ..trained import trained

TREE = [
    "poplarVersion.string",
    "packageHash",
    "compilation.target.numTiles",
    "compilation.target.tilesPerIpu",
    "compilation.target.numIPUs",
    "compilation.target.numReplicas",
    "compilation.target.totalMemory",
    "compilation.target.bytesPerIPU",
    "compilation.target.bytesPerTile",
    "compilation.target.clockFrequency",
    "compilation.target.architecture",
    "compilation.target.type",
    "compilation.graph.numComputeSets",
    "compilation.graph.numEdges",
    "compilation.graph.numVars",
    "compilation.graph.numVertices",
    "compilation.tiles.0.memory.total.includingGaps",
    "compilation.tiles.0.memory.total.excludingGaps",
    "compilation.tiles.0.memory.category.variables.total",
    "compilation.tiles.0.memory.category.vertexCode.total",
    "compilation.tiles.0.memory.category.vertexInstanceState.total",
    "compilation.tiles.0.memory.category.stack.total",
    "compilation.tiles.0.memory.category.controlCode.total",
    "compilation.tiles.0.memory.category.internalExchangeCode.total",
    "compilation.tiles.0.memory.category.hostExchangeCode.total",
    "compilation.tiles.0.memory.category.globalExchangeCode.total",
    "compilation.tiles.0.memory.alwaysLiveBytes",
    "compilation.tiles.0.memory.maxNotAlwaysLiveBytes",
    "compilation.ipus.0.tiles",
    "compilation.ipus.0.memory.total.includingGaps",
    "compilation.ipus.0.memory.total.excludingGaps",
    "compilation.alwaysLiveVariables.0.name",
    "compilation.alwaysLiveVariables.0.size",
    "compilation.livenessProgramSteps.0.program.name",
    "compilation.livenessProgramSteps.0.notAlwaysLiveMemory.bytes",
    "compilation.livenessProgramSteps.0.notAlwaysLiveVariables",
    "compilation.programs.0.type",
    "compilation.programs.0.name",
    "compilation.programs.0.codeBytesByTile",
    "compilation.programs.0.children",
    "compilation.computeSets.0.name",
    "compilation.computeSets.0.vertices.0.type.name",
    "compilation.computeSets.0.vertices.0.count",
    "compilation.exchanges.0.name",
    "execution.runs.0.name",
    "execution.runs.0.microseconds.start",
    "execution.runs.0.microseconds.end",
    "execution.runs.0.steps",
    "execution.steps.0.program.name",
    "execution.steps.0.ipus.0.cycles",
    "execution.steps.0.ipus.0.activeCycles",
    "execution.steps.0.ipus.0.cyclesFrom.min",
    "execution.steps.0.ipus.0.cyclesTo.max",
    "execution.steps.0.ipus.0.tileBalance",
    "execution.steps.0.ipus.0.activeTileBalance",
    "execution.steps.0.ipus.0.vertices",
    "execution.totalCycles",
]

VISITS = [
    "Call",
    "Copy",
    "CopySharedStructure",
    "DoExchange",
    "OnTileExecute",
    "Sync",
    "StreamCopy",
    "Sequence",
    "Repeat",
    "RepeatWhile",
    "If",
    "Switch",
    "GlobalExchange",
    "Execute",
    "WriteUndef",
    "Assign",
]


@pytest.fixture(scope="module", params=[1, 2], ids=["one replica", "two replicas"])
def report(request):
    return trained(replicas=request.param)


@pytest.fixture(scope="module")
def read(report, tmp_path_factory):
    return pva.openReport(str(pva.save_profile(report, tmp_path_factory.mktemp("profile"))))


def follow(tree, path):
    for name in path.split("."):
        tree = tree[int(name)] if name.isdigit() else getattr(tree, name)
    return tree


@pytest.mark.parametrize("path", TREE)
def test_every_documented_name_is_there(read, path):
    assert follow(read, path) is not None


def test_target_and_arrays_agree(read, report):
    t, c = read.compilation.target, read.compilation
    assert t.architecture == "Ipu2"
    assert t.numTiles == t.tilesPerIpu * t.numIPUs == len(c.tiles) == report.target["numTiles"]
    assert len(c.ipus) == t.numIPUs
    assert t.totalMemory == t.bytesPerIPU * t.numIPUs == t.bytesPerTile * t.numTiles
    assert all(len(p.codeBytesByTile) == t.numTiles for p in c.programs)


def test_memory_is_the_same_by_tile_category_and_liveness(read, report):
    replicas = report.target["numReplicas"]
    for tile in (*read.compilation.tiles[:3], read.compilation.tiles[-1]):
        m = tile.memory
        parts = [c.total for c in vars(m.category).values()]
        assert sum(parts) == pytest.approx(m.total.excludingGaps, abs=len(parts))
        assert m.alwaysLiveBytes + m.maxNotAlwaysLiveBytes == pytest.approx(m.total.excludingGaps, abs=2)
        assert m.total.includingGaps >= m.total.excludingGaps
    assert sum(i.memory.total.excludingGaps for i in read.compilation.ipus) == replicas * report.memory.total
    one = read.compilation.ipus[0]
    assert one.memory.total.includingGaps == sum(t.memory.total.includingGaps for t in one.tiles)


def test_vertex_types_agree_with_the_categories(report):
    m = report.graph_report()["memory"]
    types = {name: sum(values) for name, values in m["byVertexType"].items()}

    def category(name):
        return sum(sum(part["nonOverlapped"]) for part in m["byCategory"][name].values())

    tiles = report.target["numTiles"] * len(report.vertices)  # each rounded up
    assert types["codeBytes"] == pytest.approx(category("vertexCode"), abs=tiles)
    state = types["vertexDataBytes"] + types["edgePtrBytes"]
    assert state == pytest.approx(category("vertexInstanceState"), abs=tiles)
    assert types["descriptorBytes"] == pytest.approx(category("vertexFieldData"), abs=tiles)


@pytest.mark.parametrize("tile", [0, 5, 1471])
def test_the_peak_of_a_tile_is_that_of_its_steps(read, tile):
    steps = read.compilation.livenessProgramSteps
    levels = [s.notAlwaysLiveMemoryForTile(tile).bytes for s in steps]
    assert max(levels) == pytest.approx(read.compilation.tiles[tile].memory.maxNotAlwaysLiveBytes, rel=0.1, abs=32)


def test_variables_of_a_step_make_its_memory(read, report):
    steps = read.compilation.livenessProgramSteps
    assert len(steps) == len(report.steps)
    for step in steps:
        held = sum(v.size for v in step.notAlwaysLiveVariables)
        assert held == pytest.approx(step.notAlwaysLiveMemory.bytes, abs=1500)
        assert step.program in read.compilation.programs
    peak = steps[report.memory.peak_step]
    assert peak.notAlwaysLiveMemory.bytes == sum(report.steps[report.memory.peak_step].not_always_live)


def test_always_live_variables(read):
    c = read.compilation
    assert {v.name: v.size for v in c.alwaysLiveVariables} == {"a": 64 * 128 * 4, "b": 128 * 32 * 4}
    by_tile = [sum(v.size for v in c.alwaysLiveVariablesForTile(t)) for t in range(c.target.tilesPerIpu)]
    assert sum(by_tile) == pytest.approx(sum(v.size for v in c.alwaysLiveVariables), rel=0.02)
    code = sum(n.total for name, n in vars(c.tiles[0].memory.category).items() if name != "variables")
    assert by_tile[0] + code == pytest.approx(c.tiles[0].memory.alwaysLiveBytes, abs=16)


def test_execution_adds_up(read, report):
    e = read.execution
    assert e.totalCycles == round(report.total_cycles)
    assert sum(s.ipus[0].cycles for s in e.steps) == pytest.approx(report.total_cycles)
    assert e.runs[0].microseconds.end == pytest.approx(report.schedule.seconds * 1e6)
    assert len(e.steps[0].ipus) == report.target["numIPUs"]
    assert e.profilerMode == "IPU_MODEL"
    for step in e.steps:
        assert step.ipus[0].cyclesTo.max - step.ipus[0].cyclesFrom.min == pytest.approx(step.cycles)


def test_runs_follow_one_another(report):
    graph, execution = report.graph_report(), report.execution_report()
    runs = pva.Report(graph, execution, runs=("first", "second")).execution.runs
    assert [r.name for r in runs] == ["first", "second"]
    assert runs[0].microseconds.end == runs[1].microseconds.start
    assert runs[1].microseconds.end == pytest.approx(2 * report.schedule.seconds * 1e6)


def test_program_types_are_an_enumeration_and_text(read):
    kinds = {p.type for p in read.compilation.programs}
    assert pva.Program.Type.OnTileExecute in kinds
    assert "OnTileExecute" in kinds
    assert pva.Program.Type.Repeat in kinds


@pytest.mark.parametrize("kind", VISITS)
def test_a_visitor_has_a_method_for_every_type(kind):
    assert callable(getattr(pva.ProgramVisitor(), f"visit{kind}"))


def test_a_visitor_reaches_every_program(read):
    class Count(pva.ProgramVisitor):
        def __init__(self):
            self.executed, self.all = [], 0

        def visitOnTileExecute(self, program):
            self.executed.append(program.computeSet.name)

        def visitSequence(self, program):
            self.all += len(program.children)
            super().visitSequence(program)  # pyright: ignore[reportAttributeAccessIssue]

    visitor = Count()
    read.compilation.controlProgram.accept(visitor)
    assert len(visitor.executed) == read.compilation.graph.numComputeSets
    assert visitor.executed == [c.name for c in read.compilation.computeSets]
    assert visitor.all > 0


def test_a_small_program_has_its_arrays_by_tile(report):
    tiles = report.target["numTiles"]
    graph, execution = report.graph_report(), report.execution_report()
    moves = graph["exchanges"]
    for name in ("bytesReceivedByTile", "bytesSentByTile", "cyclesByTile", "codeBytesByTile"):
        assert {len(row) for row in moves[name]} == {tiles}
        assert len(moves[name]) == len(moves["names"])
    for row, whole in zip(moves["bytesReceivedByTile"], moves["bytesReceived"], strict=True):
        assert sum(row) == pytest.approx(whole * report.target["numReplicas"])
    for step in execution["simulation"]["steps"]:
        assert len(step["cyclesByTile"]) == tiles
        assert max(step["cyclesByTile"]) <= step["cycles"] * (1 + 1e-9)


def test_pva_refuses_other_files(tmp_path):
    other = tmp_path / "profile.pop"
    other.write_bytes(b"\x00\x01nonsense")
    with pytest.raises(ValueError, match="no profile of ipu_model"):
        pva.openReport(other)
