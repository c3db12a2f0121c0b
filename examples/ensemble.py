"""An ensemble in one program: eight copies of an ONNX network, trained side by side by `vmap`.

The parameters of a file are an ordinary dictionary of arrays, so eight sets of them are one with a dimension more.
"""

import jax
import jax.numpy as jnp
import numpy as np
from example_models import classifier, digits, loss_of, train

import popart_jax

MEMBERS = 8


def main() -> tuple[np.ndarray, float]:
    """Train all members from their own starting points; the accuracy of each, and of their mean probabilities."""
    fn, params = popart_jax.to_jax(classifier(32))
    data = digits()

    # Each member starts elsewhere: the leading axis of every array numbers the members.
    keys = dict(zip(params, jax.random.split(jax.random.key(0), len(params)), strict=True))
    members = {n: p + 0.2 * jax.random.normal(keys[n], (MEMBERS, *p.shape)) for n, p in params.items()}

    def loss(p: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.vmap(lambda one: loss_of(fn(one, x)["logits"], y))(p).sum()

    members = train(loss, members, data.train_x[:300], data.train_y[:300], steps=100)
    logits = jax.vmap(lambda one: fn(one, data.test_x)["logits"])(members)
    single = np.asarray((logits.argmax(-1) == data.test_y).mean(1))
    together = float((jax.nn.softmax(logits).mean(0).argmax(-1) == jnp.asarray(data.test_y)).mean())
    print(f"{MEMBERS} members alone: {single.min():.1%} to {single.max():.1%}; together: {together:.1%}")
    return single, together


if __name__ == "__main__":
    main()
