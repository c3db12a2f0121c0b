"""Memory of every tile: what shares storage, when it lives, code beside it, and whether it fits."""

from ipu_model.memory.liveness import Liveness, sweep

__all__ = ["Liveness", "sweep"]
