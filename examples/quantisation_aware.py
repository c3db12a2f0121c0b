"""Quantisation-aware fine-tuning: an ONNX file of 8-bit weights learns new data and stays a file of 8-bit weights.

ONNX Runtime's tools quantise the file. Rounding has no useful derivative; ``straight_through=True`` passes the gradient
on as if nothing were rounded, and trains real numbers behind the whole ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from example_models import classifier, digits, loss_of, train, trained
from onnxruntime import quantization

import popart_jax


class Samples(quantization.CalibrationDataReader):
    """What the tools measure ranges with."""

    def __init__(self, x: np.ndarray) -> None:
        self._rest: Iterator[Any] = iter([{"x": x}])

    def get_next(self) -> Any:
        """One batch, then None."""
        return next(self._rest, None)


def main(out: Path = Path("out")) -> dict[str, float]:
    """Quantise, train, save, and measure with ONNX Runtime."""
    out.mkdir(parents=True, exist_ok=True)
    before, whole, after = trained(classifier(64, 32), str(out / "upright.onnx")), out / "int8.onnx", out / "qat.onnx"
    data = digits(turned=True)
    logging.getLogger().setLevel(logging.ERROR)  # the tools would like to see shapes inferred first
    quantization.quantize_static(before, whole, Samples(data.train_x))

    fn, params = popart_jax.to_jax(whole, straight_through=True)
    params = train(lambda p, x, y: loss_of(fn(p, x)["logits"], y), params, data.train_x, data.train_y)
    fn.save(after, params)

    found = {}
    for name, path in (("before", whole), ("after", after)):
        (logits,) = onnxruntime.InferenceSession(path).run(None, {"x": data.test_x})
        found[name] = float((logits.argmax(1) == data.test_y).mean())
        print(f"{name}: {found[name]:.1%} of {len(data.test_y)} turned digits right, says ONNX Runtime")
    kinds = {t.name: onnx.TensorProto.DataType.Name(t.data_type) for t in onnx.load(after).graph.initializer}
    print(f"stored types of what was trained: {sorted({kinds[n] for n in params})}")
    return found


if __name__ == "__main__":
    main()
