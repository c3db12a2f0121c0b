"""Creation of operators: the node, its outputs, its view, its place in the order, and the hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import numpy as np
import onnx_ir as ir

from ...errors import popart_exception
from ...lowering.attributes import keywords
from ...lowering.effects import VIEWS, WRITES
from ...lowering.resolve import has_effect
from ...lowering.static import NO_DATA
from ...model.variable_settings import CommGroup
from ...ops import Operator, Trait, facts
from ...ops.options import DEFAULTS
from ...ops.registry import TRANSLATION, normal_domain, resolve
from .._internal.classes import class_of, make_class
from .._internal.enums import TensorType
from .._internal.exchange import state_of
from .._internal.op import Op
from .._internal.operands import op_of, plain_attributes, tensor_of
from .._internal.settings import Settings
from ..context import gcg, get_current_context
from ..dtypes import dtype as Dtype
from ..graph import UNTYPED, Graph
from ..tensor import Tensor
from .bindings import above

GRAPHCORE = "ai.graphcore"
FAULT = "fault:log2_scale"
"""Program state in which operators on scaled float8 record that a scale is out of range."""
PRINTED = "print:order"
"""Program state that chains what is printed: one print waits for the one before."""

Translation = tuple[str, str, int]
"""Domain, type and version of a row of the table of translations."""


@dataclass(frozen=True, slots=True)
class Out:
    """Description of an output to create: base name, shape, type, meta shape."""

    name: str
    shape: tuple[int, ...]
    dtype: Dtype
    meta_shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        Dtype._checked(self.dtype)


def like(t: Tensor, name: str, dtype: Dtype | None = None) -> Out:
    """An output with the shape, meta shape and (by default) type of a tensor, so that a shard gives a shard."""
    return Out(name, t.shape, t.dtype if dtype is None else dtype, t.meta_shape)


def create(
    kind: str | Operator,
    inputs: Sequence[Tensor | None],
    outs: Sequence[Out],
    attributes: Mapping[str, Any] | None = None,
    *,
    writes: Sequence[tuple[int, int]] = (),
    options: Mapping[str, Any] | None = None,
    reads_state: Iterable[str] = (),
    writes_state: Iterable[str] = (),
    graph: Graph | None = None,
    settings: Settings | None = None,
    runs: Translation | None = None,
    output_ids: Sequence[str] | None = None,
) -> Op:
    """Append an operator to the current graph.

    Parameters
    ----------
    kind : str or Operator
        PopART's type of the operator, or the row of one that the operator table does not have.
    inputs : sequence of Tensor or None
        Operands by index.
    outs : sequence of Out
        Outputs; their names are made unique.
    attributes : mapping, optional
        Attributes of the node; None values are left out.
    writes : sequence of (int, int)
        Operands that results overwrite, besides those of the operator's row; see `lowering.effects`.
    options : mapping, optional
        Facts for getters and the cost model that do not change values.
    reads_state, writes_state : iterable of str
        Program state that the operator uses, besides what follows from its translation.
    runs : (domain, type, version), optional
        Translation that runs it; default: the one that its row names.
    output_ids : sequence of str, optional
        Full ids of the outputs, instead of names made here.
    """
    graph = gcg() if graph is None else graph
    row = facts(kind) if isinstance(kind, str) else kind
    translation = runs or row.translation
    settings = settings or get_current_context()._get_op_settings(row.op_type)
    given = dict(attributes or {})
    overwritten, viewed = _effects(row, inputs)
    read, written = _state(translation, given)
    plain = _attributes(given, (*writes, *overwritten), viewed, (*reads_state, *read), (*writes_state, *written))
    values = list[ir.Value]()
    for i, o in enumerate(outs):  # one by one: outputs of one operator may ask for the same name
        name = output_ids[i] if output_ids else graph._create_tensor_id(o.name)
        values.append(graph._new_value(name, o.shape, o.dtype))
        Tensor._make(graph, values[-1], o.meta_shape)
    node = ir.Node(
        GRAPHCORE if row.popxl is None else normal_domain(row.popxl.domain),
        row.op_type,
        [None if t is None else t._value for t in inputs],
        plain,
        outputs=values,
    )
    graph._graph.append(node)
    make = class_of(row.op_type) if isinstance(kind, str) else make_class(row)
    return enter(make, node, graph, row, settings, dict(options or {}), translation)


def enter(
    make: type[Op],
    node: ir.Node,
    graph: Graph,
    row: Operator,
    settings: Settings,
    options: dict[str, Any],
    translation: Translation,
) -> Op:
    """Make the operator of a node that is in its graph, with an id and a place in the order."""
    number = graph.ir._next_op_id()
    node.name = f"{graph.id + '/' if graph.id else ''}{settings.name}.{number}"
    node.meta[TRANSLATION] = translation
    op = graph._ops[number] = make._attach(node, graph, number, row, settings, options)
    return get_current_context()._op_created(op)


def result(op: Op, i: int = 0) -> Tensor:
    """Output `i` as a tensor."""
    return tensor_of(op._node.outputs[i])


def _effects(row: Operator, inputs: Sequence[Tensor | None]) -> tuple[list[tuple[int, int]], list[int]]:
    """Pairs of an operand and the result that overwrites it, and the operands that the first result is a view of."""
    forward = facts(row.forward)
    if forward.view and row.op_type == forward.view:
        return [], [i for i, t in enumerate(inputs) if t is not None] if forward.op_type == "Concat" else [0]
    updates = row.has(Trait.UPDATES) and row.op_type not in ("AdamUpdater", "LambSquare")
    if updates or row.op_type == "RemoteLoadInplace":
        return [(0, 0)], []
    return [(i, 0) for i, form in forward.inplace.items() if form == row.op_type], []


def _state(translation: Translation, attributes: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Program state that a translation reads and writes."""
    read, written = state_of(translation[1], attributes)
    chains = [FAULT] if facts(translation[1]).has(Trait.SCALED_FLOAT8) else []
    chains += [PRINTED] if translation[:2] == ("popxl", "PrintTensor") else []
    return [*read, *chains], [*written, *chains]


def _attributes(plain: dict[str, Any], writes: Any, views: Any, reads: Any, written: Any) -> list[ir.Attr]:
    found = [attribute(name, value) for name, value in plain.items() if value is not None]
    if writes:
        found.append(ir.AttrInt64s(WRITES, [n for pair in writes for n in pair]))
    if views:
        found.append(ir.AttrInt64s(VIEWS, list(views)))
    if reads:
        found.append(ir.AttrStrings("__state_reads", list(reads)))
    if written:
        found.append(ir.AttrStrings("__state_writes", list(written)))
    return found


def attribute(name: str, value: Any) -> ir.Attr:
    """A Python value as an attribute; TypeError where no attribute type fits."""
    if isinstance(value, Graph):
        return ir.AttrGraph(name, value._graph)
    if isinstance(value, Dtype):
        return ir.AttrInt64(name, int(value._onnx))
    if isinstance(value, str):
        return ir.AttrString(name, value)
    if isinstance(value, (bool, int, np.integer)):
        return ir.AttrInt64(name, int(cast("Any", value)))
    if isinstance(value, (float, np.floating)):
        return ir.AttrFloat32(name, float(cast("Any", value)))
    if isinstance(value, np.ndarray):
        return ir.AttrTensor(name, ir.tensor(cast("np.ndarray", value)))
    items = list(value)
    if all(isinstance(v, (bool, int, np.integer)) for v in items):
        return ir.AttrInt64s(name, [int(v) for v in items])
    if all(isinstance(v, str) for v in items):
        return ir.AttrStrings(name, items)
    if all(isinstance(v, (int, float, np.floating)) for v in items):
        return ir.AttrFloat32s(name, [float(v) for v in items])
    raise TypeError(f"attribute {name!r} can't hold {value!r}")


def infer(
    kind: str | Operator,
    inputs: Sequence[Tensor | None],
    attributes: Mapping[str, Any],
    n: int = 1,
    runs: Translation | None = None,
) -> list[Any]:
    """Shapes and types that the operator's translation gives: (shape, dtype) per output.

    Operands that do not fit together raise popart_exception.
    """
    translation = runs or (facts(kind) if isinstance(kind, str) else kind).translation
    compute = _alone(translation, attributes, n)
    operands = [None if t is None else jax.ShapeDtypeStruct(t.shape, t.dtype._device) for t in inputs]
    try:
        found = jax.eval_shape(compute, *operands)
    except popart_exception:
        raise
    except Exception as err:
        types = ", ".join(repr(t) for t in inputs)
        raise popart_exception(f"{translation[1]} can't take [{types}]: {err}") from err
    return [(tuple(x.shape), Dtype._from_onnx(ir.DataType.from_numpy(x.dtype))) for x in found]


def _alone(translation: Translation, attributes: Mapping[str, Any], n: int) -> Callable[..., tuple[Any, ...]]:
    """The function of arrays that a translation is outside of every program."""
    domain, op_type, version = translation
    row = resolve(domain, op_type, version)
    if row is None:
        raise popart_exception(f"Operator {op_type} has no translation")
    node = ir.Node(domain, op_type, [], _attributes(dict(attributes), (), (), (), ()), version=version)
    known = {"n_outputs": n, "output_type": "", "training": False, "popart": False, "options": DEFAULTS,
             "opset": version, "node": node, "context": None, "program": None}  # fmt: skip
    kwargs = {**keywords(node, row, lambda g: g), **{k: known[w] for k, w in row.context.items()}}

    def compute(*arrays: Any) -> tuple[Any, ...]:
        found = row.fn(*arrays, **kwargs)
        return cast("tuple[Any, ...]", found) if isinstance(found, tuple) else (found,)

    return compute


@above.enter("constant_value")
def constant_value(t: Tensor) -> np.ndarray:
    """The value of a tensor that follows from constants alone; popart_exception if it depends on what a run tells."""
    producer = t._value.producer()
    if t._kind is TensorType.Const:
        return np.asarray(cast("np.ndarray", t._value.meta["host"]))
    op = None if producer is None else op_of(producer)
    if op is None or producer is None or op._called() or has_effect(producer) or _talks(producer):
        raise popart_exception(NO_DATA.format(tensor=t.id))
    operands = [op._inputs().get(i) for i in range(len(producer.inputs))]
    arrays = [None if x is None else constant_value(x) for x in operands]
    compute = _alone(op._translation, plain_attributes(op), len(producer.outputs))
    return np.asarray(compute(*arrays)[t._value.index() or 0])


def _talks(node: ir.Node) -> bool:
    """Whether a node reads or writes state of the program, such as a stream or a remote buffer."""
    return any(name.startswith("__state") for name in node.attributes)


@above.enter("create_by_hand")
def create_by_hand(
    row: Operator,
    operands: Sequence[Tensor | None],
    outputs: Sequence[tuple[str, tuple[int, ...], Dtype]],
    attributes: Mapping[str, Any],
    options: Mapping[str, Any],
    graph: Graph,
    settings: Settings | None,
) -> Op:
    """An operator made through the internal IR: outputs are (id, shape, type)."""
    outs, ids = [Out("", shape, kind) for _, shape, kind in outputs], [name for name, _, _ in outputs]
    op = create(row, operands, outs, attributes, options=options, graph=graph, settings=settings, output_ids=ids)
    for value in op._node.outputs:
        value.meta[UNTYPED] = True
    return op


@above.enter("infer_outputs")
def infer_outputs(op: Op) -> None:
    """Give the outputs of an operator that was connected by hand their types.

    The internal IR looks at operands only as far as PopART's `setup` does: outputs that have a type keep it where the
    operands do not fit the operator.
    """
    if op._called():
        offset = 1 if op._facts.op_type == "Loop" else 0
        found: list[Any] = [(t.shape, t.dtype) for t in op._called()[0].outputs[offset:]]
    elif op._facts.translation[1] in ("HostLoad", "RemoteLoad"):
        found = [(op._in(0).shape, op._in(0).dtype)]
    elif op._facts.op_type == "Sum":
        tensors = list(op._inputs().values())
        found = [(np.broadcast_shapes(*(t.shape for t in tensors)), tensors[0].dtype)]
    elif op._facts.op_type.startswith("ReplicatedReduceScatter"):
        found = [(_shard_shape(op), op._in(0).dtype)]
        _mark_shard(op)
    elif op._facts.op_type == "ReplicatedAllGather":
        found = [(tuple(op._node.attributes["shape"].as_ints()), op._in(0).dtype)]
    else:
        operands = [op._inputs().get(i) for i in range(len(op._node.inputs))]
        try:
            found = infer(op._facts, operands, plain_attributes(op), len(op._node.outputs), op._translation)
        except popart_exception:
            cloned = _as_original(op)
            if cloned is None and any(UNTYPED in value.meta for value in op._node.outputs):
                raise
            if cloned is None:
                return
            found = cloned
    for value, (shape, dtype) in zip(op._node.outputs, found, strict=False):
        value.shape, value.type = ir.Shape(shape), ir.TensorType(dtype._onnx)
        value.meta.pop(UNTYPED, None)


def _shard_shape(op: Op) -> tuple[int]:
    """Shape of what a member of a group keeps of a flattened reduction: outside a program there are no replicas."""
    return (-(-op._in(0).nelms // _group_size(op)),)


def _group_size(op: Op) -> int:
    """Members of a collective's groups; those of one made by hand are an option, all replicas without it."""
    groups, given = op._node.attributes.get("groups"), op._options.get("group")
    if groups is not None:
        return groups.as_ints()[-1]
    replicas = op._graph.ir.replication_factor
    if isinstance(given, CommGroup):
        given = given.toReplicaGrouping(replicas)
    return replicas if given is None else given.getGroupSize()


def _mark_shard(op: Op) -> None:
    """The output is a shard of the input where the operator was told so."""
    told = op._options.get("shard") or op._options.get("configureOutputForReplicatedTensorSharding")
    if told and 0 in op._outputs():
        op._out(0)._meta_shape = tuple(op._in(0).shape)


ORIGINAL = "original"
"""What a clone knows of the operator it was made from: types of its operands and of its results."""


def _types(tensors: Mapping[int, Tensor]) -> dict[int, tuple[tuple[int, ...], Dtype]]:
    return {i: (tuple(t.shape), t.dtype) for i, t in tensors.items()}


def _as_original(op: Op) -> list[Any] | None:
    """Types of the original's results, if this clone reads operands of the same types.

    Some translations can't be asked without a program around them: they read the values of constants, or its state.
    """
    operands, results = cast("tuple[Any, dict[int, Any]]", op._node.meta.get(ORIGINAL, (None, {})))
    return [results[i] for i in sorted(results)] if operands == _types(op._inputs()) else None


@above.enter("clone")
def clone(op: Op, graph: Graph) -> Op:
    """An unconnected copy of an operator in another graph, with a new id."""
    old = op._node
    node = ir.Node(old.domain, old.op_type, [None] * len(old.inputs), list(old.attributes.values()), num_outputs=0)
    node.meta.update(old.meta)
    node.meta[ORIGINAL] = old.meta.get(ORIGINAL) or (_types(op._inputs()), _types(op._outputs()))
    graph._graph.append(node)
    settings = replace(op._settings, graph=graph._pb_graph)
    made = enter(type(op), node, graph, op._facts, settings, dict(op._options), op._translation)
    made._opid = op._opid
    return made
