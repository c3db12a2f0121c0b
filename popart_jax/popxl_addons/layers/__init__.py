"""Layers."""

from . import linear_fp8 as linear_fp8
from . import linear_gq as linear_gq
from .conv import Conv2D as Conv2D
from .embedding import MULTISLICE_MAGIC_NUMBER as MULTISLICE_MAGIC_NUMBER
from .embedding import Embedding as Embedding
from .group_norm import GroupNorm as GroupNorm
from .layer_norm import LayerNorm as LayerNorm
from .layer_norm_distributed import LayerNormDistributed as LayerNormDistributed
from .linear import Linear as Linear
