"""Sharding of a session's weights over several devices per replica, by an engine option.

``popart_jax.shard`` is ``tensor_parallel``, ``fsdp``, or rules by name as JSON (see `rules_text`); with
``popart_jax.shard.devices`` each replica has so many devices (default: as many as there are for it).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
from jax.sharding import PartitionSpec

from ...errors import popart_exception
from ...execution import Program, Variable
from ...execution.replicas import PARTS
from ...functions import partition
from ..options.engine_options import DEVICES, SHARD


def rules_text(rules: Iterable[tuple[str, PartitionSpec]]) -> str:
    """Rules as the engine option ``popart_jax.shard`` takes them.

    Parameters
    ----------
    rules : pairs of str and PartitionSpec
        A regular expression to search for in names of weights, and how their dimensions are split:
        None, or ``"model"`` for the devices of a replica. The first rule that fits counts; other weights stay whole.

    Examples
    --------
    >>> from jax.sharding import PartitionSpec as P
    >>> rules_text([("up", P(None, "model")), ("down", P("model"))])
    '[["up", [null, "model"]], ["down", ["model"]]]'
    """
    return json.dumps([[pattern, list(spec)] for pattern, spec in rules])


def split_over_devices(program: Program, options: Mapping[str, str], weights: Iterable[str]) -> Program:
    """The program with its weights, their optimizer state and (``fsdp``) its inputs split as the options ask.

    Raises popart_exception where the option has another value, a rule matches no weight, a dimension does not divide,
    or devices are missing.
    """
    asked = options.get(SHARD)
    if asked is None:
        return program
    shapes = {n: program.variables[n].type.shape for n in weights}
    named = None if asked in ("tensor_parallel", "fsdp") else partition.by_name(shapes, _rules(asked))
    parts = _devices(program.structure.replicas, options.get(DEVICES))
    mesh: Any = SimpleNamespace(shape={PARTS: parts})
    if named is not None:
        specs = named
    elif asked == "fsdp":
        specs = partition.fsdp(shapes, mesh, PARTS)
    else:
        specs = partition.tensor_parallel(program.graph, shapes, mesh, PARTS)
    partition.check(specs, shapes, mesh)
    splits = {n: tuple(spec) for n, spec in specs.items() if any(spec)}
    variables = {n: replace(v, split=_split_of(n, v, program, splits)) for n, v in program.variables.items()}
    batches = {n for n, kind in program.streams.items() if kind.shape and kind.shape[0] % parts == 0}
    return replace(program, variables=variables, parts=parts, spread=frozenset(batches if asked == "fsdp" else ()))


def _split_of(
    name: str, variable: Variable, program: Program, splits: Mapping[str, tuple[Any, ...]]
) -> tuple[Any, ...]:
    """The split of a variable: of a weight its own, of optimizer state with its weight's shape that of the weight."""
    if name in splits or program.training is None:
        return splits.get(name, ())
    for weight, rule in program.training.rules.items():
        same = weight in splits and program.variables[weight].type.shape == variable.type.shape
        if same and any(slot.name == name for slot in rule.slots):
            return splits[weight]
    return ()


def _devices(replicas: int, asked: str | None) -> int:
    found = jax.device_count()
    if asked is not None and not asked.isdecimal():
        raise popart_exception(f"Engine option {DEVICES} is '{asked}': expected a number.")
    parts = found // replicas if asked is None else int(asked)
    if parts < 2 or parts * replicas > found or (replicas * parts) % jax.process_count():
        raise popart_exception(
            f"Engine option {SHARD} splits weights over at least 2 devices for each replica; {replicas} replicas have "
            f"{found} devices{'' if asked is None else f', and {DEVICES} is {asked}'}.\n"
            "  fix: more devices (on CPU: jax_num_cpu_devices, or launch --devices), or fewer replicas."
        )
    return parts


def _rules(text: str) -> list[tuple[str, PartitionSpec]]:
    try:
        rows = json.loads(text)
        return [(str(pattern), PartitionSpec(*spec)) for pattern, spec in rows]
    except (ValueError, TypeError) as err:
        raise popart_exception(
            f"Engine option {SHARD} is '{text}': expected tensor_parallel, fsdp, or rules as rules_text writes them."
        ) from err
