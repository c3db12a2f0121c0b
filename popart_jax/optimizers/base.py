"""Base class of the optimizers: values, accessors, and checks for replacing one by another."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from ..enums import DataType
from ..errors import logs_errors, popart_exception, popart_runtime_error
from ..model.number_text import number_text
from .clip_norm import ClipNormSettings, check_clips
from .values import OptimizerValue, OptimizerValueMap, check_keys, parse

Self = TypeVar("Self", bound="Optimizer")
logger = logging.getLogger("popart.session")
USER_ERROR = "bailing as this might be a user error"
_MAY_BE_INFINITE = frozenset({"maxWeightNorm"})  # a limit: infinity means none


class Optimizer:
    """Base class: a description of an update rule and its hyperparameters; it computes nothing.

    Class attributes say what a subclass adds: `_defaults` (field -> default value), `_specific` (fields that single
    weights may set), `_plain` (fields whose dictionary key is their name, not ``default<Field>``), `_aliases` (further
    keys) and `_groups` (fields compared when an optimizer replaces another, with the words used in messages).
    """

    _family: ClassVar[str] = ""
    _defaults: ClassVar[Mapping[str, float]] = {}
    _specific: ClassVar[tuple[str, ...]] = ()
    _plain: ClassVar[tuple[str, ...]] = ("lossScaling",)
    _aliases: ClassVar[Mapping[str, str]] = {}
    _groups: ClassVar[Mapping[str, str]] = {}

    def _set_values(self, values: Mapping[Any, Any], clips: Sequence[ClipNormSettings] = ()) -> None:
        keys = {_default_key(f): f for f in self._specific if f not in self._plain}
        allowed = {**keys, **{f: f for f in self._plain}, **self._aliases}
        check_keys(values, allowed, f"Invalid {self._family} key, {{key}}, the allowed keys are")
        given = parse(values, allowed, self._family)
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
                shown = number_text(value.val())
                raise popart_exception(f"Negative learning rate ({shown}) in {self._family}, {USER_ERROR}.")
            if value.val() == 0 and value.isConst():
                raise popart_exception(f"Constant, zero learning rate in {self._family}, {USER_ERROR}.")
        self._refuse_negative("weightDecay", "weight decay")
        if self.getLossScalingVal() == 0:
            raise popart_exception("Loss scaling cannot be 0")

    def _refuse_negative(self, field: str, words: str, shown: str = "") -> None:
        """Refuse values below 0; the message shows the field `shown` (in one case PopART shows another field)."""
        for value, told in zip(self._maps[field], self._maps[shown or field], strict=True):
            if value.val() < 0:
                text = number_text(told.val())
                raise popart_exception(f"Negative {words} ({text}) in {self._family}, {USER_ERROR}")

    def _refuse_not_positive(self, field: str, words: str) -> None:
        for value in self._maps[field]:
            if value.val() <= 0:
                shown = number_text(value.val())
                raise popart_exception(f"Non-positive {words} ({shown}) in {self._family} is not supported")

    @logs_errors
    def insertSpecific(self, id: str, pyd: Mapping[str, Any], /) -> None:
        """Give one weight its own values; what `pyd` leaves out is taken from the current defaults.

        Raises
        ------
        popart_exception
            Unknown keys, bad values, or a weight that already has values.
        """
        words = f"Invalid key {{key}} in {self._family}::insertSpecific. Permitted keys are"
        check_keys(pyd, self._specific, words)
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

    def specific_weights(self) -> list[str]:
        """Names of the weights with values of their own, in order."""
        return sorted({name for m in self._maps.values() for name in m.specific()})

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
        """The facts that a replacement of this optimizer must share, as plain values."""
        values = {field: found.fixed() for field, found in self._maps.items()}
        clips = [(clip.covers_all(), clip.weightIds, clip.maxNorm) for clip in self._clips]
        return self._family, values, dict(self._structure()), clips

    def _structure(self) -> Mapping[str, Any]:
        """Structural facts that must be the same in a replacement of this optimizer."""
        return {}

    def check_replacement(self, other: Optimizer) -> None:
        """Raise if `other` cannot replace this optimizer without compiling a new program.

        Raises
        ------
        popart_runtime_error
            Names the first difference, in PopART's words.
        """
        reason = self._misfit(other)
        if reason:
            raise popart_runtime_error(f"New optimizer is not a valid replacement. {reason}")

    def _misfit(self, other: Optimizer) -> str:
        if len(self._clips) != len(other._clips):
            return "Clip norm settings do not match."
        for index, (mine, theirs) in enumerate(zip(self._clips, other._clips, strict=True)):
            if mine != theirs:
                return f"Clip norm settings at index {index} do not match."
        if self._family != other._family:
            return f"Can not replace optimizer of type {self._family} with new optimizer of type {other._family}"
        differs = self._differs(other)
        if differs:
            return differs
        for field, words in self._groups.items():
            mine, theirs = self._maps[field], other._maps[field]
            single = field == "lossScaling"  # one value for all weights
            reason = mine.getDefault().replaceable_by(theirs.getDefault()) if single else mine.replaceable_by(theirs)
            if reason:
                return f"Problem with {words}. {reason}"
        facts = other._structure()
        changed = (f"{w}: {v} can't become {facts[w]}." for w, v in self._structure().items() if v != facts[w])
        return next(changed, "")

    def _differs(self, other: Any) -> str:
        """The difference to an optimizer of the same family, in PopART's words; empty if there is none."""
        del other
        return ""

    def check_state_types(self, weight: str) -> None:
        """Refuse types that the state of a weight cannot have; called when a session makes the state.

        Raises
        ------
        popart_exception
            Neither FLOAT nor FLOAT16 (nor UNDEFINED, meaning the weight's, where that is allowed).
        """
        for tensor, kind, undefined in self._state_types():
            if not may_store(kind, undefined):
                raise popart_exception(
                    f"Unsupported data type for tensor {tensor}{weight}, currently only FLOAT16 and FLOAT are supported"
                )

    def _state_types(self) -> Sequence[tuple[str, DataType, bool]]:
        """Prefix and type of each state tensor, and whether UNDEFINED stands for the weight's type."""
        return ()

    def __repr__(self) -> str:
        values = ", ".join(f"{f}={m.getDefault()!r}" for f, m in self._maps.items())
        return f"{type(self).__name__}({values})"


def _default_key(field: str) -> str:
    return f"default{field[0].upper()}{field[1:]}"


def may_store(kind: DataType, undefined: bool = True) -> bool:
    """Whether optimizer state can have a type; `undefined` says whether UNDEFINED stands for the weight's."""
    return kind in (DataType.FLOAT, DataType.FLOAT16) or (undefined and kind is DataType.UNDEFINED)
