"""The entry points of the model: profile a JAX function with example arguments, or a jaxpr."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable, Sequence
from typing import Any

from ipu_model import compat
from ipu_model import target as targets
from ipu_model.checks import check_kind
from ipu_model.costs import Context, rules
from ipu_model.memory import sweep
from ipu_model.memory.code import code_by_tile
from ipu_model.memory.levers import Again
from ipu_model.memory.overflow import explain
from ipu_model.options import ModelOptions
from ipu_model.placement import EVERYTHING_HERE, Argument, Placement
from ipu_model.pricing import Priced, price
from ipu_model.report.build import build
from ipu_model.report.report import Report
from ipu_model.schedule import timing
from ipu_model.target import Target
from ipu_model.traced import name_of, traced
from ipu_model.walk import Program, walk

PLACEMENTS = "an ipu_model.Placement"


def profile(
    fn: Callable[..., Any],
    *args: Any,
    target: str | Target = "mk2",
    placement: Placement = EVERYTHING_HERE,
    options: ModelOptions | None = None,
    inputs: Sequence[Argument] = (),
    outputs: Sequence[Argument] = (),
    **settings: Any,
) -> Report:
    """What one call of a JAX function would cost on an IPU.

    Parameters
    ----------
    fn : callable
        Any function that JAX can trace. Arguments that `jax.jit` donates are written over by results.
    *args : arrays or jax.ShapeDtypeStruct, or trees of them
        Example arguments; only shapes and types matter, nothing is computed. Where a tree holds other things too, as
        modules hold their activations, those stay as they are.
    target : str or Target
        ``"mk1"``, ``"mk2"``, ``"bow"``, a registered name, or a target of your own.
    placement, options, inputs, outputs
        As for `profile_jaxpr`; inputs and outputs in the order of the flattened arguments and results. Inputs that
        are not described have the names of the parameters.
    **settings
        Fields of `ModelOptions`, as keywords.

    Returns
    -------
    Report
    """
    options = _options(options, settings)
    if not settings.get("name") and options.name == ModelOptions.name:
        options = _options(options, {"name": name_of(fn)})
    check_kind("inputs", inputs, Sequence, "a sequence of ipu_model.Argument")
    closed, arguments = traced(fn, args)
    named = (*inputs, *arguments[len(inputs) :])
    return profile_jaxpr(closed, target=target, placement=placement, options=options, inputs=named, outputs=outputs)


def profile_jaxpr(
    jaxpr: Any,
    *,
    target: str | Target = "mk2",
    placement: Placement | None = None,
    options: ModelOptions | None = None,
    inputs: Sequence[Argument] = (),
    outputs: Sequence[Argument] = (),
    levers: bool = True,
) -> Report:
    """What one run of a (closed) jaxpr would cost.

    Parameters
    ----------
    placement : Placement, optional
        IPU, pipeline stage and other attributes by node name.
    inputs, outputs : sequences of Argument
        Names and roles of the jaxpr's inputs and outputs, in order; those not described are resident inputs.
    levers : bool
        Compute what would help when the program does not fit (prices it a few more times).
    """
    chosen, options = targets.get(target), _options(options, {})
    placement = EVERYTHING_HERE if placement is None else placement
    check_kind("placement", placement, Placement, PLACEMENTS)
    whole_model = getattr(chosen, "profile_jaxpr", None)
    if whole_model is not None:
        report = whole_model(jaxpr, placement=placement, options=options, inputs=inputs, outputs=outputs)
        check_kind(f"what profile_jaxpr of {reprlib.repr(target)} gives", report, Report, "an ipu_model.Report")
        return report

    def priced_with(**changes: Any) -> Priced:
        how: dict[str, Any] = {"placement": placement, "options": options, "inputs": inputs, **changes}
        if changes.keys() == {"placement"} and not placement.nodes:
            program = priced.program.placed(how["placement"])
        else:
            program = trace(jaxpr, outputs=outputs, **how)
        return price(program, Context(chosen, how["options"]), how["placement"])

    priced = priced_with()
    return why_too_large(report_of(priced), priced, inputs, priced_with if levers else None)


def trace(
    jaxpr: Any,
    *,
    placement: Placement = EVERYTHING_HERE,
    options: ModelOptions | None = None,
    inputs: Sequence[Argument] = (),
    outputs: Sequence[Argument] = (),
) -> Program:
    """The linear program of a jaxpr: what `cycles` and `profile` price.

    Parameters
    ----------
    jaxpr : jax.extend.core.ClosedJaxpr
        As `jax.make_jaxpr` returns it.
    placement : Placement, optional
        Which IPUs compute and hold what; everything is on the first one by default.
    options : ModelOptions, optional
        How the model plans; the defaults if left out.
    inputs, outputs : sequence of Argument, optional
        How arguments and results reach the device; by default they stay on it.
    """
    if not compat.is_jaxpr(jaxpr):
        raise TypeError(f"a jaxpr is what jax.make_jaxpr(fn)(*args) returns, not {reprlib.repr(jaxpr)}")
    check_kind("placement", placement, Placement, PLACEMENTS)
    return walk(
        jaxpr, is_leaf=rules().__contains__, placement=placement, options=options, inputs=inputs, outputs=outputs
    )


def report_of(priced: Priced) -> Report:
    """Report of a priced program."""
    tiles = priced.context.target.machine.tiles
    code, types = code_by_tile(priced, tiles)
    return build(priced, timing(priced), sweep(priced, tiles), code, types)


def why_too_large(report: Report, priced: Priced, inputs: Sequence[Argument], again: Again | None = None) -> Report:
    """The report; if the program does not fit, with the reason, and with levers if it can be priced `again`."""
    if report.memory.max_tile <= report.memory.bytes_per_tile:
        return report
    return dataclasses.replace(report, overflow=explain(report, priced, inputs, again))


def cycles(
    program: Program, target: Target, *, placement: Placement = EVERYTHING_HERE, options: ModelOptions | None = None
) -> Any:
    """Predicted cycles of a program: a number, or a traced value that `jax.grad` takes with respect to `target`.

    Parameters
    ----------
    program : Program
        From `trace`.
    target : Target
        The machine; its fields may be traced values.
    placement : Placement, optional
        Which IPUs compute what; everything is on the first one by default.
    options : ModelOptions, optional
        How the model plans; the defaults if left out.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, ipu_model
    >>> program = ipu_model.trace(jax.make_jaxpr(lambda x: jnp.tanh(x) @ x)(jnp.ones((64, 64))))
    >>> gradient = jax.grad(lambda t: ipu_model.cycles(program, t))(ipu_model.get_target("mk2"))
    >>> bool(gradient.sync_cycles > 0)
    True
    """
    check_kind("program", program, Program, "what ipu_model.trace returns")
    check_kind("target", target, Target, "an ipu_model.Target; ipu_model.get_target returns one by name")
    check_kind("placement", placement, Placement, PLACEMENTS)
    return timing(price(program, Context(target, _options(options, {})), placement)).cycles


def _options(options: ModelOptions | None, settings: dict[str, Any]) -> ModelOptions:
    known = {f.name for f in dataclasses.fields(ModelOptions)}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise TypeError(
            f"unknown option(s) {unknown}; options are {sorted(known)}, and arguments of the function go by position"
        )
    if not isinstance(options, ModelOptions | None):
        raise TypeError(f"options are an ipu_model.ModelOptions, or single ones by keyword, not {options!r}")
    return dataclasses.replace(options or ModelOptions(), **settings)
