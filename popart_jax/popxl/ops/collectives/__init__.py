"""Communication between replicas (`replicated_...`) and between the IPUs of one replica (`all_reduce...`)."""

from __future__ import annotations

from ..._internal.virtual import module as _make_module
from .. import _collectives
from .._collectives import (
    CommGroup as CommGroup,
    CommGroupType as CommGroupType,
    all_reduce as all_reduce,
    all_reduce_identical_grad_inputs as all_reduce_identical_grad_inputs,
    all_reduce_identical_inputs as all_reduce_identical_inputs,
    replica_sharded_slice as replica_sharded_slice,
    replicated_all_gather as replicated_all_gather,
    replicated_all_reduce as replicated_all_reduce,
    replicated_all_reduce_ as replicated_all_reduce_,
    replicated_reduce_scatter as replicated_reduce_scatter,
    replicated_slice as replicated_slice,
)

__all__ = [
    "CommGroup",
    "CommGroupType",
    "all_reduce",
    "all_reduce_identical_grad_inputs",
    "all_reduce_identical_inputs",
    "replica_sharded_slice",
    "replicated_all_gather",
    "replicated_all_reduce",
    "replicated_all_reduce_",
    "replicated_reduce_scatter",
    "replicated_slice",
]

for _name in ("all_reduce", "collectives", "replicated_all_gather", "replicated_all_reduce", "replicated_reduce_scatter"):
    _make_module(f"{__name__}.{_name}", "Collective operators.", {k: v for k, v in vars(_collectives).items() if not k.startswith("__")})
