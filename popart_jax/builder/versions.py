"""Opset versions of PopART's builder: defaults, under their public names, and the range of ai.onnx."""

defaultAiOnnxOpset = 10
"""Opset of ai.onnx that a new builder writes."""
defaultAiOnnxMlOpset = 1
"""Opset of ai.onnx.ml that a new builder writes."""
defaultAiGraphcoreOpset = 1
"""Opset of ai.graphcore that a new builder writes."""
OLDEST_ONNX, NEWEST_ONNX = 6, 11
