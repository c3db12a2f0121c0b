"""``train``: a model on arrays of a file, and the trained model as ONNX."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import popart_exception
from . import files, shown

_LOSSES = ("mse", "l1", "cross_entropy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="FILE.npz", help="arrays by the names of the inputs, and a target")
    add("--loss", required=True, help=f"{', '.join(_LOSSES)}, or the name of an output that is the loss")
    add("--out", type=Path, required=True, metavar="FILE", help="the trained model")
    add("--output", metavar="NAME", help="output that the loss looks at (default: the first)")
    add("--target", default="target", metavar="NAME", help="array of the data that the loss compares with")
    add("--steps", type=int, default=100, help="batches to train on (default 100)")
    add("--batch", type=int, default=32, help="rows of a batch (default 32)")
    add("--rate", type=float, default=1e-3, help="learning rate of Adam (default 1e-3)")
    add("--seed", type=int, default=1234, help="seed of the order of the rows and of dropout")
    add("--trainable", action="append", metavar="PATTERN", help="names of the weights to train (default: all floats)")


def run(options: argparse.Namespace) -> int:
    """Train a model with Adam and save it; running statistics of batch normalisation go with it."""
    import jax
    import optax

    from ..functions.loading import to_jax

    for name in ("steps", "batch"):
        if getattr(options, name) < 1:
            raise popart_exception(f"--{name} {getattr(options, name)}: expected at least 1.")
    files.check_writable(options.out)
    data = _arrays(options.data)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        fn, params = to_jax(options.model, training=True, trainable=options.trainable)
    if not params:
        raise popart_exception(f"There is nothing to train. {' '.join(str(w.message) for w in told)}")
    needed = [*fn.inputs, *([options.target] if options.loss in _LOSSES else [])]
    rows = _rows(data, needed, options.data)
    loss, rule = _loss(fn, options), optax.adam(options.rate)

    @jax.jit
    def step(params: Any, held: Any, slots: Any, batch: Any, key: Any) -> Any:
        (value, held), slope = jax.value_and_grad(loss, has_aux=True)(params, held, batch, key)
        moves, slots = rule.update(slope, slots)
        return optax.apply_updates(params, moves), held, slots, value

    held, slots, take = fn.initial_state, rule.init(params), fn.exactly(step)
    losses: list[float] = []
    keys = jax.random.split(jax.random.key(options.seed), options.steps)
    for key, at in zip(keys, _batches(rows, options), strict=True):
        batch = {n: data[n][at] for n in needed}
        params, held, slots, value = take(params, held, slots, batch, key)
        losses.append(float(value))
        shown.advance(f"training, loss {losses[-1]:.4g}", len(losses), options.steps)
    if not np.isfinite(losses[-1]):
        raise popart_exception(f"The loss is {losses[-1]} after {len(losses)} steps; nothing was saved. Try --rate.")
    fn.save(options.out, params, held)
    shown.console().print(f"loss {losses[0]:.6g} -> {losses[-1]:.6g} in {len(losses)} steps; saved {options.out}")
    return 0


def _arrays(path: Path) -> Mapping[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as found:
            return dict(found)
    except OSError as err:
        raise popart_exception(f"--data: '{path}' can't be read: {err.strerror or err}.") from err
    except (ValueError, TypeError, AttributeError) as err:
        raise popart_exception(f"--data: '{path}' is no archive as numpy.savez writes it.") from err


def _rows(data: Mapping[str, np.ndarray], needed: list[str], path: Path) -> int:
    """The number of rows, the same in all arrays."""
    missing = [n for n in needed if n not in data]
    if missing:
        raise popart_exception(f"--data: '{path}' lacks {missing}; it holds {sorted(data)}.")
    lengths = {n: len(data[n]) if data[n].ndim else 0 for n in needed}
    if len(set(lengths.values())) != 1 or not min(lengths.values()):
        raise popart_exception(f"--data: every array needs the same number of rows, and at least one; got {lengths}.")
    return next(iter(lengths.values()))


def _batches(rows: int, options: argparse.Namespace) -> Iterator[np.ndarray]:
    """Row numbers of each step: all rows in a new order, again and again; batches are all of one size."""
    generator, size = np.random.default_rng(options.seed), min(options.batch, rows)
    waiting = np.zeros(0, np.int64)
    for _ in range(options.steps):
        while len(waiting) < size:
            waiting = np.concatenate([waiting, generator.permutation(rows)])
        yield waiting[:size]
        waiting = waiting[size:]


def _loss(fn: Any, options: argparse.Namespace) -> Callable[..., Any]:
    """The loss of parameters, state, batch and key, with the new state."""
    import jax.numpy as jnp
    import optax

    kind = options.loss
    name = options.output or (kind if kind not in _LOSSES else next(iter(fn.outputs)))
    if name not in fn.outputs:
        raise popart_exception(f"--loss, --output: {name!r} is none of {[*_LOSSES, *fn.outputs]}.")

    def loss(params: Any, held: Any, batch: Mapping[str, Any], key: Any) -> Any:
        found, held = fn(params, {n: batch[n] for n in fn.inputs}, key, state=held)
        y = found[name]
        if kind not in _LOSSES:
            return jnp.mean(y), held
        target = jnp.asarray(batch[options.target])
        if kind == "cross_entropy":
            return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(y, target)), held
        if y.shape != target.shape:
            raise popart_exception(f"Output {name!r} has shape {list(y.shape)}, the target {list(target.shape)}.")
        gap = y - target
        return jnp.mean(jnp.square(gap) if kind == "mse" else jnp.abs(gap)), held

    return loss
