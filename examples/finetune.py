"""Fine-tune an ONNX classifier on new data, and serve the result with ONNX Runtime.

The file knows upright digits; the new data lie on their side. Only names, opset and graph of the file are kept: the
numbers are the trained ones.
"""

from pathlib import Path

import onnxruntime
from example_models import classifier, digits, loss_of, train, trained

import popart_jax


def main(out: Path = Path("out")) -> dict[str, float]:
    """Train, save, and measure before and after with ONNX Runtime."""
    out.mkdir(parents=True, exist_ok=True)
    before, after = trained(classifier(64, 32), str(out / "upright.onnx")), str(out / "finetuned.onnx")
    data = digits(turned=True)

    fn, params = popart_jax.to_jax(before)  # `params` is a dictionary of arrays, named as in the file
    print(fn)
    params = train(lambda p, x, y: loss_of(fn(p, x)["logits"], y), params, data.train_x, data.train_y)
    fn.save(after, params)  # the same graph with new numbers

    found = {}
    for name, path in (("before", before), ("after", after)):
        (logits,) = onnxruntime.InferenceSession(path).run(None, {"x": data.test_x})
        found[name] = float((logits.argmax(1) == data.test_y).mean())
        print(f"{name}: {found[name]:.1%} of {len(data.test_y)} turned digits right, says ONNX Runtime")
    return found


if __name__ == "__main__":
    main()
