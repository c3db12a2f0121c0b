"""PopART's Python API, run by JAX."""
