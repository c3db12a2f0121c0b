"""ONNX models as JAX functions: parameters, state, 64-bit types, fast inference, and saving them again."""

import lazy_loader as _lazy

from .._process import _with_jax as _with_jax

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
