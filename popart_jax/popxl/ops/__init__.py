"""PopXL operators: each appends to the current graph and returns its output tensors.

Families: `elementwise`, `shaping`, `reductions`, `linalg`, `conv`, `nn`, `indexing`, `exchange`, `random`, control flow
(`call`, `repeat`, `conditional`), `var_updates`, `collectives`.
"""

from __future__ import annotations

from . import collectives as collectives
from . import elementwise as _elementwise
from . import exchange as _exchange
from . import indexing as _indexing
from . import linalg as _linalg
from . import nn as _nn
from . import reductions as _reductions
from . import shaping as _shaping
from . import var_updates as var_updates
from ._modules import register as _register
from .call import (
    CallSiteInfo as CallSiteInfo,
)  # fmt: skip
from .call import (
    call as call,
)  # fmt: skip
from .call import (
    call_with_info as call_with_info,
)  # fmt: skip
from .conditional import (
    conditional as conditional,
)  # fmt: skip
from .conditional import (
    conditional_with_info as conditional_with_info,
)  # fmt: skip
from .conv import (
    PadType as PadType,
)  # fmt: skip
from .conv import (
    conv as conv,
)  # fmt: skip
from .conv import (
    conv_pow2scaled as conv_pow2scaled,
)  # fmt: skip
from .conv import (
    conv_transpose as conv_transpose,
)  # fmt: skip
from .conv import (
    conv_transpose_pow2scaled as conv_transpose_pow2scaled,
)  # fmt: skip
from .elementwise import (
    abs as abs,
)  # fmt: skip
from .elementwise import (
    add as add,
)  # fmt: skip
from .elementwise import (
    add_ as add_,
)  # fmt: skip
from .elementwise import (
    ceil as ceil,
)  # fmt: skip
from .elementwise import (
    clamp as clamp,
)  # fmt: skip
from .elementwise import (
    clip as clip,
)  # fmt: skip
from .elementwise import (
    cos as cos,
)  # fmt: skip
from .elementwise import (
    div as div,
)  # fmt: skip
from .elementwise import (
    equal as equal,
)  # fmt: skip
from .elementwise import (
    exp as exp,
)  # fmt: skip
from .elementwise import (
    exp_ as exp_,
)  # fmt: skip
from .elementwise import (
    floor as floor,
)  # fmt: skip
from .elementwise import (
    fmod as fmod,
)  # fmt: skip
from .elementwise import (
    gelu as gelu,
)  # fmt: skip
from .elementwise import (
    gelu_ as gelu_,
)  # fmt: skip
from .elementwise import (
    geluerf as geluerf,
)  # fmt: skip
from .elementwise import (
    geluerf_ as geluerf_,
)  # fmt: skip
from .elementwise import (
    greater as greater,
)  # fmt: skip
from .elementwise import (
    increment_mod as increment_mod,
)  # fmt: skip
from .elementwise import (
    increment_mod_ as increment_mod_,
)  # fmt: skip
from .elementwise import (
    isfinite as isfinite,
)  # fmt: skip
from .elementwise import (
    isinf as isinf,
)  # fmt: skip
from .elementwise import (
    isnan as isnan,
)  # fmt: skip
from .elementwise import (
    log as log,
)  # fmt: skip
from .elementwise import (
    log2 as log2,
)  # fmt: skip
from .elementwise import (
    logical_and as logical_and,
)  # fmt: skip
from .elementwise import (
    logical_not as logical_not,
)  # fmt: skip
from .elementwise import (
    logical_or as logical_or,
)  # fmt: skip
from .elementwise import (
    maximum as maximum,
)  # fmt: skip
from .elementwise import (
    mul as mul,
)  # fmt: skip
from .elementwise import (
    negate as negate,
)  # fmt: skip
from .elementwise import (
    pow as pow,
)  # fmt: skip
from .elementwise import (
    relu as relu,
)  # fmt: skip
from .elementwise import (
    relu_ as relu_,
)  # fmt: skip
from .elementwise import (
    sign as sign,
)  # fmt: skip
from .elementwise import (
    sin as sin,
)  # fmt: skip
from .elementwise import (
    sqrt as sqrt,
)  # fmt: skip
from .elementwise import (
    sub as sub,
)  # fmt: skip
from .elementwise import (
    swish as swish,
)  # fmt: skip
from .elementwise import (
    swish_ as swish_,
)  # fmt: skip
from .elementwise import (
    tanh as tanh,
)  # fmt: skip
from .elementwise import (
    where as where,
)  # fmt: skip
from .exchange import (
    host_load as host_load,
)  # fmt: skip
from .exchange import (
    host_store as host_store,
)  # fmt: skip
from .exchange import (
    io_tile_copy as io_tile_copy,
)  # fmt: skip
from .exchange import (
    ipu_copy as ipu_copy,
)  # fmt: skip
from .exchange import (
    remote_code_load as remote_code_load,
)  # fmt: skip
from .exchange import (
    remote_load as remote_load,
)  # fmt: skip
from .exchange import (
    remote_load_ as remote_load_,
)  # fmt: skip
from .exchange import (
    remote_store as remote_store,
)  # fmt: skip
from .indexing import (
    dynamic_slice as dynamic_slice,
)  # fmt: skip
from .indexing import (
    dynamic_update as dynamic_update,
)  # fmt: skip
from .indexing import (
    dynamic_update_ as dynamic_update_,
)  # fmt: skip
from .indexing import (
    gather as gather,
)  # fmt: skip
from .indexing import (
    groupedgather as groupedgather,
)  # fmt: skip
from .indexing import (
    onehot as onehot,
)  # fmt: skip
from .indexing import (
    scaled_add as scaled_add,
)  # fmt: skip
from .indexing import (
    scaled_add_ as scaled_add_,
)  # fmt: skip
from .indexing import (
    scatter as scatter,
)  # fmt: skip
from .indexing import (
    scatter_reduce as scatter_reduce,
)  # fmt: skip
from .indexing import (
    tied_gather as tied_gather,
)  # fmt: skip
from .linalg import (
    matmul as matmul,
)  # fmt: skip
from .linalg import (
    matmul_pow2scaled as matmul_pow2scaled,
)  # fmt: skip
from .nn import (
    average_pool as average_pool,
)  # fmt: skip
from .nn import (
    batch_norm_inference as batch_norm_inference,
)  # fmt: skip
from .nn import (
    dropout as dropout,
)  # fmt: skip
from .nn import (
    group_norm as group_norm,
)  # fmt: skip
from .nn import (
    interpolate as interpolate,
)  # fmt: skip
from .nn import (
    layer_norm as layer_norm,
)  # fmt: skip
from .nn import (
    max_pool as max_pool,
)  # fmt: skip
from .nn import (
    nll_loss as nll_loss,
)  # fmt: skip
from .nn import (
    nll_loss_with_softmax_grad as nll_loss_with_softmax_grad,
)  # fmt: skip
from .nn import (
    roi_align as roi_align,
)  # fmt: skip
from .nn import (
    shaped_dropout as shaped_dropout,
)  # fmt: skip
from .print_tensor import (
    print_tensor as print_tensor,
)  # fmt: skip
from .random import (
    random_normal as random_normal,
)  # fmt: skip
from .random import (
    random_uniform as random_uniform,
)  # fmt: skip
from .random_seed import (
    split_random_seed as split_random_seed,
)  # fmt: skip
from .reductions import (
    argmax as argmax,
)  # fmt: skip
from .reductions import (
    argmin as argmin,
)  # fmt: skip
from .reductions import (
    cumsum as cumsum,
)  # fmt: skip
from .reductions import (
    histogram as histogram,
)  # fmt: skip
from .reductions import (
    l1 as l1,
)  # fmt: skip
from .reductions import (
    l2 as l2,
)  # fmt: skip
from .reductions import (
    lamb_square as lamb_square,
)  # fmt: skip
from .reductions import (
    logsum as logsum,
)  # fmt: skip
from .reductions import (
    logsumexp as logsumexp,
)  # fmt: skip
from .reductions import (
    max as max,
)  # fmt: skip
from .reductions import (
    mean as mean,
)  # fmt: skip
from .reductions import (
    median as median,
)  # fmt: skip
from .reductions import (
    min as min,
)  # fmt: skip
from .reductions import (
    prod as prod,
)  # fmt: skip
from .reductions import (
    softmax as softmax,
)  # fmt: skip
from .reductions import (
    sum as sum,
)  # fmt: skip
from .reductions import (
    sumsquare as sumsquare,
)  # fmt: skip
from .reductions import (
    topk as topk,
)  # fmt: skip
from .repeat import (
    repeat as repeat,
)  # fmt: skip
from .repeat import (
    repeat_with_info as repeat_with_info,
)  # fmt: skip
from .shaping import (
    cast as cast,
)  # fmt: skip
from .shaping import (
    concat as concat,
)  # fmt: skip
from .shaping import (
    concat_ as concat_,
)  # fmt: skip
from .shaping import (
    detach as detach,
)  # fmt: skip
from .shaping import (
    detach_ as detach_,
)  # fmt: skip
from .shaping import (
    flatten as flatten,
)  # fmt: skip
from .shaping import (
    flatten_ as flatten_,
)  # fmt: skip
from .shaping import (
    identity as identity,
)  # fmt: skip
from .shaping import (
    init as init,
)  # fmt: skip
from .shaping import (
    pow2scale_cast_from_fp8 as pow2scale_cast_from_fp8,
)  # fmt: skip
from .shaping import (
    pow2scale_cast_to_fp8 as pow2scale_cast_to_fp8,
)  # fmt: skip
from .shaping import (
    rename as rename,
)  # fmt: skip
from .shaping import (
    reshape as reshape,
)  # fmt: skip
from .shaping import (
    reshape_ as reshape_,
)  # fmt: skip
from .shaping import (
    slice as slice,
)  # fmt: skip
from .shaping import (
    slice_ as slice_,
)  # fmt: skip
from .shaping import (
    slice_op as slice_op,
)  # fmt: skip
from .shaping import (
    split as split,
)  # fmt: skip
from .shaping import (
    squeeze as squeeze,
)  # fmt: skip
from .shaping import (
    subsample as subsample,
)  # fmt: skip
from .shaping import (
    transpose as transpose,
)  # fmt: skip
from .shaping import (
    transpose_ as transpose_,
)  # fmt: skip

_register(__name__, [_elementwise, _shaping, _reductions, _linalg, _nn, _indexing, _exchange])

__all__ = [
    "CallSiteInfo", "PadType", "abs", "add", "add_", "argmax", "argmin", "average_pool", "batch_norm_inference",
    "call", "call_with_info", "cast", "ceil", "clamp", "clip", "collectives", "concat", "concat_", "conditional",
    "conditional_with_info", "conv", "conv_pow2scaled", "conv_transpose", "conv_transpose_pow2scaled", "cos",
    "cumsum", "detach", "detach_", "div", "dropout", "dynamic_slice", "dynamic_update", "dynamic_update_", "equal",
    "exp", "exp_", "flatten", "flatten_", "fmod", "gather", "gelu", "gelu_", "geluerf", "geluerf_", "greater",
    "group_norm", "groupedgather", "histogram", "host_load", "host_store", "identity", "increment_mod",
    "increment_mod_", "init", "interpolate", "io_tile_copy", "ipu_copy", "isfinite", "isinf", "isnan", "l1", "l2",
    "lamb_square", "layer_norm", "log", "logical_and", "logical_not", "logical_or", "logsum", "logsumexp", "matmul",
    "matmul_pow2scaled", "max", "max_pool", "maximum", "mean", "median", "min", "mul", "negate", "nll_loss",
    "nll_loss_with_softmax_grad", "onehot", "pow", "pow2scale_cast_from_fp8", "pow2scale_cast_to_fp8",
    "print_tensor", "prod", "random_normal", "random_uniform", "relu", "relu_", "remote_load", "remote_load_",
    "remote_store", "rename", "repeat", "repeat_with_info", "reshape", "reshape_", "roi_align", "scaled_add",
    "scaled_add_", "scatter", "scatter_reduce", "shaped_dropout", "sign", "sin", "slice", "slice_", "softmax",
    "split", "split_random_seed", "sqrt", "squeeze", "sub", "subsample", "sum", "sumsquare", "swish", "swish_",
    "tanh", "tied_gather", "topk", "transpose", "transpose_", "var_updates", "where",
]  # fmt: skip
