"""An ONNX model as a differentiable JAX function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, partial, wraps
from pathlib import Path
from typing import Any, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir
from jax.sharding import Mesh

from .._compat.jax import Tracer
from .._process.collector import without_collector
from ..errors import SizeUnknownError, popart_exception
from ..execution.stored import beside_jax
from ..execution.stored.described import Undescribed
from ..execution.stored.graph_facts import graph_facts
from ..lowering.control.values import staged
from ..lowering.dynamic_sizes.padded import Uncut, is_bounded
from ..lowering.interpreter import Settings, evaluate
from ..lowering.op_memo import OpMemo
from ..lowering.passes import compiler_options
from ..lowering.passes.autotune import folder as findings_folder
from ..lowering.read_while_tracing import read_while_tracing
from ..ops.kernels import platform
from ..ops.later import LATER
from ..ops.options import OF_JAX
from ..ops.stopping import raising
from ..ops.symbols import at_run_time, holds_symbols
from .arrays import stored_arrays
from .by_shapes import ByShapes, in_order
from .choice import Choice
from .explicit_axes import with_automatic_axes
from .given import check_key, check_state, check_tree, check_written, in_own_order, typed
from .inputs import Ready, as_mapping, check_inputs, needed_inputs
from .partition import Rules
from .precision import check_not_cut, in_precision, precision
from .reduced import given_half, in_half
from .saving import Source, save
from .sharded import ShardedFunction, shard
from .shown import TensorSpec, summary_html, summary_line
from .state import update_statistics
from .with_weights import Inference

_MANY_NODES = 6  # fewest computing nodes for which a call outside `jit` compiles the graph as a whole


@dataclass(frozen=True, eq=False, repr=False)
class OnnxFunction:
    """``fn(params, inputs, key=None) -> outputs``: a pure function that may be jitted, differentiated and vmapped.

    Attributes
    ----------
    model : onnx_ir.Model
        The model that is computed.
    training : bool
        Dropout and batch normalisation behave as in training, unless a call says otherwise.
    wide : bool
        64-bit types are used on the device.
    choice : Choice
        Names of parameters and of state, and of frozen tensors, with the reason.
    source : Source
        Where the model came from, for `save`.
    again : partial
        Makes the function from its source, where it was pickled.
    float32 : tuple of str
        Stored tensors that stay float32 in a model that was asked for in half precision.
    """

    model: ir.Model
    training: bool
    wide: bool
    choice: Choice
    source: Source
    again: partial[OnnxFunction] = field(repr=False)
    plain: ir.Model = field(repr=False)
    float32: tuple[str, ...] = ()
    _never_whole: list[bool] = field(default_factory=list[bool])  # not empty: sizes of results depend on data
    _never_compiled: list[bool] = field(default_factory=list[bool])  # not empty: shapes depend on data

    @cached_property
    def _ready(self) -> Ready:
        return Ready(self.model.graph, self.precision)

    def __call__(
        self,
        params: Mapping[str, Any],
        inputs: Any,
        key: jax.Array | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        training: bool | None = None,
    ) -> Any:
        """Outputs by name; with `state`, a pair of them and the new state.

        Parameters
        ----------
        params : mapping of str to array
            The parameters by name; other stored tensors may be among them. If all the float32 parameters and inputs
            of the model come in one half precision, it is computed in that, as operators of JAX would be.
        inputs : mapping of str to array, or array
            Inputs by name; the array itself for a model of one input. Initializers may be among them.
        key : jax random key, optional
            For operators that draw random numbers.
        state : mapping of str to array, optional
            Running statistics, `initial_state` at first.
        training : bool, optional
            Whether to compute as in training; the default is the argument of `to_jax`.

        Returns
        -------
        dict of str to array, or (dict, dict)
            Outputs in the order of the model (a `jax.jit` around the call sorts them by name), and the updated state
            where `state` was given.

        Raises
        ------
        popart_exception
            A parameter is missing, unknown or of another shape; an input is missing, unknown or of the wrong type; a
            node can't be computed.
        """
        trains = self.training if training is None else training
        check_tree(params)
        if state is not None:
            check_state(state, self.choice.state)
        params, state = in_own_order(params), in_own_order(state)
        if self._is_bounded and not staged():  # the padding of results is known where they are traced
            return self._compiled(params, self._ready(inputs), key, state, trains)
        if self._never_compiled or not self._is_large or not _are_concrete((params, inputs, key, state)):
            return self._walk(params, inputs, key, state, trains)
        try:
            if not self._never_whole:
                with contextlib.suppress(SizeUnknownError):
                    return self._compiled(params, self._ready(inputs), key, state, trains)
                self._never_whole.append(True)
            return self._cut(params, self._ready(inputs), key, state, trains)
        except Exception:  # graphs that depend on data can't be compiled; other errors are raised again here
            results = self._walk(params, inputs, key, state, trains)
            self._never_compiled.append(True)
            return results

    @cached_property
    def _is_bounded(self) -> bool:
        return any(is_bounded(node) for v in self.model.graph.outputs if (node := v.producer()) is not None)

    @cached_property
    def _is_large(self) -> bool:
        return sum(node.op_type != "Transpose" for node in self.model.graph) >= _MANY_NODES

    @cached_property
    def _compiled(self) -> Callable[..., Any]:
        """The walk, compiled as one program; without `jit` each operator would be compiled on its own."""
        jitted = self.exactly(jax.jit(self._walk, static_argnums=4))

        @wraps(jitted)
        def call(params: Any, inputs: Any, key: Any, state: Any, trains: bool) -> Any:
            if beside_jax.folder() is None:
                return _with_texts(self._in_order(jitted(params, inputs, key, state, trains)))
            return _with_texts(self._in_order(self._kept(trains)(params, inputs, key, state)))

        return call

    @cached_property
    def _cut(self) -> Callable[..., Any]:
        """The walk, compiled with padding behind results whose size depends on data; it is cut off afterwards."""
        jitted = jax.jit(partial(self._walk, cuts=True), static_argnums=4)

        def call(params: Any, inputs: Any, key: Any, state: Any, trains: bool) -> Any:
            found = cast("Any", jitted(params, inputs, key, state, trains))
            return _with_texts(self._in_order(jax.tree.map(_cut, found, is_leaf=_is_uncut)))

        return self.exactly(call)

    @cached_property
    def _in_order(self) -> Callable[[Any], Any]:
        return in_order(self.outputs)

    @cached_property
    def _kept(self) -> Callable[[bool], ByShapes]:
        return cache(self._programs)

    def _programs(self, trains: bool) -> ByShapes:
        """The walk as programs that are stored for other processes."""
        facts = partial(self._facts, self.choice.trainable, trains)

        def walk(_: Any, params: Any, inputs: Any, key: Any, state: Any) -> Any:
            return self._walk(params, inputs, key, state, trains)

        def inside(params: Any, inputs: Any, key: Any, state: Any) -> Any:
            return self._jitted(params, inputs, key, state=state, training=trains)

        return ByShapes(walk, (), {}, None, facts, self.precision, inside)

    def _facts(self, arguments: Collection[str], *more: Any) -> Any:
        """All that the programs depend on: the model without values of its `arguments`, the selection, and `more`."""
        graph, opsets = self.model.graph, self.model.opset_imports
        trained = self.choice.trainable, self.choice.state, self.training, self.wide
        foreign = beside_jax.foreign_translations(graph, opsets, popart=False)
        if foreign:
            raise Undescribed("What operators of others depend on can't be said")
        return graph_facts(graph, opsets, frozenset(arguments)), trained, more

    @without_collector()
    def _walk(
        self,
        params: Mapping[str, Any],
        inputs: Any,
        key: jax.Array | None,
        state: Mapping[str, Any] | None,
        trains: bool,
        cuts: bool = False,
    ) -> Any:
        check_key(key)
        inputs = as_mapping(self.model.graph, inputs)
        trained = {n: params[n] for n in self.choice.trainable if n in params}
        half = given_half(self.model.graph, trained, inputs)
        model, updated = self._form(trains and bool(self.choice.state), half)
        graph = model.graph
        if self.wide:
            check_not_cut(graph, inputs, params)
        settings = Settings(dict(model.opset_imports), trains, key, options=OF_JAX, memo=OpMemo(), cuts=cuts)
        with self.precision():
            given = self._checked(graph, params, state or {})
            wanted = dict.fromkeys([v.name or "" for v in graph.outputs])
            compute = partial(evaluate, graph, want=[*wanted, *updated.values()], settings=settings)
            found = with_automatic_axes(compute, given, check_inputs(graph, inputs), wanted)
            results = {name: _traced(found[name]) if staged() else found[name] for name in wanted}
            if results and all(x is LATER for x in results.values()):
                words = "it makes texts, which stay on the host; call the function outside jit."
                raise popart_exception(f"Nothing of this model can be compiled: {words}")
            if state is None:
                return results
            return results, {n: found[updated[n]] if n in updated else given[n] for n in state}

    def _checked(self, graph: ir.Graph, params: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters and state, checked, as arrays of the types that `graph` computes with."""
        stored = graph.initializers
        missing = [n for n in self.choice.trainable if n not in params]
        unknown = [n for n in (*params, *state) if n not in stored]
        if missing or unknown:
            raise popart_exception(
                f"Parameters do not match the model: missing {missing[:10]}, unknown {unknown[:10]}.\n"
                "  fix: pass all the parameters that to_jax returned, trained or not."
            )
        given: dict[str, Any] = {}
        for name, x in {**params, **state}.items():
            declared = stored[name]
            shape = tuple(declared.shape.numpy()) if declared.shape is not None else np.shape(x)
            if np.shape(x) != shape:
                raise popart_exception(
                    f"Parameter '{name}' has shape {list(np.shape(x))}; the model has {list(shape)}."
                )
            given[name] = typed(name, x, declared)
        return given

    @cached_property
    def _form(self) -> Callable[[bool, np.dtype | None], tuple[ir.Model, dict[str, str]]]:
        """The model with batch statistics, or in half precision; and for each running statistic the updated tensor."""

        @cache
        def form(statistics: bool, half: np.dtype | None) -> tuple[ir.Model, dict[str, str]]:
            model = self.plain.clone() if statistics else self.model
            updated = update_statistics(model, self.choice.state) if statistics else {}
            return model if half is None else in_half(model, half, self.choice.state), updated

        return form

    @cached_property
    def initial_state(self) -> dict[str, jax.Array]:
        """The running statistics as stored in the file."""
        return stored_arrays(self.model.graph, self.choice.state, self.wide)

    @cached_property
    def inputs(self) -> dict[str, TensorSpec]:
        """Types and shapes of the inputs, by name."""
        graph = self.model.graph
        return {n: TensorSpec.of(v) for n in needed_inputs(graph) for v in graph.inputs if v.name == n}

    @cached_property
    def outputs(self) -> dict[str, TensorSpec]:
        """Types and shapes of the outputs, by name."""
        return {v.name or "": TensorSpec.of(v) for v in self.model.graph.outputs}

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """Scope in which the model's types are kept; models with 64-bit types need it around transformations."""
        return precision(self.wide)

    def exactly(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` (a jitted step, a gradient) called in `precision`, so that no 64-bit number is truncated.

        Examples
        --------
        >>> step = fn.exactly(jax.jit(jax.grad(loss)))  # doctest: +SKIP
        """
        return in_precision(self.wide, function)

    @cached_property
    def jit(self) -> Callable[..., Any]:
        """The function itself, jitted and exact; `training` is static."""
        jitted = self._jitted
        kept: dict[bool | None, ByShapes] = {}

        @raising
        @wraps(jitted)
        def call(
            params: Mapping[str, Any],
            inputs: Any,
            key: jax.Array | None = None,
            *,
            state: Mapping[str, Any] | None = None,
            training: bool | None = None,
        ) -> Any:
            params, state = in_own_order(params), in_own_order(state)
            programs = kept.get(training)
            if programs is None:
                if beside_jax.folder() is None:
                    return self._in_order(jitted(params, self._ready(inputs), key, state=state, training=training))
                programs = kept[training] = self._kept(self.training if training is None else training)
            return self._in_order(programs(params, self._ready(inputs), key, state))

        return call

    @cached_property
    def _jitted(self) -> Callable[..., Any]:
        return self.exactly(jax.jit(self.__call__, static_argnames=("training",)))

    def save(self, path: str | Path, params: Mapping[str, Any], state: Mapping[str, Any] | None = None) -> None:
        """Write the model with these parameters and state: same graph, names, opset and metadata.

        Raises
        ------
        popart_exception
            A parameter is missing, unknown or of another shape, or ONNX's checker refuses the model.
        OSError
            The file can't be written; the earlier file is kept.
        """
        check_tree(params, self.choice.trainable)
        numbers = {**params, **(state or {})}
        check_written(numbers)
        save(self.source, path, numbers)

    def with_weights(self, params: Mapping[str, Any], *, autotune: bool | str | Path | None = None) -> Inference:
        """An inference callable ``infer(inputs, key=None) -> outputs`` with these weights.

        Weights are laid out for the kernels, folded and converted once, here. A program is compiled at the first call
        with each combination of input shapes. A jitted call of the function itself does the work on weights at every
        run, because it can be differentiated by them.

        Parameters
        ----------
        params : mapping of str to array
            The weights, from `to_jax` or trained since. NumPy arrays are read where they are, without a copy: do not
            write into them afterwards.
        autotune : bool or path, optional
            Whether to measure XLA's compiler options, or the folder to store measurements in; by default
            ``POPART_JAX_AUTOTUNE`` decides.

        Examples
        --------
        >>> fn, params = to_jax("model.onnx")  # doctest: +SKIP
        >>> infer = fn.with_weights(params)  # doctest: +SKIP
        >>> infer({"x": x})["y"]  # doctest: +SKIP
        """
        check_tree(params, self.choice.trainable, self.model.graph.initializers)
        options = compiler_options(self.model.graph, training=self.training, platform=platform())
        where = findings_folder(str(autotune) if isinstance(autotune, Path) else autotune)
        known = read_while_tracing(self.model.graph, self.model.opset_imports)
        fed = [n for n in self.model.graph.initializers if n in self._stored and n not in known]
        frozen = stored_arrays(self.model.graph, fed, self.wide)
        weights = {**frozen, **{n: x if hasattr(x, "dtype") else np.asarray(x) for n, x in params.items()}}
        facts = partial(self._facts, weights)
        return Inference(self, weights, options, self.precision, where, facts, self._ready, self._in_order)

    def shard(self, mesh: Mesh, rules: Rules | str, *, batch: str | None = None) -> ShardedFunction:
        """The function on several devices, each of which holds a part of the weights.

        Parameters
        ----------
        mesh : jax.sharding.Mesh
            The devices.
        rules : 'tensor_parallel', 'fsdp', or sequence of (str, PartitionSpec)
            Pairs of a regular expression and a spec: the first expression found in a weight's name applies. Or the name
            of rules derived from the graph, for the first axis of the mesh that is not `batch`.
        batch : str, optional
            Axis of the mesh along which the first dimension of inputs is split.

        Raises
        ------
        popart_exception
            A rule matches no weight, or a spec does not match its weight or the mesh.

        Examples
        --------
        >>> mesh = jax.make_mesh((2, 4), ("data", "model"))  # doctest: +SKIP
        >>> sharded = fn.shard(mesh, "tensor_parallel", batch="data")  # doctest: +SKIP
        >>> gradients = jax.jit(jax.grad(lambda p: sharded(p, inputs)["loss"]))(sharded.place(params))  # doctest: +SKIP
        """
        declared = {n: self.model.graph.initializers[n].shape for n in self.choice.trainable}
        shapes = {n: () if shape is None else tuple(shape.numpy()) for n, shape in declared.items()}
        return shard(self, self.model.graph, shapes, mesh, rules, batch)

    @property
    def _stored(self) -> Collection[str]:
        return {*self.choice.state, *self.choice.frozen} - set(self.choice.trainable)

    def __reduce__(self) -> Any:
        return self.again.func, self.again.args

    def __copy__(self) -> Self:
        return self  # as Python's functions

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __repr__(self) -> str:
        return summary_line(self)

    def _repr_html_(self) -> str:
        return summary_html(self)


def _are_concrete(tree: Any) -> bool:
    """Whether all leaves are numbers or arrays of numbers, and none is traced."""
    leaves = jax.tree.leaves(tree)
    kinds = (getattr(getattr(x, "dtype", None), "kind", None) for x in leaves if not isinstance(x, (int, float)))
    return not any(isinstance(x, Tracer) for x in leaves) and all(k is not None and k in "biufcV" for k in kinds)


def _with_texts(results: Any) -> Any:
    """Results of a compiled call; it has no texts, which the walk outside of `jit` has."""
    outputs: Any = cast("tuple[Any, Any]", results)[0] if isinstance(results, tuple) else results
    if any(x is LATER for x in outputs.values()):
        raise TypeError("texts are made on the host")
    return cast("Any", results)


def _is_uncut(x: Any) -> bool:
    return isinstance(x, Uncut)


def _cut(x: Any) -> Any:
    return x.cut() if isinstance(x, Uncut) else x


def _traced(x: Any) -> Any:
    """A folded output as a JAX array: as NumPy it would lose its 64 bits outside the x64 scope."""
    if holds_symbols(x):
        return at_run_time(x)
    array: Any = x
    return jnp.asarray(array) if isinstance(x, np.ndarray) and array.dtype.kind in "biufc" else array
