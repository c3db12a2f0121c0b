"""Selection of a model's stored tensors: parameters, state, and frozen constants.

By default every float weight is a parameter, wherever the file stores it, except those that no gradient should change:

- running statistics of batch normalisation, which are state;
- scales and zero points of quantisation;
- operands that an operator needs while it is traced (sizes, axes, limits), and what these are computed from; the limits
  of a Clip, and operands of operators whose results are never floating point (comparisons);
- zeros as the initial state of a recurrent layer, unless the exporter marked them as a parameter;
- attention masks: tensors of nothing but zeros and very negative numbers, or of infinite ones;
- constants that a Builder or a GraphTransformer made, and those of programs that PyTorch's older exporter wrote;
- tensors that the exporter (PyTorch's, for instance) marked as a buffer, as a constant, or as computed from no weight,
  and single numbers of formulas.
"""

from __future__ import annotations

import fnmatch
import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from ..errors import popart_exception
from ..model.attribute_names import CONSTANT, QUANTISED
from ..model.checks import signatures
from ..model.checks.structure import bodies
from ..model.files.stored import Stored
from ..ops.registry import resolve

Trainable: TypeAlias = "str | re.Pattern[str] | Callable[..., bool] | Iterable[str | re.Pattern[str]]"

_KIND = "pkg.torch.export.graph_signature.InputSpec.kind"  # PyTorch's exporter, torch.onnx.export(dynamo=True)
_FOLDED = "pkg.onnxscript.optimizer.folded_from"
_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_PARAMETER = re.compile(r": PARAMETER target='([^']*)'")
"""A line of that signature, which lists all parameters, also those that were folded away."""
_GENERATED = re.compile(  # the last three: operands and constants of TensorFlow's formulas, results of PyTorch's
    r"(val|const|constant|scalar_tensor)[_\w]*\d*$|.*::.*|\d+$|.*/(x|y|(const|cast)(_\d+)?)(:0)?$"
    r"|ConstantFolding/.*|/.*_output_\d+$",
    re.IGNORECASE,
)
_STEP = re.compile(  # names that PyTorch's exporter gives to computed values; weights have names of modules
    r"(val|int64|zeros|ones|full|empty|arange|eye|linspace|scalar_tensor|lifted_tensor|lift_fresh|_?to_copy"
    r"|convert_element_type|constant_pad|new_(zeros|ones|full|empty)|_fft|bitwise|logical|index_put)\w*"
    r"|(add|sub|rsub|mul|div|floor_divide|remainder|neg|abs|sign|pow|sqrt|rsqrt|reciprocal|exp|log|sin|cos|tanh|relu"
    r"|sigmoid|clamp|clamp_min|clamp_max|floor|ceil|round|eq|ne|lt|le|gt|ge|where|masked_fill|sum|cumsum|amax|amin"
    r"|mm|bmm|matmul|einsum|linear|clone|alias|detach|copy|fill|view|reshape|expand|repeat|tile|permute|transpose"
    r"|flip|roll|pad|diag|diagonal|outer|minimum|maximum|trunc|frac|fmod|atan|atan2|square|prod|cumprod|one_hot|bucketize"
    r"|log1p|log2|erf|\w+_window|tri[ul]_indices|broadcast_to|flatten|slice|select|split|unbind|cat|stack|unsqueeze|squeeze|index|index_select|gather|tril|triu)(_\d+)?"
)
_TABLE = re.compile(r"(.*[._])?inv_freq")
"""The buffer from which Hugging Face computes rotary embeddings; it is folded where the exporter knows the length."""
_WRITTEN_OUT = re.compile(r"/(.*/)?Constant(_\d+)?_output_0")
"""Constant nodes of `torch.onnx.export(dynamo=False)`, whose parameters and buffers have names of modules.

ONNX Runtime and other optimizers of files make initializers of them, by these names.
"""

_WORKED_OUT = re.compile(
    r"/(.*/)?(?!(Transpose|Reshape|Unsqueeze|Squeeze|Flatten|Slice|Split|Gather|Concat|Identity|Expand)(_\d+)?_output)"
    r"\w+_output_\d+"
)
"""Results of its nodes that compute; tools that fold constants make initializers of them, such as attention's scale."""

_PADDLE = re.compile(r"(helper\.constant|auto\.cast)\.\d+")
"""Numbers that paddle2onnx writes into formulas, the exponent of LayerNormalization's Pow among them."""

_JAX2ONNX = re.compile(r"dpa_scale_\d+|reduce_window_sum_kernel_\d+")
"""What jax2onnx writes into Keras's attention, and the ones by which it sums windows."""

_CONVERTERS = ("skl2onnx", "OnnxMLTools")
"""Makers of files whose formulas have numbers beside what was fitted: the two of a square, the one of ``1 - p``."""

_MASKED = -1e4  # largest number that exporters add to the scores of masked positions
_STATISTICS = (3, 4)  # operands of BatchNormalization
_FLOATS = re.compile(r"tensor\((float|float16|double|bfloat16)\)")  # alone, or in a sequence or an optional


@dataclass(frozen=True)
class Choice:
    """The selection, by name."""

    # parameters; running statistics
    trainable: tuple[str, ...]
    state: tuple[str, ...] = ()
    frozen: Mapping[str, str] = field(default_factory=dict[str, str])  # all other tensors, with the reason


@dataclass(frozen=True)
class _Origin:
    """What a file says of who wrote it, and of what."""

    opsets: Mapping[str, int]
    # whether the exporter notes what is a parameter; the parameters, None where they are not listed
    noted: bool
    parameters: frozenset[str] | None
    formulas: bool  # whether one of `_CONVERTERS` wrote it
    main: ir.Graph  # where exporters put parameters

    @classmethod
    def of(cls, model: ir.Model, stored: Mapping[str, Stored]) -> _Origin:
        listed = model.graph.metadata_props.get(_SIGNATURE)
        parameters = None if listed is None else frozenset(_PARAMETER.findall(listed))
        noted = any(_KIND in one.metadata for one in stored.values())
        return cls(model.opset_imports, noted, parameters, model.producer_name in _CONVERTERS, model.graph)


def choose(stored: Mapping[str, Stored], model: ir.Model, trainable: Trainable | None) -> Choice:
    """Select parameters and state among the `stored_floats` of a model, as it was read.

    `trainable` is names, patterns with ``*``, compiled regular expressions, or a predicate of name and array, or of the
    name alone; None: the default. Raises popart_exception where a name or pattern matches no stored tensor.
    """
    origin = _Origin.of(model, stored)
    reasons = {name: _reason(one, origin) for name, one in stored.items()}
    state = tuple(name for name, reason in reasons.items() if reason == _STATE)
    if trainable is None:
        chosen = tuple(name for name, reason in reasons.items() if not reason)
    else:
        chosen = _matching(stored, trainable)
        reasons = {name: reasons[name] or "not among `trainable`" for name in stored}
    if not chosen:
        _warn_empty(reasons)
    picked = set(chosen)
    frozen = {n: r for n, r in reasons.items() if n not in picked and n not in state}
    return Choice(chosen, tuple(n for n in state if n not in picked), frozen)


_STATE = "running statistics"
_SETTINGS = {"Clip": "the limit of a Clip", "Dropout": "the ratio of a Dropout"}
"""Reasons for operands after the first, by operator, that are not weights."""


def _reason(one: Stored, origin: _Origin) -> str:
    """Why a tensor is not a parameter; '' if it is one."""
    opsets = origin.opsets
    if CONSTANT in one.metadata:
        return "a constant, said who built the model"
    if _WRITTEN_OUT.fullmatch(one.value.name or "") and QUANTISED not in one.metadata:
        return "a constant of the program that was exported"
    uses = uses_of(one.value)
    if uses and all(is_statistic(node, at) for node, at in uses):
        return _STATE
    if uses and all(_is_quantisation(node, at, opsets) for node, at in uses):
        return "scale or zero point of quantisation"
    settings = {_SETTINGS.get(node.op_type, "") if at and not node.domain else "" for node, at in uses}
    if len(settings) == 1 and "" not in settings:
        return settings.pop()
    if uses and all(_is_out_of_reach(node, at, opsets) or _only_sizes(node, opsets) for node, at in uses):
        return "no gradient reaches it"
    kind = one.metadata.get(_KIND)
    if kind == "PARAMETER":
        return ""
    if kind is not None:
        return "a buffer or a constant, says the exporter"
    if _is_folded_formula(one, origin.parameters):
        return "worked out from no weight, says the exporter"
    if origin.parameters is not None and one.value.graph is not origin.main:
        return "made within a loop or a branch, and no parameter that the exporter lists"
    if uses and all(_starts(node, at, opsets) for node, at in uses) and not np.any(one.tensor.numpy()):
        return "the zeros that a recurrent layer starts from"
    if not len(one.tensor.shape) and (origin.noted or _FOLDED in one.metadata or is_generated(one.name)):
        return "a number of a formula"
    if one.tensor.size == 1 and (_PADDLE.fullmatch(one.name) or _WORKED_OUT.fullmatch(one.name)):
        return "a number of a formula"
    if _JAX2ONNX.fullmatch(one.name) or (origin.formulas and _is_round(one.tensor)):
        return "a number of a formula"
    return "a mask" if _is_mask(one.tensor) else ""


def is_generated(name: str) -> bool:
    """Whether a tool made up a tensor's name, which is no weight's in the network that was exported."""
    return _GENERATED.fullmatch(name) is not None


def uses_of(value: ir.Value) -> list[tuple[ir.Node, int]]:
    """Nodes and input positions that read a value, also through Identity and Cast."""
    found: list[tuple[ir.Node, int]] = []
    for use in value.uses():
        if use.node.op_type in ("Identity", "Cast") and use.node.domain in ("", "ai.onnx"):
            found.extend(uses_of(use.node.outputs[0]) or [(use.node, use.idx)])
        else:
            found.append((use.node, use.idx))
    return found


def is_statistic(node: ir.Node, at: int) -> bool:
    """Whether an operand is a running mean or variance."""
    return node.op_type == "BatchNormalization" and at in _STATISTICS


def _is_quantisation(node: ir.Node, at: int, opsets: Mapping[str, int]) -> bool:
    if not re.search("[Qq]uant|^Q[A-Z]|^Trunc$|Integer|NBits", node.op_type):
        return False
    name = operand_name(node, at, opsets)
    return "scale" in name or "zero_point" in name


def _is_folded_formula(one: Stored, parameters: frozenset[str] | None) -> bool:
    """Whether the exporter computed a tensor from steps, tables and shapes only, so from no weight.

    Files that do not list the parameters leave it to the names: steps have those of operations, weights of modules.
    """
    sources = re.findall(r"'([^']*)'", one.metadata.get(_FOLDED, ""))
    if parameters is not None:
        return bool(sources) and parameters.isdisjoint(sources)
    graph = one.value.graph
    shaped = set[str | None]() if graph is None else {v.name for v in graph.inputs} - graph.initializers.keys()
    return bool(sources) and all(s in shaped or _STEP.fullmatch(s) or _TABLE.fullmatch(s) for s in sources)


def _starts(node: ir.Node, at: int, opsets: Mapping[str, int]) -> bool:
    return operand_name(node, at, opsets) in ("initial_h", "initial_c")


def _is_out_of_reach(node: ir.Node, at: int, opsets: Mapping[str, int]) -> bool:
    row = resolve(node.domain, node.op_type, _version(node, opsets))
    if row is not None and row.is_static(at):
        return True
    schema = schema_of(node, opsets)
    return (
        schema is not None
        and bool(schema.outputs)
        and not any(_FLOATS.search(kind) for o in schema.outputs for kind in o.types)
        and not any(bodies(node))
    )


def _only_sizes(node: ir.Node, opsets: Mapping[str, int]) -> bool:
    """Whether a node's results end in whole numbers or in operands that are needed while tracing, after a few nodes."""
    pending, seen = [node], {node}
    while pending and len(seen) <= _FEW:
        current = pending.pop()
        uses = [use for v in current.outputs for use in v.uses()]
        if any(v.is_graph_output() for v in current.outputs) or not uses or any(bodies(current)):
            return False
        further = [use.node for use in uses if not _is_size(use.node, use.idx, opsets)]
        pending += [one for one in further if one not in seen]
        seen.update(further)
    return not pending


_FEW = 16
"""Nodes between a number of the file and the sizes that are computed from it."""


def _is_size(node: ir.Node, at: int, opsets: Mapping[str, int]) -> bool:
    if node.op_type == "Cast" and not node.domain:
        to = node.attributes.get("to")
        if to is None:
            return False
        named = to.type is ir.AttributeType.STRING  # before opset 6
        kind = ir.DataType.__members__.get(to.as_string().upper()) if named else ir.DataType(to.as_int())
        return kind is not None and not kind.is_floating_point()
    row = resolve(node.domain, node.op_type, _version(node, opsets))
    return row is not None and row.is_static(at)


def operand_name(node: ir.Node, at: int, opsets: Mapping[str, int]) -> str:
    """Name of an operand in ONNX's schema, else in the translation; '' if neither names it."""
    schema = schema_of(node, opsets)
    if schema is not None:
        return schema.inputs[at].name if at < len(schema.inputs) else ""
    row = resolve(node.domain, node.op_type, _version(node, opsets))
    return row.inputs[at] if row is not None and at < len(row.inputs) else ""


def schema_of(node: ir.Node, opsets: Mapping[str, int]) -> Any:
    """ONNX's schema of a node's operator, None if it has none."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    return signatures.schema_of(node.op_type, _version(node, opsets), domain)


def _version(node: ir.Node, opsets: Mapping[str, int]) -> int:
    return node.version or opsets.get("" if node.domain == "ai.onnx" else node.domain, 1)


def _is_round(tensor: Any) -> bool:
    """Whether a tensor is one whole number or half of one, which no fit ends in."""
    return tensor.size == 1 and float(2 * np.real(tensor.numpy().reshape(()))).is_integer()


def _is_mask(tensor: Any) -> bool:
    """Whether a tensor has nothing but zeros and very negative numbers, with at least one of each; or infinite ones."""
    if not 1 <= tensor.size <= 1 << 26:
        return False
    stored = tensor.numpy()
    first = np.asarray(stored.reshape(-1)[:4096], np.float32)
    if np.isinf(first).all():
        return bool(np.isinf(np.asarray(stored, np.float32)).all())
    if not ((first == 0) | (first <= _MASKED)).all():
        return False
    numbers = np.asarray(stored, np.float32)
    hidden = numbers <= _MASKED
    return bool(hidden.any() and ((numbers == 0) | hidden).all() and not hidden.all())


def _matching(stored: Mapping[str, Stored], trainable: Trainable) -> tuple[str, ...]:
    if callable(trainable) and not isinstance(trainable, re.Pattern):
        names = _takes_names(trainable)

        def picks(name: str, one: Stored) -> Any:
            return trainable(name) if names else trainable(name, np.asarray(one.tensor.numpy()))

        return tuple(name for name, one in stored.items() if picks(name, one))
    if not isinstance(trainable, (str, re.Pattern, Iterable)):
        raise popart_exception(
            f"trainable: names, patterns, or a predicate of name and array; got {type(trainable).__name__}."
        )
    asked = [trainable] if isinstance(trainable, (str, re.Pattern)) else list(trainable)
    strange = [pattern for pattern in asked if not isinstance(pattern, (str, re.Pattern))]
    if strange:
        raise popart_exception(f"trainable: a list holds names and patterns; got {strange[0]!r}.")
    found: dict[str, None] = {}
    for pattern in asked:
        hits = [name for name in stored if _fits(name, pattern)]
        if not hits:
            shown = ", ".join(sorted(stored)[:20]) + (", ..." if len(stored) > 20 else "")
            raise popart_exception(
                f"trainable: {getattr(pattern, 'pattern', pattern)!r} fits no float weight of the model.\n"
                f"  fix: use names or patterns of these: {shown}"
            )
        found.update(dict.fromkeys(hits))
    return tuple(name for name in stored if name in found)


def _takes_names(predicate: Callable[..., bool]) -> bool:
    """Whether a predicate takes the name alone."""
    try:
        inspect.signature(predicate).bind("name", None)
    except (TypeError, ValueError):
        return True
    return False


def _fits(name: str, pattern: str | re.Pattern[str]) -> bool:
    if isinstance(pattern, re.Pattern):
        return pattern.search(name) is not None
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def _warn_empty(reasons: Mapping[str, str]) -> None:
    none = "it stores no float weights (numbers in attributes of operators are constants)"
    why = none if not reasons else "; ".join(f"{n}: {r}" for n, r in list(reasons.items())[:5])
    warnings.warn(f"The model has no trainable parameters: {why}.", UserWarning, stacklevel=5)  # who called `to_jax`
