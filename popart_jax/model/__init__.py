"""ONNX models: loading, saving, tensor types, placement annotations. No JAX here; ONNX is imported at the first use."""

# lazy_loader has no types:
# pyright: reportUnknownVariableType=false
import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
