"""The recipes for optax, Equinox and Flax train the model, and ONNX Runtime computes what they saved."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how_to" / "jax_libraries.md"
RECIPES = {"optax": "plain optax", "equinox": "an Equinox module", "flax": "a Flax module"}


def classifier() -> onnx.ModelProto:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N,64] x) => (float[N,10] logits) {'
    model = onnx.parser.parse_model(text + "h = MatMul(x, w1)\n a = Relu(h)\n logits = MatMul(a, w2) }")
    generator = np.random.default_rng(0)
    for name, shape in {"w1": (64, 16), "w2": (16, 10)}.items():
        weight = 0.2 * generator.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return model


def blocks(recipe: str) -> list[str]:
    """The first block of the page, that of plain optax, and the recipe's own."""
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    wanted = [s for s in sections if s is sections[0] or RECIPES["optax"] in s or recipe in s]
    return [block for s in wanted for block in re.findall(r"^```python\n(.*?)^```", s, re.MULTILINE | re.DOTALL)]


@pytest.mark.parametrize("library", RECIPES)
def test_a_recipe_trains_and_saves(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(library)
    onnx.save(classifier(), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": __name__}
    for block in blocks(RECIPES[library]):
        names.pop("value", None)
        exec(compile(block, str(PAGE), "exec"), names)
    assert float(names["value"]) < 0.2 * float(names["loss"](lambda x: names["fn"](names["params"], x)["logits"]))
    (served,) = onnxruntime.InferenceSession("trained.onnx").run(None, {"x": names["x"]})
    model = names.get("network", lambda x: names["fn"](names["trained"], x)["logits"])
    np.testing.assert_allclose(served, model(names["x"]), rtol=1e-4, atol=1e-5)
