"""ONNX to StableHLO: hand a model with a free batch size to anything that reads StableHLO.

`jax.export` writes a portable artefact with a promise of compatibility; parameters are arguments of it.
"""

from pathlib import Path

import jax
import numpy as np
from example_models import classifier, digits, trained
from jax import export

import popart_jax

SIZES = (1, 4)


def main(out: Path = Path("out")) -> dict[int, np.ndarray]:
    """Export, store, load and call."""
    out.mkdir(parents=True, exist_ok=True)
    fn, params = popart_jax.to_jax(trained(classifier(64, 32), str(out / "upright.onnx")))
    (batch,) = export.symbolic_shape("batch")
    exported = export.export(jax.jit(fn))(params, jax.ShapeDtypeStruct((batch, 64), np.float32))
    for line in str(exported.mlir_module()).splitlines():
        if "stablehlo.dot_general" in line:
            print(line.split(" loc(")[0].strip())

    (out / "classifier.bin").write_bytes(exported.serialize())
    loaded = export.deserialize(bytearray((out / "classifier.bin").read_bytes()))
    found = {}
    for size in SIZES:
        found[size] = np.asarray(loaded.call(params, digits().test_x[:size])["logits"])
        print(f"batch of {size}: the loaded function sees {found[size].argmax(1)}")
    return found


if __name__ == "__main__":
    main()
