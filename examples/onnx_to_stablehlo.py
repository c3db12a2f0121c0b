"""ONNX to StableHLO: hand a model to anything that reads StableHLO.

`jax.export` writes a portable artefact with a promise of compatibility; parameters are arguments of it.
"""

from pathlib import Path

import jax
import numpy as np
from example_models import classifier, digits, trained
from jax import export

import popart_jax

BATCH = 4


def main(out: Path = Path("out")) -> dict[str, np.ndarray]:
    """Export, store, load and call."""
    out.mkdir(parents=True, exist_ok=True)
    fn, params = popart_jax.to_jax(trained(classifier(64, 32), str(out / "upright.onnx")))
    exported = export.export(jax.jit(fn))(params, jax.ShapeDtypeStruct((BATCH, 64), np.float32))
    for line in str(exported.mlir_module()).splitlines():
        if "stablehlo." in line:
            print(line.split(" loc(")[0].strip())

    (out / "classifier.bin").write_bytes(exported.serialize())
    loaded = export.deserialize(bytearray((out / "classifier.bin").read_bytes()))
    logits = np.asarray(loaded.call(params, digits().test_x[:BATCH])["logits"])
    print(f"{(out / 'classifier.bin').stat().st_size} bytes; the loaded function sees {logits.argmax(1)}")
    return {"logits": logits}


if __name__ == "__main__":
    main()
