"""A small program computed by NumPy on the host, as data.

What weights alone decide runs once: turning, slicing and a few multiplications. XLA takes longer to compile that than
NumPy to do it (MobileNetV2: 2.2 s against 0.05 s of CPU time).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._compat.jax import Literal
from ..buffers import aligned_copy, frozen

_INLINED = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr",
            "custom_vjp_call": "call_jaxpr"}  # fmt: skip
_LARGEST_CONSTANT = 64
"""Elements; a program with larger constants of its own is left to the compiler."""


def _broadcast(x: np.ndarray, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> np.ndarray:
    sizes = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, x.shape, strict=True):
        sizes[axis] = size
    return np.broadcast_to(x.reshape(sizes), shape)


def _sliced(
    x: np.ndarray, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None
) -> np.ndarray:
    steps = [1] * x.ndim if strides is None else strides
    return x[tuple(map(slice, start_indices, limit_indices, steps))]


_RULES: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "transpose": (lambda x, permutation: x.transpose(permutation), ("permutation",)),
    "reshape": (lambda x, new_sizes: x.reshape(new_sizes), ("new_sizes",)),
    "squeeze": (lambda x, dimensions: x.squeeze(tuple(dimensions)), ("dimensions",)),
    "expand_dims": (lambda x, dimensions: np.expand_dims(x, tuple(dimensions)), ("dimensions",)),
    "broadcast_in_dim": (_broadcast, ("shape", "broadcast_dimensions")),
    "slice": (_sliced, ("start_indices", "limit_indices", "strides")),
    "rev": (lambda x, dimensions: np.flip(x, tuple(dimensions)), ("dimensions",)),
    "concatenate": (lambda *xs, dimension: np.concatenate(xs, dimension), ("dimension",)),
    "convert_element_type": (lambda x, new_dtype: x.astype(new_dtype), ("new_dtype",)),
    "copy": (lambda x: x, ()),
    "add": (np.add, ()),
    "sub": (np.subtract, ()),
    "mul": (np.multiply, ()),
    "div": (np.divide, ()),
    "neg": (np.negative, ()),
    "sqrt": (np.sqrt, ()),
    "rsqrt": (lambda x: (1 / np.sqrt(x)).astype(x.dtype), ()),
    "max": (np.maximum, ()),
    "min": (np.minimum, ()),
}
"""By primitive: NumPy's form and the parameters that it takes; all but rsqrt round as XLA does."""
_FLOATS_ALONE = frozenset({"div", "sqrt", "rsqrt", "convert_element_type"})
"""Of integers these differ between NumPy and XLA."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One operation: the primitive, the places of its operands, its parameters; its result gets the next place."""

    primitive: str
    operands: tuple[int, ...]
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HostProgram:
    """Instructions over numbered places: first the arguments, then constants, then results in order.

    Attributes
    ----------
    arguments : int
        How many arguments there are.
    constants : tuple of array
        Small arrays that the program brings with it.
    instructions : tuple of Instruction
        What is computed.
    results : tuple of int
        Places of the results.
    """

    arguments: int
    constants: tuple[np.ndarray, ...]
    instructions: tuple[Instruction, ...]
    results: tuple[int, ...]

    @classmethod
    def of(cls, closed: Any) -> HostProgram | None:
        """The program of a closed jaxpr; None where it does what NumPy would do otherwise, or slower."""
        reader = _Reader()
        args = [("argument", i) for i in range(len(closed.jaxpr.invars))]
        try:
            results = reader.read(closed, args)
        except _Unknown:
            return None
        return reader.program(len(args), results)

    def __call__(self, *arguments: Any) -> tuple[jax.Array, ...]:
        """The results, in memory of their own that the CPU device shares."""
        last = {place: i for i, one in enumerate(self.instructions) for place in one.operands}
        values: dict[int, Any] = dict(enumerate((*map(np.asarray, arguments), *self.constants)))
        first = len(values)
        kept = set(self.results)
        with np.errstate(all="ignore"):
            for i, one in enumerate(self.instructions):
                operands = [values[p] for p in one.operands]
                values[first + i] = np.asarray(_RULES[one.primitive][0](*operands, **one.parameters))
                for place in {*one.operands, first + i} - kept:  # an intermediate lives until its last reader is done
                    if last.get(place, i) == i:
                        values.pop(place, None)
        return tuple(jax.device_put(frozen(aligned_copy(values[p]))) for p in self.results)

    @property
    def note(self) -> dict[str, Any]:
        """The program for JSON."""
        return {
            "arguments": self.arguments,
            "constants": [(x.dtype.name, x.shape, x.ravel().tolist()) for x in self.constants],
            "instructions": [(one.primitive, one.operands, one.parameters) for one in self.instructions],
            "results": self.results,
        }

    @classmethod
    def noted(cls, note: Mapping[str, Any]) -> HostProgram:
        """The program of a `note`."""
        constants = (np.array(x, jnp.dtype(kind)).reshape(shape) for kind, shape, x in note["constants"])
        steps = (Instruction(name, tuple(places), parameters) for name, places, parameters in note["instructions"])
        return cls(note["arguments"], tuple(constants), tuple(steps), tuple(note["results"]))


class _Unknown(Exception):
    """The program has something that is left to the compiler."""


class _Reader:
    """Reads a jaxpr, the calls in it opened; operands are kind and index until all are known."""

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
    """What NumPy's form of an equation takes, as plain numbers and texts.

    Raises
    ------
    _Unknown
        It has none.
    """
    name, result = eqn.primitive.name, eqn.outvars[0].aval
    takes = _RULES[name][1] if name in _RULES else None
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
    if isinstance(value, np.generic):  # sizes that NumPy has counted
        return value.item()
    if value is None or isinstance(value, int):
        return value
    return [_plain(v) for v in value]
