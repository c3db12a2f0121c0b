"""The table of operator facts: one row per operator, declared beside its translation.

PopART names operators by type (``Relu``, ``MatMulLhsGrad``), whatever their domain, so rows are keyed by that type. The
types of gradient and in-place operators are rows too, derived from the row of their forward operator. All code that
builds, prints, rewrites, differentiates, rounds or outlines graphs reads this table and keeps no list of names itself.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

_NOTHING: Mapping[int, str] = MappingProxyType({})
NEEDS_VALUE = "Need the value of the {op} input '{operand}' to determine the {aim}, but was unable because {reason}"
"""PopART's error text for an operand that must be constant, since it determines the result's shape, and is not."""


class Trait(enum.Flag):
    """Properties that several parts of the system derive their behaviour from."""

    NONE = 0
    ELEMENTWISE = enum.auto()
    """Each element of the result depends on that element of the operands alone (after broadcasting)."""
    PER_SAMPLE = enum.auto()
    """Treats the elements of the batch, the first dimension, independently."""
    VIEW_CHANGE = enum.auto()
    """Changes the view of data, not its values; automatic loss scaling does not track such gradients."""
    MOVES_DATA = enum.auto()
    """Copies elements without arithmetic, so that it takes any type, float8 included."""
    FOLDS = enum.auto()
    """PopART computes it while it prepares the graph, if all operands are constants."""
    PRODUCT = enum.auto()
    """A convolution or matrix product; automatic loss scaling can be limited to their gradients."""
    EXPENSIVE = enum.auto()
    """Outlining values its repetition (PopART's high sub-graph value)."""
    NOT_OUTLINED = enum.auto()
    """Stays outside outlined subgraphs."""
    NON_LINEARITY = enum.auto()
    """A non-linear activation, which automatic recomputation recomputes behind a normalisation."""
    NORM = enum.auto()
    """A normalisation with statistics."""
    RECURRENT = enum.auto()
    """A recurrent layer: the batch is the second dimension of its data."""
    RANDOM = enum.auto()
    """Draws random numbers: it is given a seed of its own."""
    EFFECT = enum.auto()
    """Must run even if nobody reads its results: it prints, stops, or writes outside the graph."""
    ROUNDS = enum.auto()
    """Rounds half-precision results, stochastically where the session asks for that."""
    REFUSES_GRADIENT = enum.auto()
    """PopART refuses to train through it; other operators without gradient operators just stop the gradient."""
    INDEX_RESULT = enum.auto()
    """Makes indices, which PopART keeps as INT32."""
    WIDE_RESULT = enum.auto()
    """May make 64-bit integers although no operand is one."""
    SCALED_FLOAT8 = enum.auto()
    """Computes with float8 operands and a power-of-two scale."""
    BETWEEN_REPLICAS = enum.auto()
    """Exchanges data between replicas."""
    NOT_DIFFERENTIABLE = enum.auto()
    """PopXL refuses to differentiate through it; in sessions it stops the gradient."""
    LOSS = enum.auto()
    """Computes a loss."""
    UPDATES = enum.auto()
    """Is part of an optimizer: computes or applies the update of a variable."""

    OF_INTEGERS = enum.auto()
    """PopART's also takes integers, which ONNX's does not: it computes with floats and drops the fractions."""
    MOVES_ROWS = enum.auto()
    """Moves rows of its data unchanged, in a way that `lowering.dynamic_sizes.routed` follows."""
    ROW_BY_ROW = enum.auto()
    """Computes each row of the result from the features of the same row of its data."""


ELEMENTWISE = Trait.ELEMENTWISE
MOVES_ROWS = Trait.MOVES_ROWS
ROW_BY_ROW = Trait.ROW_BY_ROW
PER_SAMPLE = Trait.PER_SAMPLE
VIEW_CHANGE = Trait.VIEW_CHANGE
MOVES_DATA = Trait.MOVES_DATA
FOLDS = Trait.FOLDS
PRODUCT = Trait.PRODUCT
EXPENSIVE = Trait.EXPENSIVE
NOT_OUTLINED = Trait.NOT_OUTLINED
NON_LINEARITY = Trait.NON_LINEARITY
NORM = Trait.NORM
RECURRENT = Trait.RECURRENT
RANDOM = Trait.RANDOM
EFFECT = Trait.EFFECT
ROUNDS = Trait.ROUNDS
REFUSES_GRADIENT = Trait.REFUSES_GRADIENT
INDEX_RESULT = Trait.INDEX_RESULT
WIDE_RESULT = Trait.WIDE_RESULT
SCALED_FLOAT8 = Trait.SCALED_FLOAT8
BETWEEN_REPLICAS = Trait.BETWEEN_REPLICAS
NOT_DIFFERENTIABLE = Trait.NOT_DIFFERENTIABLE
LOSS = Trait.LOSS
UPDATES = Trait.UPDATES
OF_INTEGERS = Trait.OF_INTEGERS

_INHERITED = PRODUCT | EXPENSIVE | RANDOM | RECURRENT | NORM | NOT_OUTLINED
"""Traits that a gradient operator takes over from its forward operator."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """One gradient operator of an operator. Source: the gradient operators that PopART declares."""

    op_type: str  # PopART's type
    # operands whose gradients it computes; None means one such operator per float operand
    of: tuple[int, ...] | None = (0,)
    # its inputs, in order: ``g`` all gradients of the results, ``x<i>`` an operand, ``y<i>`` a result, ``x*`` and
    # ``y*`` all of them, ``xi`` the operand that its gradient is for, ``seed`` the operand that random numbers follow
    # from (PopXL's operators have one; a session's get theirs later)
    reads: tuple[str, ...] = ("g",)
    # its inputs where they depend on the attribute ``reduction``, by its value
    reads_by: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    # whether a translation of its own (domain ``popxl``) computes it from what it reads; else `jax.vjp` of the forward
    # translation does
    kernel: bool = False
    view: str = ""  # type of its in-place form, if its result is a view of the gradient
    removed_by: str = ""  # the pattern that rewrites it, without which it can't run
    required: bool = False  # chooses PopART's words for that
    traits: Trait = Trait.NONE  # its traits besides those taken over from the forward operator


@dataclass(frozen=True, slots=True)
class PopxlClass:
    """The class of an operator in `popart._internal.ir.op`, and the translation that runs it."""

    # name of the class, ``<type>Op`` by default; those of its gradients and in-place forms follow from it
    name: str = ""
    domain: str = "ai.onnx"  # of the operator's identifier, as the version
    version: int = 1
    # domain and version of the translation; None for version 1 in the domain ``popxl``
    runs: tuple[str, int] | None = None
    module: str = ""  # the class's module below ``op``
    base: str = "Op"  # its base class
    runs_as: str = ""  # type of the translation if it differs from the operator's
    # parameters of PopART's constructor besides identifier and settings, in order; ``name=attribute`` where the
    # translation calls one differently
    parameters: str = ""


@dataclass(frozen=True, slots=True)
class Operator:
    """All facts of one operator type."""

    op_type: str  # PopART's type
    traits: Trait = Trait.NONE
    # its gradient operators; empty if no gradient flows; None if unknown (a custom operator)
    gradients: tuple[Gradient, ...] | None = None
    # operand that may be overwritten by the result -> type of the in-place form
    inplace: Mapping[int, str] = field(default_factory=lambda: _NOTHING)
    view: str = ""  # type of the in-place form whose result is a view of its first operand; '' without one
    batch: str = ""  # the rule for the batch dimension where the traits do not imply it (see `ir_view.batch_axes`)
    # ranks that ONNX fixes: pairs of an operand's name and a rank, a range (``2+``, ``0-1``) or ``=NAME``
    ranks: str = ""
    # operands that PopART reads when it makes the operator: position -> attribute
    parameters: Mapping[int, str] = field(default_factory=lambda: _NOTHING)
    bias: int | None = None  # operand that PopART adds by an AddBias behind the operator
    group: int = 0  # number of operands per result, for operators with one group of operands for each result; else 0
    # PopART's error text for an operand that must be a constant and is not, with ``{op}``, ``{operand}`` and
    # ``{tensor}`` for the operator, the operand and the tensor
    not_constant: str = ""
    removed_by: str = ""  # the pattern that rewrites it, without which it can't run
    required: bool = False  # chooses PopART's words for that
    popxl: PopxlClass | None = None  # its class in PopXL's internal IR
    # the neutral element along an axis that it reduces: ``zero``, ``one``, ``lowest``, ``highest``, ``unlikely`` (for
    # exponentials), or the attribute that names a label to ignore; '' if it does not reduce or has none
    neutral: str = ""
    forward: str = ""  # the forward operator, if this one is a gradient or in-place form

    @property
    def translation(self) -> tuple[str, str, int]:
        """Domain, type and version of the translation that runs it in PopXL."""
        own = self.popxl
        domain, version = own.runs if own is not None and own.runs else ("popxl", 1)
        return domain, own.runs_as if own is not None and own.runs_as else self.op_type, version

    def has(self, traits: Trait) -> bool:
        """Whether it has any of these traits."""
        return bool(self.traits.value & traits.value)  # `&` of flags creates a flag: twenty times as long

    def passes_gradient(self, operand: int) -> bool:
        """Whether this operand, if it is a float tensor, gets a gradient from those of the results."""
        if self.gradients is None:
            return operand not in self.parameters
        position = operand % self.group if self.group else operand
        return position == self.bias or any(g.of is None or position in g.of for g in self.gradients)

    @property
    def refused_gradient(self) -> str:
        """PopART's error text where it refuses to train through it; '' where it does not."""
        if not self.has(Trait.REFUSES_GRADIENT):
            return ""
        if self.op_type == "Square":
            return "Grad op has not been implemented for SquareOp"
        binary = self.op_type.startswith("Bitwise") and self.op_type != "BitwiseNot"
        return f"PopART does not have a valid grad op corresponding to {'BitwiseBinary' if binary else self.op_type}Op"

    @property
    def has_effect(self) -> bool:
        """Whether it must run even if nobody reads its results."""
        return self.has(Trait.EFFECT)

    @property
    def has_gradient(self) -> bool:
        """Whether a gradient may flow through it."""
        return self.gradients != ()

    @property
    def gradient_operators(self) -> tuple[Gradient, ...]:
        """Gradient operators; an operator without declared ones has one that reads everything."""
        if self.gradients is not None:
            return self.gradients
        return (Gradient(f"{self.op_type}Grad", None, ("g", "x*", "y*")),)


ZERO_GRADIENT = (Gradient("UnaryZeroGrad"),)
"""`gradients` of operators whose gradient is zero everywhere."""

_ROWS: dict[str, Operator] = {}


NAMESAKE = "namesake"
"""`removed_by` of a gradient operator: the pattern ``<type>Op``."""


def gradient(
    reads: str = "g",
    of: int | Sequence[int] | None = 0,
    *,
    name: str = "",
    reads_by: Mapping[str, str] | None = None,
    kernel: bool = False,
    view: str = "",
    removed_by: str = "",
    required: bool = False,
    traits: Trait = Trait.NONE,
) -> Gradient:
    """One entry of `operator`'s `gradients`; see `Gradient`. Its type is `name`, by default ``<forward type>Grad``."""
    operands = (of,) if isinstance(of, int) else None if of is None else tuple(of)
    variants = {value: tuple(tokens.split()) for value, tokens in (reads_by or {}).items()}
    return Gradient(name, operands, tuple(reads.split()), variants, kernel, view, removed_by, required, traits)


def of_both(op_type: str, *, removed_by: str = NAMESAKE, required: bool = False) -> tuple[Gradient, ...]:
    """Gradient operators of a function of two operands that both read everything: ``<type>Arg0Grad`` and `1`."""
    return tuple(
        gradient("g x0 x1 y0", i, name=f"{op_type}Arg{i}Grad", removed_by=removed_by, required=required) for i in (0, 1)
    )


def as_onnx(version: int = 1, *, runs: int | None = None, name: str = "", **more: str) -> PopxlClass:
    """PopXL's class of an operator of ONNX; `runs` is the version of ONNX's translation that runs it."""
    return PopxlClass(name, "ai.onnx", version, None if runs is None else ("", runs), **more)


def as_graphcore(*, runs: int | None = None, name: str = "", **more: str) -> PopxlClass:
    """PopXL's class of an operator of ai.graphcore; `runs` is the version of that domain's translation that runs it."""
    return PopxlClass(name, "ai.graphcore", 1, None if runs is None else ("ai.graphcore", runs), **more)


def operator(
    op_type: str,
    traits: Trait = Trait.NONE,
    *,
    gradients: Gradient | Iterable[Gradient] | str | None = None,
    inplace: Mapping[int, str] | str | bool = False,
    view: str | bool = False,
    batch: str = "",
    ranks: str = "",
    parameters: Mapping[int, str] = _NOTHING,
    bias: int | None = None,
    group: int = 0,
    not_constant: str = "",
    removed_by: str = "",
    required: bool = False,
    popxl: PopxlClass | None = None,
    neutral: str = "",
) -> Operator:
    """Declare an operator; see `Operator`. Names that follow from its type are left out.

    Parameters
    ----------
    gradients
        Gradient operators; a text stands for one, ``<type>Grad``, which reads this.
    inplace
        In-place forms by the operand that they overwrite; a type alone overwrites the first, True is ``<type>Inplace``.
    view
        The form whose result is a view; True is ``<type>Inplace``.

    Raises
    ------
    ValueError
        It is declared already.
    """
    if op_type in _ROWS and not _ROWS[op_type].forward:
        raise ValueError(f"the operator {op_type} is declared twice")
    form = f"{op_type}Inplace"
    overwrites = form if inplace is True else inplace or _NOTHING
    row = Operator(
        op_type, traits, _gradients_of(op_type, gradients),
        {0: overwrites} if isinstance(overwrites, str) else overwrites, form if view is True else view or "",
        batch, ranks, parameters, bias, group, not_constant, removed_by, required,
        replace(popxl, name=f"{op_type}Op") if popxl is not None and not popxl.name else popxl, neutral,
    )  # fmt: skip
    _ROWS[op_type] = row
    for name in dict.fromkeys([*row.inplace.values(), *filter(None, [row.view])]):
        shown = _derived_class(row, name, inplace=True)
        _enter(replace(row, op_type=name, inplace=_NOTHING, view="", popxl=shown, forward=op_type))
    for entry in row.gradients or ():
        own = Operator(
            entry.op_type, row.traits & _INHERITED | entry.traits, (), view=entry.view, forward=op_type,
            removed_by=entry.removed_by, required=entry.required, popxl=_derived_class(row, entry.op_type),
        )  # fmt: skip
        _enter(own)
    return row


def _gradients_of(op_type: str, given: Gradient | Iterable[Gradient] | str | None) -> tuple[Gradient, ...] | None:
    """Gradient operators with the names that follow from the operator's type."""
    if given is None:
        return None
    listed = gradient(given) if isinstance(given, str) else given
    named = (
        g if g.op_type else replace(g, op_type=f"{op_type}Grad")
        for g in ([listed] if isinstance(listed, Gradient) else listed)
    )
    return tuple(replace(g, removed_by=f"{g.op_type}Op") if g.removed_by == NAMESAKE else g for g in named)


def _enter(row: Operator) -> None:
    """Enter a derived row. If several operators share a gradient operator, it belongs to the one it is named after."""
    known = _ROWS.get(row.op_type)
    if known is None or (known.forward and not row.op_type.startswith(known.forward)):
        _ROWS[row.op_type] = row


def _derived_class(row: Operator, op_type: str, inplace: bool = False) -> PopxlClass | None:
    """The class of a gradient or in-place form, named after the class of its forward operator."""
    parent = row.popxl
    if parent is None:
        return None
    named_after = op_type.startswith(row.op_type)
    stem = parent.name.removesuffix("Op") + op_type.removeprefix(row.op_type) if named_after else op_type
    runs, runs_as = (parent.runs, row.translation[1]) if inplace else (None, "")
    base = "Op" if inplace else parent.base.replace("BaseOp", "BaseGradOp")
    parameters = parent.parameters if inplace else ""
    return PopxlClass(f"{stem}Op", "ai.graphcore", 1, runs, parent.module, base, runs_as, parameters)


def declared() -> Mapping[str, Operator]:
    """The rows entered so far, by type; `registry.operators` fills the table first."""
    return _ROWS
