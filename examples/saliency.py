"""Saliency: which pixels decide what an ONNX classifier sees.

The gradient of the winning logit with respect to the image. `jax.grad` goes through the file as through any function.
"""

from pathlib import Path

import jax
import numpy as np
from example_models import classifier, digits, trained

import popart_jax


def main(out: Path = Path("out")) -> dict[str, np.ndarray]:
    """Show an image and the influence of its pixels side by side."""
    out.mkdir(parents=True, exist_ok=True)
    fn, params = popart_jax.to_jax(trained(classifier(64, 32), str(out / "upright.onnx")))
    image = digits().test_x[0]

    def winning_logit(x: jax.Array) -> jax.Array:
        return fn(params, x[None])["logits"].max()

    influence = np.asarray(jax.grad(winning_logit)(image))
    for row, weight in zip(_rows(image), _rows(abs(influence)), strict=True):
        print(f"{row}   {weight}")
    return {"image": image, "influence": influence}


def _rows(pixels: np.ndarray) -> list[str]:
    levels = (pixels.reshape(8, 8) / pixels.max() * 4.99).astype(int)
    return ["".join(2 * " .:+#"[level] for level in row) for row in levels]


if __name__ == "__main__":
    main()
