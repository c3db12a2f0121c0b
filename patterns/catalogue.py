"""Every pattern name of PopART: level, order, and its meaning on this runtime. One row per pattern.

Facts (names, levels, priorities, Python properties) are PopART's. `docs/patterns.md` is printed from this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["NoPatterns", "Minimal", "Default", "All"]
"""PopART's levels of patterns."""
LEVELS: tuple[Level, ...] = ("NoPatterns", "Minimal", "Default", "All")
"""The levels from none to all; each has the patterns of those before it."""
Kind = Literal["pre-alias", "alias", "alias helper", "always", "own"]


@dataclass(frozen=True, slots=True)
class Row:
    """One pattern.

    Attributes
    ----------
    kind
        "pre-alias" and "alias" are PopART's; "always" runs whatever the selection says; "own" are rewrites of this
        project or of a plug-in.
    level
        Lowest level that switches it on: Minimal means mandatory; None means no level does.
    priority
        Higher runs first at a node; patterns without one follow by name.
    no_op
        Why there is nothing to rewrite here; None when rules are registered for it.
    """

    name: str
    does: str
    level: Level | None = "Default"
    priority: int | None = None
    python_property: str | None = None
    kind: Kind = "pre-alias"
    no_op: str | None = None

    @property
    def mandatory(self) -> bool:
        """Whether the pattern is on at every level."""
        return self.level == "Minimal"

    def on_at(self, level: Level) -> bool:
        """Whether the level switches the pattern on."""
        return self.level is not None and LEVELS.index(level) >= LEVELS.index(self.level)


_ROWS: dict[str, Row] = {}


def declare(row: Row) -> Row:
    """Add a pattern name.

    Raises
    ------
    ValueError
        The name is taken.
    """
    if row.name in _ROWS:
        raise ValueError(f"pattern '{row.name}' is declared already")
    _ROWS[row.name] = row
    return row


def rows() -> tuple[Row, ...]:
    """All patterns in order of application: descending priority, then by name."""
    return tuple(sorted(_ROWS.values(), key=lambda r: (r.priority is None, -(r.priority or 0), r.name)))


def find(name: str) -> Row | None:
    """The row of that name, or None."""
    return _ROWS.get(name)


def _must(name: str, priority: int | None, does: str, python_property: str | None = None) -> Row:
    """A mandatory pattern: the op it rewrites cannot run as it is."""
    return Row(name, does, "Minimal", priority, python_property)


_POPART = (
    Row("Slice2SliceSubsample", "A strided Slice is split in a unit-step Slice, a Reverse and a Subsample.", "All", 55),
    Row("ExpandCast", "Cast after Expand moves in front of it, where the tensor is smaller.", priority=54),
    Row("ConvFlipWeightsDoubleFlip", "Two weight flips in a row cancel.", priority=53),
    _must("ConvFlipWeightsGradOp", 52, "The gradient of a weight flip is a weight flip."),
    _must("Atan2Arg0GradOp", 51, "Gradient of atan2 for y: g*x/(x²+y²), summed over broadcast axes."),
    _must("Atan2Arg1GradOp", 50, "Gradient of atan2 for x: -g*y/(x²+y²), summed over broadcast axes."),
    Row("DecomposeBinaryConstScalar", "BinaryConstScalar becomes the binary op on a constant.", priority=47),
    _must("Log1pGradOp", 45, "Gradient of log1p: g/(x+1)."),
    _must("Expm1GradOp", 44, "Gradient of expm1: g*(y+1) from the forward output."),
    _must("ZerosLikeOpPattern", 43, "ZerosLike takes the static shape and becomes Zeros."),
    _must("RandomUniformLikeOpPattern", 42, "RandomUniformLike becomes RandomUniform."),
    _must("RandomNormalLikeOpPattern", 41, "RandomNormalLike becomes RandomNormal."),
    _must("FmodArg0GradOp", 39, "Gradient of fmod for its dividend: g, summed over broadcast axes."),
    Row("UpsampleToResize", "Upsample becomes Resize.", priority=38),
    Row(
        "InitAccumulate",
        "Layout of a zero-initialised accumulator.",
        priority=37,
        no_op="A tile layout hint; XLA chooses layouts, and neither values nor ops change.",
    ),
    Row("PreUniRepl", "Drops an identity-like op that is the only reader of its input.", priority=36,
        python_property="PreUniRepl"),
    Row("PostNRepl", "Drops an op whose outputs all equal its input.", priority=35, python_property="PostNRepl"),
    Row("SoftmaxGradDirect", "Nll gradient then Softmax gradient becomes (p - onehot)*scale.", priority=34,
        python_property="SoftMaxGradDirect"),
    Row("NlllWithSoftmaxGradDirect", "Nll and SoftmaxGradDirect become one op: loss -log(p + 1e-7).", priority=33,
        python_property="NlllWithSoftMaxGradDirect"),
    Row("OpToIdentity", "An op that cannot change its input becomes Identity.", priority=31,
        python_property="OpToIdentity"),
    _must("SubtractArg1GradOp", 30, "Gradient of the subtrahend: Neg and ReduceSum.", "SubtractArg1GradOp"),
    _must("MulArgGradOp", 29, "Gradients of Mul: g times the other factor, ReduceSum.", "MulArgGradOp"),
    _must("ReciprocalGradOp", 28, "Gradient of 1/x: -g/x² in elementary ops."),
    _must("DivArg0GradOp", 27, "Gradient of the numerator: g/b, ReduceSum."),
    _must("DivArg1GradOp", 26, "Gradient of the denominator: -g*a/b², ReduceSum."),
    _must("SinGradOp", 25, "Gradient of sin: g*cos(x)."),
    _must("CosGradOp", 24, "Gradient of cos: -g*sin(x)."),
    _must("SqrtGradOp", 22, "Gradient of sqrt: g/(2*y)."),
    _must("ExpGradOp", 21, "Gradient of exp: g*y."),
    _must("LogGradOp", 20, "Gradient of log: g/x."),
    _must("CoshOp", 19, "cosh(x) in exponentials."),
    Row("NegativeOneScale", "Scale by -1 becomes Neg.", priority=16),
    Row("PadSum", "A Sum of zero Pads that do not overlap becomes a Concat.", priority=15),
    _must("AbsGradOp", 14, "Gradient of abs: g*sign(x)."),
    Row("SplitGather", "A table read on several virtual graphs is gathered on each of them.", "All", 13),
    _must("ConvDataGrad", 12, "Data gradient of Conv: ConvFlipWeights and Conv."),
    Row("SumToAdd", "Sum of two becomes Add.", priority=11),
    Row("SplitGradOpToConcat", "Gradient of Split becomes Concat.", priority=9),
    Row("SplitOp", "Split becomes one Slice per output.", priority=8),
    _must("PowArg0GradOp", 7, "Gradient of the base: g*b*a^(b-1), ReduceSum."),
    _must("PowArg1GradOp", 6, "Gradient of the exponent: g*log(a)*a^b, ReduceSum."),
    _must("MatMulOp", 4, "MatMul operands become 3-D: groups, rows, columns.", "MatMulOp"),
    _must("MatMulLhsGradOp", 3, "Gradient of the left operand: MatMul with the right transposed.", "MatMulLhsGradOp"),
    _must("MatMulRhsGradOp", 2, "Gradient of the right operand: MatMul with the left transposed.", "MatMulRhsGradOp"),
    Row("LSTMOp", "ai.onnx LSTM becomes ai.graphcore LSTM on rearranged weights.", "All", 0),
    _must("AllReduceToIdentity", None, "AllReduce of identical inputs becomes identities."),
    _must("ConvTranspose", None, "ConvTranspose becomes Conv on flipped weights with input dilation."),
    Row("LambSerialisedWeight", "LAMB norms of a weight updated in slices are summed over the slices.",
        no_op="No weight is updated in slices: gradient slices of a serialised matmul are joined before the update, so "
        "both norms are those of the whole weight from the start."),
    _must("LoopScanOut", None, "Scan outputs of Loop become carried tensors and DynamicUpdate."),
    Row("PackedDataBlock", "PackedDataBlock becomes a Loop of SequenceSlice and Call."),
    Row("RemoveUnnecessaryLossGradCast", "Drops the fp16 cast of an fp32 loss scale in front of the Nll gradient."),
    _must("ScanToLoop", None, "Scan becomes Loop."),
    Row("TiedGather", "Gather that shares its table with a MatMul becomes PopartTiedGather.", "All"),
    Row("TiedGatherAccumulate", "Gradient of a tied Gather is added into the MatMul's accumulator.", "All"),
    Row("TransposeToIdentityOrReshapePattern", "Transpose, Reshape or Identity, inverse Transpose collapse."),
    Row("InPlace", "Ops overwrite an input: ReluInplace, AddLhsInplace, ...", kind="alias", python_property="InPlace"),
    Row(
        "UpdateInplacePrioritiesForIpu",
        "Which operand of Add is overwritten.",
        None,
        kind="alias helper",
    ),
    *(
        Row(f"{name}Decompose", f"The {text} update is written in elementary update ops.", None, kind="always",
            no_op="The view writes updates in elementary ops from the start; there is no compound op to take apart.")
        for name, text in (("SGD0", "plain SGD"), ("SGD1", "combined momentum"), ("SGD2", "separate momentum"),
                           ("Adam", "Adam family"), ("Adaptive", "adaptive family"))
    ),
    Row("ContiguateIpuCopyIndices", "Copies between distant pipeline IPUs become chains.", None, kind="always",
        no_op="The view makes such chains when it places copies."),
    Row("ViewSimplifyPattern", "Chains of Reshape and Identity collapse into one.", None, kind="always"),
)  # fmt: skip

for _row in _POPART:
    declare(_row)
