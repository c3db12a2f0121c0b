"""Finds the file from which a session can start without being made in full: see `start`.

The file is found by a key of everything that the session in full would read: the model without its weights, the
arguments of the constructor, the environment, what is installed, our sources, the processor. What can't be in a key (a
changed setting of JAX, a pattern or an operator that the program defines, a log level that wants more lines) rules
this out, so that only the first session of a process can start so, or leave a file. `start_files` says which are kept.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from ..buffers import aligned_empty, frozen
from ..enums import DeviceConnectionType, DeviceType
from ..execution.stored.cache_folder import file_in, mark_used
from ..execution.stored.container import Sealed
from ..execution.stored.described import installed, machine, name_of, sources
from ..learnt import cache_folder, variables
from ..limits import limits
from ..logs import MODULES, module_logger
from ..model.files import wire
from ..model.files.stamp import file_stamp
from ..model.origin import imported_as_popart
from ..optimizers import SGD, Adam, Adaptive, ConstSGD
from ..timings import phase, watching
from .start import RECORD, Asked, Place, Start
from .start_training import TrainingStart

_OURS = ("POP",)
_WITH_JAX = f"{__name__.split('.')[0]}._process._with_jax"
_EXTERNAL = b"location"
_OPTIMIZERS = (type(None), SGD, ConstSGD, Adam, Adaptive)
_DEVICES = (DeviceType.Cpu, DeviceType.IpuModel)


def find_start(asked: Asked) -> tuple[Place | None, Start | None]:
    """The file for a session's program (None if it can't start from one), and the program if the file can be loaded."""
    folder = cache_folder()
    if folder is None or not _plain(asked):
        return None, None
    try:
        stamp = stamp_of(asked.model)
        data = wire.Data(asked.model if isinstance(asked.model, bytes) else Path(asked.model))
    except (OSError, ValueError):  # no file, or none that can be read
        return None, None
    with closing(data):
        apart = wire.take_apart(data, 1)
        key = None if apart is None or _EXTERNAL in apart.rest else _key(asked, apart)
        if apart is None or key is None:
            return None, None
        place = Place(file_in(folder, key), apart, {}, stamp)
        loads = place.path.is_file() and "jax" not in sys.modules
        return place, _load_start(asked, place, data) if loads else None


def stamp_of(model: str | bytes | Path) -> tuple[int, ...]:
    """A stamp that changes with the model's file; OSError if there is no such file."""
    if isinstance(model, bytes):
        return ()
    return file_stamp(model)


def _plain(asked: Asked) -> bool:
    """Whether a key can describe everything that the program depends on."""
    device = asked.device
    return (
        _knows_jax()
        and _knows_patterns()
        and isinstance(asked.model, (str, bytes, Path))
        and type(asked.optimizer) in _OPTIMIZERS
        and getattr(device, "type", None) in _DEVICES
        and device.connectionType is DeviceConnectionType.Always
        and device.last_engine is None
        and not any(module_logger(name).isEnabledFor(logging.INFO) for name in MODULES)
        and not watching()
        and limits.are_default
        and not any(name.startswith(_OURS) for name in os.environ)
    )


def _knows_jax() -> bool:
    """Whether JAX computes as the environment says: it was not imported yet, or by the builder and is unchanged."""
    ours = sys.modules.get(_WITH_JAX)
    return "jax" not in sys.modules or (ours is not None and ours.is_unchanged())


def _knows_patterns() -> bool:
    """Whether the rules of graph rewrites are ours: the program has defined none, or can't have."""
    loaded = sys.modules.get("patterns")
    own_alone = getattr(loaded, "knows_own_alone", None)  # another module of that name has none
    return loaded is None or (own_alone is not None and own_alone())


def _key(asked: Asked, model: wire.Apart) -> str | None:
    """The name of the file, a hash; None if something can't be described."""
    places = [(index, place.field, place.size) for index, place in model.places.items()]
    device, optimizer = asked.device, asked.optimizer
    return name_of(
        hashlib.sha256(model.rest).hexdigest(),
        places,
        (asked.data_flow, asked.shapes, asked.patterns, asked.options, asked.name, imported_as_popart()),
        (asked.loss, None if optimizer is None else (type(optimizer), optimizer.fixed())),
        (device.type, device.numIpus, device.ipuVersion, device.tilesPerIPU),
        (variables(), installed(), sources(), machine()),
    )


@phase("load")
def _load_start(asked: Asked, place: Place, data: wire.Data) -> Start | None:
    """The start that a file holds; None if it is damaged, of another user, or of other constants."""
    try:
        file = Sealed(place.path, place.path.stem)
        record: Mapping[str, Any] = file.note(RECORD)
        _read(place, record["initializers"], data)
        if digest_of(place.arrays, record["constants"]) != record["digest"]:
            return None
        start = (Start if asked.loss is None else TrainingStart)(asked, place, file, record)
        mark_used(place.path)
    except Exception as err:  # zip, the seal and XLA each raise errors of their own
        module_logger("session").warning("Failed to start from %s: %s", place.path, err)
        return None
    return start


def _read(place: Place, kinds: Mapping[str, Any], data: wire.Data) -> None:
    """Read the initializers from the model."""
    waiting: list[tuple[Any, np.ndarray]] = []
    for index, where in place.model.places.items():
        dtype, shape = kinds[str(index)]
        array = aligned_empty(shape, dtype)
        waiting.append((where, array.reshape(-1).view(np.uint8)))
        place.arrays[index] = frozen(array)
    data.read_into(waiting)


def digest_of(arrays: Mapping[int, np.ndarray], constants: list[int]) -> str:
    """A hash of the initializers whose values are part of the program."""
    digest = hashlib.sha256()
    for index in constants:
        digest.update(arrays[index].tobytes())
    return digest.hexdigest()
