"""Conversion of small traced programs on weights to NumPy programs (`host_program`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from ..._compat.jax import Literal
from ...host_program import RULES, HostProgram, Instruction

_INLINED = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr",
            "custom_vjp_call": "call_jaxpr"}  # fmt: skip
_LARGEST_CONSTANT = 64
"""Elements; programs with larger constants are left to the compiler."""
_FLOATS_ALONE = frozenset({"div", "sqrt", "rsqrt", "convert_element_type"})
"""Operations that NumPy and XLA compute differently for integers."""


def host_program(closed: Any) -> HostProgram | None:
    """The NumPy program of a closed jaxpr; None where NumPy's results would differ, or where it would be slower."""
    reader = _Reader()
    args = [("argument", i) for i in range(len(closed.jaxpr.invars))]
    try:
        results = reader.read(closed, args)
    except _Unknown:
        return None
    return reader.program(len(args), results)


class _Unknown(Exception):
    """The program contains an operation that is left to the compiler."""


class _Reader:
    """Reads a jaxpr and the calls in it; until all operands are known each is a pair of kind and index."""

    def __init__(self) -> None:
        self.constants: list[np.ndarray] = []
        self.instructions: list[tuple[str, list[Any], dict[str, Any]]] = []

    def constant(self, value: Any) -> tuple[str, int]:
        array = np.asarray(value)
        if array.size > _LARGEST_CONSTANT or not jnp.issubdtype(array.dtype, jnp.number):
            raise _Unknown
        self.constants.append(array)
        return ("constant", len(self.constants) - 1)

    def read(self, closed: Any, args: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        jaxpr = closed.jaxpr
        env = dict(zip(jaxpr.invars, args, strict=True))
        env.update((v, self.constant(x)) for v, x in zip(jaxpr.constvars, closed.consts, strict=True))

        def operand(atom: Any) -> tuple[str, int]:
            return self.constant(atom.val) if isinstance(atom, Literal) else env[atom]

        for eqn in jaxpr.eqns:
            operands, name = [operand(v) for v in eqn.invars], eqn.primitive.name
            if name in _INLINED:
                env.update(zip(eqn.outvars, self.read(eqn.params[_INLINED[name]], operands), strict=True))
                continue
            self.instructions.append((name, operands, _parameters(eqn)))
            env[eqn.outvars[0]] = ("instruction", len(self.instructions) - 1)
        return [operand(v) for v in jaxpr.outvars]

    def program(self, arguments: int, results: Sequence[tuple[str, int]]) -> HostProgram:
        begin = {"argument": 0, "constant": arguments, "instruction": arguments + len(self.constants)}

        def numbers(keys: Sequence[tuple[str, int]]) -> tuple[int, ...]:
            return tuple(begin[kind] + i for kind, i in keys)

        steps = (Instruction(name, numbers(keys), parameters) for name, keys, parameters in self.instructions)
        return HostProgram(arguments, tuple(self.constants), tuple(steps), numbers(results))


def _parameters(eqn: Any) -> dict[str, Any]:
    """Parameters that NumPy's rule for an equation takes, as plain numbers and texts; _Unknown without a rule."""
    name, result = eqn.primitive.name, eqn.outvars[0].aval
    takes = RULES[name][1] if name in RULES else None
    if takes is None or len(eqn.outvars) > 1 or (name == "reshape" and eqn.params.get("dimensions") is not None):
        raise _Unknown
    if name in _FLOATS_ALONE and not jnp.issubdtype(result.dtype, jnp.floating):
        raise _Unknown
    if jnp.issubdtype(result.dtype, jax.dtypes.extended):
        raise _Unknown
    return {parameter: _plain(eqn.params[parameter]) for parameter in takes}


def _plain(value: Any) -> Any:
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, np.generic):  # sizes computed by NumPy
        return cast("np.generic[Any]", value).item()
    if value is None or isinstance(value, int):
        return value
    return [_plain(v) for v in value]
