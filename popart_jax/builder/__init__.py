"""Building ONNX models: `Builder` and its operator namespaces. The methods come from ONNX's schemas and from `ops`.

A session reads the table of methods without the rest: modules are imported when a name of ``__init__.pyi`` is used.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
