"""Writing trained parameters into the ONNX model they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from ..errors import popart_exception
from ..logs import module_logger
from ..model.classic import whole_proto
from ..model.files.external import held_tensors, in_memory
from ..model.files.load import ModelLike, read, unwrapped
from ..model.files.stamp import Stamp, file_stamp
from ..model.files.stored import Stored, stored_floats, write_numbers
from ..model.files.whole import write_model
from .latent import latent_weights
from .shared import Split
from .tied import separate, with_copies


@dataclass(frozen=True, eq=False)
class Source:
    """A model that can be read again: `to_jax`'s argument, how its tensors became parameters, and the file's stamp."""

    model: ModelLike
    split: Split
    stamp: Stamp | None
    straight_through: bool = False

    @classmethod
    def of(cls, model: ModelLike, split: Split = False, straight_through: bool = False) -> Source:
        """The source of a model that was just read."""
        model = unwrapped(model)
        return cls(model.clone() if isinstance(model, ir.Model) else model, split, _stamp(model), straight_through)

    def __reduce__(self) -> Any:
        model = self.model
        stored = ir.to_proto(in_memory(model)).SerializeToString() if isinstance(model, ir.Model) else model
        return Source, (stored, self.split, self.stamp, self.straight_through)

    def read(self) -> ir.Model:
        """The model as stored; popart_exception where the file was removed or changed."""
        self.check()
        found = read(self.model)
        separate(found, self.split)
        return found

    def check(self) -> None:
        """Refuse a file that is not the one that was read; popart_exception where it was removed or changed."""
        if _stamp(self.model) != self.stamp:
            raise popart_exception(
                f"The model file '{self.model}' was changed or removed since it was read; what is in it may not fit.\n"
                "  fix: read it again with to_jax, or keep the original beside the trained file."
            )


def _stamp(model: ModelLike) -> Stamp | None:
    if not isinstance(model, (str, Path)):
        return None
    try:
        return file_stamp(model)
    except (OSError, ValueError):
        return None


def save(model: ModelLike | Source, path: str | Path, numbers: Mapping[str, Any]) -> None:
    """Write a model with other values of its weights: same graph, names, opset and metadata.

    Large models, and models whose data were in a second file, are written with a data file, ``NAME.data``.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto or onnx_ir.Model
        The original model.
    path : path
        The new file; it may be the original file.
    numbers : mapping of str to array
        Values by the names that `to_jax` gives; other tensors are not changed.

    Raises
    ------
    popart_exception
        A name that the model does not store, another shape, or a model that ONNX's checker refuses.
    OSError
        The file can't be written; the earlier file is kept.
    """
    source = model if isinstance(model, Source) else Source.of(model)
    found = source.read()
    beside = any(isinstance(tensor, ir.ExternalTensor) for _, tensor in held_tensors(found))
    numbers = with_copies(found.graph, source.split, numbers)
    write_numbers({**stored_floats(found), **(_latent(found) if source.straight_through else {})}, numbers)
    proto = whole_proto(in_memory(found))
    write_model(proto, Path(path), beside=beside, check=lambda written: _check(written, source))


def _latent(model: ir.Model) -> dict[str, Stored]:
    """Integer weights, which are quantised from their float values when written."""
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
    given: Any = source.model  # no open file any more
    try:
        if isinstance(given, (str, Path)) and Path(given).is_file():
            onnx.checker.check_model(str(given))
        else:
            proto = ir.to_proto(given) if isinstance(given, ir.Model) else given
            onnx.checker.check_model(onnx.load_model_from_string(proto) if isinstance(proto, bytes) else proto)
    except Exception:  # the checker raises errors of several classes
        return True
    return False
