"""PopXL operators: each appends to the current graph and returns its output tensors.

Families: `elementwise`, `shaping`, `reductions`, `linalg`, `conv`, `nn`, `indexing`, `exchange`, `random`, control flow
(`call`, `repeat`, `conditional`), `var_updates`, `collectives`. What `__all__` of a family lists is here too.
"""

# ruff: noqa: F403

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
from .elementwise import *
from .elementwise import floor as floor
from .elementwise import log2 as log2
from .exchange import *
from .exchange import remote_code_load as remote_code_load
from .indexing import *
from .linalg import *
from .nn import *
from .print_tensor import print_tensor
from .random import random_normal, random_uniform
from .random_seed import split_random_seed
from .reductions import *
from .repeat import repeat, repeat_with_info
from .shaping import *
from .shaping import slice_op as slice_op

operators.enter_all({name: fn for name, fn in globals().items() if callable(fn)})
_register(__name__, [_elementwise, _shaping, _reductions, _linalg, _nn, _indexing, _exchange])

__all__ = [
    "CallSiteInfo", "PadType", "call", "call_with_info", "collectives", "conditional", "conditional_with_info", "conv",
    "conv_pow2scaled", "conv_transpose", "conv_transpose_pow2scaled", "print_tensor", "random_normal",
    "random_uniform", "repeat", "repeat_with_info", "split_random_seed", "var_updates",
]  # fmt: skip
__all__ += _elementwise.__all__
__all__ += _exchange.__all__
__all__ += _indexing.__all__
__all__ += _linalg.__all__
__all__ += _nn.__all__
__all__ += _reductions.__all__
__all__ += _shaping.__all__
