"""Options of a session that change what operators compute."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """Options and pattern switches of PopART that reach operators, with PopART's defaults.

    Attributes
    ----------
    nonstable_softmax : bool
        ``enableNonStableSoftmax``: Softmax does not subtract the maximum first.
    strided_group_norm : bool
        ``groupNormStridedChannelGrouping``: the channels of a group are as far apart as there are groups.
    subsamples_slices : bool
        The pattern ``Slice2SliceSubsample``, without which a Slice has steps of one.
    rounds_stochastically : bool
        ``enableStochasticRounding`` on a device that can do it.
    announces_operators : bool
        Each operator says on stderr that it runs (``POPART_OPX_TRACE``).
    """

    nonstable_softmax: bool = False
    strided_group_norm: bool = False
    subsamples_slices: bool = True
    rounds_stochastically: bool = False
    announces_operators: bool = False


DEFAULTS = OperatorOptions()
