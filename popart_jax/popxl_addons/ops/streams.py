"""A stream and its transfer in one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import popxl
from ...popxl import ops
from ...popxl.utils import to_numpy


def host_load(t: Any, dtype: popxl.dtype, name: str) -> tuple[np.ndarray, popxl.HostToDeviceStream, popxl.Tensor]:
    """A stream of the shape of `t` and a load from it.

    Returns
    -------
    (data, stream, tensor)
        `t` as an array of the type `dtype`, the stream ``<name>_stream``, and the tensor on the device.
    """
    data = to_numpy(t, dtype)
    stream = popxl.h2d_stream(data.shape, dtype, f"{name}_stream")
    return data, stream, ops.host_load(stream, name)


def host_store(t: popxl.Tensor) -> popxl.DeviceToHostStream:
    """A stream ``<name of t>_stream`` and a store of `t` into it."""
    stream = popxl.d2h_stream(t.shape, t.dtype, f"{t.name}_stream")
    ops.host_store(stream, t)
    return stream
