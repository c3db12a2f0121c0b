"""How PopART names an operator that is about to be made, in the texts of what it refuses."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops import facts
from ..context import gcg, get_current_context
from ..tensor import Tensor


def identifier(op_type: str) -> str:
    """``ai.onnx.Add:7``."""
    shown = facts(op_type).popxl
    domain, version = ("ai.graphcore", 1) if shown is None else (shown.domain, shown.version)
    return f"{domain}.{op_type}:{version}"


def short(op_type: str) -> str:
    """``100 (ai.onnx.Add:7)``: the number that the operator will get in its Ir, and its identifier."""
    return f"{gcg().ir._next_op} ({identifier(op_type)})"


def long(op_type: str, inputs: Sequence[Tensor], output: str) -> str:
    """``Op(Add (ai.onnx.Add:7), inputs=[a, b], outputs=[add_out])``; `output` is the name that the result asks for."""
    name = get_current_context()._get_op_settings(op_type).name
    head = f"{name} ({identifier(op_type)})" if name else identifier(op_type)
    made = gcg()._create_tensor_id(output)
    return f"Op({head}, inputs=[{', '.join(t.id for t in inputs)}], outputs=[{made}])"
