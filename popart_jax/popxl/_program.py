"""The program of an Ir as one compiled function: state in, state and streams out.

Per replica the device holds `State`: variables that some operator uses (``var:<id>``), remote buffers (``remote:<n>``)
and tensors that the weight-loading program makes (``held:<id>``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from ..execution.replicas import mesh_for, replicate, spec
from ..lowering.calls import touched
from ..lowering.effects import Program, effect_of
from ..lowering.interpreter import Settings, Walk, run
from ..lowering.resolve import Plan, make_plan
from ._create import FAULT, PRINTED
from ._internal.alias import alias_sets
from ._internal.enums import ExecutionContext

if TYPE_CHECKING:
    from .ir import Ir
    from .tensor import Variable

_SETTINGS = Settings(opsets={"": 17, "ai.graphcore": 1, "popxl": 1})
_NORMAL = frozenset(ExecutionContext) - {
    ExecutionContext.WeightsFromHostFragment,
    ExecutionContext.WeightsToHostFragment,
}
FROM_HOST = frozenset({ExecutionContext.WeightsFromHostFragment})
TO_HOST = frozenset({ExecutionContext.WeightsToHostFragment})


@dataclass
class Layout:
    """What the device holds, and what goes in and out.

    Attributes
    ----------
    transfers, replicas : int
        Micro-batches per stream and run; replicas of all processes.
    """

    owner: Ir
    transfers: int
    replicas: int
    variables: dict[str, Variable] = field(default_factory=dict)
    held: dict[str, ir.Value] = field(default_factory=dict)

    @classmethod
    def of(cls, owner: Ir) -> Layout:
        """Layout of an Ir that is complete."""
        main = owner.main_graph
        self = cls(owner, owner.num_host_transfers, owner.replication_factor)
        for t in main.variables:
            if t._value.uses() or t._value.is_graph_output():
                self.variables[t.id] = t
        for op in main._ops.values():
            if op._settings.executionContext is ExecutionContext.WeightsFromHostFragment:
                for value in op._node.outputs:
                    if any(n.meta["op"]._settings.executionContext not in FROM_HOST for n, _ in value.uses()):
                        self.held[value.name or ""] = value
        return self

    @cached_property
    def graph(self) -> ir.Graph:
        """The main graph."""
        return self.owner.main_graph._graph

    @cached_property
    def buffers(self) -> dict[str, Any]:
        """Remote buffers that are used, by state name."""
        used = touched(self.graph).reads
        remote = [t._remote for t in self.owner.main_graph.variables if t._remote is not None]
        numbers = {r.buffer for r in remote} | {int(n.split(":")[1]) for n in used if n.startswith("remote:")}
        return {f"remote:{n}": self.owner._buffers[n] for n in sorted(numbers)}

    @cached_property
    def h2d(self) -> dict[str, Any]:
        """Streams that some operator loads, by tensor id."""
        return {s.tensor_id: s for s in sorted(self.owner.get_all_h2d_streams(), key=lambda s: s.tensor_id)}

    @cached_property
    def d2h(self) -> dict[str, Any]:
        """Streams that some operator stores, by tensor id."""
        return {s.tensor_id: s for s in sorted(self.owner.get_all_d2h_streams(), key=lambda s: s.tensor_id)}

    def written(self, contexts: frozenset[ExecutionContext]) -> set[str]:
        """Tensor ids of the main graph whose storage some operator of these contexts writes."""
        main = self.owner.main_graph
        shared = alias_sets(main)
        found: set[str] = set()
        for op in main._ops.values():
            effect = effect_of(op._node)
            if effect is None or op._settings.executionContext not in contexts:
                continue
            for i, _ in effect.writes:
                value = op._node.inputs[i]
                if value is not None:
                    found |= shared.get(value.name or "", {value.name or ""})
        return found

    def state_shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and type of one replica's state, by name."""
        shapes: dict[str, Any] = {f"var:{n}": (t.shape, t.dtype._device) for n, t in self.variables.items()}
        shapes.update((n, ((b.entries, *b.tensor_shape), b.tensor_dtype._device)) for n, b in self.buffers.items())
        shapes.update((f"held:{n}", (tuple(v.shape), v.dtype.numpy())) for n, v in self.held.items())  # pyright: ignore[reportArgumentType, reportOptionalMemberAccess]
        return {n: (s, np.dtype(jax.dtypes.canonicalize_dtype(d))) for n, (s, d) in shapes.items()}


@dataclass(frozen=True)
class Step:
    """One of the three programs of an Ir: what changes, what is only read, and the function of one replica."""

    layout: Layout
    contexts: frozenset[ExecutionContext]

    @cached_property
    def names(self) -> tuple[list[str], list[str]]:
        """State that changes, state that is only read."""
        layout = self.layout
        written = layout.written(self.contexts)
        made = self.contexts == FROM_HOST
        changing = [f"var:{n}" for n in layout.variables if n in written]
        changing += [f"held:{n}" for n in layout.held if made or n in written]
        stores = self._stored_buffers()
        changing += [n for n in layout.buffers if n in stores]
        fixed = [n for n in layout.state_shapes() if n not in changing]
        return changing, fixed if not made else [n for n in fixed if not n.startswith("held:")]

    def _stored_buffers(self) -> set[str]:
        found: set[str] = set()
        for op in self.layout.owner.main_graph._ops.values():
            if op._settings.executionContext in self.contexts:
                attr = op._node.attributes.get("__state_writes")
                found.update(() if attr is None else attr.as_strings())
                for g in op._called():
                    found |= touched(g._graph).writes
        return {n for n in found if n.startswith("remote:")}

    def plan(self, wanted: tuple[ir.Value, ...], env: Mapping[ir.Value, Any]) -> Plan:
        """Steps of this program's operators only."""
        whole = make_plan(self.layout.graph, wanted, _SETTINGS.opsets, env)
        mine = tuple(s for s in whole.steps if s.node.meta["op"]._settings.executionContext in self.contexts)
        return Plan(mine, wanted)

    def one_replica(self, changing: dict[str, Any], fixed: dict[str, Any], streams: dict[str, Any]) -> Any:
        """The program on one replica: (new state, what it sent)."""
        layout, everything = self.layout, {**changing, **fixed}
        values = {f"var:{n}": t._value for n, t in layout.variables.items()}
        values.update((f"held:{n}", v) for n, v in layout.held.items())
        made = self.contexts == FROM_HOST
        env = {v: everything[n] for n, v in values.items() if n in everything and not (made and n.startswith("held:"))}
        state = {n: x for n, x in everything.items() if n.startswith("remote:")}
        state.update(self._stream_state(streams))
        program = Program(state, {}, {"replicas": layout.replicas})
        walk = Walk(_SETTINGS, env, None, program)
        results = [n for n in changing if n in values] + ([f"held:{n}" for n in layout.held] if made else [])
        results = list(dict.fromkeys(results))
        wanted = tuple(values[n] for n in results)
        run(self.plan(wanted, env), walk)
        new = {n: jnp.asarray(walk.read(values[n])) for n in results}
        new.update((n, program.state[n]) for n in changing if n.startswith("remote:"))
        sent = {n: program.state[f"d2h:{n}"] for n in layout.d2h} if self.contexts is _NORMAL else {}
        if FAULT in program.state:
            sent[FAULT] = jnp.broadcast_to(program.state[FAULT], (layout.transfers,))
        return new, sent

    def _stream_state(self, streams: Mapping[str, Any]) -> dict[str, Any]:
        if self.contexts is not _NORMAL:
            return {}
        layout = self.layout
        state: dict[str, Any] = {f"h2d:{n}": x for n, x in streams.items()}
        for n, s in layout.d2h.items():
            state[f"d2h:{n}"] = jnp.zeros((layout.transfers, *s.shape), _canonical(s.dtype._device))
        if layout.transfers > 1:
            state.update((f"h2d#{n}", jnp.int32(0)) for n in layout.h2d)
            state.update((f"d2h#{n}", jnp.int32(0)) for n in layout.d2h)
        if layout.owner._options.throwIfLog2ScaleTensorNotInRange and FAULT in touched(layout.graph).writes:
            state[FAULT] = jnp.zeros((), bool)
        if PRINTED in touched(layout.graph).writes:
            state[PRINTED] = jnp.int32(0)
        return state


class Executable:
    """A compiled program; arguments and results are flat: what changes, what is only read, streams.

    What changes is donated: after a call the arrays that were passed are gone.
    """

    def __init__(self, step: Step, donate: bool = True) -> None:
        self.step = step
        layout = step.layout
        self.changing, self.fixed = step.names
        self.mesh = mesh_for(layout.replicas)
        self.taken = [n for n in self.changing if not (step.contexts == FROM_HOST and n.startswith("held:"))]
        self.streams = list(layout.h2d) if step.contexts is _NORMAL else []
        self.sent = [*(layout.d2h if step.contexts is _NORMAL else ()), *([FAULT] if self._watched else [])]
        lead = 0 if layout.replicas > 1 else None
        inner = self.stream_axis
        taken, fixed, streams = len(self.taken), len(self.fixed), len(self.streams)
        in_axes = (lead,) * (taken + fixed) + (inner,) * streams
        out_axes = (*(lead,) * len(self.changing), *(lead if n == FAULT else inner for n in self.sent))
        whole = replicate(self._one_replica, in_axes, out_axes, layout.replicas, self.mesh)
        state = tuple(range(taken)) if donate else ()
        self.traced = jax.jit(whole, donate_argnums=state, **self._shardings(out_axes)).trace(*self._avals(in_axes))
        self._lowered: Any = None

    def _one_replica(self, *args: Any) -> tuple[Any, ...]:
        """The step on flat arguments."""
        taken, fixed = len(self.taken), len(self.fixed)
        new, sent = self.step.one_replica(
            dict(zip(self.taken, args[:taken], strict=True)),
            dict(zip(self.fixed, args[taken : taken + fixed], strict=True)),
            {n: self._every_transfer(n, x) for n, x in zip(self.streams, args[taken + fixed :], strict=True)},
        )
        return (*(new[n] for n in self.changing), *(self._as_on_host(sent[n]) for n in self.sent))

    @property
    def stream_axis(self) -> int | None:
        """Axis of the replicas in the host's arrays, whose axis of transfers is there only when there are several."""
        layout = self.step.layout
        return None if layout.replicas == 1 else int(layout.transfers > 1)

    def _every_transfer(self, name: str, x: Any) -> Any:
        return jnp.reshape(x, (self.step.layout.transfers, *self.step.layout.h2d[name].shape))

    def _as_on_host(self, x: Any) -> Any:
        return x[0] if self.step.layout.transfers == 1 else x

    @property
    def _watched(self) -> bool:
        layout = self.step.layout
        on = layout.owner._options.throwIfLog2ScaleTensorNotInRange
        return bool(on) and self.step.contexts is _NORMAL and FAULT in touched(layout.graph).writes

    def _shardings(self, out_axes: tuple[Any, ...]) -> dict[str, Any]:
        if self.mesh is None:
            return {}
        return {"out_shardings": tuple(jax.sharding.NamedSharding(self.mesh, spec(a)) for a in out_axes)}

    def _avals(self, axes: tuple[Any, ...]) -> list[jax.ShapeDtypeStruct]:
        layout = self.step.layout
        held, lead = layout.state_shapes(), ((layout.replicas,) if layout.replicas > 1 else ())
        shapes = [((*lead, *held[n][0]), held[n][1]) for n in (*self.taken, *self.fixed)]
        for n in self.streams:
            stream, transfers = layout.h2d[n], ((layout.transfers,) if layout.transfers > 1 else ())
            shapes.append(((*transfers, *lead, *stream.shape), _canonical(stream.dtype._device)))
        return [
            jax.ShapeDtypeStruct(shape, dtype, sharding=self.sharding(axis))
            for (shape, dtype), axis in zip(shapes, axes, strict=True)
        ]

    def sharding(self, axis: int | None) -> Any:
        """Where an array with this replica axis lives; None on a single device."""
        mesh = self.mesh
        return None if mesh is None else jax.sharding.NamedSharding(mesh, spec(axis))

    @property
    def lowered(self) -> Any:
        """The StableHLO of the program."""
        if self._lowered is None:
            self._lowered = self.traced.lower()
        return self._lowered

    @cached_property
    def call(self) -> Any:
        """The executable; compiled on first use."""
        return self.lowered.compile()

    def run(self, arrays: dict[str, Any], fed: Sequence[Any]) -> list[Any]:
        """Run once on the device's state, which is brought up to date.

        Streams go in in the order `streams`; what was sent comes back in the order `sent`.
        """
        results = self.call(*[arrays[n] for n in self.taken], *[arrays[n] for n in self.fixed], *fed)
        count = len(self.changing)
        arrays.update(zip(self.changing, results, strict=False))
        return results[count:]


def _canonical(dtype: np.dtype) -> np.dtype:
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


def normal_contexts() -> frozenset[ExecutionContext]:
    """Contexts whose operators `session.run` executes."""
    return _NORMAL
