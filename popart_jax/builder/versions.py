"""The opsets that PopART's builder has: the defaults, under their public names, and the range of ai.onnx."""

defaultAiOnnxOpset = 10
defaultAiOnnxMlOpset = 1
defaultAiGraphcoreOpset = 1
OLDEST_ONNX, NEWEST_ONNX = 6, 11
