"""Graphs to JAX functions: the interpreter, trace-time values, subgraphs.

Modules are imported when a name of ``__init__.pyi`` is used. Importing this package registers where operators are
translated: those that run graphs in `control`, those that the passes insert in `kernels`.
"""

# lazy_loader has no types:
# pyright: reportUnknownVariableType=false
import lazy_loader as _lazy

from ..ops.kernels import add_forms as _add_forms
from ..ops.registry import add_package as _add_package
from . import kernels as _kernels

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)

_add_package(
    f"{__name__}.control",
    {
        "": {"branches": "If", "loops": "Loop", "scans": "Scan"},
        "popxl": {"popxl": "Call If Loop"},
    },
)
_add_package(f"{__name__}.kernels", {_kernels.DOMAIN: _kernels.MODULES})
_add_forms(f"{__name__}.kernels", _kernels.FORMS)
