"""A function compiled once per combination of shapes and types, with a cache of programs in files."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from .._compat.jax import Tracer, call_of_trees, compile_with, flat_tree, setting
from ..errors import popart_exception
from ..execution.compiled import Memory, room_of
from ..execution.room import Room
from ..execution.stored import beside_jax
from ..execution.stored.cache_folder import mark_used
from ..execution.stored.container import Sealed
from ..execution.stored.described import Undescribed
from ..execution.stored.executables import read as read_program
from ..execution.stored.executables import write as write_programs
from ..execution.stored.key import program_key
from ..logs import module_logger
from ..lowering.on_load.stages import Stages, in_stages, preparation_of
from ..lowering.passes import autotune
from ..ops.kernels import fixed_weights
from ..preparation import Preparation
from ..timings import phase

_MAIN, _FACTS = "", "function"


@dataclass(frozen=True)
class Compiled:
    """A program for one combination of shapes and types."""

    call: Any  # the program on flat arguments, the weights (as prepared) first
    # computes the program's first arguments from the weights; None where they are the weights themselves
    preparation: Preparation | None
    weights: tuple[Any, ...]  # the program's first arguments
    shared: str  # equal for programs that prepare the weights alike; empty where that is unknown
    out: Any  # structure of the results

    @cached_property
    def room(self) -> Room:
        """Host memory that a run needs in addition to its arguments."""
        return room_of(Memory.of(self.call))


class ByShapes:
    """``fn(weights, *args)`` for fixed weights, one program for each combination of shapes and types.

    `fn` takes a tuple of weights and other arguments, all of them pytrees; what depends on the weights alone is
    computed once. `options` are XLA's, and `tuning` is the folder of measurements if they are to be measured. `facts`
    returns all that `fn` depends on besides its arguments, for the names of program files, and raises `Undescribed`
    where that can't be described; `precision` returns the scope in which `fn` is traced and called. ``inside`` is
    called inside a transformation, in place of ``fn`` with the weights.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        weights: Sequence[Any],
        options: Mapping[str, str],
        tuning: Path | None,
        facts: Callable[[], Any],
        precision: Callable[[], contextlib.AbstractContextManager[Any]],
        inside: Callable[..., Any] | None = None,
    ) -> None:
        self._fn, self._weights, self._options, self._tuning = fn, weights, options, tuning
        self._facts, self._precision = facts, precision
        self._inside = partial(fn, weights) if inside is None else inside
        self._shortest: Callable[..., Any] | None = None
        self.found: dict[Any, Compiled] = {}
        self._prepared: dict[str, tuple[Any, ...]] = {}

    def __call__(self, *args: Any) -> Any:
        """The results; inside a transformation (`jit`, `grad`, `vmap`) the function itself is called.

        Raises popart_exception for texts among the arguments, not enough memory for the run, or an error of the
        function.
        """
        if self._shortest is not None:
            try:
                return self._shortest(*args)
            except (TypeError, ValueError):  # other shapes, types or devices, or a transformation
                pass
        leaves, tree = flat_tree(args)
        if any(isinstance(x, Tracer) for x in leaves):
            return self._inside(*args)
        if setting("jax_disable_jit") or self._weights_are_elsewhere or _are_elsewhere(leaves):
            with self._precision():
                return self._anywhere(self._weights, *args)
        arrays = [x if hasattr(x, "dtype") else np.asarray(x) for x in leaves]
        with self._precision():
            signature = (tree, *[(x.shape, x.dtype) for x in arrays])
            made = self.found.get(signature)
            if made is None:
                made = self.found[signature] = self._get(tree, arrays)
                self._shortest = self._short(made, args) if len(self.found) == 1 else None
            made.room.ensure()
            return made.out.unflatten(made.call(*made.weights, *arrays))

    @cached_property
    def _weights_are_elsewhere(self) -> bool:
        return _are_elsewhere(self._weights)

    @cached_property
    def _anywhere(self) -> Callable[..., Any]:
        """The function as JAX calls it: for arrays that the caller has put on other devices, and where jit is off."""
        return jax.jit(self._fn, compiler_options=dict(self._options) or None)

    def _short(self, made: Compiled, args: tuple[Any, ...]) -> Callable[..., Any] | None:
        """A call of the only program without a check of the arguments; it raises TypeError for others."""
        call = call_of_trees(made.call, (*made.weights, *args), made.out)
        if call is None:
            return None
        of_weights = partial(call, *made.weights)
        if not made.room.size and isinstance(self._precision(), contextlib.nullcontext):
            return of_weights

        def run(*args: Any) -> Any:
            with self._precision():
                made.room.ensure()
                return of_weights(*args)

        return run

    def _get(self, tree: Any, arrays: Sequence[Any]) -> Compiled:
        if any(isinstance(x, np.ndarray) and x.dtype.kind in "OUS" for x in arrays):
            raise popart_exception("A compiled model takes numbers, not texts; call the function from to_jax itself.")
        avals = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (*self._weights, *arrays)]
        path = self._file(tree, avals)
        found = None if path is None or not path.is_file() else self._load(path)
        return found or beside_jax.compile_and_keep(path, lambda: self._compile(tree, avals), _write)

    def _file(self, tree: Any, avals: Sequence[Any]) -> Path | None:
        """The cache file of this combination's program, None if it has none."""
        if self._tuning is not None or beside_jax.folder() is None:
            return None
        try:
            facts = self._facts()
        except Undescribed:
            return None
        types = [(x.shape, str(x.dtype)) for x in avals]
        return beside_jax.file_of(program_key(facts, str(tree), types, dict(self._options)))

    def _load(self, path: Path) -> Compiled | None:
        try:
            file = Sealed(path, path.stem)
            call, preparation = read_program(file, _MAIN)
            facts = file.note(_FACTS)
            mark_used(path)
        except Exception as err:  # a damaged file: XLA's errors have no narrower class
            module_logger("session").warning("Failed to load compiled programs from %s: %s", path, err)
            return None
        shared, out = facts["shared"], flat_tree(facts["results"])[1]
        return Compiled(call, preparation, self._taken(preparation, shared), shared, out)

    def _compile(self, tree: Any, avals: Sequence[Any]) -> Compiled:
        count, out = len(self._weights), []

        def flat(*args: Any) -> tuple[Any, ...]:
            results, structure = flat_tree(self._fn(args[:count], *jax.tree.unflatten(tree, args[count:])))
            out[:] = [structure]
            return tuple(results)

        with phase("trace"):
            with fixed_weights(sum(x.size * x.dtype.itemsize for x in avals[:count])):
                traced = jax.jit(flat).trace(*avals)
            stages = in_stages(traced.jaxpr, avals, range(count)) if count else None
        if stages is None:
            return Compiled(self._call(traced), None, tuple(self._weights), "", out[0])
        call, preparation, shared = self._call(stages.step), preparation_of(stages), _shared(stages)
        return Compiled(call, preparation, self._taken(preparation, shared), shared, out[0])

    @phase("weights")
    def _taken(self, preparation: Preparation | None, shared: str) -> tuple[Any, ...]:
        """The weights as the program reads them."""
        if preparation is None:
            return tuple(self._weights)
        key = shared or str(len(self._prepared))
        if key not in self._prepared:
            self._prepared[key] = preparation.take(self._weights, cast("Callable[..., jax.Array]", jax.device_put))
        return self._prepared[key]

    def _call(self, traced: Any) -> Any:
        options = self._options
        if self._tuning is not None:
            options = autotune.choose(traced, options, self._tuning)
        with phase("lower"):
            lowered = traced.lower()
        with phase("compile"):
            return compile_with(lowered, options)


def _are_elsewhere(arrays: Sequence[Any]) -> bool:
    """Whether some array was put on devices that programs are not compiled for."""
    put = [x.devices() for x in arrays if isinstance(x, jax.Array) and x.committed]
    if not put:
        return False
    default = jax.device_put(0).devices()
    return any(devices != default for devices in put)


def in_order(names: Collection[str]) -> Callable[[Any], Any]:
    """A function that puts outputs in the model's order, since JAX's compiled functions sort dictionaries by name."""
    if list(names) == sorted(names):
        return lambda results: results

    def ordered(results: Any) -> Any:
        outputs, *state = cast("tuple[Any, ...]", results) if isinstance(results, tuple) else (results,)
        found = {name: outputs[name] for name in names}
        return (found, *state) if state else found

    return ordered


def _shared(stages: Stages) -> str:
    """Value of `Compiled.shared`; empty with constants, because the text of a jaxpr does not contain them."""
    text = f"{stages.passed} {stages.prepare.jaxpr}"
    return "" if stages.prepare.jaxpr.consts else hashlib.sha256(text.encode()).hexdigest()


def _write(path: Path, made: Compiled) -> None:
    """Write one program; only results of dictionaries and lists of arrays can be described in the file."""
    results = jax.tree.unflatten(made.out, range(made.out.num_leaves))
    if json.loads(json.dumps(results, default=str)) != results:
        raise popart_exception("its results are no dictionaries and lists of arrays")
    write_programs(path, path.stem, {_MAIN: made}, None, {_FACTS: {"results": results, "shared": made.shared}})
