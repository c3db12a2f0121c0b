"""A user's folder and files whose names are ours or the SDK's, and what importing leaves as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

HOME = Path(__file__).parents[2]


def run(folder: Path, code: str, *before: str) -> str:
    script = folder / "script.py"
    script.write_text(code, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    command = [sys.executable, *before, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


SESSION = """
import numpy as np
b = popart.Builder()
x = b.addInputTensor("FLOAT", [2])
y = b.aiOnnx.relu([x])
device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})
s = popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, {y: popart.AnchorReturnType("All")}), device)
s.prepareDevice()
a = s.initAnchorArrays()
s.run(popart.PyStepIO({x: np.float32([-1, 2])}, a))
print(a[y], len(s.getSummaryReport()) > 100)
"""


@pytest.mark.parametrize("first", ["", "import patterns, ipu_model\n"])
def test_a_neighbour_with_the_name_of_our_package(tmp_path: Path, first: str) -> None:
    (tmp_path / "patterns.py").write_text("mine = 3\n", encoding="utf-8")
    (tmp_path / "ipu_model.py").write_text("mine = 4\n", encoding="utf-8")
    check = "import patterns, ipu_model\nfrom ipu_model import mine\nprint(patterns.mine, mine)\n"
    said = run(tmp_path, f"{first}import popart_jax as popart\n{SESSION}{check}").split()
    assert said == ["[0.", "2.]", "True", "3", "4"]


def test_a_neighbour_that_is_a_package(tmp_path: Path) -> None:
    (tmp_path / "patterns").mkdir()
    (tmp_path / "patterns" / "__init__.py").write_text("from .helpers import mine\n", encoding="utf-8")
    (tmp_path / "patterns" / "helpers.py").write_text("mine = 5\n", encoding="utf-8")
    for first in ("", "import patterns.helpers\n"):
        check = "import patterns.helpers as h\nprint(patterns.mine, h.mine, patterns.catalogue.LEVELS is not None)\n"
        assert run(tmp_path, f"{first}import popart_jax as popart\n{SESSION}import patterns\n{check}").endswith(
            "5 5 True\n"
        )


def test_importing_swaps_nothing(tmp_path: Path) -> None:
    code = "import sys\nbefore = list(sys.meta_path), list(sys.path_hooks), list(sys.path)\n"
    after = "print(before == (sys.meta_path, sys.path_hooks, sys.path), 'jax' in sys.modules)\n"
    assert run(tmp_path, f"{code}import popart_jax\n{after}") == "True False\n"
    (tmp_path / "patterns.py").touch()
    assert run(tmp_path, f"{code}import popart_jax\n{after}") == "True False\n"


def test_a_name_that_neither_has(tmp_path: Path) -> None:
    (tmp_path / "patterns.py").write_text("", encoding="utf-8")
    code = "import popart_jax, patterns\ntry:\n    patterns.nothing\nexcept AttributeError as err:\n    print(err)\n"
    assert "nothing" in run(tmp_path, code)


@pytest.mark.parametrize("content", [None, "own = 1\n"])
def test_a_folder_called_popart_is_not_the_sdk(tmp_path: Path, content: str | None) -> None:
    for name in ("popart", "popxl"):
        (tmp_path / name).mkdir()
        if content is not None:
            (tmp_path / name / "__init__.py").write_text(content, encoding="utf-8")
    said = run(tmp_path, f"import popart, popxl\nprint(popxl.Ir.__module__)\n{SESSION}", "-m", "popart_jax")
    assert "popart_jax.popxl.ir" in said
    assert "True" in said


WAYS = {
    "a session": f"import popart_jax as popart\n{SESSION}",
    "a device": """import popart_jax
device = popart_jax.DeviceManager().createIpuModelDevice({'ipuVersion': 'ipu21'})
print(device.numWorkerContexts)""",
    "types in a builder": """import popart_jax
b = popart_jax.Builder()
print(b.getTensorShape(b.aiGraphcore.gelu([b.addInputTensor("FLOAT", [2])])))""",
    "an older opset": """import popart_jax
b = popart_jax.Builder()
print(b.aiOnnx.scatter([b.addInputTensor("FLOAT", [2])] * 3) if hasattr(b.aiOnnx, "scatter") else 0)""",
    "a function": "from popart_jax import to_jax",
    "the backend": "import popart_jax.backend",
    "PopXL": "import popart_jax.popxl",
    "PopXL by its name": "import popart_jax\npopart_jax.dropin.install()\nimport popxl",
    "its addons": "import popart_jax.popxl_addons",
    "PopONNX": "import popart_jax.poponnx",
    "a neighbour": "open('ipu_model.py', 'w').close()\nsys.path.insert(0, '')\nimport popart_jax\npopart_jax.to_jax",
}


@pytest.mark.parametrize("way", WAYS)
def test_numpys_random_state_stays(tmp_path: Path, way: str) -> None:
    code = f"""import os, sys
import numpy as np
os.chdir({str(tmp_path)!r})
np.random.seed(3)
expected = np.random.RandomState(3).rand(3)
{WAYS[way]}
assert "jax" in sys.modules
print((np.random.rand(3) == expected).all())
"""
    assert run(tmp_path, code).split()[-1] == "True"
