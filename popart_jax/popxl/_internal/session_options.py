"""Session options of a PopXL program: PopART's, with PopXL's own defaults."""

from __future__ import annotations

from functools import cache
from types import MethodType, SimpleNamespace
from typing import Any

from ...enums import VirtualGraphMode

_DEFAULTS: dict[str, Any] = {
    "virtualGraphMode": VirtualGraphMode.Manual, "useHostCopyOps": True, "aliasZeroCopy": True,
    "enableExplicitMainLoops": True, "explicitRecomputation": True, "enableInplaceAmbiguityChecking": True,
    "decomposeGradSum": True,
    "enableVariablesCaching": False, "replicatedGraphCount": 1, "enableReplicatedGraphs": False,
    "throwIfLog2ScaleTensorNotInRange": True,
    "numIOTiles": 0, "partialsTypeMatMuls": "", "logDir": ".", "cachePath": "",
    "enableEngineCaching": False,
}  # fmt: skip


class PopxlOptions(SimpleNamespace):
    """Options by name; names that have no effect here are kept as they are written."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(_popart_defaults(), name)
        if isinstance(value, MethodType):
            return MethodType(value.__func__, self)
        setattr(self, name, value)
        return value


@cache
def _popart_defaults() -> Any:
    from ...session.options import SessionOptions

    return SessionOptions()


def popxl_options() -> PopxlOptions:
    """Options as a new Ir has them."""
    return PopxlOptions(**_DEFAULTS, engineOptions={}, dotChecks=set(), convolutionOptions={}, reportOptions={})
