"""Contributed operators of ONNX Runtime (domain com.microsoft) that exported and quantised models carry."""

DOMAIN = "com.microsoft"
