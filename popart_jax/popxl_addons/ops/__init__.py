"""Operators of popxl_addons."""

from . import collectives, fp8, simple
from .collectives import replicated_all_gather_strided as replicated_all_gather_strided
from .collectives import replicated_all_reduce as replicated_all_reduce
from .collectives import (
    replicated_all_reduce_identical_grad_inputs as replicated_all_reduce_identical_grad_inputs,
)
from .collectives import replicated_all_reduce_identical_inputs as replicated_all_reduce_identical_inputs
from .collectives import replicated_all_reduce_strided as replicated_all_reduce_strided
from .collectives import replicated_all_reduce_strided_graph as replicated_all_reduce_strided_graph
from .collectives import (
    replicated_all_reduce_strided_identical_grad_inputs as replicated_all_reduce_strided_identical_grad_inputs,
)
from .collectives import (
    replicated_all_reduce_strided_identical_inputs as replicated_all_reduce_strided_identical_inputs,
)
from .collectives import replicated_reduce_scatter_strided as replicated_reduce_scatter_strided
from .cross_entropy import cross_entropy as cross_entropy
from .cross_entropy import cross_entropy_with_grad as cross_entropy_with_grad
from .fp8 import fp8_amax_scale as fp8_amax_scale
from .fp8 import fp8_mse_scale as fp8_mse_scale
from .quantize import group_quantize_compress_numpy as group_quantize_compress_numpy
from .quantize import group_quantize_decompress as group_quantize_decompress
from .quantize import group_quantize_decompress_numpy as group_quantize_decompress_numpy
from .rotary import rotary_pos_embed as rotary_pos_embed
from .rotary import trig_table_constants as trig_table_constants
from .rotary import trig_tables as trig_tables
from .sharded import cross_entropy_sharded_loss as cross_entropy_sharded_loss
from .sharded import cross_entropy_sharded_wr_loss as cross_entropy_sharded_wr_loss
from .sharded import layer_norm_distributed as layer_norm_distributed
from .simple import dense_const_sparse_matmul as dense_const_sparse_matmul
from .simple import grad_reduce_square_add as grad_reduce_square_add
from .simple import linear_layout as linear_layout
from .simple import random_sparse as random_sparse
from .streams import host_load as host_load
from .streams import host_store as host_store

# Folders of upstream, as attributes of this package.
replicated_all_reduce_TP = replicated_strided_collectives = collectives
fp8_utils, static_sparse_ops = fp8, simple
