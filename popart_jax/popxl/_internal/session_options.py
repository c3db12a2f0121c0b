"""Session options of a PopXL program: PopART's, with PopXL's own defaults."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ...enums import VirtualGraphMode
from ...session.options.rows import rows
from ...session.options.session_options import SessionOptions

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
    """Options by name, with the types of PopART's; values of options without effect here are only stored."""

    getGlobalReplicationFactor: Any = SessionOptions.getGlobalReplicationFactor  # asked for often
    enableExplicitIR: Any = SessionOptions.enableExplicitIR

    def __setattr__(self, name: str, value: Any) -> None:
        row = rows(SessionOptions).get(name)
        if row is None:  # programs leave settings of their own here
            super().__setattr__(name, value)
        else:
            row.__set__(self, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        successor = getattr(rows(SessionOptions).get(name), "successor", None)
        if successor is not None:
            return getattr(self, successor)
        value = getattr(SessionOptions(), name)  # a new default each time: some are objects that programs change
        self.__dict__[name] = value
        return value


def popxl_options() -> PopxlOptions:
    """Options as a new Ir has them."""
    return PopxlOptions(**_DEFAULTS, engineOptions={}, dotChecks=set(), convolutionOptions={}, reportOptions={})
