"""The module of each operator under PopXL's own name, such as `popxl.ops.gelu`.

Operators are written in families, but programs also import them by module (``from popxl.ops.add import add_``), so a
module is made for each operator, with its in-place form. `_MORE` has what shares a module with another operator.
"""

from __future__ import annotations

from types import FunctionType, ModuleType

from .._internal.virtual import module as make_module

_NO_OPERATORS = {"reduction_name", "slice_op"}
_MORE = {
    "argminmax": "argmin argmax",
    "batch_norm": "batch_norm_inference",
    "cast": "pow2scale_cast_to_fp8 pow2scale_cast_from_fp8",
    "clip": "clamp",
    "code_copy": "remote_code_load CODE_LOCATION TO_IR_ENUM_MAP",
    "gather": "tied_gather groupedgather",
    "group_norm": "layer_norm",
    "histogram": "check_increment",
    "identity": "rename",
    "interpolate": "InterpolateType InterpolateNearestType InterpolateCoordinateTransformationType",
    "lamb": "lamb_square",
    "log": "log2",
    "matmul": "matmul_pow2scaled",
    "max": "maximum",
    "negative_log_likelihood": "nll_loss nll_loss_with_softmax_grad REDUCTION_MAP REDUCTION_TYPE",
    "pool": "average_pool max_pool receptive_attributes",
    "remote_load": "multiply_tuple",
    "reshape": "flatten flatten_ reshape_handle_negative_axis",
    "roialign": "roi_align",
    "scatter_reduce": "grouped_scatter_reduce ScatterReductionType reduction_dict",
    "slice": "INT_MAX INT_MIN process_args",
}


def register(package: str, families: list[ModuleType]) -> None:
    """Enter the modules into Python's module table."""
    known = {name: value for family in reversed(families) for name, value in vars(family).items()}
    made = {n for family in families for n, v in vars(family).items() if _is_defined(v, family) and n[0] != "_"}
    shared = {name for members in _MORE.values() for name in members.split()}
    alone = {name for name in made if not name.endswith("_")} - shared - _NO_OPERATORS
    for name in sorted({*alone, *_MORE}):
        own = [n for n in (name, f"{name}_") if name in alone and n in made]
        members = [*own, *_MORE.get(name, "").split()]
        make_module(f"{package}.{name}", f"Operators {', '.join(members)}.", {m: known[m] for m in members})


def _is_defined(value: object, family: ModuleType) -> bool:
    return isinstance(value, FunctionType) and value.__module__ == family.__name__
