"""Writes the file from which the next process starts a session: see `start`.

Files are written for sessions on one device whose options act in the compiled program alone. Programs of inference are
pure functions of weights and inputs: a run has no effect but its anchors. Those of training change their weights, the
state of PopART's optimizers and the random seed, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from .._compat import xla
from .._compat.jax import code_of, has_cpu_alone, kept_arguments
from ..execution import HYPER, Executable, Type
from ..execution.program import SEED
from ..execution.stored import container
from ..execution.stored.beside_jax import folder
from ..execution.stored.cache_folder import keep as keep_file
from ..execution.stored.container import Sealed
from ..logs import module_logger
from ..model.files.stripped import StrippedModel, stripped_of
from ..preparation import PREPARE
from .engine import Engine, Loaded
from .feeding.checks import StreamFact
from .preparing import Prepared
from .preparing.compile_cache import Model
from .start import MAIN, RECORD, Place, Start
from .start_lookup import digest_of, stamp_of

_FED = "iuf"
_FETCHED = "?iuf"


def keep_start(place: Place, prepared: Prepared, engine: Engine, arrays: Mapping[str, Type]) -> None:
    """Write the file of a session that was just compiled, if it may start from one.

    `place` holds the model as the next process will read it, `arrays` are the types of those of `initAnchorArrays`.
    """
    loaded, file = engine.programs.get(MAIN), prepared.cache_file
    if (
        loaded is None
        or file is None  # a custom operator, pattern or device
        or not file.is_file()
        or folder() != place.path.parent
        or not (xla.was_tried() and has_cpu_alone())
        or not _is_plain(prepared, loaded)
        or not _is_same(place, prepared.request.model)
    ):
        return
    record = _record(place, prepared, loaded)
    if record is None:
        return
    record["arrays"] = [(n, x.dtype.name, x.shape) for n, x in arrays.items()]
    programs = Sealed(file, file.stem)
    try:
        codes = {handle: code_of(programs.code(handle) or b"") for handle in record["programs"]}
    except Exception as err:  # damaged, or written by another version of JAX
        module_logger("session").info("Nothing is kept to start from: %s", err)
        return
    keep_file(place.path, lambda path: container.write(path, path.stem, codes, None, {RECORD: record}))


def model_of(start: Start) -> StrippedModel:
    """The model of a session that started from a file, as it was then."""
    return stripped_of(start.place.model, start.place.arrays)


def _is_plain(prepared: Prepared, loaded: Loaded) -> bool:
    """Whether the session is of the kind that is kept."""
    request, step = prepared.request, loaded.executable.step
    return (
        (request.loss is not None or not step.state)
        and request.options.act_in_program()
        and loaded.executable.mesh is None
        and all(s.host == s.device or (s.host.kind == s.device.kind and s.host.kind in "iu") for s in loaded.streams)
        and all(s.device.kind in _FED for s in loaded.streams)
        and all(a.dtype.kind in _FETCHED for a in loaded.anchors)
        and not prepared.source.beside
    )


def _is_same(place: Place, model: Any) -> bool:
    """Whether the session has read the same model as the lookup of its file."""
    try:
        return stamp_of(model) == place.stamp
    except OSError:
        return False


def _record(place: Place, prepared: Prepared, loaded: Loaded) -> dict[str, Any] | None:
    """The record that `start.Start` reads; None if it could not read a weight of the program from the model."""
    executable, tensors = loaded.executable, prepared.source.proto.graph.initializer
    values = {i: _values(prepared, tensors[i]) for i in place.model.places}
    numbers = {tensors[i].name: i for i in values}
    fixed = executable.step.fixed
    plain = all(x.dtype.kind in _FETCHED and x.nbytes == place.model.places[i].size for i, x in values.items())
    if not plain or not all(
        n in numbers and not v.individual and v.order is None and _is_type(v.type, values[numbers[n]])
        for n, v in fixed.items()
    ):
        return None
    weights = prepared.variables.keys() - prepared.state
    arguments = Model(prepared.source, prepared.graph, prepared.program.opsets, weights).arguments()
    constants = [i for i in values if tensors[i].name not in arguments]
    training = {} if prepared.hyper is None else _training(prepared, executable, numbers)
    if training is None:
        return None
    streams, anchors = {s.name: s for s in loaded.streams}, {a.name: a for a in loaded.anchors}
    preparation = executable.preparation
    return {
        "initializers": {i: (x.dtype.name, x.shape) for i, x in values.items()},
        "weights": [numbers[n] for n in fixed],
        "constants": constants,
        "digest": digest_of(values, constants),
        "inputs": [_input(streams[n]) for n in executable.step.fed if n != HYPER],
        "anchors": [(n, anchors[n].dtype.name, anchors[n].shape) for n in executable.step.results],
        "written": [(n, kind.dtype.name, kind.shape) for n, kind in executable.step.written.items()],
        "in_place": executable.is_in_place,
        "programs": {handle: _facts(call) for handle, call in _programs(executable).items()},
        "preparation": None if preparation is None else preparation.note,
        "room": executable.room.size,
        **training,
    }


def _input(stream: StreamFact) -> tuple[Any, ...]:
    return stream.name, stream.host.name, stream.device.name, stream.shape


def _training(prepared: Prepared, executable: Executable, numbers: Mapping[str, int]) -> dict[str, Any] | None:
    """What `start_training` reads; None where a run changes something that it can't make or fetch."""
    step, known = executable.step, prepared.variables
    assert prepared.hyper is not None
    assert prepared.request.optimizer is not None
    slots = {s.name for rule in prepared.hyper.rules(prepared.request.optimizer).values() for s in rule.slots}
    slots -= {t.name for t in prepared.source.proto.graph.initializer}  # saved state, in `numbers` if it can be read
    plain = [
        n == SEED
        or (n in known and known[n].host_dtype == v.type.dtype and not v.individual and v.type.dtype.kind in _FED)
        for n, v in step.state.items()
    ]
    if not all(plain) or step.created or not step.state.keys() <= {SEED, *numbers, *slots}:
        return None
    return {
        "state": [(n, v.type.dtype.name, v.type.shape, v.order, numbers.get(n)) for n, v in step.state.items()],
        "seed": SEED if SEED in step.state else None,
        "fixed": list(step.fixed),
        "variables": sorted(known.keys() - prepared.constants),
        "hyper": prepared.hyper.note,
        "reads_hyper": HYPER in step.fed,
    }


def _programs(executable: Executable) -> dict[str, Any]:
    """The step, and the program that prepares weights unless NumPy does that."""
    preparation = executable.preparation
    code = None if preparation is None else preparation.code
    return {MAIN: executable.call} if code is None else {MAIN: executable.call, MAIN + PREPARE: code}


def _facts(call: Any) -> dict[str, Any]:
    return {"kept": kept_arguments(call), "results": [(x.dtype.name, x.shape) for x in call.out_info]}


def _values(prepared: Prepared, tensor: onnx.TensorProto) -> np.ndarray:
    """Data of an initializer."""
    found = prepared.source.weights.get(tensor.name)
    return onnx.numpy_helper.to_array(tensor) if found is None else found


def _is_type(kind: Type, array: np.ndarray) -> bool:
    return (kind.shape, kind.dtype) == (array.shape, array.dtype)
