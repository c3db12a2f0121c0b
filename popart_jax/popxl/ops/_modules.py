"""The module of each operator under PopXL's own name, such as `popxl.ops.gelu`.

Operators are written in families, but programs also import them by module (``from popxl.ops.add import add_``), so a
module is made for each operator.
"""

from __future__ import annotations

from types import ModuleType

from .._internal.virtual import module as make_module

_SAME = """abs cast ceil cos cumsum detach div equal exp floor fmod gelu geluerf greater group_norm histogram
increment_mod init interpolate io_tile_copy ipu_copy isfinite isinf isnan l1 l2 log logical_and logical_not logical_or
logsum logsumexp matmul max mean median min mul negate onehot pow prod relu reshape scaled_add scatter scatter_reduce
shaped_dropout sign sin slice softmax split sqrt squeeze sub subsample sum sumsquare swish tanh topk transpose where add
clip concat dropout dynamic_slice dynamic_update gather host_load host_store identity remote_load remote_store
code_copy"""
_MORE = {
    "add": "add_",
    "argminmax": "argmin argmax",
    "batch_norm": "batch_norm_inference",
    "cast": "pow2scale_cast_to_fp8 pow2scale_cast_from_fp8",
    "clip": "clamp",
    "code_copy": "remote_code_load CODE_LOCATION TO_IR_ENUM_MAP",
    "concat": "concat_",
    "histogram": "check_increment",
    "interpolate": "InterpolateType InterpolateNearestType InterpolateCoordinateTransformationType",
    "detach": "detach_",
    "dynamic_update": "dynamic_update_",
    "exp": "exp_",
    "gather": "tied_gather groupedgather",
    "gelu": "gelu_",
    "geluerf": "geluerf_",
    "group_norm": "layer_norm",
    "identity": "rename",
    "increment_mod": "increment_mod_",
    "lamb": "lamb_square",
    "log": "log2",
    "matmul": "matmul_pow2scaled",
    "max": "maximum",
    "negative_log_likelihood": "nll_loss nll_loss_with_softmax_grad REDUCTION_MAP REDUCTION_TYPE",
    "pool": "average_pool max_pool receptive_attributes",
    "relu": "relu_",
    "remote_load": "remote_load_ multiply_tuple",
    "reshape": "reshape_ flatten flatten_ reshape_handle_negative_axis",
    "roialign": "roi_align",
    "scaled_add": "scaled_add_",
    "scatter_reduce": "grouped_scatter_reduce ScatterReductionType reduction_dict",
    "slice": "slice_ INT_MAX INT_MIN process_args",
    "swish": "swish_",
    "transpose": "transpose_",
}


def register(package: str, families: list[ModuleType]) -> None:
    """Enter the modules into Python's module table."""
    names: dict[str, list[str]] = {name: [name] for name in _SAME.split()}
    for module, more in _MORE.items():
        names.setdefault(module, []).extend(more.split())
    for module, members in names.items():
        found = {member: _lookup(member, families) for member in members}
        make_module(f"{package}.{module}", f"Operators {', '.join(members)}.", found)


def _lookup(name: str, families: list[ModuleType]) -> object:
    for family in families:
        if name in vars(family):
            return vars(family)[name]
    raise AttributeError(name)
