"""An ONNX model as a differentiable JAX function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, partial, wraps
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir
from jax.sharding import Mesh

from .._collector import without_collector
from .._compat.jax import Tracer
from ..buffers import lasting
from ..errors import popart_exception
from ..execution import beside_jax
from ..execution.graph_facts import graph_facts
from ..execution.key import Undescribed
from ..lowering.bounds import set_bounds
from ..lowering.control.values import staged
from ..lowering.interpreter import Settings, evaluate
from ..lowering.known_attributes import check_attributes
from ..lowering.op_memo import OpMemo
from ..lowering.passes import compiler_options, rewrite_for_kernels, size_masks
from ..lowering.passes.autotune import folder as findings_folder
from ..lowering.resolve import check_supported
from ..model.extract import ensure_outputs
from ..model.initializers import check_tensors
from ..model.load import ModelLike, read, ready
from ..model.stored import lift, stored_floats
from ..ops.symbols import at_run_time, holds_symbols
from ..timings import phase
from .by_shapes import ByShapes, in_order
from .choice import Choice, Trainable, choose
from .given import check_state, check_tree, check_written, typed
from .inputs import Ready, as_mapping, check_inputs, needed_inputs
from .latent import open_weights
from .partition import Rules
from .precision import check_not_cut, in_precision, precision, uses_wide_types
from .reduced import check_width, reduce_precision, storage_type
from .saving import Source, save
from .sharded import ShardedFunction, shard
from .shared import split_shared
from .shown import TensorSpec, summary_html, summary_line
from .state import update_statistics
from .stopped import warn_of_rounding
from .with_weights import Inference

_MANY_NODES = 6  # that compute, from which a call outside `jit` compiles the graph as a whole


@dataclass(frozen=True, eq=False, repr=False)
class OnnxFunction:
    """``fn(params, inputs, key=None) -> outputs``: a pure function that may be jitted, differentiated and vmapped.

    Attributes
    ----------
    model : onnx_ir.Model
        The model as it is computed.
    training : bool
        Dropout and batch normalisation behave as in training, unless a call says otherwise.
    wide : bool
        64-bit types reach the device.
    choice : Choice
        Names of parameters and of state, and what is neither, with the reason.
    source : Source
        Where the model came from, for `save`.
    float32 : tuple of str
        Stored tensors that stay float32 in a model that was asked for in half precision.
    """

    model: ir.Model
    training: bool
    wide: bool
    choice: Choice
    source: Source
    plain: ir.Model = field(repr=False)
    float32: tuple[str, ...] = ()
    _walked: list[bool] = field(default_factory=list[bool])  # not empty: results depend on data, nothing is compiled

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
            The parameters by name; other stored tensors may be among them.
        inputs : mapping of str to array, or array
            Inputs by name; the array itself for a model of one input. Initializers may be among them.
        key : jax random key, optional
            For operators that draw numbers.
        state : mapping of str to array, optional
            Running statistics, `initial_state` at first.
        training : bool, optional
            As in training or not; the default is what `to_jax` was told.

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
        if self._walked or not self._is_large or not _are_concrete((params, inputs, key, state)):
            return self._walk(params, inputs, key, state, trains)
        try:
            return self._compiled(params, self._ready(inputs), key, state, trains)
        except Exception:  # what depends on data can't be compiled; what is wrong shows again
            results = self._walk(params, inputs, key, state, trains)
            self._walked.append(True)
            return results

    @cached_property
    def _is_large(self) -> bool:
        return sum(node.op_type != "Transpose" for node in self.model.graph) >= _MANY_NODES

    @cached_property
    def _compiled(self) -> Callable[..., Any]:
        """The walk as one program: node by node, each operator would be compiled on its own."""
        jitted = self.exactly(jax.jit(self._walk, static_argnums=4))

        @wraps(jitted)
        def call(params: Any, inputs: Any, key: Any, state: Any, trains: bool) -> Any:
            if beside_jax.folder() is None:
                return self._in_order(jitted(params, inputs, key, state, trains))
            return self._in_order(self._kept(trains)(params, inputs, key, state))

        return call

    @cached_property
    def _in_order(self) -> Callable[[Any], Any]:
        return in_order(self.outputs)

    @cached_property
    def _kept(self) -> Callable[[bool], ByShapes]:
        return cache(self._programs)

    def _programs(self, trains: bool) -> ByShapes:
        """The walk as programs that other processes find."""
        facts = partial(self._facts, self.choice.trainable, trains)

        def walk(_: Any, params: Any, inputs: Any, key: Any, state: Any) -> Any:
            return self._walk(params, inputs, key, state, trains)

        def inside(params: Any, inputs: Any, key: Any, state: Any) -> Any:
            return self._jitted(params, inputs, key, state=state, training=trains)

        return ByShapes(walk, (), {}, None, facts, self.precision, inside)

    def _facts(self, arguments: Collection[str], *more: Any) -> Any:
        """All that the programs depend on: the model without the values of its `arguments`, what trains, and `more`."""
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
    ) -> Any:
        model, updated = self._training_form if trains and self.choice.state else (self.model, {})
        graph = model.graph
        inputs = as_mapping(graph, inputs)
        if self.wide:
            check_not_cut(graph, inputs, params)
        settings = Settings(dict(model.opset_imports), trains, key, memo=OpMemo())
        with self.precision():
            given = self._checked(params, state or {})
            wanted = dict.fromkeys([v.name or "" for v in graph.outputs])
            found = evaluate(graph, {**given, **check_inputs(graph, inputs)}, [*wanted, *updated.values()], settings)
            results = {name: _traced(found[name]) if staged() else found[name] for name in wanted}
            if state is None:
                return results
            return results, {n: found[updated[n]] if n in updated else given[n] for n in state}

    def _checked(self, params: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters and state as arrays of the types that the model computes with."""
        stored = self.model.graph.initializers
        missing = [n for n in self.choice.trainable if n not in params]
        unknown = [n for n in (*params, *state) if n not in stored]
        if missing or unknown:
            raise popart_exception(
                f"Parameters do not match the model: missing {missing[:10]}, unknown {unknown[:10]}.\n"
                "  fix: pass all the parameters that to_jax returned, trained or not."
            )
        given = {}
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
    def _training_form(self) -> tuple[ir.Model, dict[str, str]]:
        """The model with batch statistics, and the tensor that updates each running one."""
        model = self.plain.clone()
        return model, update_statistics(model, self.choice.state)

    @cached_property
    def initial_state(self) -> dict[str, jax.Array]:
        """The running statistics that the file holds."""
        return _arrays(self.model.graph, self.choice.state, self.wide)

    @cached_property
    def inputs(self) -> dict[str, TensorSpec]:
        """What the function takes, by name."""
        graph = self.model.graph
        return {n: TensorSpec.of(v) for n in needed_inputs(graph) for v in graph.inputs if v.name == n}

    @cached_property
    def outputs(self) -> dict[str, TensorSpec]:
        """What it gives, by name."""
        return {v.name or "": TensorSpec.of(v) for v in self.model.graph.outputs}

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """Scope in which the types of the model are kept: 64-bit types need it around transformations."""
        return precision(self.wide)

    def exactly(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` (a jitted step, a gradient) called in `precision`, so that no 64-bit number is cut.

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

        @wraps(jitted)
        def call(
            params: Mapping[str, Any],
            inputs: Any,
            key: jax.Array | None = None,
            *,
            state: Mapping[str, Any] | None = None,
            training: bool | None = None,
        ) -> Any:
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
        """Write the model with these numbers in their places: same graph, names, opset and metadata.

        Raises
        ------
        popart_exception
            A parameter is missing, unknown or of another shape, or ONNX's checker refuses the model.
        OSError
            The file can't be written; what was there before stays.
        """
        check_tree(params, self.choice.trainable)
        numbers = {**params, **(state or {})}
        check_written(numbers)
        save(self.source, path, numbers)

    def with_weights(self, params: Mapping[str, Any], *, autotune: bool | str | Path | None = None) -> Inference:
        """An inference callable ``infer(inputs, key=None) -> outputs`` with these weights.

        Weights are laid out for the kernels, folded and widened once, here, and each combination of input shapes is
        compiled when it first comes; a jitted call of the function itself does that work at every run, because it can
        be differentiated by its weights.

        Parameters
        ----------
        params : mapping of str to array
            The weights, from `to_jax` or trained since.
        autotune : bool or path, optional
            Measure XLA's compiler options, and in which folder to keep the findings; else ``POPART_JAX_AUTOTUNE``
            decides.

        Examples
        --------
        >>> fn, params = to_jax("model.onnx")  # doctest: +SKIP
        >>> infer = fn.with_weights(params)  # doctest: +SKIP
        >>> infer({"x": x})["y"]  # doctest: +SKIP
        """
        check_tree(params, self.choice.trainable, self.model.graph.initializers)
        options = compiler_options(self.model.graph, training=self.training, platform=jax.default_backend())
        where = findings_folder(str(autotune) if isinstance(autotune, Path) else autotune)
        frozen = _arrays(self.model.graph, [n for n in self.model.graph.initializers if n in self._stored], self.wide)
        weights = {**frozen, **{n: x if hasattr(x, "dtype") else np.asarray(x) for n, x in params.items()}}
        facts = partial(self._facts, weights)
        return Inference(self, weights, options, self.precision, where, facts, self._ready, self._in_order)

    def shard(self, mesh: Mesh, rules: Rules | str, *, batch: str | None = None) -> ShardedFunction:
        """The function for several devices, none of which holds all weights.

        Parameters
        ----------
        mesh : jax.sharding.Mesh
            The devices.
        rules : 'tensor_parallel', 'fsdp', or sequence of (str, PartitionSpec)
            Regular expressions looked for in the names of weights, the first that fits counts; or a set of rules
            found from the graph, along the first axis of the mesh that is not `batch`.
        batch : str, optional
            Axis of the mesh along which the first dimension of inputs is split.

        Raises
        ------
        popart_exception
            A rule fits no weight, or a spec does not fit its weight or the mesh.

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

    def __repr__(self) -> str:
        return summary_line(self)

    def _repr_html_(self) -> str:
        return summary_html(self)


@without_collector()
def to_jax(
    model: ModelLike,
    *,
    training: bool = False,
    trainable: Trainable | None = None,
    split: bool | str | Collection[str] = False,
    dtype: Any = None,
    bounds: Mapping[str, Any] | None = None,
    straight_through: bool = False,
) -> tuple[OnnxFunction, dict[str, jax.Array]]:
    """Turn an ONNX model into a pure function and its parameters.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto or onnx_ir.Model
        The model; 64-bit types are kept exactly. Outputs of one without any are the results that no node reads.
    training : bool
        Dropout and batch normalisation behave as in training.
    trainable : optional
        Which stored tensors are parameters: names, patterns with ``*``, compiled regular expressions, or a predicate
        of name and array. The default leaves out what no gradient should move; `fn.choice.frozen` gives the reasons.
    split : bool or names
        Give each reader of a tensor that several nodes share one of its own (``NAME@NODE``): exporters merge
        initializers whose values happen to be equal.
    dtype : optional
        Type of the parameters. float16 and bfloat16 are computed with as well, `fn.float32` names what stays; types of
        8 bits are stored only.
    bounds : mapping of str to int or (int, number), optional
        For results whose size depends on data (NonZero, Unique, Compress, NonMaxSuppression, Loop), by name of an
        output: that size while compiling, and what fills the rest. What is beyond the bound is lost.
    straight_through : bool
        Train a quantised model: rounding passes gradients on, weights stored in whole numbers are float parameters.

    Returns
    -------
    fn : OnnxFunction
        ``fn(params, inputs, key=None) -> outputs``, both dictionaries keyed by ONNX names. It may be jitted,
        differentiated and vmapped; `key` is a JAX random key for operators that draw numbers.
        ``fn.with_weights(params)`` is the fast way to infer: a callable whose weights are laid out once.
    params : dict of str to jax.Array
        The parameters: float weights wherever the file stores them (initializers, Constant nodes, subgraphs,
        functions).

    Raises
    ------
    UnsupportedOpError
        Operators without a translation, all at once.
    popart_exception
        The model can't be read; `trainable` fits nothing; or, when `fn` is called, an input is missing, unknown or of
        the wrong type.

    Warns
    -----
    UserWarning
        The model has no parameters, with the reasons; or their gradient is zero, since everything is rounded.

    Examples
    --------
    >>> fn, params = to_jax("model.onnx")  # doctest: +SKIP
    >>> jax.grad(lambda p: fn(p, {"x": x})["loss"])(params)  # doctest: +SKIP
    """
    with phase("load"):
        loaded = read(model)
    check_tensors(loaded)
    names = split_shared(loaded, split)
    if straight_through:
        open_weights(loaded)
    stored = stored_floats(loaded)
    choice = choose(stored, loaded.opset_imports, trainable)
    ready(loaded)
    ensure_outputs(loaded)
    graph = loaded.graph
    lift(graph, {n: one for n, one in stored.items() if n in {*choice.trainable, *choice.state}})
    if not straight_through:
        warn_of_rounding(graph, choice.trainable)
    set_bounds(graph, bounds or {})
    size_masks(graph)
    check_supported(graph, loaded.opset_imports)
    check_attributes(graph, loaded.opset_imports)
    kept: tuple[str, ...] = ()
    if dtype is not None:
        kept = reduce_precision(loaded, storage_type(dtype), choice.state)
    plain = loaded.clone() if choice.state else loaded
    with phase("layout"):
        rewrite_for_kernels(graph)
    wide = uses_wide_types(graph)
    with phase("weights"):
        params = _arrays(graph, choice.trainable, wide)
    if dtype is not None:
        check_width(storage_type(dtype), wide)
        params = {n: p if n in kept else p.astype(storage_type(dtype)) for n, p in params.items()}
    return OnnxFunction(loaded, training, wide, choice, Source.of(model, names, straight_through), plain, kept), params


def _are_concrete(tree: Any) -> bool:
    """Whether everything is a number or an array of numbers, and none is traced."""
    leaves = jax.tree.leaves(tree)
    kinds = (getattr(getattr(x, "dtype", None), "kind", None) for x in leaves if not isinstance(x, (int, float)))
    return not any(isinstance(x, Tracer) for x in leaves) and all(k is not None and k in "biufcV" for k in kinds)


def _traced(x: Any) -> Any:
    """A folded output as an array of the device: leaving the x64 scope as NumPy, it would lose its 64 bits."""
    if holds_symbols(x):
        return at_run_time(x)
    return jnp.asarray(x) if isinstance(x, np.ndarray) and x.dtype.kind in "biufc" else x


def _arrays(graph: ir.Graph, names: Collection[str], wide: bool) -> dict[str, jax.Array]:
    with precision(wide):
        stored = {name: graph.initializers[name].const_value for name in names}
        return {name: to_device(tensor) for name, tensor in stored.items() if tensor is not None}


def to_device(tensor: ir.TensorProtocol) -> jax.Array:
    """The numbers on the device: memory that nobody writes to is shared, anything else copied.

    An external tensor's file is unmapped at once, so a large model is never held twice.
    """
    placed = lasting(tensor.numpy())
    if isinstance(tensor, ir.ExternalTensor):
        tensor.release()
    return jax.device_put(placed)
