"""Official ONNX suites and the gradient sweep: `python -m tests.conformance [newest|old|gradients]`."""
