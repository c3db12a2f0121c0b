"""Memory of every tile: shared storage, liveness, code, and whether the program fits."""

from ipu_model.memory.liveness import Liveness, sweep

__all__ = ["Liveness", "sweep"]
