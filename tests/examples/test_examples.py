"""Every example runs, and what it claims holds when somebody else looks."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnxruntime
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = {path.stem for path in EXAMPLES.glob("*.py")} - {"example_models"}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all, so that the trained starting point is made once."""
    return tmp_path_factory.mktemp("out")


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module(request.node.name.removeprefix("test_"))


def _script(name: str, *before: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES.parent), str(EXAMPLES)])}
    done = subprocess.run(
        [sys.executable, *before, str(EXAMPLES / f"{name}.py")],
        env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_are_tested() -> None:
    assert {f"test_{name}" for name in SCRIPTS} <= set(globals())


def test_finetune(example: Any, out: Path) -> None:
    found = example.main(out)
    assert found["before"] < 0.5
    assert found["after"] > 0.9


def test_saliency(example: Any, out: Path) -> None:
    """Against differences of what ONNX Runtime computes."""
    found = example.main(out)
    session = onnxruntime.InferenceSession(out / "upright.onnx")
    moved = found["image"] + 1e-2 * np.concatenate([np.eye(64), -np.eye(64)]).astype(np.float32)
    logits = session.run(None, {"x": moved})[0].max(1)
    np.testing.assert_allclose(found["influence"], (logits[:64] - logits[64:]) / 2e-2, atol=0.05)


def test_per_example_gradients(example: Any, out: Path) -> None:
    labels, spoiled, norms = example.main(out)
    assert len(np.intersect1d(np.argsort(-norms)[:20], spoiled)) >= 15
    data, models = sys.modules["example_models"].digits(), sys.modules["example_models"]
    fn, params = example.popart_jax.to_jax(out / "upright.onnx")
    label = labels[:1]
    alone = jax.grad(lambda p: models.loss_of(fn(p, data.test_x[:1])["logits"], label))(params)
    assert norms[0] == pytest.approx(np.sqrt(sum(np.sum(np.square(g)) for g in alone.values())), rel=1e-3)


def test_ensemble(example: Any) -> None:
    members, together = example.main()
    assert together > members.mean() > 0.8


def test_adversarial(example: Any, out: Path) -> None:
    found = example.main(out)
    assert found["along the gradient"].accuracy < 0.5 < 0.85 < found["random noise"].accuracy


def test_lora(example: Any, out: Path) -> None:
    found = example.main(out)
    assert found["before"] < 0.5
    assert found["after"] > 0.85


def test_quantisation_aware(example: Any, out: Path) -> None:
    found = example.main(out)
    assert found["before"] < 0.5
    assert found["after"] > 0.9


def test_distillation(example: Any, out: Path) -> None:
    found = example.main(out)
    assert found["untaught"] < 0.3
    assert found["taught"] > 0.9


def test_layer_widths(example: Any, out: Path) -> None:
    tried, accuracy = example.main(out)
    assert example.needed(tried[-1]) <= example.LIMIT
    assert accuracy > 0.9


@pytest.mark.processes
def test_bert_search(example: Any, out: Path) -> None:
    """The planner itself judges: each program that is found is priced once more, as are its neighbours."""
    found = example.main(out)
    assert found["cuts"] < 0.9 * found["even"]
    assert found["found"] < 0.99 * found["cuts"]
    assert example.priced(2, 5, 8).total_cycles == found["cuts"]
    assert example.priced(3, 5, 8).total_cycles >= found["cuts"]
    assert "Compared with BERT" in (out / "found.html").read_text()


def test_fit_target(example: Any) -> None:
    fitted = example.main().fitted
    assert fitted["conv.compute"] == pytest.approx(1.2, rel=0.1)
    assert fitted["conv.passes"] == pytest.approx(2000, rel=0.1)


def test_onnx_to_stablehlo(example: Any, out: Path) -> None:
    found = example.main(out)
    session = onnxruntime.InferenceSession(out / "upright.onnx")
    assert set(found) == set(example.SIZES)
    for size, logits in found.items():
        images = sys.modules["example_models"].digits().test_x[:size]
        np.testing.assert_allclose(logits, session.run(None, {"x": images})[0], rtol=1e-4, atol=1e-4)


@pytest.mark.processes
def test_data_parallel() -> None:
    eight, one = (line.split()[-1] for line in _script("data_parallel").splitlines())
    assert float(eight) == pytest.approx(float(one), abs=2e-4)
    assert float(one) < 1


@pytest.mark.processes
def test_popart_benchmark() -> None:
    said = _script("popart_benchmark", "-m", "popart_jax")
    first, last = (float(said.split("loss ")[1].split()[i]) for i in (0, 2))
    assert last < first
    assert "modelled IPU: " in said


@pytest.mark.processes
def test_popxl_mnist() -> None:
    said = _script("popxl_mnist", "-m", "popart_jax").splitlines()
    assert len(said) == 4
    assert float(said[-1].split()[4].rstrip("%")) > 90
