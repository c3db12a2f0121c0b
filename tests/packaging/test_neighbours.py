"""A user's folder and files whose names are ours or the SDK's, and what importing leaves as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_numpys_random_state_stays(tmp_path: Path) -> None:
    code = f"""import numpy as np
np.random.seed(3)
expected = np.random.RandomState(3).rand(3)
import popart_jax as popart
{SESSION}
print((np.random.rand(3) == expected).all())
"""
    assert run(tmp_path, code).split()[-1] == "True"
