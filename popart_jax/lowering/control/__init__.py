"""Operators that run graphs: If, Loop and Scan of ONNX; Call, Loop, If and gradients of PopXL."""
