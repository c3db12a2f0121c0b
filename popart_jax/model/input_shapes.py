"""`InputShapeInfo`: types and shapes of streamed inputs that the model leaves open."""

from __future__ import annotations

import onnx_ir as ir

from .._calls import checked
from ..errors import noted, popart_exception
from .dtypes import element_type
from .tensor_info import _TensorInfoCore


class InputShapeInfo:
    """Element types and shapes of inputs, by name; they take precedence over the model's."""

    @checked
    def __init__(self) -> None:
        self._infos: dict[str, _TensorInfoCore] = {}

    @checked
    def add(self, name: str, info: _TensorInfoCore, /) -> None:
        """Enter an input."""
        self._infos[name] = info

    @checked
    def get(self, name: str, /) -> _TensorInfoCore:
        """Tensor info of an input.

        Raises
        ------
        popart_exception
            It was not entered.
        """
        if name not in self._infos:
            error = popart_exception(f"No input shape info for Tensor `{name}' in InputShapeInfo::get")
            raise noted(error, f"there is some for {sorted(self._infos)}")
        return self._infos[name]

    @checked
    def has(self, name: str, /) -> bool:
        """Whether an input was entered."""
        return name in self._infos

    def names(self) -> list[str]:
        """Names of all inputs entered (an addition of this package)."""
        return list(self._infos)

    def __repr__(self) -> str:
        return f"InputShapeInfo({self._infos})"


def settle_input_shapes(graph: ir.Graph, infos: InputShapeInfo) -> None:
    """Give every streamed input a known type and shape, in place.

    Raises popart_exception where an input has a symbolic, negative or no shape, and `infos` lacks it too.
    """
    for value in graph.inputs:
        name = value.name or ""
        if infos.has(name):
            info = infos.get(name)
            value.type = ir.TensorType(element_type(info.dataType()).onnx)
            value.shape = ir.Shape(info.shape())
        elif name not in graph.initializers:
            _require_known(value)


def _require_known(value: ir.Value) -> None:
    if value.shape is None:
        raise popart_exception(
            f"Could not find tensor {value.name} in InputShapeInfo, but no shape is specified in the onnx model"
        )
    dims = [d if isinstance(d, int) else (d.value or "?") for d in value.shape]
    unknown = next((d for d in dims if not isinstance(d, int) or d < 0), None)
    if unknown is not None:
        raise popart_exception(
            f"Input tensor '{value.name}' must be specified in InputShapeInfo, as it has shape "
            f"[{', '.join(map(str, dims))}], which uses an unknown value '{unknown}'."
        )
