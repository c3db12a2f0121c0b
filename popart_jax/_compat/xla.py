"""Runs compiled programs on the CPU with XLA's client but without JAX, whose import takes longer than a small model.

jaxlib guarantees these names to JAX only. So this is limited to releases with which it was tested, and to callers with
a fallback: they treat any exception from here as "not available".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, cast

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # as JAX does

import numpy as np
from jaxlib import xla_client
from jaxlib.version import __version__

_jax = import_module("jaxlib._jax")  # its types say nothing

_TRIED = ("0.10.", "0.11.", "0.12.")
_THREADS = "PJRT_NPROC"


@dataclass(frozen=True)
class Kind:
    """The attributes of an array's type that XLA's client reads."""

    shape: tuple[int, ...]
    dtype: np.dtype
    weak_type: bool = False


def _replicated(*_: object) -> Any:
    return cast("Any", xla_client.HloSharding.replicate())


_ASKED: dict[str, Any] = {
    "memory_kind": None,
    "is_fully_replicated": True,
    "_to_xla_hlo_sharding": _replicated,
}
"""Attributes of JAX's single-device sharding that XLA's client reads."""

_SingleDevice: Any = type("_SingleDevice", (cast("type", xla_client.SingleDeviceSharding),), _ASKED)


def was_tried() -> bool:
    """Whether this release of jaxlib is one with which this was tried."""
    return __version__.startswith(_TRIED)


@cache
def _client() -> Any:
    # computing in the caller's thread, who waits for the result: another one would have to be woken at each call
    return cast("Any", xla_client.make_cpu_client(asynchronous=False))


@cache
def device_of_one_thread() -> Any:
    """The device of another client, whose programs are computed by the thread that calls them, alone."""
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"  # XLA reads it when it makes the client's threads
    try:
        return cast("Any", xla_client.make_cpu_client(asynchronous=False)).devices()[0]
    finally:
        del os.environ[_THREADS]
        if before is not None:
            os.environ[_THREADS] = before


@cache
def _place() -> tuple[Any, Any]:
    device = _client().devices()[0]
    return device, _SingleDevice(device)


def putting(kind: Kind) -> Callable[[np.ndarray], Any]:
    """A function that makes device arrays; aligned host memory is shared, so nothing may write to it afterwards."""
    (device, place), write = _place(), _jax.batched_device_put
    devices = [device]
    return lambda array: write(kind, place, [array], devices, enable_x64=True)


def put(array: np.ndarray) -> Any:
    """A single such device array."""
    return putting(Kind(array.shape, array.dtype))(array)


class Program:
    """A compiled program: XLA's serialised `code`, and the types of its results.

    Loading the code means running it; `kept` are the indices of the arguments that it reads.
    """

    def __init__(self, code: bytes, results: Sequence[Kind], kept: Sequence[int]) -> None:
        self._kept = kept
        device, place = _place()
        self._loaded = _client().deserialize_executable(code, xla_client.DeviceList((device,)))
        self._handlers = [_handler(kind, place) for kind in results]

    def __call__(self, *arguments: Any) -> list[Any]:
        """Run on device arrays from `put`; returns device arrays."""
        read = [arguments[i] for i in self._kept]
        return self._loaded.execute_sharded(read).consume_with_handlers(self._handlers)


def _handler(kind: Kind, place: Any) -> Any:
    """What makes an array of a result, without the checks for which 0.10 would import JAX."""
    unchecked = (True,) if __version__.startswith("0.10.") else ()
    return _jax.array_result_handler(kind, place, True, *unchecked)


def to_host(array: Any) -> np.ndarray:
    """The contents of a device array, once it is computed."""
    array.block_until_ready()
    return np.asarray(memoryview(array))
