"""The wheel as users get it: installed into an empty environment, imported, used. Takes minutes: mark `packaging`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
PACKAGES = ("popart_jax", "ipu_model", "patterns")

Run = Callable[..., str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def run(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a program of an environment that holds the wheel and what it depends on, nothing else."""
    home = tmp_path_factory.mktemp("user")
    venv.create(home / "venv", with_pip=True)
    programs = home / "venv" / ("Scripts" if os.name == "nt" else "bin")
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment["COLUMNS"] = "200"

    def run(program: str, *arguments: str) -> str:
        command = [programs / program, *arguments]
        done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    run("python", "-m", "pip", "install", "-q", f"{wheel}[demo]")
    return run


def test_the_wheel_holds_types_and_the_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == set(PACKAGES)


def test_imports_come_from_the_wheel(run: Run) -> None:
    code = f"import json, {', '.join(PACKAGES)}; print(json.dumps([{', '.join(f'{p}.__file__' for p in PACKAGES)}]))"
    for file in json.loads(run("python", "-c", code)):
        assert "site-packages" in Path(file).parts


def test_the_installed_packages_agree(run: Run) -> None:
    assert "No broken requirements" in run("python", "-m", "pip", "check")


@pytest.fixture(scope="module")
def demo(run: Run) -> str:
    """What the demo prints; it leaves its model in `out`."""
    return run("popart-jax", "demo", "--out", "out")


def test_the_demo_trains_checks_and_prices(demo: str) -> None:
    assert "ONNX Runtime from the same file: predictions agree" in demo
    assert "Cycles by phase" in demo


def test_the_command_line_reads_the_model_of_the_demo(demo: str, run: Run) -> None:
    assert "Softmax" in run("popart-jax", "inspect", "out/digits.onnx")
    assert run("python", "-m", "ipu_model", "--help").startswith("usage")


def test_the_command_line_tells_the_version(run: Run, wheel: Path) -> None:
    assert run("popart-jax", "--version").split() == ["popart_jax", wheel.name.split("-")[1]]
