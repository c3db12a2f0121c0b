"""The package against an inventory of PopART's names, signatures and values; a failure lists what lacks."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import popart_jax
from popart_jax._calls import signatures
from popart_jax.builder import table

INVENTORY = json.loads((Path(__file__).parent / "api_inventory.json").read_text())
CORE = {  # names that live in popart_core only, and where they are here
    "_BuilderCore": "popart_jax.builder",
    "_TensorInfoCore": "popart_jax.model.tensor_info",
    "_InferenceSessionCore": "popart_jax.session.inference",
    "_TrainingSessionCore": "popart_jax.session.training",
}
NOT_CALLED_BY_USERS = {"__enter__", "__exit__", "__repr__", "__str__", "__eq__", "__ne__"}


def find(name: str) -> Any:
    """The object of a public or core name, None if there is none."""
    try:
        if name.startswith("_throw"):
            return getattr(importlib.import_module("popart_jax._throw"), name)
        if name in CORE:
            return importlib.import_module("popart_jax.dropin").core_names()[name]
        owner, _, rest = name.partition(".")
        found = getattr(popart_jax, owner)
        return getattr(found, rest) if rest else found
    except (AttributeError, ImportError, KeyError):
        return None


def accepts(fn: Any, wanted: list[str], strict: bool = True) -> bool:
    """Whether `fn` can be called with these parameters, in order and by name ('/' marks positional ones)."""
    for signature in signatures(fn):
        kinds = [p for n, p in signature.parameters.items() if n not in ("self", "cls")]
        if any(p.kind is p.VAR_POSITIONAL for p in kinds) and any(p.kind is p.VAR_KEYWORD for p in kinds):
            return True
        have = [f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name for p in kinds]
        fits = len(have) >= len(wanted) and all(map(_fits, wanted, kinds, have, [strict] * len(have)))
        if fits and all(
            p.default is not p.empty or p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in kinds[len(wanted) :]
        ):
            return True
    return False


def _fits(wanted: str | None, parameter: inspect.Parameter, name: str, strict: bool) -> bool:
    if wanted == "/":
        return not strict or parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL)
    return wanted in (None, name)


def test_every_function_exists_with_its_parameters():
    wrong = []
    for name, overloads in INVENTORY["functions"].items():
        fn = find(name)
        if fn is None:
            wrong.append(f"missing function {name}")
        else:
            wrong += [f"{name}{tuple(o)}: no such call in {signatures(fn)}" for o in overloads if not accepts(fn, o)]
    assert not wrong, "\n".join(wrong)


def test_every_enum_has_its_values():
    wrong = []
    for name, members in INVENTORY["enums"].items():
        enum = find(name)
        have = {} if enum is None else {k: int(v) for k, v in enum.__members__.items()}
        if have != members:
            wrong.append(f"{name}: expected {members}, got {have}")
    assert not wrong, "\n".join(wrong)


def test_exceptions_derive_from_each_other_as_they_should():
    for name, base in INVENTORY["exceptions"].items():
        expected = Exception if base == "Exception" else find(base)
        assert find(name).__mro__[1] is expected, name


def test_every_class_has_its_constructors_methods_and_properties():
    wrong = []
    for name, wanted in INVENTORY["classes"].items():
        cls = find(name)
        if cls is None:
            wrong.append(f"missing class {name}")
            continue
        if "base" in wanted and find(wanted["base"]) not in cls.__mro__:
            wrong.append(f"{name} should derive from {wanted['base']}")
        wrong += [
            f"{name}{tuple(o)}: no such constructor in {signatures(cls.__init__)}"
            for o in wanted.get("init", [])
            if not accepts(cls.__init__, o, strict=False)
        ]
        wrong += _method_errors(name, cls, wanted["methods"])
        wrong += _property_errors(name, cls, wanted["properties"])
    assert not wrong, "\n".join(wrong)


def _method_errors(name: str, cls: type, methods: dict[str, list[list[str]]]) -> list[str]:
    wrong = []
    for method, overloads in methods.items():
        fn = getattr(cls, method, None)
        if fn is None:
            wrong.append(f"missing method {name}.{method}")
        elif method not in NOT_CALLED_BY_USERS:
            wrong += [f"{name}.{method}{tuple(o)}: no such call" for o in overloads if not accepts(fn, o)]
    return wrong


def _property_errors(name: str, cls: type, properties: list[str]) -> list[str]:
    if name == "_BuilderCore":  # operator namespaces are made on demand
        properties = []
    known = {n for c in cls.__mro__ for n in (*vars(c), *vars(c).get("__annotations__", {}))}
    aliases = {n for n in properties if n.startswith("_") and n[1:] in known}
    return [f"missing attribute {name}.{p}" for p in properties if p not in known and p not in aliases]


def test_python_modules_hold_their_classes():
    from popart_jax import dropin

    wrong = []
    for name, wanted in INVENTORY["python_classes"].items():
        module = dropin.module(wanted["module"])
        found = getattr(module, name, None)
        if found is None:
            wrong.append(f"missing {wanted['module']}.{name}")
            continue
        for method, parameters in wanted.get("methods", {}).items():
            fn = getattr(found, method, None)
            if method == "__getattr__" or method == "__str__":
                continue
            if fn is None:
                wrong.append(f"missing {wanted['module']}.{name}.{method}")
            elif callable(fn) and not accepts(fn, parameters):
                wrong.append(f"{name}.{method}{tuple(parameters)}: no such call in {signatures(fn)}")
    assert not wrong, "\n".join(wrong)


def test_operator_methods_have_signatures_and_documentation():
    for domain, versions in (("ai.onnx", range(6, 12)), ("ai.graphcore", (1,))):
        for version in versions:
            name = "AiGraphcoreOpset1" if domain == "ai.graphcore" else f"AiOnnxOpset{version}"
            operators = getattr(popart_jax, name)
            for method, overloads in table.methods(domain, version).items():
                fn = getattr(operators, method)
                shown = list(inspect.signature(fn).parameters)
                assert shown[0] == "self"
                assert len(shown) == len(overloads[0].parameters) + 1
                assert overloads[0].op in fn.__doc__


def test_core_sessions_take_the_cores_argument_order():
    import numpy as np

    popart = popart_jax
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    y = builder.aiOnnx.relu([x])
    flow = popart.DataFlow(1, {y: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    make = dropin_core("_InferenceSessionCore")
    session = make(
        builder.getModelProto(), flow, device, popart.InputShapeInfo(), popart.SessionOptions(), popart.Patterns()
    )
    assert isinstance(session, popart.InferenceSession)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.array([-1, 2], np.float32)}, anchors))
    assert anchors[y].tolist() == [0, 2]


def dropin_core(name: str) -> Any:
    from popart_jax import dropin

    return dropin.core_names()[name]
