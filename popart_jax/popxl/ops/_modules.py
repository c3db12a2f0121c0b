"""The module of each operator under PopXL's own name, such as `popxl.ops.gelu`.

Operators are written in families, but programs also import them by module (``from popxl.ops.add import add_``), so a
module is made for each operator.
"""

from __future__ import annotations

from types import ModuleType

from .._internal.virtual import module as make_module

_OWN = """abs add cast ceil clip code_copy concat cos cumsum detach div dropout dynamic_slice dynamic_update equal exp
floor fmod gather gelu geluerf greater group_norm histogram host_load host_store identity increment_mod init
interpolate io_tile_copy ipu_copy isfinite isinf isnan l1 l2 log logical_and logical_not logical_or logsum logsumexp
matmul max mean median min mul negate onehot pow prod relu remote_load remote_store reshape scaled_add scatter
scatter_reduce shaped_dropout sign sin slice softmax split sqrt squeeze sub subsample sum sumsquare swish tanh topk
transpose where"""
"""Modules of the operator with their name, and of its in-place form."""
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
    own = {name: [name, *([f"{name}_"] if f"{name}_" in known else [])] for name in _OWN.split()}
    for name in {**own, **_MORE}:
        members = [*own.get(name, []), *_MORE.get(name, "").split()]
        make_module(f"{package}.{name}", f"Operators {', '.join(members)}.", {m: known[m] for m in members})
