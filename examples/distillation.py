"""Distillation: one ONNX file teaches another, without a single label.

The student learns to give the teacher's probabilities. Both are files, and the trained student is one again.
"""

from pathlib import Path

import jax
import numpy as np
import onnx
import onnxruntime
from example_models import classifier, digits, train, trained

import popart_jax

TEMPERATURE = 3.0


def main(out: Path = Path("out")) -> dict[str, float]:
    """Let a small network imitate the softened probabilities of a large one."""
    out.mkdir(parents=True, exist_ok=True)
    large, small = trained(classifier(128, 64), str(out / "teacher.onnx")), out / "student.onnx"
    onnx.save(classifier(12, seed=3), small)
    data = digits()

    fn, weights = popart_jax.to_jax(large)
    teacher = fn.with_weights(weights)  # it does not learn: the fast form for inference
    targets = np.asarray(jax.nn.softmax(teacher(data.train_x)["logits"] / TEMPERATURE))

    student, params = popart_jax.to_jax(small)

    def loss(p: dict[str, jax.Array], x: jax.Array, wanted: jax.Array) -> jax.Array:
        return -(wanted * jax.nn.log_softmax(student(p, x)["logits"] / TEMPERATURE)).sum(-1).mean()

    params = train(loss, params, data.train_x, targets, steps=600, rate=1e-2)
    student.save(out / "taught.onnx", params)

    found = {}
    for name, path in (("teacher", large), ("untaught", small), ("taught", out / "taught.onnx")):
        (logits,) = onnxruntime.InferenceSession(path).run(None, {"x": data.test_x})
        found[name] = float((logits.argmax(1) == data.test_y).mean())
        print(f"{name:9} {found[name]:6.1%} right, {Path(path).stat().st_size / 1000:.1f} kB")
    return found


if __name__ == "__main__":
    main()
