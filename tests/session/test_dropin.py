"""The drop-in, the command line and what importing costs, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES

import numpy as np
import pytest

from popart_jax import Builder
from popart_jax.__main__ import main


def python(code: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=check)


@pytest.mark.processes
def test_modules_and_identities():
    python(
        """
from popart_jax import dropin
dropin.install(); dropin.install()
import popart, popart_core, popart.builder, popart.session, popart.tensorinfo
import popart_opset6, popart_opset11
import onnx
assert popart.builder.Builder is popart.Builder
assert popart.session.OutOfMemoryException is popart.OutOfMemoryException
assert popart.tensorinfo.TensorInfo is popart.TensorInfo
assert popart_opset11.AiOnnxOpset11 is popart.AiOnnxOpset11
assert popart_core._TensorInfoCore in popart.TensorInfo.__mro__
assert popart_core.DataFlow is popart.DataFlow
assert not hasattr(popart, "_BuilderCore")
import popart_jax
assert popart.Builder is popart_jax.Builder
import typing
returned = typing.get_type_hints(popart.Builder.__getattr__)["return"]
opsets = {getattr(popart, f"AiOnnxOpset{n}") for n in range(6, 12)}
assert set(typing.get_args(returned)) == {popart.AiGraphcoreOpset1, *opsets}
assert popart.__version__ == popart.versionString() == ".".join(map(str, popart.versionNumber()))
int(popart.packageHash(), 16)
try:
    popart_core._throw_recoverable_runtime_error("text")
except popart.poplar_recoverable_runtime_error as err:
    assert err.args[0] == "text" and err.recoveryAction is popart.RecoveryAction.IPU_RESET
try:
    import popart.nothing
except ImportError: pass
else: raise AssertionError
from popart import *
DataFlow, Builder, AnchorReturnType
dropin.uninstall()
try:
    import popart
except ImportError: pass
else: raise AssertionError
"""
    )


@pytest.mark.processes
def test_popxl_modules_are_the_same_objects():
    python(
        """
from popart_jax import dropin
dropin.install()
import popxl, popart_jax.popxl
assert popxl is popart_jax.popxl
import popxl.dtypes, popart_jax.popxl.dtypes
assert popxl.dtypes is popart_jax.popxl.dtypes
assert popxl.dtypes.__spec__.name == "popart_jax.popxl.dtypes"
"""
    )


def test_the_original_is_not_replaced(tmp_path):
    (tmp_path / f"popart_core{EXTENSION_SUFFIXES[0]}").write_bytes(b"")  # what tells the SDK from a folder of that name
    done = python(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom popart_jax import dropin\ndropin.install()",
        check=False,
    )
    assert done.returncode != 0
    assert "ImportError" in done.stderr
    assert "Graphcore's SDK" in done.stderr


@pytest.mark.processes
def test_importing_is_quick_and_starts_nothing():
    python(
        """
import time, sys
import jax
before = dict(jax.config.values)
start = time.perf_counter()
import popart_jax
took = time.perf_counter() - start
assert took < 0.3, took
from popart_jax import Builder, TrainingSession
assert dict(jax.config.values) == before
from jax._src import xla_bridge
assert not xla_bridge._backends
assert "popart" not in sys.modules
"""
    )


@pytest.mark.processes
def test_scripts_run_unmodified(tmp_path):
    (tmp_path / "helper.py").write_text("value = 7")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, helper, popart\n"
        "assert __name__ == '__main__'\n"
        "print(helper.value, sys.argv[1:], popart.Builder.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-m", "popart_jax", str(script), "a", "--b"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "7 ['a', '--b'] Builder"


@pytest.fixture
def model(tmp_path):
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2, 3], "x")
    w = builder.addInitializedInputTensor(np.eye(3, dtype=np.float32), "w")
    builder.addOutputTensor(builder.aiOnnx.relu([builder.aiOnnx.matmul([x, w])]))
    builder.saveModelProto(str(tmp_path / "m.onnx"))
    return tmp_path / "m.onnx"


def test_run_feeds_files_and_saves(model, tmp_path, capsys):
    value = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
    np.save(tmp_path / "x.npy", value)
    assert main(["run", str(model), "--input", f"x={tmp_path}/x.npy", "--output-dir", str(tmp_path / "out")]) == 0
    assert "Relu:0" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "Relu:0.npy"), np.maximum(value, 0))
    assert main(["run", str(model), "--input", f"q={tmp_path}/x.npy"]) != 0
    assert "'q'" in capsys.readouterr().err


def test_inspect_compare_profile(model, capsys):
    assert main(["inspect", str(model)]) == 0
    assert "ai.onnx.MatMul" in capsys.readouterr().out
    assert main(["compare", str(model)]) == 0
    capsys.readouterr()
    assert main(["profile", str(model)]) == 0
    text = capsys.readouterr().out
    assert "MatMul" in text
    assert "cycles" in text
