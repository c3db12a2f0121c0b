"""Writing trained numbers back into the model they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from ..errors import popart_exception
from ..logs import module_logger
from ..model.external import held_tensors, in_memory
from ..model.load import ModelLike, read
from ..model.stored import Stored, stored_floats, write_numbers
from ..model.whole import write_model
from .latent import latent_weights
from .shared import Split, split_shared


@dataclass(frozen=True, eq=False)
class Source:
    """A model to be read again: what was given, how its tensors became parameters, and which file it was."""

    model: ModelLike
    split: Split
    stamp: tuple[int, int] | None
    straight_through: bool = False

    @classmethod
    def of(cls, model: ModelLike, split: Split = False, straight_through: bool = False) -> Source:
        """The source of a model that was just read."""
        return cls(model.clone() if isinstance(model, ir.Model) else model, split, _stamp(model), straight_through)

    def read(self) -> ir.Model:
        """The model as it is stored.

        Raises
        ------
        popart_exception
            The file is gone or is another one by now.
        """
        if _stamp(self.model) != self.stamp:
            raise popart_exception(
                f"The model file '{self.model}' was changed or removed since it was read; what is in it may not fit.\n"
                "  fix: read it again with to_jax, or keep the original beside the trained file."
            )
        found = read(self.model)
        split_shared(found, self.split)
        return found


def _stamp(model: ModelLike) -> tuple[int, int] | None:
    if not isinstance(model, (str, Path)):
        return None
    try:
        status = Path(model).stat()
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns


def save(model: ModelLike | Source, path: str | Path, numbers: Mapping[str, Any]) -> None:
    """Write a model with other numbers: same graph, names, opset and metadata.

    Large models, and those that kept their data in a second file, are written with one beside them, ``NAME.data``.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto or onnx_ir.Model
        The original.
    path : path
        The new file; the original itself may be named.
    numbers : mapping of str to array
        By the names that `to_jax` gives. What is left out stays as it is.

    Raises
    ------
    popart_exception
        A name that the model does not store, another shape, or a result that ONNX's checker refuses.
    OSError
        The file can't be written; what was there before stays.
    """
    source = model if isinstance(model, Source) else Source.of(model)
    found = source.read()
    beside = any(isinstance(tensor, ir.ExternalTensor) for _, tensor in held_tensors(found))
    write_numbers({**stored_floats(found), **(_latent(found) if source.straight_through else {})}, numbers)
    proto = ir.to_proto(in_memory(found))
    write_model(proto, Path(path), beside=beside, check=lambda written: _check(written, source))


def _latent(model: ir.Model) -> dict[str, Stored]:
    """Weights in whole numbers, which are written from real ones."""
    places = {name: (how, model.graph.initializers[name]) for name, how in latent_weights(model).items()}
    return {name: Stored(name, v.const_value, v, convert=how.whole) for name, (how, v) in places.items()}


def _check(written: Path, source: Source) -> None:
    try:
        onnx.checker.check_model(str(written))
    except onnx.checker.ValidationError as err:
        if _was_refused(source):
            module_logger("functions").warning("ONNX's checker refuses the model, as it refused the original: %s", err)
            return
        raise popart_exception(f"ONNX's checker refuses the model with these numbers: {err}") from err


def _was_refused(source: Source) -> bool:
    given = source.model
    try:
        if isinstance(given, (str, Path)) and Path(given).is_file():
            onnx.checker.check_model(str(given))
        else:
            proto = ir.to_proto(given) if isinstance(given, ir.Model) else given
            onnx.checker.check_model(onnx.load_model_from_string(proto) if isinstance(proto, bytes) else proto)
    except Exception:  # whatever the checker finds
        return True
    return False
