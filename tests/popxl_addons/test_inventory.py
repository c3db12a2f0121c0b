"""Every module, function, class and member that popxl_addons is known to have, under its import path."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path

import pytest

from popart_jax import dropin

INVENTORY = json.loads((Path(__file__).parent / "inventory.json").read_text())


@pytest.fixture(scope="module", autouse=True)
def _names():
    dropin.install()
    yield
    dropin.uninstall()


@pytest.mark.parametrize("name", INVENTORY)
def test_a_module_has_its_names(name):
    module = importlib.import_module(name)
    known = INVENTORY[name]
    missing = [f for f in known.get("functions", {}) if not hasattr(module, f)]
    for owner, members in known.get("classes", {}).items():
        found = getattr(module, owner, None)
        missing += [owner] if found is None else [m for m in members if not hasattr(found, m)]
    assert missing == []


@pytest.mark.parametrize("name", INVENTORY)
def test_functions_take_their_parameters(name):
    module = importlib.import_module(name)
    for function, parameters in INVENTORY[name].get("functions", {}).items():
        found = list(inspect.signature(getattr(module, function)).parameters)
        assert found[: len(parameters)] == parameters, function


TOP_LEVEL = """
GIT_COMMIT GraphCache InputStreams Module NameScopeMeta OrderedDict OutputStreams RemoteHandle TaskSession WeightsDict
add_recompute_inputs argument_hash autodiff autodiff_with_accumulation batch_serial_buffer batch_serialise
batch_serialise_fwd_and_grad bound_arguments create_grad_graph_info create_remote_buffer cross_entropy
cross_entropy_with_grad disable_fc_pass enable_fc_pass evaluate_FLOPs evaluate_ir_FLOPs format_flops_scientific
fp8_amax_scale function get_function_hash handle_negative_axis host_load host_store is_subgraph load_remote_graph
named_buffers named_variable_buffers pad_axis pipelined_execution print_FLOPs print_tensor print_text recompute_graph
repeat repeat_axis repeat_shard route_tensor_into_graph seed_variable set_available_memory_proportion_by_ipu
set_graph_available_memory_proportion_by_ipu shard shard2D split2D squeeze_safe store_remote_graph tensor_hash
tensor_parallel_input timer total_FLOPs unshard unshard2D unshard_arrays write_variables_pb
NamedTensors GraphWithNamedArgs BoundGraph NamedVariableFactories VariableFactory GradGraphInfo ExpectedConnection
debugging layers ops optimizers performance_utils testing_utils transforms
"""


def test_names_at_the_top():
    """What programs reach as `addons.<name>`; `addons.repeat` is the NumPy helper."""
    addons = importlib.import_module("popxl_addons")
    assert [n for n in TOP_LEVEL.split() if not hasattr(addons, n)] == []
    assert addons.repeat is addons.array_munging.repeat
    assert inspect.isfunction(addons.transforms.autodiff)
