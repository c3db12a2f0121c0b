"""An Ir as compiled steps: the program of a run, and the programs for loading and storing weights.

The resident arrays of the devices are variables that some operator uses (``var:<id>``), remote buffers (``remote:<n>``)
and tensors that the loading program makes (``made:<id>``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import onnx_ir as ir

from ...execution import Fed, Step, Type
from ...execution import Variable as Resident
from ...lowering.calls import state_use
from ...lowering.effects import Program, effect_of
from ...lowering.interpreter import Settings, Walk, run
from ...lowering.resolve import Plan, make_plan
from ...ops.arrays import device_dtype
from .._building.create import FAULT, PRINTED
from .._internal.alias import alias_sets
from .._internal.enums import ExecutionContext
from .._internal.operands import op_of, tensor_of
from ..ir import Ir
from ..streams import DeviceToHostStream, HostToDeviceStream
from ..tensor import Variable
from .weights import resident

Contexts = frozenset[ExecutionContext]
VARIABLE, MADE, REMOTE = "var:", "made:", "remote:"

SETTINGS = Settings(opsets={"": 17, "ai.graphcore": 1, "popxl": 1})
_LOADING: Contexts = frozenset({ExecutionContext.WeightsFromHostFragment})
_STORING: Contexts = frozenset({ExecutionContext.WeightsToHostFragment})
_RUNNING: Contexts = frozenset(ExecutionContext) - _LOADING - _STORING


@dataclass(frozen=True)
class Programs:
    """The resident arrays of a complete Ir, and its programs as steps."""

    owner: Ir
    transfers: int  # micro-batches per stream and run
    replicas: int  # of all processes

    @classmethod
    def of(cls, owner: Ir) -> Programs:
        """The programs of an Ir as it is now."""
        return cls(owner, owner.num_host_transfers, owner.replication_factor)

    @cached_property
    def steps(self) -> dict[str, Step]:
        """Every program that exists: ``main``, and ``weights_from_host`` and ``weights_to_host`` with operators."""
        contexts = {op._settings.executionContext for op in self.owner.main_graph._ops.values()}
        found = {"main": _Lowered(self, _RUNNING).step}
        for name, mine in (("weights_from_host", _LOADING), ("weights_to_host", _STORING)):
            if contexts & mine:
                found[name] = _Lowered(self, mine).step
        return found

    @cached_property
    def graph(self) -> ir.Graph:
        """The main graph."""
        return self.owner.main_graph._graph

    @cached_property
    def variables(self) -> dict[str, Variable]:
        """Variables that some operator uses, by name of their resident array."""
        every = self.owner.main_graph.variables
        return {VARIABLE + t.id: t for t in every if t._value.uses() or t._value.is_graph_output()}

    @cached_property
    def loaded(self) -> dict[str, ir.Value]:
        """Tensors that the loading program makes for other programs, by name of their resident array."""
        ops = [op for op in self.owner.main_graph._ops.values() if op._settings.executionContext in _LOADING]
        values = [value for op in ops for value in op._node.outputs]
        return {f"{MADE}{v.name}": v for v in values if any(_context(n) not in _LOADING for n, _ in v.uses())}

    @cached_property
    def buffers(self) -> dict[str, Any]:
        """Remote buffers that are used, by name of their resident array."""
        remote = [t._remote for t in self.owner.main_graph.variables if t._remote is not None]
        used = [n.removeprefix(REMOTE) for n in state_use(self.graph).reads if n.startswith(REMOTE)]
        numbers = {r.buffer for r in remote} | {int(n) for n in used}
        return {f"{REMOTE}{n}": self.owner._buffers[n] for n in sorted(numbers)}

    @cached_property
    def values(self) -> dict[str, ir.Value]:
        """Tensors of the main graph that have a resident array, by its name."""
        return {n: t._value for n, t in self.variables.items()} | self.loaded

    @cached_property
    def resident(self) -> dict[str, Resident]:
        """Every resident array."""
        kinds = {n: resident(t, self.replicas) for n, t in self.variables.items()}
        each = tuple((r,) for r in range(self.replicas))
        for name, buffer in self.buffers.items():
            shape = (buffer.entries, *buffer.tensor_shape)
            kinds[name] = Resident(Type(shape, device_dtype(buffer.tensor_dtype._device)), each)
        for name, value in self.loaded.items():
            t = tensor_of(value)
            kinds[name] = Resident(Type(t.shape, device_dtype(t.dtype._device)), each)
        return kinds

    @cached_property
    def h2d(self) -> dict[str, HostToDeviceStream]:
        """Streams that some operator loads, by tensor id."""
        return {s.tensor_id: s for s in sorted(self.owner.get_all_h2d_streams(), key=lambda s: s.tensor_id)}

    @cached_property
    def d2h(self) -> dict[str, DeviceToHostStream]:
        """Streams that some operator stores, by tensor id."""
        return {s.tensor_id: s for s in sorted(self.owner.get_all_d2h_streams(), key=lambda s: s.tensor_id)}

    @cached_property
    def watches_scales(self) -> bool:
        """Whether a run reports that the scale of a float8 operator is out of range."""
        return self.owner._options.throwIfLog2ScaleTensorNotInRange and FAULT in state_use(self.graph).writes


def _context(node: ir.Node) -> ExecutionContext:
    return op_of(node)._settings.executionContext


@dataclass(frozen=True)
class _Lowered:
    """The operators of some execution contexts, lowered as one step."""

    programs: Programs
    contexts: Contexts

    @property
    def step(self) -> Step:
        """The step; only the program of a run has streams."""
        programs, running, loading = self.programs, self.contexts is _RUNNING, self.contexts is _LOADING
        written = self._written()
        changing = {n: v for n, v in programs.resident.items() if n in written or (loading and n in programs.loaded)}
        fixed = {n: v for n, v in programs.resident.items() if n not in changing}
        results: dict[str, int | None] = dict.fromkeys(programs.d2h, self._stream_axis) if running else {}
        if running and programs.watches_scales:
            results[FAULT] = None if programs.replicas == 1 else 0
        return Step(
            self.function,
            changing,
            fixed,
            {n: self._fed(s) for n, s in programs.h2d.items()} if running else {},
            results,
            programs.replicas,
            frozenset(programs.loaded if loading else ()),
        )

    @property
    def _stream_axis(self) -> int | None:
        """Axis of the replicas in the host's arrays; an axis of transfers comes before it if there are several."""
        return None if self.programs.replicas == 1 else int(self.programs.transfers > 1)

    def _fed(self, stream: HostToDeviceStream) -> Fed:
        transfers = self.programs.transfers
        shape = (transfers, *stream.shape) if transfers > 1 else tuple(stream.shape)
        return Fed(Type(shape, device_dtype(stream.dtype._device)), self._stream_axis)

    def _written(self) -> set[str]:
        """Resident arrays that the operators change: written tensors, and remote buffers that are stored to."""
        main = self.programs.owner.main_graph
        shared, tensors, found = alias_sets(main), set[str](), set[str]()
        for op in main._ops.values():
            if op._settings.executionContext not in self.contexts:
                continue
            effect = effect_of(op._node)
            for i, _ in () if effect is None else effect.writes:
                value = op._node.inputs[i]
                if value is not None and value.name not in tensors:
                    tensors |= shared.get(value.name or "", {value.name or ""})
            stored = op._node.attributes.get("__state_writes")
            found.update(() if stored is None else stored.as_strings())
            for called in op._called():
                found |= state_use(called._graph).writes
        return found | {n for n, v in self.programs.values.items() if v.name in tensors}

    def function(self, state: dict[str, Any], fixed: dict[str, Any], fed: dict[str, Any]) -> Any:
        """Run the operators on one replica; returns (new state, sent arrays)."""
        programs, resident = self.programs, {**state, **fixed}
        values = {n: v for n, v in programs.values.items() if n in resident}
        made = programs.loaded if self.contexts is _LOADING else {}
        changed = {n: v for n, v in values.items() if n in state} | made
        env = {v: resident[n] for n, v in values.items()}
        outside = Program(
            {n: x for n, x in resident.items() if n in programs.buffers} | self._streams(fed),
            {},
            {"replicas": programs.replicas},
        )
        walk = Walk(SETTINGS, env, None, outside)
        run(self._plan(tuple(changed.values()), env), walk)
        new = {n: jnp.asarray(walk.read(v)) for n, v in changed.items()}
        new |= {n: outside.state[n] for n in state if n in programs.buffers}
        return new, self._sent(outside.state)

    def _plan(self, wanted: tuple[ir.Value, ...], env: Mapping[ir.Value, Any]) -> Plan:
        """The interpreter's plan, restricted to these operators."""
        whole = make_plan(self.programs.graph, wanted, SETTINGS.opsets, env)
        return Plan(tuple(s for s in whole.steps if _context(s.node) in self.contexts), wanted)

    @jax.named_scope("streams")
    def _streams(self, fed: Mapping[str, Any]) -> dict[str, Any]:
        """Initial streams and other program state of a run; streams have an axis of transfers."""
        if self.contexts is not _RUNNING:
            return {}
        programs = self.programs
        transfers, used = programs.transfers, state_use(programs.graph).writes
        state: dict[str, Any] = {
            f"h2d:{n}": jnp.reshape(x, (transfers, *programs.h2d[n].shape)) for n, x in fed.items()
        }
        for n, s in programs.d2h.items():
            state[f"d2h:{n}"] = jnp.zeros((transfers, *s.shape), device_dtype(s.dtype._device))
        if transfers > 1:
            state |= {f"{kind}#{n}": jnp.int32(0) for kind in ("h2d", "d2h") for n in getattr(programs, kind)}
        if programs.watches_scales:
            state[FAULT] = jnp.zeros((), bool)
        if PRINTED in used:
            state[PRINTED] = jnp.int32(0)
        return state

    @jax.named_scope("streams")
    def _sent(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The sent arrays that a run returns; an axis of transfers of length one is dropped."""
        if self.contexts is not _RUNNING:
            return {}
        sent = {n: state[f"d2h:{n}"] for n in self.programs.d2h}
        sent = {n: x[0] if self.programs.transfers == 1 else x for n, x in sent.items()}
        return sent | ({FAULT: state[FAULT]} if self.programs.watches_scales else {})
