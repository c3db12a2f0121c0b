"""Sessions with weights split over devices: the numbers of one device, and a part of its memory."""

from __future__ import annotations

import numpy as np
import pytest
from jax.sharding import PartitionSpec

import popart_jax as popart
from benchmarks.processes import sharding
from popart_jax.execution import Variable
from popart_jax.execution.program import Type
from popart_jax.execution.replicas import spec
from popart_jax.session.preparing.shards import DEVICES, SHARD, rules_text

from ..own_process import figures
from . import nets

QUICK = (
    "one device",
    "tensor parallel on 4",
    "rules by name on 4",
    "FSDP, 2 replicas of 2",
)


def measured(*words):
    return figures("benchmarks.processes.sharding", "--width", "16", "--json", *words)


@pytest.fixture(scope="module")
def found():
    return measured("--only", *QUICK)


@pytest.mark.processes
@pytest.mark.parametrize("case", QUICK)
def test_the_numbers_of_one_device(found, case):
    check(found[case])


@pytest.mark.sweep
def test_the_numbers_of_every_case():
    every = measured()
    assert every.keys() == sharding.CASES.keys()
    for one in every.values():
        check(one)


def check(one):
    assert one["gap"] <= 1e-6
    assert one["loss gap"] <= 1e-6
    assert one["losses"][0] != one["losses"][-1]


@pytest.mark.processes
@pytest.mark.parametrize(("case", "parts"), [("tensor parallel on 4", 4), ("FSDP, 2 replicas of 2", 2)])
def test_each_device_holds_its_part(found, case, parts):
    for name in ("up_w0", "down_w1", "table", "head"):
        assert found[case]["held"][name] == 1 / parts
    assert found["rules by name on 4"]["held"]["head"] == 1
    assert found["rules by name on 4"]["held"]["up_w1"] == 1 / 4
    assert found[case]["resting"] < 1.1 * found["one device"]["resting"] / parts
    assert found[case]["peak"] < found["one device"]["peak"]


TEXT = 'g (float[4] x) => (float loss) { y = Mul(x, w) loss = ai.graphcore.IdentityLoss<reduction = "Sum">(y) }'


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({SHARD: rules_text([("nothing", PartitionSpec("model"))])}, "'nothing' fits no weight"),
        ({SHARD: rules_text([("w(", PartitionSpec("model"))])}, "no regular expression"),
        ({SHARD: "by hand"}, "expected tensor_parallel, fsdp, or rules"),
        ({SHARD: "[1]"}, "expected tensor_parallel, fsdp, or rules"),
        ({SHARD: "fsdp"}, "at least 2 devices for each replica; 1 replicas have 1 devices"),
        ({SHARD: "fsdp", DEVICES: "3"}, "and popart_jax.shard.devices is 3"),
        ({SHARD: "fsdp", DEVICES: "some"}, "is 'some': expected a number"),
    ],
)
def test_refusals(options, text):
    with pytest.raises(popart.popart_exception, match=text.replace("(", r"\(")):
        nets.train(nets.model(TEXT, w=np.ones(4, np.float32)), {"loss": "All"}, nets.sgd(), engineOptions=options)


def test_splits_follow_the_order_on_the_device():
    kind = Type((2, 3, 4), np.dtype(np.float32))
    one = Variable(kind, split=(None, "model"), order=(2, 0, 1))
    assert one.device_split == (None, None, "model")
    assert Variable(kind, split=("model",)).device_split == ("model", None, None)
    assert spec(0, one.device_split) == PartitionSpec("replica", None, None, "model")
    assert spec(1, (None, "model")) == PartitionSpec(None, "replica", "model")
    assert spec(None, ("model",)) == PartitionSpec("model")
    assert spec(2) == PartitionSpec(None, None, "replica")
