"""`fn.shard`: losses and weights of a small transformer are those of one device, and each device holds its part."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import popart_jax
from popart_jax.functions import partition

from ..own_process import figures
from .sharding_worker import model


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return figures("tests.functions.sharding_worker")


@pytest.mark.processes
@pytest.mark.parametrize("rules", ["tensor_parallel", "fsdp", "names"])
def test_same_losses_and_weights(report, rules):
    np.testing.assert_allclose(report[rules]["losses"], report["losses"], rtol=1e-5)
    assert report["losses"][-1] < report["losses"][0] - 0.1
    assert report[rules]["gap"] < 1e-4  # Adam divides by small roots: a rounding is worth up to a part of the rate


@pytest.mark.processes
def test_tensor_parallel_takes_turns(report):
    specs = report["tensor_parallel"]["specs"]
    assert all(specs[n] == ["", "model"] for n in ("wq", "wk", "wv", "up"))
    assert all(specs[n] == ["model"] for n in ("wo", "down", "bq", "bu", "table", "head"))
    assert all(specs[n] == [] for n in ("bo", "scale1", "shift2"))


@pytest.mark.processes
def test_each_device_holds_its_part(report):
    held = report["tensor_parallel"]["held"]
    assert {held[n] for n in ("wq", "wo", "up", "down", "head", "table")} == {0.25}
    assert set(report["fsdp"]["held"].values()) == {0.25}
    assert report["names"]["held"]["wq"] == 0.25
    assert report["names"]["held"]["wo"] == 1.0
    assert "3 of 15 weights are split" in report["names"]["text"]


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_arrays_that_the_caller_put_on_a_mesh(report, kind):
    """Explicit axes are what `jax.make_mesh` makes by default."""
    found = report[kind]
    assert max(found["gaps"].values()) < 1e-5
    assert found["slopes"] < 1e-6
    assert found["kinds"] == [kind, kind]
    on_one = {"with_weights, another device"}
    assert {n for n, part in found["held"].items() if part == 1.0} == on_one, found["held"]


SHAPES = {"a.weight": (6, 8), "b.weight": (8,)}
MESH: Any = SimpleNamespace(shape={"data": 2, "model": 4})


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ([("c[.]", PartitionSpec())], "fits no weight"),
        ([("weight", PartitionSpec()), ("^b", PartitionSpec())], "fits no weight"),
        ([("(", PartitionSpec())], "no regular expression"),
        ([("^a", PartitionSpec("model"))], "4 devices do not divide 6"),
        ([("^a", PartitionSpec(None, ("data", "model", "x")))], r"names axes \['x'\]"),
        ([("^b", PartitionSpec(None, "model"))], "too many dimensions"),
    ],
)
def test_rules_that_do_not_fit(rules, text):
    with pytest.raises(popart_jax.popart_exception, match=text):
        partition.check(partition.by_name(SHAPES, rules), SHAPES, MESH)


def test_first_rule_counts():
    rules = [("^a", PartitionSpec(None, ("data", "model"))), ("weight", PartitionSpec("model"))]
    found = partition.by_name(SHAPES, rules)
    partition.check(found, SHAPES, MESH)
    assert found == {"a.weight": PartitionSpec(None, ("data", "model")), "b.weight": PartitionSpec("model")}


def test_unknown_set_of_rules_and_axis():
    fn, _ = popart_jax.to_jax(model())
    mesh = Mesh(np.asarray(jax.devices()[:1]), ("model",))
    with pytest.raises(popart_jax.popart_exception, match="Unknown rules 'zero'"):
        fn.shard(mesh, "zero")
    with pytest.raises(popart_jax.popart_exception, match="no axis of the mesh"):
        fn.shard(mesh, "fsdp", batch="data")
