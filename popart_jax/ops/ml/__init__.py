"""Domain ai.onnx.ml: classic models and their preprocessing."""
