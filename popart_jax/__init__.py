"""PopART's Python API, run by JAX.

The names and where they come from are listed in ``__init__.pyi``; each is imported when it is first used, so importing
the package is quick and starts nothing.
"""

import lazy_loader as _lazy

from ._compat.onnx_ir import import_lean as _import_lean
from ._process.collector import without_collector as _without_collector
from ._process.neighbours import load_ours as _load_ours
from ._process.random_state import random_state_kept as _random_state_kept

_load_ours()
_import_lean()
_import, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
__getattr__ = _random_state_kept()(_without_collector()(_import))
