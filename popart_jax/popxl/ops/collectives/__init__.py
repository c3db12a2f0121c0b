"""Collectives between replicas (`replicated_...`) and between the IPUs of one replica (`all_reduce...`)."""

from __future__ import annotations

from ..._internal.virtual import module as _make_module
from .. import _collectives
from .._collectives import (
    CommGroup as CommGroup,
)
from .._collectives import (
    CommGroupType as CommGroupType,
)
from .._collectives import (
    all_reduce as all_reduce,
)
from .._collectives import (
    all_reduce_identical_grad_inputs as all_reduce_identical_grad_inputs,
)
from .._collectives import (
    all_reduce_identical_inputs as all_reduce_identical_inputs,
)
from .._collectives import (
    replica_sharded_slice as replica_sharded_slice,
)
from .._collectives import (
    replicated_all_gather as replicated_all_gather,
)
from .._collectives import (
    replicated_all_reduce as replicated_all_reduce,
)
from .._collectives import (
    replicated_all_reduce_ as replicated_all_reduce_,
)
from .._collectives import (
    replicated_reduce_scatter as replicated_reduce_scatter,
)
from .._collectives import (
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

for _name in (
    "all_reduce",
    "collectives",
    "replicated_all_gather",
    "replicated_all_reduce",
    "replicated_reduce_scatter",
):
    _make_module(
        f"{__name__}.{_name}",
        "Collective operators.",
        {k: v for k, v in vars(_collectives).items() if not k.startswith("__")},
    )
