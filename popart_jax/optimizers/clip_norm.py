"""Limits on the norm of a group of gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .._calls import checked
from ..errors import popart_exception


class ClipNormSettings:
    """Scale the gradients of the named weights down together when their common 2-norm exceeds `maxNorm`."""

    weightIds: list[str]
    maxNorm: float

    @checked
    def __init__(self, weightIds: list[str], maxNorm: float) -> None:
        self.weightIds = list(weightIds)
        self.maxNorm = float(maxNorm)
        self._all = False

    @staticmethod
    def clipWeights(weightIds_: list[str], maxNorm_: float, /) -> ClipNormSettings:
        """A group of the named weights."""
        return ClipNormSettings(weightIds_, maxNorm_)

    @staticmethod
    def clipAllWeights(maxNorm_: float, /) -> ClipNormSettings:
        """One group of every weight."""
        made = ClipNormSettings([], maxNorm_)
        made._all = True
        return made

    def getWeightIds(self) -> list[str]:
        """Names of the weights of a group that names them.

        Raises
        ------
        popart_exception
            The group is every weight.
        """
        if self._all:
            raise popart_exception(
                "ClipNormSettings.getWeightIds should only be called if ClipNormSettings.getMode returns "
                "Mode::ClipSpecifiedWeights."
            )
        return list(self.weightIds)

    def covers_all(self) -> bool:
        """Whether the group is every weight."""
        return self._all

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, ClipNormSettings) else NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        which = "all weights" if self._all else self.weightIds
        return f"ClipNormSettings({which}, maxNorm={self.maxNorm:g})"


def check_clips(clips: Sequence[ClipNormSettings]) -> list[ClipNormSettings]:
    """The settings as a list.

    Raises popart_exception where one covers all weights and is not the only one, or a norm is negative, infinite or no
    number.
    """
    if len(clips) > 1 and any(c.covers_all() for c in clips):
        raise popart_exception(
            "Multiple clip groups specified, but one has the mode 'ClipAllWeights'. When using "
            "ClipNormSettings.clipAllWeights(...), only one group should be specified."
        )
    for clip in clips:
        if not math.isfinite(clip.maxNorm) or clip.maxNorm < 0:
            raise popart_exception(
                f"Invalid clip norm settings: maxNorm must be a finite number of at least 0, got {clip.maxNorm:g}"
            )
    return list(clips)
