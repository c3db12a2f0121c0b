"""Lists of supported operators, from the operator table and ONNX's schemas."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import onnx

from .. import lowering as _lowering  # noqa: F401 - its operators join the table
from .._calls import checked
from ..enums import DataType
from ..model.dtypes import BY_NAME
from ..ops.registry import Lowering, resolve, table

_INTERNAL_DOMAINS = {"popxl", "popart"}


class OperatorIdentifier:
    """Domain, type and version of an operator."""

    @checked
    def __init__(self, domain: str, type: str, version: int) -> None:
        self._key = (domain, type, version)

    @property
    def domain(self) -> str:
        """Domain, such as ``ai.onnx``."""
        return self._key[0]

    @property
    def type(self) -> str:
        """Operator type."""
        return self._key[1]

    @property
    def version(self) -> int:
        """Since-version of the operator."""
        return self._key[2]

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, OperatorIdentifier) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __lt__(self, other: OperatorIdentifier) -> bool:
        return self._key < other._key

    def __repr__(self) -> str:
        return f"{self._key[0]}.{self._key[1]}:{self._key[2]}"


@dataclass(frozen=True)
class Input:
    """An input: its name, the element types it may have, whether it must be a constant."""

    name: str
    supportedTensors: list[DataType]
    constant: bool = False


@dataclass(frozen=True)
class Output:
    """An output: its name and the element types it may have."""

    name: str
    supportedTensors: list[DataType]


@dataclass(frozen=True)
class Attribute:
    """An attribute: a regular expression of the values it may have."""

    supportedValuesRegex: str = "*"


@dataclass(frozen=True)
class OpDefinition:
    """Inputs, outputs and attributes of an operator."""

    inputs: list[Input] = field(default_factory=list[Input])
    outputs: list[Output] = field(default_factory=list[Output])
    attributes: dict[str, Attribute] = field(default_factory=dict[str, Attribute])

    Input = Input
    Output = Output
    Attribute = Attribute


@checked
def getSupportedOperations(includeInternal: bool) -> list[OperatorIdentifier]:
    """All operators that run here, those of ai.onnx in each version that they have.

    Parameters
    ----------
    includeInternal : bool
        Whether those count that only the runtime creates.
    """
    return sorted(_supported(includeInternal))


@checked
def getUnsupportedOperations(opsetVersion: int) -> list[OperatorIdentifier]:
    """Operators of an ai.onnx opset without a translation."""
    wanted = (OperatorIdentifier("ai.onnx", s.name, s.since_version) for s in _schemas(opsetVersion))
    return sorted(set(wanted) - _supported(True).keys())


@checked
def getSupportedOperationsDefinition(includeInternal: bool) -> dict[OperatorIdentifier, OpDefinition]:
    """Inputs, outputs and attributes of all operators with a translation."""
    return {identifier: _define(identifier, row) for identifier, row in _supported(includeInternal).items()}


def _supported(internal: bool) -> dict[OperatorIdentifier, Lowering]:
    """The translation of every operator, by all versions that ONNX has of it."""
    rows, own = table(), table(popart=True)
    found: dict[OperatorIdentifier, Lowering] = {}
    for domain, op in rows.keys() | own.keys():
        if domain in _INTERNAL_DOMAINS and not internal:
            continue
        given = rows.get((domain, op), {}).keys() | own.get((domain, op), {}).keys()
        for version in (_versions().get(op) if domain == "" else None) or given:
            row = resolve(domain, op, version, popart=True)
            if row is not None:
                found[OperatorIdentifier(domain or "ai.onnx", op, version)] = row
    return found


@cache
def _versions() -> dict[str, set[int]]:
    """All versions of the operators of ai.onnx."""
    found: dict[str, set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            found.setdefault(schema.name, set()).add(schema.since_version)
    return found


@cache
def _schemas(opset: int) -> list[onnx.defs.OpSchema]:
    newest: dict[str, onnx.defs.OpSchema] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.since_version <= opset:
            known = newest.get(schema.name)
            if known is None or known.since_version < schema.since_version:
                newest[schema.name] = schema
    return [schema for schema in newest.values() if not schema.deprecated]


def _define(identifier: OperatorIdentifier, row: Lowering) -> OpDefinition:
    attributes = {name: Attribute() for name in row.attributes}
    schema = _schema(identifier)
    if schema is None:
        every = [kind for kind in DataType if kind is not DataType.UNDEFINED]
        inputs = [Input(name, every, row.is_static(i)) for i, name in enumerate(row.inputs)]
        return OpDefinition(inputs, [], attributes)
    inputs = [Input(p.name, _types(p), row.is_static(i)) for i, p in enumerate(schema.inputs)]
    return OpDefinition(inputs, [Output(p.name, _types(p)) for p in schema.outputs], attributes)


def _schema(identifier: OperatorIdentifier) -> onnx.defs.OpSchema | None:
    if identifier.domain != "ai.onnx" or not onnx.defs.has(identifier.type, identifier.version, ""):
        return None
    return onnx.defs.get_schema(identifier.type, identifier.version, "")


def _types(parameter: onnx.defs.OpSchema.FormalParameter) -> list[DataType]:
    found: list[DataType] = []
    for text in parameter.types:
        name = text.removeprefix("tensor(").removesuffix(")").upper()
        if name in BY_NAME:
            found.append(DataType[name])
    return sorted(found, key=int)
