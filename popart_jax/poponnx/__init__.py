"""PopART's oldest interface: one `Session` that trains, evaluates and infers; operators directly on the `Builder`.

All names of `popart` are here too, except those that this package redefines.
"""

from __future__ import annotations

from typing import Any

import popart_jax as _popart

from .._process import _with_jax as _with_jax
from ..session.older import IdentityLoss as IdentityLoss
from ..session.older import L1Loss as L1Loss
from ..session.older import NllLoss as NllLoss
from .builder import Builder as Builder
from .dataflow import AnchorReturnType as AnchorReturnType
from .dataflow import DataFlow as DataFlow
from .session import Session as Session
from .stepio import PyStepIO as PyStepIO

_names = {*(n for n in dir(_popart) if n[0] != "_"), *(n for n in dir() if n[0].isupper())} - {"Any"}
__all__ = sorted(_names)  # pyright: ignore[reportUnsupportedDunderAll] - all that PopART has


def __getattr__(name: str) -> Any:
    return getattr(_popart, name)
