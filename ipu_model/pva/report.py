"""`openReport` and the object it returns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from ipu_model.pva.compilation import Compilation
from ipu_model.pva.execution import Execution
from ipu_model.report.execution import execution_profile
from ipu_model.report.graph import graph_profile
from ipu_model.report.model import Document
from ipu_model.whole_files import write_whole

FORMAT = "ipu_model profile"


class Report:
    """A profile: ``compilation`` (what the compiler knows) and ``execution`` (the modelled run)."""

    def __init__(
        self, graph: dict[str, Any], execution: dict[str, Any], name: str = "", runs: Sequence[str] = ("run",)
    ) -> None:
        self._graph, self._execution, self._runs = graph, execution, runs
        self.name = name

    @property
    def poplarVersion(self) -> SimpleNamespace:
        """Version 0.0.0, named after the model: no Poplar took part."""
        return SimpleNamespace(string="0.0.0 (ipu_model)", major=0, minor=0, point=0)

    @property
    def packageHash(self) -> str:
        """Empty: no build of Poplar took part."""
        return ""

    @cached_property
    def compilation(self) -> Compilation:
        """What a compiler knows: target, graph, memory, programs."""
        return Compilation(self._graph)

    @cached_property
    def execution(self) -> Execution:
        """The modelled run: steps and cycles."""
        return Execution(self._execution, self.compilation, self._runs)


def fromReport(report: Document) -> Report:
    """The same view of a report in memory."""
    return Report(*profiles(report), report.name)


def profiles(report: Document) -> tuple[dict[str, Any], dict[str, Any]]:
    """Graph and execution profile without the arrays by tile that can be made from their other fields."""
    return graph_profile(report, by_tile=False), execution_profile(report, by_tile=False)


def save_profile(report: Document, path: str | Path) -> Path:
    """Write ``profile.pop``: graph and execution profile in one CBOR tree.

    Parameters
    ----------
    path : str or Path
        File to write; an existing folder gets a ``profile.pop``.
    """
    import cbor2

    path = Path(path)
    path = path / "profile.pop" if path.is_dir() else path
    graph, execution = profiles(report)
    tree = {"format": FORMAT, "name": report.name, "graphProfile": graph, "executionProfile": execution}
    write_whole(path, cbor2.dumps(tree))
    return path


def openReport(path: str | Path) -> Report:
    """Open a profile written by `save_profile`.

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    ValueError
        When the file is no such profile (files of Graphcore's own tools are not read).
    """
    import cbor2

    path = Path(path)
    path = path / "profile.pop" if path.is_dir() else path
    try:
        tree = cbor2.loads(path.read_bytes())
    except cbor2.CBORDecodeError as err:
        raise ValueError(f"{str(path)!r} is no profile of ipu_model: {err}") from err
    profile = cast("dict[str, Any]", tree) if isinstance(tree, dict) else {}
    if profile.get("format") != FORMAT:
        raise ValueError(f"{str(path)!r} is no profile of ipu_model")
    return Report(profile["graphProfile"], profile["executionProfile"], profile["name"])
