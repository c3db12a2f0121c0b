"""`DataFlow` and `AnchorReturnType`: how many batches one step runs and which tensors it returns."""

from __future__ import annotations

from typing import Any, overload

from ..._calls import checked, overloaded
from ...enums import AnchorReturnTypeId, ExchangeStrategy, TileSet
from ...errors import logs_errors, noted, popart_exception

_IDS = {"ALL": AnchorReturnTypeId.All, "FINAL": AnchorReturnTypeId.Final, "SUM": AnchorReturnTypeId.Sum}
_EVERY_N = "EVERYN"


class AnchorReturnType:
    """Which results of a step an anchor returns: ``All``, ``EveryN`` (with a period), ``Final`` or ``Sum``.

    Raises
    ------
    popart_exception
        Unknown kind, a missing or zero period, or a period for a kind that has none.
    """

    @overload
    def __init__(
        self,
        anchorReturnTypeString: str,
        tileSet: TileSet = TileSet.Compute,
        exchangeStrategy: ExchangeStrategy = ExchangeStrategy.JustInTime,
    ) -> None: ...
    @overload
    def __init__(
        self,
        anchorReturnTypeString: str,
        returnPeriod: int,
        tileSet: TileSet = TileSet.Compute,
        exchangeStrategy: ExchangeStrategy = ExchangeStrategy.JustInTime,
    ) -> None: ...
    @overloaded
    def __init__(
        self,
        anchorReturnTypeString: Any,
        returnPeriod: Any = None,
        tileSet: Any = TileSet.Compute,
        exchangeStrategy: Any = ExchangeStrategy.JustInTime,
    ) -> None:
        self._name = anchorReturnTypeString
        self._id = _parse(anchorReturnTypeString, returnPeriod)
        self._period: int | None = returnPeriod
        self._tiles, self._exchange = tileSet, exchangeStrategy

    def id(self) -> AnchorReturnTypeId:
        """The kind."""
        return self._id

    @logs_errors
    def rp(self) -> int:
        """The period of EveryN.

        Raises
        ------
        popart_exception
            Another kind.
        """
        if self._period is None:
            raise popart_exception("A return period should not be supplied for this anchor return type")
        return self._period

    def tileSet(self) -> TileSet:
        """Tiles the anchor is copied from."""
        return self._tiles

    def exchangeStrategy(self) -> ExchangeStrategy:
        """When the anchor is copied."""
        return self._exchange

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, AnchorReturnType) else NotImplemented

    def __hash__(self) -> int:
        return hash((self._id, self._period, self._tiles, self._exchange))

    def __repr__(self) -> str:
        period = "" if self._period is None else f", {self._period}"
        return f'AnchorReturnType("{self._id.name}"{period})'


def _parse(text: str, period: int | None) -> AnchorReturnTypeId:
    name = text.upper()
    if name == _EVERY_N:
        if period is None:
            raise popart_exception("Must specify return period with option 'EVERYN'")
        if period <= 0:
            raise popart_exception("Anchor return period must be greater than zero")
        return AnchorReturnTypeId.EveryN
    if name not in _IDS:
        raise popart_exception(f"Invalid anchor return type ID supplied: {text}")
    if period is not None:
        raise popart_exception("A return period should not be supplied for this anchor return type")
    return _IDS[name]


class DataFlow:
    """Batches per step and the anchored tensors.

    Parameters
    ----------
    batchesPerStep : int
        Batches that one `Session.run` processes.
    anchorTensors : dict of str to AnchorReturnType
        Tensors to return; alternatively `anchorIds`, a list of names, with one `anchorReturnType` for all.

    Raises
    ------
    popart_exception
        A batch count below one, or an EveryN period that does not divide it.
    """

    @overload
    def __init__(self, batchesPerStep: int, anchorTensors: dict[str, AnchorReturnType]) -> None: ...
    @overload
    def __init__(
        self,
        batchesPerStep: int,
        anchorIds: list[str],
        anchorReturnType: AnchorReturnType = AnchorReturnType("All"),  # noqa: B008 - immutable
    ) -> None: ...
    @overloaded
    def __init__(
        self, batchesPerStep: int, anchorTensors: Any = None, anchorIds: Any = None, anchorReturnType: Any = None
    ) -> None:
        if anchorIds is None:
            anchors = sorted(anchorTensors.items())
        else:
            anchors = [(name, anchorReturnType) for name in anchorIds]
        self._anchors = dict(anchors)
        self._check(batchesPerStep)
        self._batches = batchesPerStep

    _anchors: dict[str, AnchorReturnType]

    def _check(self, batches: int) -> None:
        if batches <= 0:
            error = popart_exception("'Batches per step' must be greater than zero")
            raise noted(error, f"got {batches}")
        for name, art in self._anchors.items():
            if art.id() is AnchorReturnTypeId.EveryN and batches % art.rp():
                how = "<= to" if art.rp() > batches else "a factor of"
                error = popart_exception(f"Return period must be {how} the number of batches per step")
                raise noted(error, f"anchor '{name}' has EveryN({art.rp()}), batches per step are {batches}")

    @checked
    def isAnchored(self, arg: str, /) -> bool:
        """Whether a tensor is anchored."""
        return arg in self._anchors

    def nAnchors(self) -> int:
        """Number of anchors."""
        return len(self._anchors)

    def batchesPerStep(self) -> int:
        """Batches per step."""
        return self._batches

    @checked
    def setBatchesPerStep(self, batchesPerStep: int, /) -> None:
        """Change the batches per step."""
        self._check(batchesPerStep)
        self._batches = batchesPerStep

    def anchors(self) -> list[str]:
        """Names of the anchored tensors."""
        return list(self._anchors)

    @checked
    def art(self, anchorId: str, /) -> AnchorReturnType:
        """Return type of an anchor.

        Raises
        ------
        popart_exception
            `anchorId` is not anchored.
        """
        if anchorId not in self._anchors:
            raise popart_exception(f"Tensor {anchorId} is not an anchor")
        return self._anchors[anchorId]

    def __repr__(self) -> str:
        return f"DataFlow({self._batches}, {self._anchors})"
