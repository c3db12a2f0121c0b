"""Transforms of the internal IR, as functions of graph views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Transform:
    """A rewrite of one graph."""

    _name = "Transform"

    def getName(self) -> str:
        return self._name

    @classmethod
    def id(cls) -> str:
        """Name of the transform."""
        return cls._name

    def getId(self) -> str:
        return self._name

    def apply(self, graph: Any) -> bool:
        """Rewrite a graph view; True, since failures raise."""
        by_name(self._name)(graph)
        return True


class Prune(Transform):
    """Removes operators whose results nobody needs."""

    _name = "Prune"


class DecomposeSum(Transform):
    """Sums of many tensors as additions."""

    _name = "DecomposeSum"


class MergeExchange(Transform):
    """Independent exchanges at once."""

    _name = "MergeExchange"

    def applyToOps(self, graph: Any, ops: Any) -> list[Any]:
        """Merge the given operators (ids or views); returns the merged ones."""
        from ..transforms.merge_exchange import merge

        first = graph._graph.ir._next_op
        known = graph._graph._ops
        merge(graph._graph, [known[o] if isinstance(o, int) else o for o in ops])
        return [op for i, op in known.items() if i >= first]


class Autodiff(Transform):
    """Gradient graphs; `transforms.autodiff` is the public form."""

    _name = "Autodiff"

    def apply(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        ir: Any,
        graph_id: Any,
        provided: Any = None,
        required: Any = None,
        infos: Any = None,
        strategy: Any = None,
    ) -> Any:
        """{graph id: BwdGraphInfo} of all gradient graphs."""
        from .enums import AutodiffStitchStrategy, ExpectedConnectionType
        from .grow_gradients import differentiate
        from .values import BwdGraphInfo, ExpectedConnection, GraphId, OptionalTensors

        graph = ir._ir._graphs["" + graph_id]

        def tensors(names: Any) -> list[Any] | None:
            given = names.value if isinstance(names, OptionalTensors) else names
            return None if given is None else [graph.get_tensor(getattr(n, "id", n)) for n in given]

        found: dict[Any, Any] = {}
        recompute = strategy is AutodiffStitchStrategy.RecomputeAllNonInputs
        found[graph] = differentiate(graph, tensors(provided), tensors(required), found, recompute)

        def connections(items: Any) -> list[Any]:
            return [ExpectedConnection(e.fwd_tensor.id, ExpectedConnectionType[e.connection_type.name]) for e in items]

        return {
            GraphId(g.id): BwdGraphInfo(
                GraphId(i.graph.id), connections(i.expected_inputs), connections(i.expected_outputs)
            )
            for g, i in found.items()
        }

    def applyToIr(self, ir: Any) -> bool:
        """Always popart_exception: it would start from a loss of the main graph, which the Irs of PopXL do not have."""
        from ...errors import popart_exception

        raise popart_exception(
            f"Autodiff.applyToIr differentiates the main graph from its loss, and Ir {ir.getId()} has none: only a "
            "TrainingSession sets one, and differentiates by itself.\n"
            "  fix: Autodiff().apply(ir, graph id, gradients provided, gradients required, {}, strategy)."
        )


def _prune(graph: Any) -> None:
    """Erase operators without readers and without effect."""
    from ...lowering.resolve import has_effect

    for op in sorted(graph._graph._ops.values(), key=lambda o: o.id, reverse=True):
        values = op._node.outputs
        if not has_effect(op._node) and not any(v.uses() or v.is_graph_output() for v in values):
            graph._graph._erase(op)


def _decompose(graph: Any) -> None:
    from ..transforms.decompose_sum import decompose_sum

    decompose_sum(graph._graph)


def _merge(graph: Any) -> None:
    from ..transforms.merge_exchange import _EXCHANGES, merge

    merge(graph._graph, [op for op in graph._graph._ops.values() if op.opType() in _EXCHANGES])


_BY_NAME: dict[str, Callable[[Any], None]] = {"Prune": _prune, "DecomposeSum": _decompose, "MergeExchange": _merge}


def by_name(name: Any) -> Callable[[Any], None]:
    """The transform of that name; popart_exception for an unknown one."""
    from ...errors import popart_exception

    key = name if isinstance(name, str) else getattr(name, "_name", str(name))
    if key not in _BY_NAME:
        raise popart_exception(f"Unknown transform {key!r}; known are {sorted(_BY_NAME)}")
    return _BY_NAME[key]
