"""A few drawn cases of each kind, here in one process; ``python -m tests.fuzz`` runs as many as there is time for."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from . import bytewise, chains, graphs, judged, structured

pytestmark = pytest.mark.usefixtures("own_process")
FINE = ("equal", "both refuse", "only ours", "a judge refuses")


@pytest.mark.filterwarnings("ignore")
@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 1 << 32))
def test_damaged_models_are_errors_of_ours_or_values(seed: int) -> None:
    base, data = bytewise.draw(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert bytewise.outcome(data, base.feeds, "trace") in ("value", "error")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(7000, 7040))
def test_drawn_nodes_give_what_the_judges_give(seed: int) -> None:
    mine, theirs = judged.ours(structured.draw), judged.judges(structured.draw)
    assert judged.compared(structured.draw, seed, mine(seed, print), theirs(seed, print)) in FINE


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(len(graphs.RECIPES)), ids=list(graphs.RECIPES))
def test_graphs_of_each_recipe_give_what_the_judges_give(seed: int) -> None:
    mine, theirs = judged.ours(graphs.draw), judged.judges(graphs.draw)
    assert judged.compared(graphs.draw, seed, mine(seed, print), theirs(seed, print)) in FINE


# the first ended in an error with weights laid out, the second with `jit`
CHAINS = (242, 345)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", CHAINS)
def test_chains_give_what_the_judges_give_by_all_ways(seed: int) -> None:
    mine, theirs = judged.ours(chains.draw, chains.run), judged.judges(chains.draw)
    assert judged.compared(chains.draw, seed, mine(seed, print), theirs(seed, print)) in FINE


# each was found by `python -m tests.fuzz operators` and mended
NODES_FOUND = (100142, 100170, 100748, 101939, 102540, 102570, 103210, 103959, 104759, 106362, 109678, 115491, 122906)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", NODES_FOUND)
def test_what_was_found_of_nodes_stays_mended(seed: int) -> None:
    mine, theirs = judged.ours(structured.draw), judged.judges(structured.draw)
    assert judged.compared(structured.draw, seed, mine(seed, print), theirs(seed, print)) == "equal"


# each was found by `python -m tests.fuzz bytes` and ended in an error that was not ours
FOUND = (10233, 12234, 14271, 14374, 14754, 14783, 15052, 16399, 17734, 23450, 29388, 441, 598, 926083, 950579, 980402)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_stays_mended(seed: int) -> None:
    base, data = bytewise.draw(seed)
    assert bytewise.outcome(data, base.feeds, bytewise.route_of(seed)) in ("value", "error")


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["operators", pytest.param("bytes", marks=pytest.mark.sweep)])
def test_the_command_tells_its_counts(kind: str) -> None:
    command = [sys.executable, "-m", "tests.fuzz", kind, "2", "--first", "5000000"]
    ran = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=500
    )
    assert ran.stdout.splitlines()[-1].startswith("# 2 cases in "), ran.stderr
    assert ran.returncode == 0, ran.stdout
