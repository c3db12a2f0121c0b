"""Small networks of the kinds people use, through both ONNX exporters of PyTorch and back."""
