"""Adversarial examples: a small step along the sign of the gradient, and an ONNX classifier errs.

ONNX Runtime is the judge: it sees the same file and only the changed images.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import onnxruntime
from example_models import classifier, digits, loss_of, trained

import popart_jax

STEP = 0.15  # of the range of a pixel


class Seen(NamedTuple):
    """Images, the classes that ONNX Runtime finds in them, and how many of those are right."""

    images: np.ndarray
    classes: np.ndarray
    accuracy: float


def main(out: Path = Path("out")) -> dict[str, Seen]:
    """Accuracy on images as they are, with random noise, and with noise along the gradient."""
    out.mkdir(parents=True, exist_ok=True)
    path = trained(classifier(64, 32), str(out / "upright.onnx"))
    fn, params = popart_jax.to_jax(path)
    data = digits()
    gradient = jax.jit(jax.grad(lambda x: loss_of(fn(params, x)["logits"], data.test_y)))(data.test_x)
    directions = {
        "unchanged": np.zeros_like(data.test_x),
        "random noise": np.random.default_rng(0).choice([-1.0, 1.0], data.test_x.shape),
        "along the gradient": np.sign(gradient),
    }
    judge, found = onnxruntime.InferenceSession(path), {}
    for name, direction in directions.items():
        images = np.clip(data.test_x + STEP * direction, 0, 1).astype(np.float32)
        (logits,) = judge.run(None, {"x": images})
        classes = logits.argmax(1)
        found[name] = Seen(images, classes, float((classes == data.test_y).mean()))
        print(f"{name:20} {found[name].accuracy:.1%} right")
    return found


if __name__ == "__main__":
    main()
