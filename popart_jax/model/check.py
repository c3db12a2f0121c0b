"""The ONNX checker, with PopART's exception class."""

from __future__ import annotations

import onnx


def check_model(proto: onnx.ModelProto) -> None:
    """Run the ONNX checker.

    Raises
    ------
    RuntimeError
        The model breaks a rule of ONNX, or an external data file is missing (looked for from the current directory).
    """
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as err:
        raise RuntimeError(str(err)) from None
