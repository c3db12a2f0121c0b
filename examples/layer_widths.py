"""Layer widths by gradient: which neurons may stay when the network must fit into the memory of small tiles.

Each hidden neuron has a gate between 0 and 1, trained with the weights. The gates pay for what the IPU model says that
memory costs, and the price rises until the model says that the network fits.
"""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
from example_models import classifier, digits, loss_of, train

import ipu_model
import popart_jax

BATCH, WIDTHS, LIMIT = 64, (128, 128), 14_000  # bytes on the fullest tile

mk2 = ipu_model.get_target("mk2")
CHIP = dataclasses.replace(mk2, name="16 tiles", machine=dataclasses.replace(mk2.machine, tiles=16))


def needed(widths: tuple[int, ...]) -> int:
    """Bytes on the fullest tile when a network of these widths infers."""
    fn, params = popart_jax.to_jax(classifier(*widths))
    report = ipu_model.profile(fn, params, jax.ShapeDtypeStruct((BATCH, 64), np.float32), target=CHIP)
    return max(report.memory.total_by_tile)


def slopes(widths: tuple[int, ...]) -> list[float]:
    """Bytes that one more neuron of each layer costs, from programs that differ by a few of them."""
    step, here = 16, needed(widths)
    return [(here - needed((*widths[:i], n - step, *widths[i + 1 :]))) / step for i, n in enumerate(widths)]


def main(out: Path = Path("out")) -> tuple[list[tuple[int, ...]], float]:
    """Raise the price of memory until the network fits, and save it; all widths tried, and ONNX Runtime's verdict."""
    out.mkdir(parents=True, exist_ok=True)
    data = digits()
    fn, params = popart_jax.to_jax(classifier(*WIDTHS))
    per_neuron = np.maximum(slopes(WIDTHS), 1.0)
    print(f"{WIDTHS}: {needed(WIDTHS)} bytes; one neuron more costs {np.round(per_neuron, 1)} bytes")

    def gated(p):  # a gate scales a neuron's input weights and bias: behind a Relu that scales its output
        gates = [jax.nn.sigmoid(g) for g in p["gates"]]
        new = dict(p["weights"])
        for i, gate in enumerate(gates):
            new |= {f"dense{i}.w": new[f"dense{i}.w"] * gate, f"dense{i}.b": new[f"dense{i}.b"] * gate}
        return new, gates

    tried, price, kept = [WIDTHS], 1e-5, [np.arange(n) for n in WIDTHS]  # price: loss for a byte
    state = {"weights": params, "gates": [jnp.full(n, 2.0) for n in WIDTHS]}
    while needed(tried[-1]) > LIMIT:

        def loss(p, x, y, price=price):
            weights, gates = gated(p)
            paid = sum(bytes_ * gate.sum() for bytes_, gate in zip(per_neuron, gates, strict=True))
            return loss_of(fn(weights, x)["logits"], y) + price * paid

        state = train(loss, state, data.train_x, data.train_y, steps=150, rate=2e-2)
        kept = [np.flatnonzero(np.asarray(g) > 0) for g in state["gates"]]
        tried.append(tuple(len(k) for k in kept))
        print(f"price {price:.1e}: widths {tried[-1]}, {needed(tried[-1])} bytes")
        price *= 1.4

    # The neurons that stay, as a file of its own.
    small = classifier(*tried[-1])
    weights, _ = gated(state)
    cut = [np.arange(64), *kept, np.arange(10)]
    small_fn, small_params = popart_jax.to_jax(small)
    for i in range(len(WIDTHS) + 1):
        small_params[f"dense{i}.w"] = weights[f"dense{i}.w"][np.ix_(cut[i], cut[i + 1])]
        small_params[f"dense{i}.b"] = weights[f"dense{i}.b"][cut[i + 1]]
    small_params = train(lambda p, x, y: loss_of(small_fn(p, x)["logits"], y), small_params, data.train_x, data.train_y)
    small_fn.save(out / "fits.onnx", small_params)
    (logits,) = onnxruntime.InferenceSession(out / "fits.onnx").run(None, {"x": data.test_x})
    accuracy = float((logits.argmax(1) == data.test_y).mean())
    print(f"limit {LIMIT} bytes: widths {tried[-1]}, {accuracy:.1%} of the test digits right, says ONNX Runtime")
    onnx.checker.check_model(str(out / "fits.onnx"))
    return tried, accuracy


if __name__ == "__main__":
    main()
