"""Graphs to JAX functions: the interpreter, trace-time values, subgraphs.

Modules are imported when a name of ``__init__.pyi`` is used: a session needs the interpreter, but not `to_jax`.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
