"""Printing at run time."""

from __future__ import annotations

from typing import Literal

from .._building.create import create, like, result
from .._building.spec import whole_number
from .._internal.enums import FloatFormat as _FloatFormat
from .._internal.values import PrintTensorFmt as PrintTensorFmt
from ..tensor import Tensor
from .utils import check_operands

FloatFormat = Literal["auto", "fixed", "scientific", "none"]
FLOAT_FORMAT_MAP = {"auto": _FloatFormat.Auto, "fixed": _FloatFormat.Fixed, "scientific": _FloatFormat.Scientific,
            "none": _FloatFormat.None_}  # fmt: skip


def print_tensor(
    t: Tensor,
    title: str | None = None,
    print_self: bool = True,
    print_gradient: bool = False,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 75,
    digits: int = 8,
    float_format: FloatFormat = "auto",
    separator: str = " ",
    open_bracket: str = "[",
    close_bracket: str = "]",
) -> Tensor:
    """The same tensor; its title and values are written to stderr whenever the operator runs.

    Parameters
    ----------
    title : str, optional
        Default: ``print_<tensor name>``; the gradient's title gets the suffix ``_gradient``.
    print_self, print_gradient : bool
        Print the tensor, its gradient.
    summarise_threshold, edge_items, max_line_width, digits, float_format
        Layout.
    separator, open_bracket, close_bracket : str of length 1

    Raises
    ------
    ValueError
        A separator or bracket of another length.
    KeyError
        Unknown `float_format`.
    """
    check_operands(t=t)
    for name, text in (("separator", separator), ("open_bracket", open_bracket), ("close_bracket", close_bracket)):
        if not isinstance(text, str) or len(text) != 1:
            raise ValueError(
                f"Parameter {name} must be 1 character exactly. Not length {len(str(text))} and value {text}."
            )
    attributes = {
        "title": f"print_{t.name}" if title is None else title,
        "print_self": int(print_self),
        "print_gradient": int(print_gradient),
        "summariseThreshold": whole_number("summarise_threshold", summarise_threshold),
        "edgeItems": whole_number("edge_items", edge_items),
        "maxLineWidth": whole_number("max_line_width", max_line_width),
        "digits": whole_number("digits", digits),
        "floatFormat": int(FLOAT_FORMAT_MAP[float_format]),
        "separator": separator,
        "openBracket": open_bracket,
        "closeBracket": close_bracket,
    }
    runs = None if print_self else ("", "Identity", 16)
    return result(create("PrintTensor", [t], [like(t, "print_out")], attributes, runs=runs))
