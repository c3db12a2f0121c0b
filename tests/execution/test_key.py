"""Names of compiled programs: the same for the same facts in every process, none where a fact has no description."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popart_jax as popart
from popart_jax import popxl
from popart_jax.execution.stored.key import model_facts, program_key
from popart_jax.model.files.stripped import StrippedModel
from popart_jax.popxl import ops

FACTS = "{'b': {1, 'x'}, 'a': (1.5, None, b'y')}, np.arange(6, dtype=np.float32).reshape(2, 3), json.dumps"
SCRIPT = (
    f"import json, numpy as np; from popart_jax.execution.stored.key import program_key; print(program_key({FACTS}))"
)


def in_another_process(seed: int) -> str:
    env = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True).stdout


@pytest.mark.processes
def test_every_process_gives_the_same_name() -> None:
    first, second = in_another_process(1), in_another_process(2)
    assert first == second
    assert first.strip().isdecimal()


@dataclass
class Fact:
    size: int
    values: np.ndarray


@pytest.mark.parametrize("other", [Fact(2, np.zeros(3)), Fact(1, np.ones(3)), Fact(1, np.zeros(3, np.float32))])
def test_another_fact_is_another_name(other: Fact) -> None:
    assert program_key(Fact(1, np.zeros(3))) == program_key(Fact(1, np.zeros(3)))
    assert program_key(Fact(1, np.zeros(3))) != program_key(other)


def test_the_environment_is_part_of_names_that_stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    here, anywhere = program_key(1), program_key(1, portable=True)
    monkeypatch.setenv("XLA_FLAGS", "--xla_something_else")
    assert program_key(1) != here
    assert program_key(1, portable=True) == anywhere


@pytest.mark.parametrize("fact", [lambda x: x, object(), [Fact(1, np.zeros(1)).__eq__]])
def test_what_only_has_an_address_has_no_name(fact: object) -> None:
    assert program_key("program", fact) is None


def model(weight: np.ndarray, scales: np.ndarray) -> StrippedModel:
    initializers = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(scales, "s")]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [100]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", [x], [y], initializers)
    return StrippedModel(helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]))


def test_weights_are_no_part_of_a_model() -> None:
    one, small = np.ones(100, np.float32), np.ones(2, np.float32)
    known = model_facts(model(one, small), {"w", "s"})
    assert model_facts(model(2 * one, small), {"w", "s"}) == known
    assert model_facts(model(one, 2 * small), {"w", "s"}) == known
    assert model_facts(model(one, 2 * small), {"w"}) != model_facts(model(one, small), {"w"})  # read while tracing
    assert model_facts(model(2 * one, small), {"s"}) != model_facts(model(one, small), {"s"})  # a constant
    assert model_facts(model(np.ones((10, 10), np.float32), small), {"w", "s"}) != known


def test_programs_that_call_back_run_uncached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    """No file can hold a call into Python; PopXL and PopART sessions go on without one."""
    monkeypatch.setenv("POPXL_CACHE_DIR", str(tmp_path))
    ir = popxl.Ir()
    with ir.main_graph:
        sink = popxl.d2h_stream((2,), popxl.float32)
        ops.host_store(sink, ops.print_tensor(popxl.variable(np.ones(2, np.float32)) * 2.0, "shown"))
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[sink], [2, 2])
    assert not list(tmp_path.iterdir())
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    y = builder.aiGraphcore.printtensor([x], title="shown")
    options = popart.SessionOptions()
    options.enableEngineCaching, options.cachePath = True, str(tmp_path)
    with popart.DeviceManager().acquireAvailableDevice(1) as device:
        flow = popart.DataFlow(1, {y: popart.AnchorReturnType("All")})
        made = popart.InferenceSession(builder.getModelProto(), flow, device, userOptions=options)
        made.prepareDevice()
        anchors = made.initAnchorArrays()
        made.run(popart.PyStepIO({x: np.ones(2, np.float32)}, anchors))
        np.testing.assert_array_equal(anchors[y], [1, 1])
        assert not list(tmp_path.iterdir())
        with pytest.raises(popart.popart_exception, match="can't be written to a file"):
            made.saveExecutable(str(tmp_path / "export.popef"))
    assert capfd.readouterr().err.count("shown") == 2
