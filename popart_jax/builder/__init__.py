"""Building ONNX models: `Builder` and its operator namespaces. The methods come from ONNX's schemas and from `ops`.

Modules are imported when a name of ``__init__.pyi`` is first used, since a session needs only the table of methods.
"""

# lazy_loader has no types:
# pyright: reportUnknownVariableType=false
import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
