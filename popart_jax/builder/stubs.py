"""Types of the generated namespaces, for editors and type checkers: ``python -m popart_jax.builder.stubs``.

Each opset's class lists the differences to the previous one. ``aiOnnx``, whose opset follows the model, has the
methods of all opsets from PopART's first on, with every signature that one of them takes. `Namespaces` has what a
builder makes when it is asked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any

from .operators import ONNX_SETS, AiGraphcoreOpset1
from .table import methods, overloads
from .versions import defaultAiOnnxOpset

_FIRST = 6
FILE = Path(__file__).with_name("namespaces.pyi")
_HEAD = """# Written by `python -m popart_jax.builder.stubs`; a test keeps it current.
# ruff: noqa
# pyright: reportIncompatibleMethodOverride=false, reportInconsistentOverload=false, reportOverlappingOverload=false
# mypy: disable-error-code="override, overload-overlap, overload-cannot-match"

from typing import Any, overload

import numpy as np

from ..enums import CollectiveOperator, ReductionType, ScatterReduction
from ..model.debug import DebugContext
from ..model.variable_settings import CommGroup

class Namespace:
    @property
    def domain(self) -> str: ...
    @property
    def version(self) -> int: ...
"""


def text() -> str:
    """The whole stub file."""
    lines, before, parent = [_HEAD], {}, "Namespace"
    for version in ONNX_SETS:
        now = _signatures("ai.onnx", version)
        name = f"AiOnnxOpset{version}"
        changed = {n: s for n, s in now.items() if before.get(n) != s}
        if any(n not in now for n in before):  # a subclass can't remove inherited methods from a type checker's view
            parent, changed = "Namespace", now
        lines += _class(name, parent, changed)
        before, parent = now, name
    lines += _class("AiOnnx", "Namespace", _any_opset())
    lines += _class("AiGraphcoreOpset1", "Namespace", _signatures("ai.graphcore", AiGraphcoreOpset1._version))
    names = ["AiOnnx", "AiGraphcoreOpset1", *(f"AiOnnxOpset{version}" for version in ONNX_SETS)]
    lines += ["class Namespaces:", "    aiGraphcore: AiGraphcoreOpset1", *(f"    a{n[1:]}: {n}" for n in names), ""]
    return "\n".join(lines)


def _any_opset() -> dict[str, tuple[str, ...]]:
    """All signatures of each method, those of PopART's default opset first."""
    found: dict[str, dict[str, None]] = {}
    for version in (defaultAiOnnxOpset, *ONNX_SETS[_FIRST - 1 :]):
        for name, signatures in _signatures("ai.onnx", version).items():
            found.setdefault(name, {}).update(dict.fromkeys(signatures))
    return {name: tuple(signatures) for name, signatures in found.items()}


def _signatures(domain: str, version: int) -> dict[str, tuple[str, ...]]:
    return {
        name: tuple(dict.fromkeys(_signature(m.signature) for m in overloads(domain, version, name)))
        for name in sorted(methods(domain, version))
    }


def _class(name: str, parent: str, members: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    yield f"class {name}({parent}):" + ("" if members else " ...")
    for method, signatures in members.items():
        for signature in signatures:
            if len(signatures) > 1:
                yield "    @overload"
            yield f"    def {method}{signature}: ..."
    yield ""


def _signature(signature: inspect.Signature) -> str:
    shown: list[str] = []
    for p in signature.parameters.values():
        hint = "" if p.annotation is inspect.Parameter.empty else f": {_type(p.annotation)}"
        default = "" if p.default is inspect.Parameter.empty else " = ..." if hint else "=..."
        shown.append(f"{p.name}{hint}{default}")
    return f"({', '.join(shown)}) -> {_type(signature.return_annotation)}"


def _type(hint: Any) -> str:
    if isinstance(hint, UnionType):
        return " | ".join(map(_type, hint.__args__))
    if hint in (None, type(None)):
        return "None"
    if hint is Any:
        return "Any"
    if getattr(hint, "__args__", None):
        return str(hint).replace("numpy.", "np.")
    return f"np.{hint.__name__}" if hint.__module__ == "numpy" else hint.__name__


def main(write: Callable[[str], Any] = FILE.write_text) -> None:
    """Write the file."""
    write(text())


if __name__ == "__main__":
    main()
