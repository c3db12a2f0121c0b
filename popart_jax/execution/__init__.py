"""Execution: steps as data, their compilation, arrays on devices, and the steps of PopART's sessions."""

# lazy_loader has no types:
# pyright: reportUnknownVariableType=false
import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
