"""Session options of a PopXL program: PopART's, with PopXL's own defaults."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ...enums import VirtualGraphMode

_DEFAULTS: dict[str, Any] = {
    "virtualGraphMode": VirtualGraphMode.Manual, "useHostCopyOps": True, "aliasZeroCopy": True,
    "enableExplicitMainLoops": True, "explicitRecomputation": True, "enableInplaceAmbiguityChecking": True,
    "decomposeGradSum": True, "enableVariablesCaching": False, "replicatedGraphCount": 1, "enableReplicatedGraphs": False,
    "throwIfLog2ScaleTensorNotInRange": True, "numIOTiles": 0, "partialsTypeMatMuls": "", "logDir": ".", "cachePath": "",
    "enableEngineCaching": False, "enableStochasticRounding": False, "enableFullyConnectedPass": True,
}  # fmt: skip


class PopxlOptions(SimpleNamespace):
    """Options by name; names that have no effect here are kept as they are written."""


def popxl_options() -> PopxlOptions:
    """Options as a new Ir has them."""
    return PopxlOptions(**_DEFAULTS, engineOptions={}, dotChecks=set(), convolutionOptions={}, reportOptions={})
