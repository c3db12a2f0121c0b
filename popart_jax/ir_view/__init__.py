"""PopART's op list of a session, as `_serializeIr` prints it; it also decides which tensors can be anchored.

The program that runs is a traced JAX function, independent of this list. The list is built on demand from plain facts;
modules are imported on demand as well: ``__init__.pyi`` lists the names and their modules.
"""

# lazy_loader has no types:
# pyright: reportUnknownVariableType=false
import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
