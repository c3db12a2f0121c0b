"""Every module, function, class and member that popxl_addons is known to have, under its import path."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path

import pytest

from popart_jax import dropin

INVENTORY = json.loads((Path(__file__).parent / "inventory.json").read_text())
GAPS = {
    "popxl_addons.ops.fp8_mse_scale.fp8_mse_scale": {"CandidateConfig"},  # detail of the upstream search
    "popxl_addons.transforms.pipelining": {
        # the graphs that upstream's pipeline is made of; here one loop runs the stages
        "PipelineBoundGraph", "Stash", "Restore", "required_for_host_load", "construct_graphs", "move_op_into_graph",
        "build", "cycle", "remap_tensors", "move_copied_tensor_out_of_nested_repeat_graph", "repeat_graph",
        "main_cycle", "load", "compute", "store", "copy",
    },
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _names():
    dropin.install()
    yield
    dropin.uninstall()


@pytest.mark.parametrize("name", INVENTORY)
def test_a_module_has_its_names(name):
    module = importlib.import_module(name)
    known, gaps = INVENTORY[name], GAPS.get(name, set())
    missing = [f for f in known.get("functions", {}) if not hasattr(module, f)]
    for owner, members in known.get("classes", {}).items():
        found = getattr(module, owner, None)
        missing += [owner] if found is None else [m for m in members if not hasattr(found, m)]
    assert set(missing) - gaps == set()
    assert gaps <= set(missing), "a gap that is closed must leave the list"


@pytest.mark.parametrize("name", INVENTORY)
def test_functions_take_their_parameters(name):
    module = importlib.import_module(name)
    for function, parameters in INVENTORY[name].get("functions", {}).items():
        found = list(inspect.signature(getattr(module, function)).parameters)
        assert found[: len(parameters)] == parameters, function
