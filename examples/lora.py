"""LoRA on an ONNX transformer: the file's weights stay, small matrices beside them learn.

The trained product of the small matrices is added to the weights, so that the saved file has the same size and graph.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import onnxruntime
from example_models import digits, loss_of, train, trained, transformer

import popart_jax

RANK = 4
ADAPTED = ("query_w", "value_w", "up_w", "down_w", "embed_w", "head_w")


def main(out: Path = Path("out")) -> dict[str, float]:
    """Adapt a transformer that knows upright digits to turned ones."""
    out.mkdir(parents=True, exist_ok=True)
    before, after = trained(transformer(), str(out / "transformer.onnx")), str(out / "adapted.onnx")
    data = digits(turned=True)
    images, test = data.train_x.reshape(-1, 8, 8), data.test_x.reshape(-1, 8, 8)
    fn, frozen = popart_jax.to_jax(before, trainable=ADAPTED)

    # ``a @ b`` is zero at first, so training starts at the file's own function.
    keys = dict(zip(ADAPTED, jax.random.split(jax.random.key(0), len(ADAPTED)), strict=True))
    low_rank = {
        n: (jax.random.normal(keys[n], (w.shape[0], RANK)) * RANK**-0.5, jnp.zeros((RANK, w.shape[1])))
        for n, w in frozen.items()
    }

    def merged(low_rank: dict[str, tuple[jax.Array, jax.Array]]) -> dict[str, jax.Array]:
        return {n: frozen[n] + a @ b for n, (a, b) in low_rank.items()}

    low_rank = train(
        lambda p, x, y: loss_of(fn(merged(p), x)["logits"], y), low_rank, images, data.train_y, steps=250, rate=1e-2
    )
    fn.save(after, merged(low_rank))

    found = {}
    for name, path in (("before", before), ("after", after)):
        (logits,) = onnxruntime.InferenceSession(path).run(None, {"x": test})
        found[name] = float((logits.argmax(1) == data.test_y).mean())
    trained_numbers = sum(a.size + b.size for a, b in low_rank.values())
    whole = sum(w.size for w in popart_jax.to_jax(before)[1].values())
    print(f"{trained_numbers} trained numbers beside {whole} of the file")
    print(f"turned digits right, says ONNX Runtime: {found['before']:.1%} before, {found['after']:.1%} after")
    return found


if __name__ == "__main__":
    main()
