"""The operator methods of each ai.onnx opset and of `AiGraphcoreOpset1`, generated when they are looked up.

Methods of ai.graphcore are declared beside the translations of their operators, which import JAX; so they are
imported only when used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from .._calls import no_overload
from ..errors import logs_errors
from ..model.checks.structure import NEWEST_OPSETS
from ..model.debug import path_of
from . import attributes, subgraphs
from .core import _BuilderCore
from .method import Method, describe
from .table import methods, overloads


class _Generated(type):
    """Makes the methods of its classes when they are looked up."""

    _domain: str
    _version: int

    def __getattr__(cls, name: str) -> Callable[..., Any]:
        found = () if name.startswith("_") else overloads(cls._domain, cls._version, name)
        if not found:
            raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'")
        generated = _generate(found)
        setattr(cls, name, generated)
        return generated

    def __dir__(cls) -> list[str]:
        return [*super().__dir__(), *methods(cls._domain, cls._version)]


class OperatorSet(metaclass=_Generated):
    """Operator methods of one domain and version for one builder."""

    _domain: str
    _version: int

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return getattr(type(self), name).__get__(self)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *dir(type(self))]

    def __init__(self, core: _BuilderCore) -> None:
        self._core = core

    @property
    def domain(self) -> str:
        """The operator domain."""
        return self._domain

    @property
    def version(self) -> int:
        """The opset version."""
        return self._version


def _call(builder: OperatorSet, method: Method, values: dict[str, Any]) -> Any:
    core, version = builder._core, builder._version
    context = values.pop(method.debug_parameter)
    if method.bodies is not None:
        names = subgraphs.add(core, method, method.bodies, values, context, version)
    else:
        node = attributes.node_of(method, values, path_of(context))
        names = core._add_node(
            method.op,
            node.inputs,
            node.attributes,
            node.outputs,
            context,
            domain="" if method.domain == "ai.onnx" else method.domain,
            version=version,
            api=method.name,
        )
    if method.outputs == 0:
        return None
    return names[0] if method.outputs == 1 else names


def _generate(choices: Sequence[Method]) -> Callable[..., Any]:
    first = choices[0]

    @logs_errors
    def operator(self: OperatorSet, *args: Any, **kwargs: Any) -> Any:
        reasons: list[str] = []
        for method in choices:
            try:
                values = method.bind(args, kwargs)
            except TypeError as err:
                reasons.append(str(err))
                continue
            return _call(self, method, values)
        refused = TypeError(no_overload(first.name, [m.signature for m in choices], args, kwargs))
        refused.add_note("\n".join(reasons))
        raise refused

    describe(first, operator)
    return operator


def _operator_set(name: str, domain: str, version: int) -> type[OperatorSet]:
    members: dict[str, Any] = {
        "__doc__": f"Methods that add operators of {domain} opset {version}.",
        "__module__": __name__,
        "_domain": domain,
        "_version": version,
    }
    return _Generated(name, (OperatorSet,), members)


@cache
def onnx_set(version: int) -> type[OperatorSet]:
    """The operator methods of an ai.onnx opset."""
    return _operator_set(f"AiOnnxOpset{version}", "ai.onnx", version)


AiOnnxOpset6 = onnx_set(6)
"""Methods that add operators of ai.onnx 6."""
AiOnnxOpset7 = onnx_set(7)
"""Methods that add operators of ai.onnx 7."""
AiOnnxOpset8 = onnx_set(8)
"""Methods that add operators of ai.onnx 8."""
AiOnnxOpset9 = onnx_set(9)
"""Methods that add operators of ai.onnx 9."""
AiOnnxOpset10 = onnx_set(10)
"""Methods that add operators of ai.onnx 10."""
AiOnnxOpset11 = onnx_set(11)
"""Methods that add operators of ai.onnx 11."""
AiGraphcoreOpset1 = _operator_set("AiGraphcoreOpset1", "ai.graphcore", 1)
"""Methods that add PopART's own operators."""

ONNX_SETS = range(1, NEWEST_OPSETS[""] + 1)
"""Opsets of ai.onnx; PopART's own programs know 6 to 11."""
