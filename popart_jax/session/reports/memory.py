"""Running out of tile memory: the error object that a compilation fills, and the exception that programs catch."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import popart_exception

_START = "Out of memory: Cannot fit all variable data onto one or more tiles"


def _nothing(_as_cbor: bool) -> bytes:
    return b""


class OutOfMemoryError:
    """Outcome of a compilation: successful, or out of memory with a report.

    Not an exception, in spite of its name; `OutOfMemoryException` is the one.
    """

    def __init__(self) -> None:
        self._message, self._report, self._profile = "", "", ""
        self._graph: Callable[[bool], bytes] = _nothing

    def fill(
        self, detail: str, report: str = "", profile_path: str = "", graph: Callable[[bool], bytes] | None = None
    ) -> None:
        """Record that memory did not suffice, and why.

        Parameters
        ----------
        detail : str
            What was needed, and how much there is.
        report, profile_path : str
            The summary of memory by tile, and the file that has all of it.
        graph : callable, optional
            Makes the serialised graph; of whether it is to be CBOR.
        """
        self._message = f"{_START}. {detail}".strip()
        self._report, self._profile = report, profile_path
        self._graph = graph or _nothing

    def isSuccessful(self) -> bool:
        """Whether everything fits."""
        return not self._message

    def getSummaryReport(self) -> str:
        """Which tile needs how much, and what would help."""
        return self._report

    def getProfilePath(self) -> str:
        """File with the memory profile, empty if none was asked for."""
        return self._profile

    def getGraphReport(self, useCbor: bool = False) -> bytes:
        """The graph profile as JSON or CBOR (older interface), empty when everything fits."""
        return self._graph(useCbor)

    def __str__(self) -> str:
        return self._message

    def __repr__(self) -> str:
        return f"OutOfMemoryError({self._message!r})"


class OutOfMemoryException(popart_exception):
    """A program does not fit into the memory of a tile; `error` tells more."""

    def __init__(self, e: OutOfMemoryError) -> None:
        super().__init__(str(e))
        self.error = e

    def getSummaryReport(self) -> str:
        """Which tile needs how much, and what would help."""
        return self.error.getSummaryReport()

    def getProfilePath(self) -> str:
        """File with the memory profile, empty if none was asked for."""
        return self.error.getProfilePath()

    def getGraphReport(self, useCbor: bool = False) -> bytes:
        """The graph profile as JSON or CBOR (older interface)."""
        return self.error.getGraphReport(useCbor)
