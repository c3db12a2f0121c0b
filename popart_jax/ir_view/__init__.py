"""PopART's op-by-op picture of a session: what `_serializeIr` prints and which tensors exist to be anchored.

The program that runs is another one (a traced JAX function). This view is built on demand from plain facts, and its
modules are imported on demand as well: the names and where they come from are listed in ``__init__.pyi``.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
