"""Builder methods read from their signatures as `ops.builder_methods` writes them."""

from __future__ import annotations

import ast
import enum
import re

from .method import ANNOTATIONS, DEBUG, REQUIRED, Method, Parameter

_SIGNATURE = re.compile(r"(?P<name>\w+)\((?P<params>.*)\)(?: -> (?P<outputs>\w+)(?:<=(?P<most>\d+))?)?$")
_PARAMETER = re.compile(r"(?P<name>\w+)(?::(?P<kind>\w+)(?P<optional>\?)?)?(?:=(?P<default>.+))?$")


def parse(signature: str, domain: str, op: str) -> Method:
    """The method that a signature describes; ValueError for a text that is none."""
    match = _SIGNATURE.match(signature)
    if match is None:
        raise ValueError(f"the builder method of {op} is no signature: {signature!r}")
    parameters = [_parameter(text) for text in re.split(r",\s(?=\w+[:=,]|\w+$)", match["params"])]
    if not any(p.kind == "debug" for p in parameters):
        parameters.append(DEBUG)
    outputs: int | str = match["outputs"] or 1
    if isinstance(outputs, str) and outputs.isdigit():
        outputs = int(outputs)
    return Method(match["name"], domain, op, tuple(parameters), outputs, int(match["most"]) if match["most"] else None)


def _parameter(text: str) -> Parameter:
    match = _PARAMETER.match(text.strip())
    if match is None:
        raise ValueError(f"no parameter of a builder method: {text!r}")
    kind = match["kind"] or "strs"
    optional = bool(match["optional"])
    default = match["default"]
    if default is None:
        return Parameter(match["name"], kind, None if optional else REQUIRED, optional)
    annotation = ANNOTATIONS[kind]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return Parameter(match["name"], kind, annotation[default], optional)
    return Parameter(match["name"], kind, ast.literal_eval(default), optional)
