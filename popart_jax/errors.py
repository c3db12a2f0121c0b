"""Exception classes: PopART's names, and more specific errors that this package derives from them.

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
    """Base of all errors caused by a program, a model or an option."""

    logged = False


def log_error(error: popart_exception) -> None:
    """Log an error at level ERR, as PopART does for errors that reach the program; a second call does nothing."""
    if not error.logged:
        error.logged = True
        module_logger("popart").error("%s", error)


def logs_errors(function: F) -> F:
    """Decorator of public functions: errors that leave them are logged. Errors handled inside the package are not."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except popart_exception as error:
            log_error(error)
            raise

    return call  # pyright: ignore[reportReturnType]


def logs_errors_of_methods(cls: type[C], but: Collection[str] = ()) -> type[C]:
    """Decorator of public classes: `logs_errors` for each public method that the class defines, except for `but`."""
    for name, member in list(vars(cls).items()):
        if inspect.isfunction(member) and not name.startswith("_") and name not in but:
            setattr(cls, name, logs_errors(member))
    return cls


PopartJaxError = popart_exception
"""Alias of `popart_exception`, the base of all errors about a program."""


def noted(error: E, *notes: str) -> E:
    """The error with notes of ours; its text is PopART's and is not changed."""
    for note in filter(None, notes):
        error.add_note(note)
    return error


IN_JAX = "This is a rule of PopART's sessions: popart_jax.to_jax takes the model, and its gradient."
"""Note to an error about a model that functions of `to_jax` compute."""


def until_compiled(error: E, *results: Any) -> E:
    """An error that PopART finds when it compiles the operator: until then these results, or their like, stand for its.

    A walk for types alone, as the constructor of a session makes, takes zeros of their shapes and types and goes on.
    """
    error.__dict__["until_compiled"] = tuple((tuple(x.shape), x.dtype) for x in results)
    return error


class popart_internal_exception(popart_exception):
    """An invariant of the runtime was violated."""


class popart_runtime_error(popart_exception):
    """An error during the use of a prepared session."""


class poplibs_exception(Exception):
    """An error of the tensor libraries upstream."""


class poplar_exception(Exception):
    """An error of the device layer upstream."""


class poplar_runtime_error(poplar_exception):
    """Device layer error while running."""


class poplar_application_runtime_error(poplar_runtime_error):
    """Device layer error caused by the program."""


class poplar_system_runtime_error(poplar_runtime_error):
    """Device layer error caused by the system."""


class poplar_recoverable_runtime_error(poplar_system_runtime_error):
    """System error after which the run may be repeated; `recoveryAction` is the reset that is needed."""

    recoveryAction: ClassVar[object] = None


class poplar_unrecoverable_runtime_error(poplar_system_runtime_error):
    """System error after which the device can't be used any more."""


class poplar_unknown_runtime_error(poplar_system_runtime_error):
    """System error of unknown kind."""


class UnsupportedOpError(popart_exception, NotImplementedError):
    """A model has operators without a translation; the error names all of them.

    Parameters
    ----------
    gaps : sequence of (str, str)
        Operator identifiers such as ``ai.onnx.Foo:17``, with node names, in graph order.
    popart : bool
        For PopART's own programs, which compare whole texts: the text names the first, a note all of them.
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
    """What to do about an operator without a translation."""
    if op.startswith("com.microsoft.nchwc"):
        return (
            "ONNX Runtime wrote this file for one kind of processor; take the original, or let it optimise up to "
            "ORT_ENABLE_EXTENDED."
        )
    domain, _, name = op.rpartition(":")[0].rpartition(".")
    if domain == "ai.onnx":
        return "convert the model's opset, or register the operator in a domain of your own with popart_jax.custom_op."
    return f"register a JAX function with popart_jax.custom_op({domain!r}, {name!r}), or convert the model's opset."


class ProgramAborted(poplar_application_runtime_error, popart_runtime_error):
    """An Abort operator stopped the running program."""


class OpError(popart_exception):
    """An operator refuses its inputs; the message names the operator and its inputs.

    In `text`, names in braces are replaced: `{op}`, `{Op}`, `{New}` and `{opid}` as `model.op_names.op_names` has them
    for the operator type `op` until `name` is called, `{name}` by the node's name, and `{0}`, `{1}` ... by the
    operator's inputs.
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


class NoModelError(popart_exception, TypeError):
    """An argument is nothing that could be a model; PopART's bindings raise TypeError."""


class SizeUnknownError(popart_exception):
    """A result of a compiled program has a size that only the run knows."""


class NeedsConstantError(popart_exception, ValueError):
    """An operator needs a constant while tracing, but its operand is known only when the program runs.

    Parameters
    ----------
    node : str
        Name of the node.
    op : str
        Its operator type.
    position : int
        Index of the input.
    tensor : str
        Name of that input.
    chain : sequence of str
        Tensors from the run-time value to this input.
    words : str
        PopART's message for this operator; if given, our explanation becomes a note.
    way : str
        A further way to fix the model.
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
    """The translation of a node failed; attributes `node`, `op` and `operands` describe the node."""

    def __init__(self, node: str, op: str, operands: Sequence[str], reason: str) -> None:
        self.node, self.op, self.operands, self.reason = node, op, tuple(operands), reason
        super().__init__(f"node {node!r}: {op} failed for operands [{', '.join(operands)}]: {reason}")
