"""What a session starts without: modules that it does not use, the collector, and another thread at each run."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

import popart_jax as popart
from popart_jax._process import collector

pytestmark = pytest.mark.processes


def printed(code: str) -> list[str]:
    """Lines that a fresh Python prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split("\n")


def test_a_session_imports_no_sympy() -> None:
    code = "import sys, popart_jax; popart_jax.InferenceSession, popart_jax.Builder; print('sympy' in sys.modules)"
    assert printed(code)[0] == "False"


def test_symbolic_sizes_still_calculate() -> None:
    code = (
        "import popart_jax.session.core, onnx_ir as ir, sys\n"
        "print(ir.SymbolicDim('N') + 1); print(ir.SymbolicDim('max(N,3)') * 2)\n"
        "import sympy; print(sympy.Integer(6) / 4, type(ir.__spec__.loader).__name__)"
    )
    assert printed(code)[:3] == ["N + 1", "2*Max(3, N)", "3/2 SourceFileLoader"]


MODEL = """
import sys
from onnx import TensorProto, helper
import popart_jax as popart
x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "xy")
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
"""
SESSION = (
    MODEL
    + """
device = popart.DeviceManager().createCpuDevice()
flow, kind = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")}), popart.InferenceSession
session = kind(model, flow, device)
session.prepareDevice()
"""
)


def test_a_session_imports_what_it_uses() -> None:
    code = SESSION + (
        "unused = ('popart_jax.ir_view.view', 'popart_jax.builder.builder', 'popart_jax.popxl', 'ipu_model.target',\n"
        "          'ipu_model.walk', 'popart_jax.ops.recurrent', 'popart_jax.ops.microsoft',\n"
        "          'jax.experimental.pallas',\n"
        "          'jax._src.pallas.core', 'onnxscript', 'torch', 'rich', 'sympy', 'optax')\n"
        "print(*(m for m in unused if m in sys.modules))"
    )
    assert printed(code)[0] == ""


DISPATCH = "\nimport jax; print(jax.config._read('jax_cpu_enable_async_dispatch'))"
POPXL = """
import popart_jax.popxl as popxl
ir = popxl.Ir()
with ir.main_graph:
    popxl.ops.gelu(popxl.variable([1.0]))
popxl.Session(ir)
"""


@pytest.mark.parametrize(
    "program",
    [SESSION, POPXL, MODEL + "popart.to_jax(model)"],
    ids=["popart", "popxl", "to_jax"],
)
def test_programs_are_computed_in_the_thread_that_runs_them(program: str) -> None:
    assert printed(program + DISPATCH)[0] == "False"


@pytest.mark.parametrize(
    "before",
    ["import jax; jax.devices()", "import jax; jax.config.update('jax_num_cpu_devices', 2)"],
    ids=["devices of the user", "several devices"],
)
def test_devices_of_others_and_several_devices_are_left_as_they_are(before: str) -> None:
    assert printed(before + SESSION + DISPATCH)[0] == "True"


def test_a_model_of_ipus_is_made_without_jax() -> None:
    """So that a session on it can start from a stored program; the number of workers is looked up when asked for."""
    code = (
        "import sys, popart_jax as popart\n"
        "device = popart.DeviceManager().createIpuModelDevice({})\n"
        "print('jax' in sys.modules, device.numWorkerContexts)"
    )
    assert printed(code)[0] == "False 6"


def test_a_session_starts_without_the_collector() -> None:
    """A full pass would walk all that JAX's import left; afterwards it is on again."""
    seen: list[bool] = []

    @popart.custom_op("lean", "Watch")
    def watch(x, /):
        seen.append(gc.isenabled())
        return x

    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]), "x")
    (y,) = builder.customOp("Watch", 1, "lean", [x], {})
    flow = popart.DataFlow(1, {y: popart.AnchorReturnType("All")})
    session = popart.InferenceSession(builder.getModelProto(), flow, popart.DeviceManager().createCpuDevice())
    session.prepareDevice()
    assert seen == [False]  # traced once, for the types of the tensors and for the step
    assert gc.isenabled()


@pytest.mark.parametrize("frozen", [0, 7])
def test_what_a_large_import_leaves_counts_as_old(monkeypatch: pytest.MonkeyPatch, frozen: int) -> None:
    """Or the next two collections would each traverse it; what the program has frozen stays frozen."""
    monkeypatch.setattr(collector, "_LARGEST", "lean_large")
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)
    moved: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: moved.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: moved.append("unfreeze"))
    for _ in range(2):  # the second imports nothing
        with collector.without_collector():
            monkeypatch.setitem(sys.modules, "lean_large", sys)
    assert moved == ([] if frozen else ["freeze", "unfreeze"])
    assert gc.isenabled()
