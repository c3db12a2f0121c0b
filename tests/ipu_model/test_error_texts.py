"""What the model says of wrong arguments: where, what was expected, what it got."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import pytest

import ipu_model
from ipu_model import Argument, NodePlacement, Placement, Report, roofline, target

X = jax.ShapeDtypeStruct((8, 8), jnp.float32)
MK2 = ipu_model.get_target("mk2")
CONSTANTS = json.loads(target.to_json(MK2))["constants"]


def product(x):
    return x @ x


def profile(**how):
    return ipu_model.profile(product, X, **how)


def program():
    return ipu_model.trace(jax.make_jaxpr(product)(X))


def chip(**changes):
    return target.from_constants("mine", "ipu2", {**CONSTANTS, **changes})


def gpu(**figures):
    return roofline.from_figures({"name": "mine", "constants": {k: {"value": v} for k, v in figures.items()}})


def stored(**changes):
    data = {**json.loads(profile().to_json()), **changes}
    return Report.from_json(json.dumps({k: v for k, v in data.items() if v is not None}))


def search(fn=lambda n: profile(), **how):
    return ipu_model.search(fn, {"n": (1, 4)}, **how)


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda: profile(name=5), TypeError, "ModelOptions: name is 5, expected a text"),
        (lambda: profile(inputs=3), TypeError, "inputs is 3, expected a sequence of ipu_model.Argument"),
        (lambda: profile(inputs="x"), TypeError, "inputs[0] is 'x', expected an ipu_model.Argument"),
        (lambda: profile(placement=Placement([])), TypeError,
         "Placement: nodes is [], expected a dictionary of NodePlacement by name"),
        (lambda: Placement({"a": 1}), TypeError, "Placement: nodes['a'] is 1, expected an ipu_model.NodePlacement"),
        (lambda: NodePlacement(phase="fwd"), ValueError,
         "NodePlacement: phase is 'fwd', expected one of forward, backward, update"),
        (lambda: Argument(3), TypeError, "Argument: name is 3, expected a text"),
        (lambda: Argument("x", location="far"), TypeError,
         "Argument 'x': location is 'far', expected an ipu_model.Location"),
        (lambda: ipu_model.profile(jnp.sum, X, inputs=[Argument("x", donated_to=0)]), ValueError,
         "input 'x' is float32[8,8], its output 0 is float32[]: an output can't be written over one of another size"),
        (lambda: ipu_model.cycles(program(), MK2, placement=3), TypeError,
         "placement is 3, expected an ipu_model.Placement"),
        (lambda: ipu_model.cycles(program(), MK2, options={}), TypeError,
         "options are an ipu_model.ModelOptions, or single ones by keyword, not {}"),
        (lambda: ipu_model.profile_jaxpr(jax.make_jaxpr(product)(X), options=3), TypeError,
         "options are an ipu_model.ModelOptions, or single ones by keyword, not 3"),
        (lambda: MK2.replace(tyles=3), TypeError, "target 'mk2' has no constants ['tyles']; it has ['architecture', "),
        (lambda: target.from_constants("mine", "", None), TypeError,
         "target 'mine': constants is None, expected a dictionary {name: "),
        (lambda: chip(tiles=1472), ValueError,
         "target 'mine': tiles is 1472, expected {\"value\": ..., \"unit\": ..., \"source\": ...}"),
        (lambda: chip(tiles={"unit": "1"}), ValueError, "target 'mine': tiles is {'unit': '1'}, expected {\"value\""),
        (lambda: chip(tyles={"value": 1}), ValueError, "target 'mine': unknown constants ['tyles']"),
        (lambda: gpu(flops_per_second=1e12), ValueError,
         "roofline 'mine': missing constants ['bytes_per_second', 'launch_seconds', 'memory_bytes']"),
        (lambda: gpu(flops_per_second=1e12, bytes_per_second=1e9, launch_seconds=0.0, memory_bytes=8, cores=3),
         ValueError, "roofline 'mine': unknown constants ['cores']"),
        (lambda: search(objective=lambda r: "low"), TypeError,
         "search: an objective or a figure with a limit gave 'low', expected a number"),
        (lambda: search(lambda n: None), TypeError,
         "search: there is no program of n=3: the function returned None, expected a report or (fn, *args)"),
        (lambda: search(3), TypeError, "fn_of_sizes is 3, expected a function of the sizes"),
        (lambda: Report.from_json("text"), ValueError, "a report is JSON, as Report.to_json gives it; this is 'text'"),
        (lambda: Report.from_json("[]"), ValueError, "a report is an object of JSON, this is []"),
        (lambda: Report.from_json("{}"), ValueError,
         "the report's schema is none, so that it is no report; this version reads 1"),
        (lambda: stored(schema=9), ValueError, "the report's schema is 9; this version reads 1, as Report.save writes"),
        (lambda: stored(memory=None), ValueError, "the report lacks ['memory']"),
        (lambda: stored(memory=None, colour=1), ValueError,
         "the report lacks ['memory'], and should not hold ['colour']"),
    ],
)  # fmt: skip
def test_where_what_was_expected_and_what_was_given(call, kind, told):
    with pytest.raises(kind) as error:
        call()
    assert str(error.value).startswith(told)


def test_a_gpu_without_caches():
    machine = gpu(flops_per_second=1e12, bytes_per_second=1e9, launch_seconds=0.0, memory_bytes=1 << 30)
    assert profile(target=machine).schedule.seconds == pytest.approx(8 * 8 * 4 * 3 / 1e9)


def test_a_placement_of_other_nodes_is_noted():
    elsewhere = Placement({"dense": NodePlacement(1)}, 2)
    (said,) = profile(placement=elsewhere).assumptions
    assert said.startswith(
        "none of the nodes of the placement is in the program: ['dense']; it has 'test_error_texts.py:"
    )

    def scoped(x):
        with jax.named_scope("dense"):
            return x @ x

    assert not ipu_model.profile(scoped, X, placement=elsewhere).assumptions
