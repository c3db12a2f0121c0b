"""A builder method: its parameters, how a call is bound to them, and how it documents itself."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._calls import convert
from ..enums import CollectiveOperator, ReductionType, ScatterReduction
from ..model.debug import DebugContext
from ..model.node_parts import BodyTypes, NodeParts
from ..model.variable_settings import CommGroup

REQUIRED: Any = inspect.Parameter.empty
ANNOTATIONS: dict[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "ints": list[int],
    "floats": list[float],
    "strs": list[str],
    "lists": list[list[int]],
    "groups": list[list[str]],
    "array": np.ndarray,
    "builder": Any,
    "debug": str | DebugContext,
    "ReductionType": ReductionType,
    "ScatterReduction": ScatterReduction,
    "CollectiveOperator": CollectiveOperator | int,
    "CommGroup": CommGroup,
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """Name, kind and default of a parameter; an optional one may be None."""

    name: str
    kind: str
    default: Any
    optional: bool = False

    @property
    def annotation(self) -> Any:
        """The parameter's type for Python's signature."""
        hint = ANNOTATIONS[self.kind]
        return hint | None if self.optional else hint

    def value(self, given: Any) -> Any:
        """The argument as this parameter's type; TypeError if it is not."""
        if given is None and self.optional:
            return None
        if self.kind == "builder":
            return given
        return convert(given, ANNOTATIONS[self.kind])


DEBUG = Parameter("debugContext", "debug", "")
_DEBUG_WORDS = ("debugContext", "debugPrefix")  # the second is the older name of the first


@dataclass(frozen=True, slots=True)
class Method:
    """One builder method."""

    name: str
    domain: str  # of the operator that it adds
    op: str
    parameters: tuple[Parameter, ...]  # in order, the debug context included
    # how many outputs it returns: a number, "n" for the parameter num_outputs, "each" for one per entry of args
    outputs: int | str
    most_outputs: int | None = None  # limit of num_outputs, where the operator has one
    # converts the node's parts where its attributes are not simply the arguments
    write: Callable[[NodeParts], None] | None = None
    bodies: BodyTypes | None = None  # for operators that hold a graph: how types pass through it

    @property
    def debug_parameter(self) -> str:
        """Name of the parameter that takes the debug context."""
        return next(p.name for p in self.parameters if p.kind == "debug")

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Values of all parameters; TypeError for too many, missing, unknown and wrong arguments."""
        names = [p.name for p in self.parameters]
        if len(args) > len(names):
            raise TypeError(f"{self.name}() takes {len(names)} arguments ({', '.join(names)}), got {len(args)}")
        given = dict(zip(names, args, strict=False))
        for word, value in kwargs.items():
            name = self.debug_parameter if word in _DEBUG_WORDS and word not in names else word
            if name not in names or name in given:
                what = "got several values for" if name in given else "has no"
                raise TypeError(f"{self.name}() {what} argument {name!r}; they are {', '.join(names)}")
            given[name] = value
        return {p.name: self._one(p, given) for p in self.parameters}

    def _one(self, parameter: Parameter, given: dict[str, Any]) -> Any:
        value = given.get(parameter.name, parameter.default)
        if value is REQUIRED:
            raise TypeError(f"{self.name}() needs argument {parameter.name!r}")
        try:
            return value if value is parameter.default else parameter.value(value)
        except TypeError as err:
            raise TypeError(f"{self.name}() argument {parameter.name!r}: {err}") from None

    @property
    def signature(self) -> inspect.Signature:
        """Signature for `inspect` (keywords such as ``lambda`` get an underscore; the call takes the plain word)."""
        shown = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        for i, p in enumerate(self.parameters):
            later_required = any(q.default is REQUIRED for q in self.parameters[i + 1 :])
            shown.append(
                inspect.Parameter(
                    f"{p.name}_" if keyword.iskeyword(p.name) else p.name,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=REQUIRED if later_required else p.default,
                    annotation=p.annotation,
                )
            )
        result = {0: None, 1: str}.get(self.outputs, list[str]) if isinstance(self.outputs, int) else list[str]
        return inspect.Signature(shown, return_annotation=result)


def describe(method: Method, fn: Callable[..., Any]) -> None:
    """Give a generated method its name, signature and documentation."""
    fn.__name__ = method.name
    fn.__qualname__ = method.name
    fn.__doc__ = _documentation(method)
    fn.__signature__ = method.signature


def _documentation(method: Method) -> str:
    attributes = [p for p in method.parameters if p.kind != "debug" and p.name not in ("args", "num_outputs")]
    lines = [f"Add a node {method.domain}.{method.op}.", "", "Parameters", "----------"]
    if any(p.name == "args" for p in method.parameters):
        lines += ["args : list of str", "    Names of the input tensors."]
    if any(p.name == "num_outputs" for p in method.parameters):
        lines += ["num_outputs : int", "    How many outputs the node has."]
    for p in attributes:
        default = "" if p.default is REQUIRED else f", default {p.default!r}"
        lines += [f"{p.name} : {p.kind}{default}", "    Attribute of the node."]
    result = (
        {0: "None", 1: "str"}.get(method.outputs, "list of str") if isinstance(method.outputs, int) else "list of str"
    )
    lines += [
        "",
        "Returns",
        "-------",
        result,
        "    Names of the outputs." if result != "str" else "    Name of the output.",
    ]
    return "\n".join(lines)
