"""Parameters of a pooling, and the reshaped problem that its planner works on."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from ipu_model.checks import check_choice, check_sizes

SIZES = {"half": 2, "float": 4}


@dataclass(frozen=True)
class PoolParams:
    """A pooling over an input ``[batch, channels, *field]``."""

    batch: int
    channels: int
    field: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad_lower: tuple[int, ...]
    pad_upper: tuple[int, ...]
    kind: str = "max"  # "max", "sum" or "average"
    data: str = "half"
    group: int = 0  # channels that lie together in the input; 0 when that is unknown, so that any grouping is as good

    def __post_init__(self) -> None:
        check_sizes("pooling", batch=self.batch, channels=self.channels)
        for name in ("field", "kernel", "stride"):
            check_sizes("pooling", **{f"{name}[{d}]": n for d, n in enumerate(getattr(self, name))})
        check_choice("pooling", "kind", self.kind, ("max", "sum", "average"))
        check_choice("pooling", "data", self.data)
        if min(self.out, default=1) < 1:
            raise ValueError(f"pooling has no output: field {self.field}, kernel {self.kernel}, output {self.out}")

    @property
    def out(self) -> tuple[int, ...]:
        """Sizes of the result: ``(field + padding - kernel) // stride + 1`` per dimension."""
        return tuple(
            (f + lo + hi - k) // s + 1
            for f, k, s, lo, hi in zip(
                self.field, self.kernel, self.stride, self.pad_lower, self.pad_upper, strict=True
            )
        )

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return SIZES[self.data]

    @property
    def vector(self) -> int:
        """Elements in 8 bytes."""
        return 8 // self.size

    @property
    def whole_field(self) -> bool:
        """Whether one window takes the whole field, so that a reduction does the work."""
        return self.kernel == self.field and not any((*self.pad_lower, *self.pad_upper))

    def folded(self) -> PoolParams:
        """The forward problem with the batch among the channels, and disjoint windows along one row."""
        p = dataclasses.replace(self, batch=1, channels=self.channels * self.batch)
        apart = all(s >= k and f % s == 0 for s, k, f in zip(p.stride, p.kernel, p.field, strict=True))
        if not apart or any((*p.pad_lower, *p.pad_upper)) or len(p.field) != 2:
            return p
        height, width = p.field[0], p.field[1]
        return dataclasses.replace(p, field=(p.stride[0], width * (height // p.stride[0])))

    def with_channels_along(self, grouping: int) -> PoolParams:
        """A folded problem with groups of channels along the row, where windows are disjoint."""
        if self.field[0] != self.stride[0] or self.channels % grouping or any((*self.pad_lower, *self.pad_upper)):
            return self
        wide = self.field[1] * (self.channels // grouping)
        return dataclasses.replace(self, channels=grouping, field=(self.field[0], wide))

    @property
    def windows(self) -> int:
        """Elements of one window."""
        return math.prod(self.kernel)
