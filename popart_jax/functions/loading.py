"""`to_jax`: an ONNX model, read and checked, as a differentiable JAX function and its parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import jax

from .._compat.jax import compute_in_callers_thread
from .._process.collector import without_collector
from ..lowering.checks.known_attributes import check_attributes
from ..lowering.dynamic_sizes.bounds import set_bounds
from ..lowering.passes import rewrite_for_kernels, size_masks
from ..lowering.resolve import check_supported
from ..model.checks.initializers import check_tensors
from ..model.extract import ensure_outputs
from ..model.files.load import ModelLike, read, ready, unwrapped
from ..model.files.stored import lift, stored_floats
from ..timings import phase
from .arrays import stored_arrays
from .choice import Trainable, choose
from .function import OnnxFunction
from .latent import open_weights
from .precision import uses_wide_types
from .reduced import check_width, reduce_precision, storage_type
from .saving import Source
from .stopped import warn_of_rounding
from .tied import separate, tie


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
    model : path, open binary file, bytes, onnx.ModelProto, onnx_ir.Model or what ``torch.onnx.export`` returns
        The model; 64-bit types are kept exactly. If it declares no outputs, they are the results that no node reads.
    training : bool
        Dropout and batch normalisation behave as in training.
    trainable : optional
        Which stored tensors are parameters: names, patterns with ``*``, compiled regular expressions, or a predicate
        of name and array. The default leaves out tensors that no gradient should change; `fn.choice.frozen` gives the
        reasons.
    split : bool or names
        Give each reader of a tensor that several nodes share a copy of its own (``NAME@NODE``): exporters merge
        initializers whose values happen to be equal. A weight that the file stores once more, transposed, under a name
        that a tool made up (tied embeddings) is one parameter too, and two where `split` names one of them.
    dtype : optional
        Type of the parameters. With float16 and bfloat16 the model also computes in it, except for `fn.float32`; 8-bit
        types are for storage only.
    bounds : mapping of str to int or (int, number), optional
        For results whose size depends on data, by name: the size to compile for, and the value of the padding.
        Elements beyond the bound are lost. Of an output of the model it is the size that callers see, so that a
        detector gives ``{"boxes": 100, "labels": (100, -1)}``; what is computed inside then leaves padding out. Results
        of NonZero, Unique, Compress, NonMaxSuppression, Range and Loop have it for all of their readers. The last two
        take no value: a Range counts on, the rest of a Loop's is 0.
    straight_through : bool
        Train a quantised model: gradients pass through rounding, and integer weights become float parameters.

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
        The model can't be read; `trainable` matches nothing; or, when `fn` is called, an input is missing, unknown or
        of the wrong type.

    Warns
    -----
    UserWarning
        The model has no parameters (with the reasons), or their gradient is zero because everything is rounded.

    Notes
    -----
    If JAX has no devices yet, its programs are computed in the thread that calls them, on a CPU: JAX would else wake
    another one at each call. To have it so, use JAX before (``jax.devices()``).

    Examples
    --------
    >>> fn, params = to_jax("model.onnx")  # doctest: +SKIP
    >>> jax.grad(lambda p: fn(p, {"x": x})["loss"])(params)  # doctest: +SKIP
    """
    compute_in_callers_thread()
    with phase("load"):
        model = unwrapped(model)
        loaded = read(model)
    check_tensors(loaded)
    separate(loaded, split)
    tie(loaded.graph, split)
    if straight_through:
        open_weights(loaded)
    stored = stored_floats(loaded)
    choice = choose(stored, loaded, trainable)
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
        params = stored_arrays(graph, choice.trainable, wide)
    if dtype is not None:
        check_width(storage_type(dtype), wide)
        params = {n: p if n in kept else p.astype(storage_type(dtype)) for n, p in params.items()}
    source = Source.of(model, split, straight_through)
    options = {"training": training, "trainable": trainable, "dtype": dtype, "bounds": bounds}
    again = partial(_read_again, source, options)
    return OnnxFunction(loaded, training, wide, choice, source, again, plain, kept), params


def _read_again(source: Source, options: Mapping[str, Any]) -> OnnxFunction:
    """The same function, in another process too."""
    source.check()
    return to_jax(source.model, split=source.split, straight_through=source.straight_through, **options)[0]
