"""A pluggable, differentiable model of the IPU: cycles and memory of any JAX function."""
