"""Options of a session that change what operators compute."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """Options and pattern switches of PopART that reach operators, with PopART's defaults."""

    nonstable_softmax: bool = False  # ``enableNonStableSoftmax``: Softmax does not subtract the maximum first
    # ``groupNormStridedChannelGrouping``: the channels of a group are as far apart as there are groups
    strided_group_norm: bool = False
    subsamples_slices: bool = True  # the pattern ``Slice2SliceSubsample``, without which a Slice has steps of one
    rounds_stochastically: bool = False  # ``enableStochasticRounding`` on a device that can do it
    # of equal maxima (or minima) each has the whole gradient; else the first has it, or all share it, as in PyTorch
    whole_gradient_of_ties: bool = True
    announces_operators: bool = False  # each operator says on stderr that it runs (``POPART_OPX_TRACE``)


DEFAULTS = OperatorOptions()
OF_JAX = OperatorOptions(whole_gradient_of_ties=False)
"""Those of functions that are no PopART programs: the derivative of what is computed, where it has one."""
