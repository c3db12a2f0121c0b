"""Loads a model from a file, bytes, a ModelProto or an onnx_ir model as `onnx_ir.Model`, and serialises it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeGuard

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError
from onnx import serialization
from onnx_ir.passes.common import InlinePass

from ..._compat.onnx_ir import quick_names
from ..._process.collector import without_collector
from ...errors import NoModelError, popart_exception
from ...limits import limits
from ..checks.functions import check_functions
from ..checks.initializers import check_tensors
from ..checks.signatures import check_signatures
from ..checks.structure import check_structure, every_node, sort_nodes
from ..classic import note_left_out, whole_proto, without_maps
from ..origin import imported_as_popart
from ..tensors import StoredTensor, is_packed
from .external import check_external, in_memory, is_there
from .message import check_message
from .opened import opened
from .sparse import densified, holds_sparse
from .stripped import StrippedModel, read_stripped

ModelLike: TypeAlias = "str | Path | bytes | IO[bytes] | onnx.ModelProto | ir.Model"


def load(model: ModelLike) -> ir.Model:
    """Read a model with its model-local functions inlined; external data stay in their files until used.

    Raises popart_exception where `model` is neither an existing file nor a serialised ModelProto, or breaks a rule of
    ONNX.
    """
    return ready(read(model))


@without_collector()
def ready(model: ir.Model) -> ir.Model:
    """A model that was read, functions inlined in place and checked.

    Raises popart_exception where it breaks a rule of ONNX.
    """
    inline(model)
    check_tensors(model)
    sort_nodes(model)
    check_structure(model)
    check_signatures(model)
    return model


def inline(model: ir.Model) -> None:
    """Replace calls of model-local functions by their bodies, in place.

    Raises popart_exception for a function that calls itself, or one that does not fit to its call.
    """
    if model.functions:
        limits.check_nodes(_inlined_nodes(model), "With its functions inlined the model has")
        _share_opsets(model)
        check_functions(model)
        try:
            with quick_names():
                InlinePass()(model)
        except Exception as err:
            raise popart_exception(f"The model's functions can't be inlined: {_innermost(err)}") from err


def _inlined_nodes(model: ir.Model) -> int:
    """Number of nodes after inlining, computed beforehand; 0 if functions call each other recursively."""
    counts: dict[ir.OperatorIdentifier, int] = {}
    pending: list[ir.OperatorIdentifier] = []

    def count(nodes: Iterable[ir.Node]) -> int:
        return sum(counts.get(n.op_identifier(), 1) for n in every_node(nodes))

    for start in model.functions:
        pending.append(start)
        depth = 0
        while pending and depth <= len(model.functions) ** 2:
            name, depth = pending[-1], depth + 1
            called = {n.op_identifier() for n in every_node(model.functions[name])}
            missing = [c for c in called if c in model.functions and c not in counts]
            if missing and len(pending) <= len(model.functions):
                pending.append(missing[0])
                continue
            counts[name] = count(model.functions[name])
            pending.pop()
    return count(model.graph)


def _share_opsets(model: ir.Model) -> None:
    """Write opsets of functions on their nodes where they differ: the inliner needs one list for the model."""
    for function in model.functions.values():
        other = {d: v for d, v in function.opset_imports.items() if model.opset_imports.setdefault(d, v) != v}
        for node in every_node(function) if other else ():
            if node.domain in other and node.version is None:
                node.version = other[node.domain]
        function.opset_imports.update({domain: model.opset_imports[domain] for domain in other})


@without_collector()
def read(model: ModelLike) -> ir.Model:
    """A model as it is stored, functions and all; an `onnx_ir.Model` is copied, tensors are shared.

    What ``torch.onnx.export`` returns will do too. Raises popart_exception where `model` is a text or bytes, but
    neither an existing file nor a serialised ModelProto; NoModelError where it is something else.
    """
    given = unwrapped(model)
    if isinstance(given, ir.Model):
        return _cloned(given)
    if isinstance(given, onnx.ModelProto):
        return from_proto(given, Path())
    if isinstance(given, (str, Path)) and is_there(Path(given)):
        return _parse_file(Path(given))
    return _parse_bytes(_as_bytes(given))


def unwrapped(model: Any) -> Any:
    """The model in what ``torch.onnx.export`` returns, an ONNXProgram, or in an open file; anything else as it is."""
    held = getattr(model, "model", None)
    return held if isinstance(held, ir.Model) else opened(model)


def _as_bytes(model: str | bytes | Path) -> bytes:
    if isinstance(model, Path):
        raise _unreadable(str(model))
    if isinstance(model, str):
        return model.encode("utf-8", "surrogateescape")
    if not isinstance(model, (bytes, bytearray, memoryview)):
        kinds = "a path, an open binary file, bytes, an onnx.ModelProto, an onnx_ir.Model or PyTorch's ONNXProgram"
        raise NoModelError(f"A model is {kinds}, not {type(model).__name__}.")
    return bytes(model)


def _cloned(model: ir.Model) -> ir.Model:
    try:
        return model.clone()
    except RecursionError as err:
        raise popart_exception("The model's graphs are nested too deeply to be copied.") from err
    except RuntimeError as err:
        raise popart_exception(
            f"The model is no whole graph: {_innermost(err)}\n"
            "  fix: onnx_ir drops sparse initializers; give the file's path, its bytes or the ModelProto instead."
        ) from err


def load_proto(model: ModelLike) -> onnx.ModelProto:
    """A model as protobuf, by PopART's rule: the name of an existing file, else a serialised ModelProto.

    Raises popart_exception where it is neither.
    """
    if isinstance(model, (str, Path)) and is_there(Path(model)):
        return _with_files(StrippedModel(_message(model)), Path(model)).whole()
    return _message(model)


def _message(model: ModelLike) -> onnx.ModelProto:
    given = unwrapped(model)
    if isinstance(given, onnx.ModelProto):
        return given
    if isinstance(given, ir.Model):
        return ir.to_proto(in_memory(_cloned(given)))
    if isinstance(given, (str, Path)) and is_there(Path(given)):
        data, shown = Path(given).read_bytes(), str(given)
    else:
        data = _as_bytes(given)
        shown = data[:100].decode("utf-8", "replace")
    try:
        proto = onnx.load_model_from_string(data)
    except DecodeError as err:
        raise _unreadable(shown) from err
    if not proto.HasField("graph"):
        raise _unreadable(shown)
    return proto


def load_stripped(model: ModelLike) -> StrippedModel:
    """`load_proto`, with the data of large initializers outside of the message.

    Raises popart_exception where it is neither an existing file nor a serialised ModelProto.
    """
    if isinstance(model, (str, Path)) and is_there(Path(model)):
        stripped = read_stripped(Path(model)) or StrippedModel(_message(model))
        return _with_files(stripped, Path(model))
    given = unwrapped(model)
    stripped = None if isinstance(given, (onnx.ModelProto, ir.Model)) else read_stripped(_as_bytes(given))
    return stripped or StrippedModel(load_proto(given))


def _with_files(model: StrippedModel, file: Path) -> StrippedModel:
    """The model with external data from its own folder, where PopART does not look."""
    return model if imported_as_popart() else model.with_files_beside(file.parent, file.resolve().parent)


def from_proto(proto: onnx.ModelProto, folder: Path | None = None, home: Path | None = None) -> ir.Model:
    """The model of a ModelProto, which may have packed data; external data must be in `folder`, if given.

    Links in `folder` may lead to `home`; see `check_external`. Raises popart_exception where the model breaks a rule of
    ONNX, or names a file that does not exist or is elsewhere.
    """
    model = _deserialized(proto)
    note_left_out(proto, model)
    if folder is not None:
        ir.external_data.set_base_dir(model.graph, folder)
        check_external(model, folder, home)
    for graph in model.graphs():
        for value in graph.initializers.values():
            if _holds_packed(value.const_value):
                value.const_value = StoredTensor(value.const_value.raw)
    for node in every_node(model.graph):
        packed = [n for n, a in node.attributes.items() if a.type is _TENSOR and _holds_packed(a.value)]
        for name in packed:
            node.attributes[name] = ir.AttrTensor(name, StoredTensor(node.attributes[name].value.raw))
    return model


_TENSOR = ir.AttributeType.TENSOR


def _holds_packed(tensor: ir.TensorProtocol | None) -> TypeGuard[ir.TensorProtoTensor]:
    return isinstance(tensor, ir.TensorProtoTensor) and is_packed(tensor.raw)


def _deserialized(proto: onnx.ModelProto) -> ir.Model:
    """Deserialise; sparse tensors become dense, as onnx_ir has no sparse ones."""
    check_message(proto)
    if proto.graph.sparse_initializer:
        return ir.from_proto(densified(proto))
    proto = without_maps(proto)
    try:
        return ir.from_proto(proto)
    except (ir.serde.SerdeError, ValueError, TypeError) as err:
        if not holds_sparse(proto):
            raise popart_exception(f"The model is invalid: {_innermost(err)}") from err
        if imported_as_popart():
            raise popart_exception("The Constant op attribute 'sparse_value' is not supported.") from None
        return ir.from_proto(densified(proto))


def _innermost(err: BaseException) -> str:
    """The text of the innermost cause of an error."""
    while err.__cause__ is not None:
        err = err.__cause__
    return f"nothing makes the value {err}" if isinstance(err, KeyError) else str(err)


def _parse_file(path: Path) -> ir.Model:
    binary = serialization.registry.get_format_from_file_extension(path.suffix) in (None, "protobuf")
    stripped = read_stripped(path) if binary else None
    places = path.parent, path.resolve().parent
    return from_proto(_proto_of_file(path), *places) if stripped is None else _unstripped(stripped, *places)


def _unstripped(stripped: StrippedModel, folder: Path, home: Path | None = None) -> ir.Model:
    """The model, its large initializers read once."""
    model = from_proto(stripped.proto, folder, home)
    for name, tensor in stripped.tensors().items():
        model.graph.initializers[name].const_value = tensor
    return model


def _proto_of_file(path: Path) -> onnx.ModelProto:
    """The binary form, or one of ONNX's text forms by the ending of the name."""
    try:
        proto = onnx.load(path, load_external_data=False)
    except Exception as err:  # each text form raises errors of its own
        raise _unreadable(str(path)) from err
    if not proto.HasField("graph"):
        raise _unreadable(str(path))
    return proto


def _parse_bytes(data: bytes) -> ir.Model:
    stripped = read_stripped(data)
    return from_proto(load_proto(data), Path()) if stripped is None else _unstripped(stripped, Path())


def _unreadable(shown: str) -> popart_exception:
    error = popart_exception(
        f"Failed to load a ModelProto from the string '{_printable(shown)}'.\nCheck that it is either a valid path to "
        "an existing onnx model file, or is a valid onnx ModelProto string."
    )
    if found := _what_is_there(shown):
        error.add_note(found)  # the text above is PopART's whole text
    return error


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "." for c in text)


def _what_is_there(shown: str) -> str:
    """Description of what is at the path instead of a model, if `shown` is a path."""
    try:
        if Path(shown).is_dir():
            return "It is a directory."
        with open(shown, "rb") as file:
            start = file.read(64)
    except FileNotFoundError:
        return "There is no such file."
    except (OSError, ValueError):
        return ""
    if not start:
        return "The file is empty."
    if start.startswith(b"version https://git-lfs"):
        return "The file is a Git LFS pointer; fetch the model itself with `git lfs pull`."
    return "The file holds something else, or was cut short."


def to_bytes(model: ir.Model) -> bytes:
    """Serialise a model as ONNX writes it."""
    return whole_proto(model).SerializeToString()
