"""Per-example gradients: find wrong labels in a data set.

`vmap` of `grad` gives the gradient of every example in one call. Where the label contradicts the network, it is large.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from example_models import classifier, digits, loss_of, trained

import popart_jax


def main(out: Path = Path("out")) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Spoil 20 of 297 labels and find them again; the labels, the spoiled rows, the norm of each gradient."""
    out.mkdir(parents=True, exist_ok=True)
    fn, params = popart_jax.to_jax(trained(classifier(64, 32), str(out / "upright.onnx")))
    data = digits()
    labels, spoiled = data.test_y.copy(), np.random.default_rng(5).choice(len(data.test_y), 20, replace=False)
    labels[spoiled] = (labels[spoiled] + 1) % 10

    def loss(p: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
        return loss_of(fn(p, x[None])["logits"], y[None])

    gradients = jax.jit(jax.vmap(jax.grad(loss), (None, 0, 0)))(params, data.test_x, labels)
    squares = [jnp.square(g).sum(range(1, g.ndim)) for g in gradients.values()]
    norms = np.sqrt(np.sum(squares, axis=0))
    suspects = np.argsort(-norms)[:20]
    found = len(np.intersect1d(suspects, spoiled))
    print(f"{len(norms)} gradients of {len(params)} tensors each; median norm {np.median(norms):.3f}")
    print(f"of the 20 largest, {found} belong to spoiled labels")
    return labels, spoiled, norms


if __name__ == "__main__":
    main()
