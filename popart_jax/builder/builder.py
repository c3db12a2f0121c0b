"""`Builder`: the public class, with one namespace of operators per domain and opset."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from ..model.origin import imported_as_popart
from .core import _BuilderCore
from .operators import (
    ONNX_SETS,
    AiGraphcoreOpset1,
    AiOnnxOpset6,
    AiOnnxOpset7,
    AiOnnxOpset8,
    AiOnnxOpset9,
    AiOnnxOpset10,
    AiOnnxOpset11,
)
from .opsets import AiGraphcoreOpset1 as GraphcoreNamespace
from .opsets import Opset, onnx_namespace
from .versions import NEWEST_ONNX, defaultAiGraphcoreOpset, defaultAiOnnxOpset

if TYPE_CHECKING:
    from .namespaces import Namespace as AiOnnx  # pyright: ignore[reportMissingModuleSource]
    from .namespaces import Namespaces  # pyright: ignore[reportMissingModuleSource]
else:
    from .opsets import AiOnnx

    Namespaces = object

_DOMAINS = {"aiOnnx": "ai.onnx", "aiGraphcore": "ai.graphcore"}
_Namespace = Union[  # noqa: UP007 - tools look at this annotation
    AiGraphcoreOpset1, AiOnnxOpset6, AiOnnxOpset7, AiOnnxOpset8, AiOnnxOpset9, AiOnnxOpset10, AiOnnxOpset11
]


class Builder(_BuilderCore, Namespaces):
    """Builds an ONNX model, operator by operator.

    ``builder.aiOnnx`` (opset 10), ``builder.aiOnnxOpset6`` to ``aiOnnxOpset11`` (as PopART has them; later opsets are
    there as well) and ``builder.aiGraphcore`` hold the operators; the first use of one of the former settles the opset
    of the model. On a model that was read, ``builder.aiOnnx`` follows its opset; in programs that import ``popart`` it
    is 10 there too, and an operator is refused if the model has another of PopART's opsets.

    Parameters
    ----------
    modelProtoOrFilename : str or bytes, optional
        A model to go on with.
    opsets : dict of str to int, optional
        Versions for both ``"ai.onnx"`` and ``"ai.graphcore"``.

    Raises
    ------
    KeyError
        `opsets` lacks one of the two domains.
    popart_exception
        The model can't be read or has a newer opset than we know.
    RuntimeError
        The ONNX checker refuses the model.

    Examples
    --------
    >>> builder = Builder()
    >>> x = builder.addInputTensor("FLOAT", [2, 3])
    >>> y = builder.aiOnnx.relu([x])
    >>> y, builder.getTensorShape(y)
    ('Relu:0', [2, 3])
    """

    def __init__(
        self,
        modelProtoOrFilename: str | bytes | None = None,
        opsets: dict[str, int] | None = None,
        builderCore: _BuilderCore | None = None,
    ) -> None:
        super().__init__(modelProtoOrFilename, parent=builderCore)
        self._chosen: dict[str, Opset] = {}
        if opsets is not None:
            self.aiOnnxOpsetVersion(opsets["ai.onnx"])
            self._chosen["aiGraphcore"] = GraphcoreNamespace(self, opsets["ai.graphcore"])
        self._defaults = {"aiOnnx": defaultAiOnnxOpset, "aiGraphcore": defaultAiGraphcoreOpset}
        if modelProtoOrFilename is not None:
            given = self._model.opset_imports.get("", defaultAiOnnxOpset)
            if given > NEWEST_ONNX or not imported_as_popart():
                self._defaults["aiOnnx"] = given

    def aiOnnxOpsetVersion(self, version: int) -> None:
        """Settle the ai.onnx opset.

        Raises
        ------
        ValueError
            There is no such opset.
        """
        self._chosen["aiOnnx"] = onnx_namespace(self, version)
        for name in [n for n in self.__dict__ if n.startswith("aiOnnx")]:
            del self.__dict__[name]

    def _selectOnnxVersion(self, version: int) -> None:
        self.aiOnnxOpsetVersion(version)

    if not TYPE_CHECKING:  # `Namespaces` has the types

        def __getattr__(self, name: str) -> _Namespace:
            return self._look_up(name)

    def _look_up(self, name: str) -> Opset:
        match = re.fullmatch(r"(aiOnnx|aiGraphcore)(?:Opset(\d+))?", name)
        if match is None:
            if name.startswith(("aiOnnx", "aiGraphcore")):
                raise KeyError(f"'{name}' is no operator set of this builder.")
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return self._namespace(match[1], int(match[2]) if match[2] else None, name)

    def _namespace(self, family: str, version: int | None, asked: str) -> Opset:
        chosen = self._chosen.get(family)
        if chosen is None:
            wanted = self._defaults[family] if version is None else version
            known = ONNX_SETS if family == "aiOnnx" else {1: AiGraphcoreOpset1}
            if wanted not in known:
                raise KeyError(
                    f"'{asked}': there is no opset {wanted} of {_DOMAINS[family]}; there are "
                    f"{min(known)} to {max(known)}."
                )
            chosen = onnx_namespace(self, wanted) if family == "aiOnnx" else GraphcoreNamespace(self, wanted)
            self._chosen[family] = chosen
        if version is not None and version != chosen.version:
            if family == "aiOnnx" and version not in ONNX_SETS:
                raise KeyError(f"'{asked}' is no operator set of this builder.")
            raise RuntimeError(
                f"Invalid opset '{asked}' selected. Opset for domain {_DOMAINS[family]} already defined as "
                f"{chosen.version}"
            )
        self.__dict__[asked] = chosen  # cached: the next look-up does not call __getattr__
        return chosen

    def reshape_const(self, aiOnnx: AiOnnx, args: list[str], shape: Iterable[int], debugContext: str = "") -> str:
        """Reshape `args[0]` to a shape that is added as a constant."""
        operators: Any = aiOnnx
        constant = operators.constant(np.array(list(shape), dtype=np.int64), debugContext=debugContext)
        return operators.reshape([args[0], constant], debugContext=debugContext)

    def createSubgraphBuilder(self) -> "Builder":
        """A builder for a subgraph; its names differ from those of all related builders."""
        child = Builder(builderCore=self)
        child._defaults = self._defaults
        for family, opset in self._chosen.items():
            child._chosen[family] = type(opset)(child, opset.version)
        return child
