"""Operator namespaces as programs see them: the generated methods, and Python forms of those that take builders."""

from __future__ import annotations

from typing import Any

from . import operators
from .core import _BuilderCore
from .operators import ONNX_SETS, OperatorSet, onnx_set


class Opset:
    """Operators of one domain at one version."""

    _label = ""
    _name = ""

    def __init__(self, builder: _BuilderCore, version: int) -> None:
        self.version = version
        self._operators: Any = self._set(version)(builder)

    @staticmethod
    def _set(version: int) -> type[OperatorSet]:
        """The generated methods of a version; ValueError if there is none."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            method = getattr(self._operators, name)
        except AttributeError:
            raise AttributeError(f"{self._label} opset {self.version} has no operator '{name}'.") from None
        self.__dict__[name] = method  # cached: the next look-up does not call __getattr__
        return method

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(n for n in dir(self._operators) if not n.startswith("_"))]

    def __str__(self) -> str:
        return f"{self._name}{self.version}"


class AiOnnx(Opset):
    """Operators of ai.onnx."""

    _label, _name = "ai.onnx", "AiOnnx"

    @staticmethod
    def _set(version: int) -> type[OperatorSet]:
        return onnx_set(version)

    def logical_if(
        self, args: list[str], num_outputs: int, else_branch: _BuilderCore, then_branch: _BuilderCore, name: str = ""
    ) -> list[str]:
        """Add an If; both branches are subgraph builders with `num_outputs` outputs."""
        return self._operators.logical_if(args, num_outputs, else_branch, then_branch, name)

    def loop(self, args: list[str], num_outputs: int, body: _BuilderCore, debugContext: str = "") -> list[str]:
        """Add a Loop over `[trip count, condition, carried values...]`."""
        return self._operators.loop(args, num_outputs, body, debugContext)


class AiOnnx6(AiOnnx):
    """Operators of ai.onnx opset 6."""


class AiOnnx7(AiOnnx6):
    """Operators of ai.onnx opset 7."""


class AiOnnx8(AiOnnx7):
    """Operators of ai.onnx opset 8."""

    def scan(
        self,
        args: list[str],
        num_outputs: int,
        body: _BuilderCore,
        num_scan_inputs: int,
        directions: list[int] = [],  # noqa: B006 - part of the signature, never changed
        debugContext: str = "",
    ) -> list[str]:
        """Add a Scan of opset 8."""
        return self._operators.scan(args, num_outputs, body, num_scan_inputs, directions, debugContext)


class AiOnnx9(AiOnnx8):
    """Operators of ai.onnx opset 9."""

    def scan(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        args: list[str],
        num_outputs: int,
        body: _BuilderCore,
        num_scan_inputs: int,
        scan_input_axes: list[int] = [],  # noqa: B006
        scan_input_directions: list[int] = [],  # noqa: B006
        scan_output_axes: list[int] = [],  # noqa: B006
        scan_output_directions: list[int] = [],  # noqa: B006
        debugContext: str = "",
    ) -> list[str]:
        """Add a Scan."""
        return self._operators.scan(
            args,
            num_outputs,
            body,
            num_scan_inputs,
            scan_input_axes,
            scan_input_directions,
            scan_output_axes,
            scan_output_directions,
            debugContext,
        )


class AiOnnx10(AiOnnx9):
    """Operators of ai.onnx opset 10."""


class AiOnnx11(AiOnnx10):
    """Operators of ai.onnx opset 11."""


class AiOnnxMl(Opset):
    """Namespace of ai.onnx.ml; no operator of it has a builder method."""

    _label, _name = "ai.onnx.ml", "AiOnnxMl"


class AiGraphcore(Opset):
    """Operators of ai.graphcore."""

    _label, _name = "ai.graphcore", "AiGraphcore"

    @staticmethod
    def _set(version: int) -> type[OperatorSet]:
        if version != 1:
            raise ValueError(f"There is no opset {version} of ai.graphcore; there is 1.")
        return operators.AiGraphcoreOpset1

    def call(self, args: list[str], num_outputs: int, callee: _BuilderCore, debugName: str = "") -> list[str]:
        """Call a subgraph."""
        return self._operators.call(args, num_outputs, callee, debugName)

    def packedDataBlock(
        self,
        args: list[str],
        maxSequenceLengths: list[int],
        resultSize: int,
        callbackBatchSize: int,
        callback: _BuilderCore,
        debugName: str = "",
    ) -> str:
        """Run a subgraph over packed sequences."""
        return self._operators.packedDataBlock(
            args, maxSequenceLengths, resultSize, callbackBatchSize, callback, debugName
        )


class AiGraphcoreOpset1(AiGraphcore):
    """Operators of ai.graphcore opset 1."""


_ONNX_CLASSES = {6: AiOnnx6, 7: AiOnnx7, 8: AiOnnx8, 9: AiOnnx9, 10: AiOnnx10, 11: AiOnnx11}


def onnx_namespace(builder: _BuilderCore, version: int) -> AiOnnx:
    """The ai.onnx namespace of a version; ValueError where there is no such opset."""
    if version not in ONNX_SETS:
        raise ValueError(f"There is no opset {version} of ai.onnx; there are {ONNX_SETS[0]} to {ONNX_SETS[-1]}.")
    nearest = min(max(version, min(_ONNX_CLASSES)), max(_ONNX_CLASSES))
    return _ONNX_CLASSES[nearest](builder, version)
