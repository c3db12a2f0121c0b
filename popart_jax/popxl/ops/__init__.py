"""PopXL operators: each appends to the current graph and returns its output tensors.

Families: `elementwise`, `shaping`, `reductions`, `linalg`, `conv`, `nn`, `indexing`, `exchange`, `random`, control flow
(`call`, `repeat`, `conditional`), `var_updates`, `collectives`.
"""

from .._building.bindings import operators
from . import collectives, var_updates
from . import elementwise as _elementwise
from . import exchange as _exchange
from . import indexing as _indexing
from . import linalg as _linalg
from . import nn as _nn
from . import reductions as _reductions
from . import shaping as _shaping
from ._modules import register as _register
from .call import CallSiteInfo, call, call_with_info
from .conditional import conditional, conditional_with_info
from .conv import PadType, conv, conv_pow2scaled, conv_transpose, conv_transpose_pow2scaled
from .elementwise import (
    abs,
    add,
    add_,
    ceil,
    clamp,
    clip,
    cos,
    div,
    equal,
    exp,
    exp_,
    fmod,
    gelu,
    gelu_,
    geluerf,
    geluerf_,
    greater,
    increment_mod,
    increment_mod_,
    isfinite,
    isinf,
    isnan,
    log,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    mul,
    negate,
    pow,
    relu,
    relu_,
    sign,
    sin,
    sqrt,
    sub,
    swish,
    swish_,
    tanh,
    where,
)
from .elementwise import floor as floor
from .elementwise import log2 as log2
from .exchange import host_load, host_store, io_tile_copy, ipu_copy, remote_load, remote_load_, remote_store
from .exchange import remote_code_load as remote_code_load
from .indexing import (
    dynamic_slice,
    dynamic_update,
    dynamic_update_,
    gather,
    groupedgather,
    onehot,
    scaled_add,
    scaled_add_,
    scatter,
    scatter_reduce,
    tied_gather,
)
from .linalg import matmul, matmul_pow2scaled
from .nn import (
    average_pool,
    batch_norm_inference,
    dropout,
    group_norm,
    interpolate,
    layer_norm,
    max_pool,
    nll_loss,
    nll_loss_with_softmax_grad,
    roi_align,
    shaped_dropout,
)
from .print_tensor import print_tensor
from .random import random_normal, random_uniform
from .random_seed import split_random_seed
from .reductions import (
    argmax,
    argmin,
    cumsum,
    histogram,
    l1,
    l2,
    lamb_square,
    logsum,
    logsumexp,
    max,
    mean,
    median,
    min,
    prod,
    softmax,
    sum,
    sumsquare,
    topk,
)
from .repeat import repeat, repeat_with_info
from .shaping import (
    cast,
    concat,
    concat_,
    detach,
    detach_,
    flatten,
    flatten_,
    identity,
    init,
    pow2scale_cast_from_fp8,
    pow2scale_cast_to_fp8,
    rename,
    reshape,
    reshape_,
    slice,
    slice_,
    split,
    squeeze,
    subsample,
    transpose,
    transpose_,
)
from .shaping import slice_op as slice_op

operators.enter_all({name: fn for name, fn in globals().items() if callable(fn)})
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
