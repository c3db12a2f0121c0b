"""ONNX models of many nodes: control flow, functions, sequences, and published networks."""
