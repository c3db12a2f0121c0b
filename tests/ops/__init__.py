"""The translations in `popart_jax/ops`, a node at a time, by the rules of ONNX; no session takes part."""
