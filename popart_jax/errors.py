"""The exception family: PopART's class names, and the more precise errors this package adds to them.

Source: PopART's error hierarchy (popart, poplibs and poplar families are unrelated to each other).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from .logs import module_logger

C = TypeVar("C")
E = TypeVar("E", bound=BaseException)
F = TypeVar("F", bound=Callable[..., Any])


class popart_exception(Exception):
    """Base of every error raised on account of a program, a model or an option."""

    logged = False


def log_error(error: popart_exception) -> None:
    """Log an error at level error, as PopART does with each that reaches the program; a second call does nothing."""
    if not error.logged:
        error.logged = True
        module_logger("popart").error("%s", error)


def logs_errors(function: F) -> F:
    """Decorator of public functions: errors that leave them are logged. Attempts inside the package log nothing."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except popart_exception as error:
            log_error(error)
            raise

    return call  # pyright: ignore[reportReturnType]


def logs_errors_of_methods(cls: type[C], but: Collection[str] = ()) -> type[C]:
    """Decorator of public classes: `logs_errors` for each public method that the class defines, `but` some."""
    for name, member in list(vars(cls).items()):
        if inspect.isfunction(member) and not name.startswith("_") and name not in but:
            setattr(cls, name, logs_errors(member))
    return cls


PopartJaxError = popart_exception
"""Another name of `popart_exception`, the base of all errors about a program."""


def noted(error: E, *notes: str) -> E:
    """The error with help of ours beside its text, which is PopART's and stays as it is."""
    for note in filter(None, notes):
        error.add_note(note)
    return error


class popart_internal_exception(popart_exception):
    """A rule inside the runtime was broken."""


class popart_runtime_error(popart_exception):
    """Something went wrong while a prepared session was used."""


class poplibs_exception(Exception):
    """Raised by the tensor libraries upstream."""


class poplar_exception(Exception):
    """Raised by the device layer upstream."""


class poplar_runtime_error(poplar_exception):
    """Device layer error while running."""


class poplar_application_runtime_error(poplar_runtime_error):
    """Device layer error caused by the program."""


class poplar_system_runtime_error(poplar_runtime_error):
    """Device layer error caused by the system."""


class poplar_recoverable_runtime_error(poplar_system_runtime_error):
    """System error after which the run may be tried again; `recoveryAction` says how."""

    recoveryAction: ClassVar[object] = None


class poplar_unrecoverable_runtime_error(poplar_system_runtime_error):
    """System error that ends the use of the device."""


class poplar_unknown_runtime_error(poplar_system_runtime_error):
    """System error of unknown nature."""


class UnsupportedOpError(popart_exception, NotImplementedError):
    """A model holds operators without a translation; all of them are named at once.

    Parameters
    ----------
    gaps : sequence of (str, str)
        Operator identifiers such as ``ai.onnx.Foo:17`` with the node name, in graph order.
    popart : bool
        For a program of PopART's, which compares whole texts: all but the first is a note.
    """

    def __init__(self, gaps: Sequence[tuple[str, str]], *, popart: bool = False) -> None:
        self.gaps = tuple(gaps)
        counts: dict[str, list[str]] = {}
        for op, node in gaps:
            counts.setdefault(op, []).append(node)
        lines = [f"  {op} x{len(nodes)}, first at node {nodes[0]!r}" for op, nodes in counts.items()]
        text, more = (
            f"No class for {gaps[0][0]}",
            (
                f"The model uses {len(counts)} operator(s) without a translation:\n"
                + "\n".join(lines)
                + "\n  fix: "
                + _way_out(gaps[0][0])
            ),
        )
        super().__init__(text if popart else f"{text}. {more}")
        if popart:
            self.add_note(more)


def _way_out(op: str) -> str:
    """What to do about an operator that is not known."""
    if op.startswith("com.microsoft.nchwc"):
        return (
            "ONNX Runtime wrote this file for one kind of processor; take the original, or let it optimise up to "
            "ORT_ENABLE_EXTENDED."
        )
    return "register a Python translation with popart_jax.custom_op(...), or convert the model's opset."


class ProgramAborted(poplar_application_runtime_error, popart_runtime_error):
    """An Abort operator stopped the program while it ran."""


class OpError(popart_exception):
    """An operator refuses its inputs in a message that names it and them.

    Parameters
    ----------
    text : str
        Names in braces are filled in: `{op}`, `{Op}`, `{New}` and `{opid}` as `model.op_names.Names` has them, `{name}`
        the node's name, and `{0}`, `{1}` ... the operator's inputs.
    op : str
        Operator type, shown in place of all of these until `name` is called.
    """

    def __init__(self, text: str, op: str) -> None:
        self.text, self.named = text, False
        inputs = (f"input {i}" for i in range(10))
        super().__init__(text.format(*inputs, op=op, Op=op, New=op, opid=op, name=""))

    def name(self, names: Mapping[str, str], inputs: Sequence[str]) -> None:
        """Fill in the innermost operator and the names of its inputs; later calls, from outer ones, do nothing."""
        if not self.named:
            self.named = True
            self.args = (self.text.format(*inputs, **names),)


class NeedsConstantError(popart_exception, ValueError):
    """An operator needs a value while tracing that is known only when the program runs.

    Parameters
    ----------
    node : str
        Name of the node.
    op : str
        Its operator type.
    position : int
        Which input, from 0.
    tensor : str
        Name of that input.
    chain : sequence of str
        The producers that lead to the run-time value, nearest last.
    words : str
        What PopART says of this operator: the message, which is a note then.
    way : str
        One more way out.
    """

    def __init__(
        self,
        node: str,
        op: str,
        position: int,
        tensor: str,
        chain: Sequence[str] = (),
        words: str = "",
        way: str = "",
    ) -> None:
        self.node, self.op, self.position, self.tensor, self.chain = node, op, position, tensor, tuple(chain)
        came = f", but it comes from the run-time chain {' -> '.join(chain)}" if chain else ""
        help = (
            f"node {node!r}: input {position} ({tensor!r}) of {op} must be a compile-time constant{came}."
            f"{' ' * bool(way)}{way}\n"
            "  fix: feed it from a Constant or an initializer, or call the function outside jit."
        )
        super().__init__(words or help)
        if words:
            self.add_note(help)


class NodeError(popart_exception, ValueError):
    """Translating one node failed: `node`, `op` and the operand types are attributes."""

    def __init__(self, node: str, op: str, operands: Sequence[str], reason: str) -> None:
        self.node, self.op, self.operands, self.reason = node, op, tuple(operands), reason
        super().__init__(f"node {node!r}: {op} failed for operands [{', '.join(operands)}]: {reason}")
