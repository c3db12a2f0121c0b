"""What all optimizer classes share: values, accessors, checks on replacing one by another."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from ..enums import DataType
from ..errors import logs_errors, popart_exception
from .clip_norm import ClipNormSettings, check_clips
from .values import OptimizerValue, OptimizerValueMap, parse

Self = TypeVar("Self", bound="Optimizer")
logger = logging.getLogger("popart.session")
_MAY_BE_INFINITE = frozenset({"maxWeightNorm"})  # a limit: infinity means none


class Optimizer:
    """Base class: a description of an update rule and its hyperparameters; it computes nothing.

    Class attributes say what a subclass adds: `_defaults` (field -> default value), `_specific` (fields that single
    weights may set), `_aliases` (dictionary keys that are not ``default<Field>``) and `_groups` (fields compared
    when an optimizer replaces another, with the words used in messages).
    """

    _family: ClassVar[str] = ""
    _defaults: ClassVar[Mapping[str, float]] = {}
    _specific: ClassVar[tuple[str, ...]] = ()
    _aliases: ClassVar[Mapping[str, str]] = {}
    _groups: ClassVar[Mapping[str, str]] = {}

    def _set_values(self, values: Mapping[Any, Any], clips: Sequence[ClipNormSettings] = ()) -> None:
        keys = {_default_key(f): f for f in self._specific}
        given = parse(values, {**keys, "lossScaling": "lossScaling", **self._aliases}, self._family)
        self._maps = {f: OptimizerValueMap(given.get(f, OptimizerValue(v))) for f, v in self._defaults.items()}
        self._clips = check_clips(clips)
        self._check_values()

    def _check_values(self) -> None:
        """Raise popart_exception for values no training can use."""
        for field, values in self._maps.items():
            for value in values:
                if math.isnan(value.val()) or (math.isinf(value.val()) and field not in _MAY_BE_INFINITE):
                    raise popart_exception(
                        f"The optimizer value {field} must be a finite number in {self._family}, got {value.val():g}"
                    )
        for value in self._maps["learningRate"]:
            if value.val() < 0:
                raise popart_exception(f"Negative learning rate ({value.val():g}) in {self._family}")
            if value.val() == 0 and value.isConst():
                raise popart_exception(f"Constant, zero learning rate in {self._family}")
        self._refuse_negative("weightDecay", "weight decay")
        if self.getLossScalingVal() == 0:
            raise popart_exception(f"Loss scaling cannot be 0 in {self._family}")

    def _refuse_negative(self, field: str, words: str, positive: bool = False) -> None:
        for value in self._maps[field]:
            if value.val() < 0 or (positive and value.val() == 0):
                kind = "Non-positive" if positive else "Negative"
                raise popart_exception(f"{kind} {words} ({value.val():g}) in {self._family}")

    @logs_errors
    def insertSpecific(self, id: str, pyd: Mapping[str, Any], /) -> None:
        """Give one weight its own values; what `pyd` leaves out is taken from the current defaults.

        Raises
        ------
        popart_exception
            Unknown keys, bad values, or a weight that already has values.
        """
        given = parse(pyd, {f: f for f in self._specific}, self._family)
        before = copy.deepcopy(self._maps)
        try:
            for field in self._specific:
                self._maps[field].insert(id, given.get(field, self._maps[field].getDefault()))
            self._check_values()
        except popart_exception:
            self._maps = before
            raise

    def hasSpecific(self, weight: str) -> bool:
        """Whether a weight has values of its own."""
        return any(m.hasSpecific(weight) for m in self._maps.values())

    def value(self, field: str, weight: str | None = None) -> OptimizerValue:
        """Value of one hyperparameter, for a weight or by default."""
        values = self._maps[field]
        return values.getDefault() if weight is None else values.get(weight)

    def getLossScalingVal(self) -> float:
        """The loss scale."""
        return self._maps["lossScaling"].getDefault().val()

    def clip_norms(self) -> list[ClipNormSettings]:
        """Groups of weights whose gradients are clipped."""
        return list(self._clips)

    def clone(self: Self) -> Self:
        """An independent copy."""
        return copy.deepcopy(self)

    def fixed(self) -> tuple[Any, ...]:
        """What an optimizer that takes this one's place has in common with it, as plain values."""
        values = {field: found.fixed() for field, found in self._maps.items()}
        clips = [(clip.covers_all(), clip.weightIds, clip.maxNorm) for clip in self._clips]
        return self._family, values, dict(self._structure()), clips

    def _structure(self) -> Mapping[str, Any]:
        """Facts that must be the same in an optimizer that takes this one's place."""
        return {}

    def check_replacement(self, other: Optimizer) -> None:
        """Raise if `other` cannot take this one's place without a new program.

        Raises
        ------
        popart_exception
            Names the group of values that stands in the way.
        """
        if self._family != other._family:
            raise popart_exception(
                f"Cannot replace the {self._family} optimizer by a {other._family} optimizer; "
                "the new optimizer must be of the same class."
            )
        for field, words in self._groups.items():
            reason = self._maps[field].replaceable_by(other._maps[field])
            if reason:
                raise popart_exception(f"Problem with {words} of the {self._family} optimizer replacement: {reason}")
        theirs = other._structure()
        for words, mine in self._structure().items():
            if mine != theirs[words]:
                raise popart_exception(
                    f"Problem with {words} of the {self._family} optimizer replacement: "
                    f"{mine} can't become {theirs[words]}"
                )
        if self._clips != other._clips:
            raise popart_exception(
                f"Problem with clip norm settings of the {self._family} optimizer replacement: "
                f"{self._clips} can't become {other._clips}"
            )

    def __repr__(self) -> str:
        values = ", ".join(f"{f}={m.getDefault()!r}" for f, m in self._maps.items())
        return f"{type(self).__name__}({values})"


def _default_key(field: str) -> str:
    return f"default{field[0].upper()}{field[1:]}"


def check_state_type(kind: DataType, what: str, undefined: bool) -> DataType:
    """A type for optimizer state.

    Raises
    ------
    popart_exception
        Neither FLOAT nor FLOAT16 (nor UNDEFINED, meaning the weight's, where that is allowed).
    """
    allowed = (DataType.FLOAT, DataType.FLOAT16, *((DataType.UNDEFINED,) if undefined else ()))
    if kind not in allowed:
        names = ", ".join(a.name for a in allowed)
        raise popart_exception(f"Unsupported type {kind.name} for {what}; it can be {names}.")
    return kind
