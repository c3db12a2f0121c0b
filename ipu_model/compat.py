"""The one place that depends on the JAX version's jaxpr classes (0.10 has closed and open jaxprs, 0.11 one class)."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import jax
from jax.interpreters import partial_eval

try:  # jax.extend.core has them as well, but its package imports Pallas: 25 ms of every start
    from jax._src.core import DropVar as DropVar
    from jax._src.core import Literal as Literal
except ImportError:
    from jax.extend.core import DropVar as DropVar
    from jax.extend.core import Literal as Literal

#: Folders whose code stands between the user's and an equation.
LIBRARIES = (str(Path(jax.__file__).parent), str(Path(__file__).parent))


def open_jaxpr(jaxpr: Any) -> tuple[Any, tuple[Any, ...]]:
    """``(jaxpr with .eqns, constants)`` of an open or closed jaxpr, or of a traced function, which holds one."""
    jaxpr = jaxpr.jaxpr if isinstance(jaxpr, jax.stages.Traced) else jaxpr
    consts = tuple(getattr(jaxpr, "consts", ()))
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    return inner, consts


def without_dead_code(jaxpr: Any) -> Any:
    """An open jaxpr less the equations whose results nothing reads, also those inside of loops and calls.

    Compilers drop them; a traced gradient has the last operations of its forward pass among them.
    """
    return partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), instantiate=True)[0]


def unread(jaxpr: Any) -> set[Any]:
    """Results of the while loops of an open jaxpr that nothing in it reads."""
    found = {v for eqn in jaxpr.eqns if eqn.primitive.name == "while" for v in eqn.outvars}
    if not found:
        return found
    read = (*(v for eqn in jaxpr.eqns for v in eqn.invars), *jaxpr.outvars)
    return found.difference(v for v in read if not isinstance(v, Literal))


def without_dead_carries(
    cond: Any, body: Any, n_cond: int, n_body: int, read: Sequence[bool]
) -> tuple[Any, list[bool]]:
    """The body of a while loop less what only values compute that nobody reads, and which carried values are left.

    Read are those that the caller reads (`read`), those of the condition, and those from which such values are
    computed. Of the operands, the first `n_cond` and `n_body` are constants.
    """
    stops = partial_eval.dce_jaxpr(cond, [True])[1][n_cond:]
    live = [a or b for a, b in zip(read, stops, strict=True)]
    while True:
        left, used = partial_eval.dce_jaxpr(body, live)
        more = [a or b for a, b in zip(live, used[n_body:], strict=True)]
        if more == live:
            break
        live = more
    left, _ = partial_eval.dce_jaxpr(body, live, instantiate=True)
    return left, live


def argument_names(jaxpr: Any) -> list[str]:
    """What the inputs of a traced function are called: its parameters, and places in them (``params['w'][0]``)."""
    opened, _ = open_jaxpr(jaxpr)
    names = cast("Sequence[str]", getattr(opened.debug_info, "arg_names", None) or ())
    return [names[k] if k < len(names) else f"input{k}" for k in range(len(opened.invars))]


def is_jaxpr(value: Any) -> bool:
    """Whether a parameter of an equation holds equations itself, as an open or a closed jaxpr."""
    return (hasattr(value, "eqns") and hasattr(value, "invars")) or hasattr(getattr(value, "jaxpr", None), "eqns")


def inner_jaxprs(params: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every jaxpr among the parameters of an equation, with the parameter's name."""
    for name, value in params.items():
        for item in cast("Sequence[Any]", value) if isinstance(value, (tuple, list)) else (value,):
            if is_jaxpr(item):
                yield name, item


def scan_counts(eqn: Any) -> tuple[int, int]:
    """How many operands of a scan are constants, and how many are carried; slices are the rest."""
    p = eqn.params
    if "num_consts" in p:
        return p["num_consts"], p["num_carry"]
    constants, carried, _ = p["ft_in"].update(range(len(eqn.invars))).unpack()
    return len(list(constants)), len(list(carried))


def name_stack(eqn: Any) -> str:
    """The text of `jax.named_scope` and of JAX's transformations around an equation, outermost first."""
    return str(eqn.source_info.name_stack)


def source_line(*equations: Any) -> str:
    """``file.py:line`` of the user code that made the first of the equations that has any, or an empty string."""
    return next((lines[0] for eqn in equations if (lines := _user_lines(eqn.source_info.traceback))), "")


def call_lines(*equations: Any) -> tuple[str, ...]:
    """Lines of user code that led to the first of the equations, innermost first; the others are calls around it."""
    found: tuple[str, ...] = ()
    for eqn in equations:
        lines = _user_lines(eqn.source_info.traceback)
        if found[len(found) - len(lines) :] != lines:  # bodies of loops are traced inside of the call
            found += lines
    return found


@functools.lru_cache(maxsize=20_000)
def _user_lines(traceback: Any) -> tuple[str, ...]:
    frames = traceback.frames if traceback else ()
    return tuple(
        f"{os.path.basename(frame.file_name)}:{frame.line_num}"
        for frame in frames
        if not frame.file_name.startswith((*LIBRARIES, "<"))
    )
