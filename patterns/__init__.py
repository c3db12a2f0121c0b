"""Graph rewrites on onnx_ir, named and levelled as in PopART."""
