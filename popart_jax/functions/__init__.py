"""ONNX models as JAX functions: parameters, state, 64-bit types, fast inference, and saving them again."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
