"""A pluggable, differentiable model of the IPU: cycles and memory of any JAX function.

The names and where they come from are listed in ``__init__.pyi``; each is imported when it is first used, so that
modules without JAX (`ipu_model.whole_files`) can be imported alone.
"""

# lazy_loader has no types:
# pyright: reportUnknownVariableType=false
import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
