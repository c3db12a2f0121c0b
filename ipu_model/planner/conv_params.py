"""Parameters of a convolution, and the convolutions that its backward and weight-update passes are."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from ipu_model.checks import check_choice, check_sizes

Pass = Literal[
    "none",
    "inference_fwd",
    "training_fwd",
    "training_bwd",
    "training_wu",
    "none_matmul",
    "fc_inference_fwd",
    "fc_training_fwd",
    "fc_training_bwd",
    "fc_training_wu",
]

Dims = tuple[int, ...]
MOST_MACS = 2**63  # what 64-bit integers count


def cdiv(a: int, b: int) -> int:
    """Integer division rounded up."""
    return -(-a // b)


@dataclass(frozen=True)
class ConvParams:
    """Shapes of one convolution; channels are per group, dimensions run from the outermost.

    A negative padding cuts elements of the (dilated) input. `out_padding` appends zeros to the result.
    """

    batch: int
    field: Dims
    kernel: Dims
    in_channels: int
    out_channels: int
    groups: int = 1
    stride: Dims = ()
    pad_lower: Dims = ()
    pad_upper: Dims = ()
    in_dilation: Dims = ()
    kernel_dilation: Dims = ()
    out_padding: Dims = ()
    data: str = "half"
    output: str = "half"

    def __post_init__(self) -> None:
        n = len(self.field)
        if len(self.kernel) != n:
            raise ValueError(f"field has {n} dimensions, kernel has {len(self.kernel)}")
        for name, default in _DIM_DEFAULTS.items():
            value = tuple(getattr(self, name)) or (default,) * n
            if len(value) != n:
                raise ValueError(f"{name} has {len(value)} dimensions, field has {n}")
            if any(isinstance(v, str) or int(v) != v for v in value):
                raise ValueError(f"convolution: {name} is {value}, expected whole numbers")
            extra = (default,) * max(0, 2 - n)
            object.__setattr__(self, name, extra + tuple(int(v) for v in value))
        self._check()
        object.__setattr__(self, "field", (1,) * max(0, 2 - n) + tuple(self.field))
        object.__setattr__(self, "kernel", (1,) * max(0, 2 - n) + tuple(self.kernel))
        if min(self.out) < 1:
            raise ValueError(f"convolution has no output: field {self.field}, kernel {self.kernel}, output {self.out}")
        if self.macs >= MOST_MACS:
            raise ValueError(f"convolution: {self.macs:.3g} multiplies, more than can be counted; field {self.field}, "
                             f"channels {self.in_channels} and {self.out_channels}, groups {self.groups}")  # fmt: skip

    def _check(self) -> None:
        sizes = {"batch": self.batch, "in_channels": self.in_channels, "out_channels": self.out_channels}
        check_sizes("convolution", **sizes, groups=self.groups)
        for name in ("field", "kernel", "stride", "in_dilation", "kernel_dilation"):
            for d, n in enumerate(getattr(self, name)):
                if type(n) is not int or n < 1:
                    check_sizes("convolution", **{f"{name}[{d}]": n})
        check_choice("convolution", "data", self.data)
        check_choice("convolution", "output", self.output)

    @property
    def dims(self) -> int:
        """Spatial dimensions."""
        return len(self.field)

    @cached_property
    def transformed_in(self) -> Dims:
        """Input extent after dilation and padding."""
        return tuple(
            (f - 1) * d + 1 + lo + hi
            for f, d, lo, hi in zip(self.field, self.in_dilation, self.pad_lower, self.pad_upper, strict=True)
        )

    @cached_property
    def transformed_kernel(self) -> Dims:
        """Sizes of the kernel with the gaps of its dilation: ``(k - 1) * d + 1``."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.kernel_dilation, strict=True))

    @cached_property
    def out(self) -> Dims:
        """Output extent."""
        return tuple(
            cdiv(i - k + 1, s) + p
            for i, k, s, p in zip(
                self.transformed_in, self.transformed_kernel, self.stride, self.out_padding, strict=True
            )
        )

    @property
    def macs(self) -> int:
        """Multiplies without regard for padding or dilation zeros."""
        n = self.batch * self.groups * self.in_channels * self.out_channels
        for o, k in zip(self.out, self.kernel, strict=True):
            n *= o * k
        return n

    def replace_dim(self, d: int, **changes: int) -> ConvParams:
        """Copy with some properties changed: those that have a value for each dimension in dimension `d` only."""
        new: dict[str, int | Dims] = {}
        for name, value in changes.items():
            old = getattr(self, name)
            new[name] = (*old[:d], value, *old[d + 1 :]) if isinstance(old, tuple) else value
        return self.derived(**new)

    def derived(self, **changes: Any) -> ConvParams:
        """Copy with some properties changed that need no check, as a planner makes hundreds of."""
        new = object.__new__(ConvParams)
        new.__dict__.update({name: self.__dict__[name] for name in _FIELDS}, **changes)
        return new

    def canonical(self) -> ConvParams:
        """The convolution without the padding and input elements at the upper end that no output reads."""
        sizes = zip(self.pad_upper, self.transformed_in, self.out, self.out_padding, self.stride,
                    self.transformed_kernel, strict=True)  # fmt: skip
        pads = tuple(hi - size + (out - more - 1) * stride + kernel for hi, size, out, more, stride, kernel in sizes)
        return self if pads == self.pad_upper else dataclasses.replace(self, pad_upper=pads)

    def backward(self) -> ConvParams:
        """The convolution that turns the output gradient into the input gradient."""
        p = self.canonical()
        pads = [
            (k - 1 - lo, k - 1 - max(hi, 0))
            for k, lo, hi in zip(p.transformed_kernel, p.pad_lower, p.pad_upper, strict=True)
        ]
        return dataclasses.replace(
            p,
            field=tuple(o - q for o, q in zip(p.out, p.out_padding, strict=True)),
            in_channels=p.out_channels,
            out_channels=p.in_channels,
            in_dilation=p.stride,
            stride=p.in_dilation,
            pad_lower=tuple(lo for lo, _ in pads),
            pad_upper=tuple(hi for _, hi in pads),
            out_padding=tuple(max(0, -hi) for hi in p.pad_upper),
        )

    def weight_update(self) -> ConvParams:
        """The convolution of inputs with output gradients that gives the weight gradient."""
        p = self.canonical()
        return dataclasses.replace(
            p,
            batch=p.in_channels,
            in_channels=p.batch,
            kernel=tuple(o - q for o, q in zip(p.out, p.out_padding, strict=True)),
            kernel_dilation=p.stride,
            stride=p.kernel_dilation,
            out_padding=(0,) * p.dims,
        ).canonical()


_DIM_DEFAULTS = {
    "stride": 1,
    "pad_lower": 0,
    "pad_upper": 0,
    "in_dilation": 1,
    "kernel_dilation": 1,
    "out_padding": 0,
}


_FIELDS = tuple(f.name for f in dataclasses.fields(ConvParams))


def matmul_params(m: int, k: int, n: int, groups: int = 1, data: str = "half", output: str = "half") -> ConvParams:
    """A product ``[groups, m, k] x [groups, k, n]`` as the convolution that PopLibs makes of it."""
    return ConvParams(m, (1,), (1,), k, n, groups, data=data, output=output)
