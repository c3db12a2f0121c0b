"""An ONNX model as a differentiable JAX function."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from .._compat.jax import enable_x64
from ..buffers import aligned_copy
from ..model.extract import ensure_outputs
from ..model.load import ModelLike, load
from ..ops.cast import HOST_ONLY
from ..ops.control import staged
from ..ops.operator import Trait
from ..ops.registry import facts
from .bounds import set_bounds
from .feeds import check_fed
from .interpreter import Settings, evaluate
from .passes import compiler_options, rewrite_for_kernels
from .passes.autotune import folder as findings_folder
from .resolve import Plans, check_supported
from .with_weights import Inference

_WIDE = {ir.DataType.INT64, ir.DataType.UINT64, ir.DataType.DOUBLE, ir.DataType.COMPLEX128}


@dataclass(frozen=True, eq=False)
class OnnxFunction:
    """``fn(params, inputs, key=None) -> outputs``: a pure function that may be jitted, differentiated and vmapped.

    Attributes
    ----------
    model : onnx_ir.Model
        The model as it is computed.
    training : bool
        Dropout and batch normalisation behave as in training.
    wide : bool
        64-bit types reach the device.
    plans : Plans
        Plans of the model's graphs, for calls outside jit.
    """

    model: ir.Model
    training: bool
    wide: bool
    plans: Plans = field(default_factory=Plans, repr=False)

    def __call__(
        self, params: Mapping[str, Any], inputs: Mapping[str, Any], key: jax.Array | None = None
    ) -> dict[str, Any]:
        """Outputs by name.

        Parameters
        ----------
        params : mapping of str to array
            Floating point initializers by name.
        inputs : mapping of str to array
            Inputs by name; initializers may be among them.
        key : jax random key, optional
            For operators that draw numbers.

        Raises
        ------
        popart_exception
            An input is missing, unknown or of the wrong type; a node can't be computed.
        """
        graph = self.model.graph
        settings = Settings(dict(self.model.opset_imports), self.training, key)
        with self.precision():
            fed = check_inputs(graph, inputs)
            wanted = [v.name or "" for v in graph.outputs]
            results = evaluate(graph, {**params, **fed}, wanted, settings, self.plans)
            return {name: _traced(x) for name, x in results.items()} if staged() else results

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """Scope in which the types of the model are kept."""
        return _precision(self.wide)

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
        options = compiler_options(self.model.graph, training=self.training, platform=jax.default_backend())
        asked = str(autotune) if isinstance(autotune, Path) else autotune
        return Inference(self, params, options, self.precision, findings_folder(asked))


def to_jax(
    model: ModelLike, *, training: bool = False, bounds: Mapping[str, Any] | None = None
) -> tuple[OnnxFunction, dict[str, jax.Array]]:
    """Turn an ONNX model into a pure function and its parameters.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto or onnx_ir.Model
        The model; 64-bit types are kept exactly. Outputs of one without any are the results that no node reads.
    training : bool
        Dropout and batch normalisation behave as in training.
    bounds : mapping of str to int or (int, number), optional
        For results whose size depends on data (NonZero, Unique, Compress, NonMaxSuppression, Loop), by name of an
        output: that size while compiling, and what fills the rest. What is beyond the bound is lost.

    Returns
    -------
    fn : OnnxFunction
        ``fn(params, inputs, key=None) -> outputs``, both dictionaries keyed by ONNX names. It may be jitted,
        differentiated and vmapped; `key` is a JAX random key for operators that draw numbers.
        ``fn.with_weights(params)`` is the fast way to infer: a callable whose weights are laid out once.
    params : dict of str to jax.Array
        Every floating point initializer.

    Raises
    ------
    UnsupportedOpError
        Operators without a translation, all at once.
    popart_exception
        The model can't be read; or, when `fn` is called, an input is missing, unknown or of the wrong type.

    Examples
    --------
    >>> fn, params = to_jax("model.onnx")  # doctest: +SKIP
    >>> jax.grad(lambda p: fn(p, {"x": x})["loss"])(params)  # doctest: +SKIP
    """
    loaded = load(model)
    ensure_outputs(loaded)
    graph = loaded.graph
    set_bounds(graph, bounds or {})
    check_supported(graph, loaded.opset_imports)
    rewrite_for_kernels(graph)
    wide = _uses_wide_types(graph)
    return OnnxFunction(loaded, training, wide), _float_initializers(graph, wide)


def _traced(x: Any) -> Any:
    """A folded output as an array of the device: leaving the x64 scope as NumPy, it would lose its 64 bits."""
    return jnp.asarray(x) if isinstance(x, np.ndarray) and x.dtype.kind in "biufc" else x


def _precision(wide: bool) -> contextlib.AbstractContextManager[Any]:
    return enable_x64() if wide else contextlib.nullcontext()


def _uses_wide_types(graph: ir.Graph) -> bool:
    """Whether a 64-bit tensor reaches the device: an input, an output, or a value of a 64-bit type."""
    values = [*graph.inputs, *graph.outputs, *graph.initializers.values()]
    if any(v.dtype in _WIDE for v in values):
        return True
    return any(_makes_wide(node) for node in ir.traversal.RecursiveGraphIterator(graph))


def _makes_wide(node: ir.Node) -> bool:
    return facts(node.op_type).has(Trait.WIDE_RESULT) or any(v.dtype in _WIDE for v in node.outputs)


def _float_initializers(graph: ir.Graph, wide: bool) -> dict[str, jax.Array]:
    with _precision(wide):
        held = {name: value.const_value for name, value in graph.initializers.items()}
        return {
            n: to_device(t) for n, t in held.items() if t is not None and jnp.issubdtype(t.dtype.numpy(), jnp.inexact)
        }


def to_device(tensor: ir.TensorProtocol) -> jax.Array:
    """A copy on the device; an external tensor's file is unmapped at once, so a large model is never held twice."""
    if not isinstance(tensor, ir.ExternalTensor):
        return jnp.array(tensor.numpy())
    copied = aligned_copy(tensor.numpy())
    tensor.release()
    return jax.device_put(copied)


def check_inputs(graph: ir.Graph, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Fed values as arrays of the declared types; initializers may be fed as well.

    Raises
    ------
    popart_exception
        Names of missing and unknown inputs, or one whose type can't be the declared one.
    """
    from ..errors import popart_exception

    declared = {v.name: v for v in graph.inputs if v.name}
    needed = [n for n in declared if n not in graph.initializers]
    missing = [n for n in needed if n not in inputs]
    unknown = [n for n in inputs if n not in declared and n not in graph.initializers]
    if missing or unknown:
        raise popart_exception(
            f"Inputs do not match the model: missing {missing}, unknown {unknown}; it takes {needed}.\n"
            "  fix: pass a dictionary with exactly these names."
        )
    return {n: as_declared(declared.get(n), x) for n, x in inputs.items()}


def as_declared(value: ir.Value | None, x: Any) -> Any:
    """A fed value as the array the translations get: of the declared type; texts and types XLA lacks stay NumPy.

    Raises
    ------
    popart_exception
        Another rank or size than declared, or elements that the declared type can't hold.
    """
    if isinstance(x, (list, dict)) or x is None:
        return x
    array = x if isinstance(x, jax.Array) else np.asarray(x)
    if value is not None:
        check_fed(value, array)
    if array.dtype.kind in "OUS" or array.dtype in HOST_ONLY:
        return array
    want = value.dtype.numpy() if value is not None and value.dtype is not None else array.dtype
    return jnp.asarray(array, want)
