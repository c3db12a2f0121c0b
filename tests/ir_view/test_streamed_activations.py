"""Activations in streaming memory: stored behind their producer, loaded again for a later execution phase."""

from __future__ import annotations

import pytest

from popart_jax.ir_view import IrFacts, Location

from .helpers import find, ops, training

LAYERS = 5
CHAIN = "\n".join(
    ["BuilderGraph_1 (float[1,4,4] x0, " + ", ".join(f"float[4,4] w{i}" for i in range(LAYERS)) + ") => () {"]
    + [f"  x{i + 1} = MatMul<__execution_phase={i}>(x{i}, w{i})" for i in range(LAYERS)]
    + [f"  l = ReduceSum<keepdims=0, __execution_phase={LAYERS - 1}>(x{LAYERS})", "}"]
)
OFF = Location(off_chip=True, least_off_chip=0)


def chain(**options: object) -> IrFacts:
    types = {f"x{i}": (1, 4, 4) for i in range(LAYERS + 1)} | {"l": ()}
    settings = {"virtual_graphs": "ExecutionPhases", "ipus": 2} | options
    return training(CHAIN, " ".join(f"w{i}" for i in range(LAYERS)), types, **settings)


def stored(facts: IrFacts) -> list[str]:
    return [op["attributes"]["bufferid"] for op in find(facts, "RemoteStore")]


def test_results_that_gradients_of_much_later_phases_read_are_stored_and_loaded():
    facts = chain(activations=OFF)
    kept = stored(facts)
    assert [name.partition("__")[0] for name in kept] == ["x1", "x2", "x3"]  # x4 is read again two phases later
    assert sorted(op["attributes"]["bufferid"] for op in find(facts, "RemoteLoad")) == sorted(kept)
    offsets = {i["name"] for op in find(facts, "RemoteLoad") for i in op["inputs"]}
    assert {f"RemoteArg___{name}" for name in kept} <= offsets


def test_a_loaded_activation_is_not_copied_between_ipus_for_its_gradient():
    listed = ops(chain(activations=OFF))
    readers = [op["type"] for op in listed for i in op["inputs"] if i["name"].endswith(("__loaded_c0", "__loaded_c1"))]
    assert readers == ["TransposeInplace"] * 3
    for op in find(chain(activations=OFF), "RemoteLoad"):
        place = op["attributes"]["__ipu_number"]
        assert op["outputs"][0]["name"].endswith(f"_c{place}")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activations": Location(off_chip=True, least_off_chip=17)},
        {"activations": OFF, "virtual_graphs": "Off"},
    ],
)
def test_activations_stay_on_chip_unless_asked_for_large_enough_and_in_phases(options):
    assert stored(chain(**options)) == []


def test_one_activation_may_be_placed_by_its_name():
    first = stored(chain(activations=OFF))[0]
    assert stored(chain(located={first: OFF})) == [first]
    assert first not in stored(chain(activations=OFF, located={first: Location()}))
