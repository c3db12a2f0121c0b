"""Updates of variables: accumulators, optimizer terms, copies."""

from __future__ import annotations

from ..._internal.virtual import module as _make_module
from .. import _updates
from .._updates import (
    accumulate_ as accumulate_,
)
from .._updates import (
    accumulate_mean_ as accumulate_mean_,
)
from .._updates import (
    accumulate_moving_average_ as accumulate_moving_average_,
)
from .._updates import (
    accumulate_moving_average_square_ as accumulate_moving_average_square_,
)
from .._updates import (
    accumulate_square_ as accumulate_square_,
)
from .._updates import (
    accumulator_scale_ as accumulator_scale_,
)
from .._updates import (
    accumulator_zero_ as accumulator_zero_,
)
from .._updates import (
    adam_updater as adam_updater,
)
from .._updates import (
    adam_var_update as adam_var_update,
)
from .._updates import (
    adamax_updater as adamax_updater,
)
from .._updates import (
    copy_var_update_ as copy_var_update_,
)
from .._updates import (
    lamb_updater as lamb_updater,
)
from .._updates import (
    sparse_accumulate_ as sparse_accumulate_,
)

__all__ = [
    "accumulate_",
    "accumulate_mean_",
    "accumulate_moving_average_",
    "accumulate_moving_average_square_",
    "accumulate_square_",
    "accumulator_scale_",
    "accumulator_zero_",
    "adam_updater",
    "adam_var_update",
    "adamax_updater",
    "copy_var_update_",
    "lamb_updater",
    "sparse_accumulate_",
]

for _name in ("accumulate", "adam_updater", "adam_var_update", "copy_var_update", "utils"):
    _make_module(
        f"{__name__}.{_name}", "Variable updates.", {k: v for k, v in vars(_updates).items() if not k.startswith("__")}
    )
