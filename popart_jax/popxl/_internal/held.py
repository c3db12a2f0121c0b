"""What the device holds of whole numbers of 64 bits."""

from __future__ import annotations

import jax
import numpy as np

from ...errors import popart_exception
from ..tensor import Constant, Variable


def check_held(t: Constant | Variable) -> None:
    """Raise popart_exception where a tensor of 64 bits has numbers that the device's 32 do not hold."""
    if not t.dtype.is_int:
        return
    host = np.asarray(t._host)
    held = np.dtype(jax.dtypes.canonicalize_dtype(host.dtype))
    if held != host.dtype and not np.array_equal(host.astype(held), host):
        raise popart_exception(f"{t!r} can't be uploaded: the device's type {held} does not hold all its numbers.")
