"""PopART's Python API, run by JAX.

The names and where they come from are listed in ``__init__.pyi``; each is imported when it is first used, so importing
the package is quick and starts nothing.
"""

import lazy_loader as _lazy

from ._collector import without_collector as _without_collector
from ._compat.onnx_ir import import_lean as _import_lean
from ._neighbours import install as _find_our_packages
from ._random_state import keep_at_import_of_jax as _keep_at_import_of_jax

_find_our_packages()
_keep_at_import_of_jax()
_import_lean()
_import, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
__getattr__ = _without_collector()(_import)
