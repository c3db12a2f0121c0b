"""A function traced with example arguments: its jaxpr, and what the inputs are called and may be written over by."""

from __future__ import annotations

import contextlib
import functools
import inspect
import reprlib
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax

from ipu_model import compat
from ipu_model.placement import Argument
from ipu_model.tracing import tracing


def traced(fn: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, list[Argument]]:
    """The jaxpr of a function, with its inputs named.

    Parameters
    ----------
    fn : callable
        Static arguments of a function from `jax.jit` stay as they are, and donated ones are written over.
    args : sequence
        Arrays or `jax.ShapeDtypeStruct`, or trees of them and of other things, which stay as they are.
    """
    if not callable(fn):
        raise TypeError(f"fn is {reprlib.repr(fn)}, expected a function, and its arguments behind it")
    with tracing():
        jitted = _jitted(fn, args)
        if jitted is not None:
            return jitted.jaxpr, _with_donations(jitted)
        return _plain(fn, args), _arguments(fn, args)


def name_of(fn: Callable[..., Any]) -> str:
    """The name of a function, or of the class of a callable object, also inside of `vmap` or `partial`."""
    while isinstance(fn, functools.partial):
        fn = cast("functools.partial[Any]", fn).func
    name = getattr(fn, "__name__", "")
    return type(getattr(fn, "__wrapped__", fn)).__name__ if not name or name.startswith("<unnamed") else name


def _jitted(fn: Callable[..., Any], args: Sequence[Any]) -> jax.stages.Traced | None:
    """The trace of a function from `jax.jit`; None for others, and where an argument is nothing that it takes."""
    if isinstance(fn, jax.stages.Wrapped) and hasattr(fn, "trace"):
        with contextlib.suppress(TypeError):  # tried again with arrays only, which says what is wrong
            found = fn.trace(*args)
            return found if isinstance(found, jax.stages.Traced) else None
    return None


def _with_donations(jitted: jax.stages.Traced) -> list[Argument]:
    """Inputs of a jitted function; a donated one is written over by the first free result of its shape and type."""
    names = compat.argument_names(jitted.jaxpr)
    results = list(enumerate(cast("Sequence[Any]", jitted.jaxpr.out_avals)))
    described = jax.tree.leaves(jitted.args_info, is_leaf=lambda leaf: hasattr(leaf, "donated"))
    inputs: list[Argument] = []
    for name, aval, info in zip(names, jitted.jaxpr.in_avals, described, strict=True):
        fitting = [at for at, out in results if (out.shape, out.dtype) == (aval.shape, aval.dtype)]
        place = fitting[0] if info.donated and fitting else None
        results = [row for row in results if row[0] != place]
        inputs.append(Argument(name, donated_to=place))
    return inputs


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _is_data(leaf: Any) -> bool:
    return _is_array(leaf) or isinstance(leaf, bool | int | float | complex)


def _data(leaves: Sequence[Any]) -> list[int]:
    """Places of what is traced: of all leaves, or of the arrays where others are there that can't be."""
    keep = _is_data if all(map(_is_data, leaves)) else _is_array
    return [at for at, leaf in enumerate(leaves) if keep(leaf)]


def _plain(fn: Callable[..., Any], args: Sequence[Any]) -> Any:
    leaves, tree = cast("tuple[list[Any], Any]", jax.tree.flatten(tuple(args)))
    places = _data(leaves)
    if len(places) == len(leaves):
        return jax.make_jaxpr(fn)(*args)

    def call(*data: Any) -> Any:
        given = dict(zip(places, data, strict=True))
        return fn(*jax.tree.unflatten(tree, [given.get(at, leaf) for at, leaf in enumerate(leaves)]))

    return jax.make_jaxpr(call)(*(leaves[at] for at in places))


def _arguments(fn: Callable[..., Any], args: Sequence[Any]) -> list[Argument]:
    """Each array among the arguments by its parameter and its place in that: ``params['w'][0]``."""
    try:
        bound = inspect.signature(fn).bind(*args).arguments
    except (TypeError, ValueError):  # a built-in without a signature
        return []
    leaves = cast("list[tuple[Any, Any]]", jax.tree.flatten_with_path(tuple(bound.values()))[0])
    names = list(bound)
    paths = [leaves[at][0] for at in _data([leaf for _, leaf in leaves])]
    places = [(int(at.idx), jax.tree_util.keystr(tuple(path))) for at, *path in paths]
    return [Argument(names[place] + path) for place, path in places]
