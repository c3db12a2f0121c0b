"""Data-parallel training of an ONNX model on eight devices.

Without eight accelerators, eight parts of the CPU stand in for them: XLA must hear of that before JAX starts. On real
devices, drop that line; nothing else changes.
"""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

import jax
import numpy as np
import optax
from example_models import classifier, digits, loss_of
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import popart_jax


def main() -> dict[int, list[float]]:
    """Train on eight devices and on one; the losses are the same."""
    data = digits()
    fn, params = popart_jax.to_jax(classifier(64, 32))
    optimizer = optax.sgd(0.1, momentum=0.9)

    @jax.jit
    def step(params, state, x, y):
        loss, gradients = jax.value_and_grad(lambda p: loss_of(fn(p, x)["logits"], y))(params)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state, loss

    found = {}
    for count in (8, 1):
        mesh = Mesh(np.array(jax.devices()[:count]), ("data",))
        everywhere, by_rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
        # Parameters are on every device, the batch is divided: XLA adds the sum of the gradients itself.
        weights = jax.device_put(params, everywhere)
        state = jax.device_put(optimizer.init(params), everywhere)
        losses = []
        for i in range(25):
            rows = np.arange(i * 64, (i + 1) * 64) % len(data.train_x)
            batch = jax.device_put((data.train_x[rows], data.train_y[rows]), by_rows)
            weights, state, loss = step(weights, state, *batch)
            losses.append(float(loss))
        shards = {shard.data.shape for shard in batch[0].addressable_shards}
        print(f"{count} device(s), each with rows {shards}: loss {losses[0]:.4f} -> {losses[-1]:.4f}")
        found[count] = losses
    return found


if __name__ == "__main__":
    main()
