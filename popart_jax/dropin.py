"""`install()`: lets programs written for PopART import this package without changes.

After it, ``popart``, ``popart.session``, ``popart_core``, ``popxl``, ``popxl_addons``, ``popdist``, ``pva``,
``libpvti``, ``poponnx`` and their submodules resolve to modules of this package, each when it is first imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from typing import Any

_PACKAGE = __package__ or "popart_jax"
_OPSETS = range(6, 12)

# Packages that are modules of ours under another name, with their submodules.
ALIASES = {
    "popxl": f"{_PACKAGE}.popxl",
    "popxl_addons": f"{_PACKAGE}.popxl_addons",
    "poponnx": f"{_PACKAGE}.poponnx",
    "popdist": f"{_PACKAGE}.popdist",
    "pva": "ipu_model.pva",
    "libpvti": f"{_PACKAGE}.libpvti",
    "popart._internal": f"{_PACKAGE}.popxl._internal",
}

# Modules of popxl_addons.ops that have folders of their own upstream.
_ADDONS_OPS = {
    "rotary_pos_embed": "rotary",
    "group_quantize_decompress": "quantize",
    "grad_reduce_square_add": "simple",
    "linear_layout": "simple",
    "static_sparse_ops.dense_sparse_matmul": "simple",
    "replicated_all_reduce_TP": "collectives",
    "replicated_strided_collectives.replicated_all_reduce_strided": "collectives",
    "replicated_strided_collectives.replicated_all_gather_strided": "collectives",
    "replicated_strided_collectives.replicated_reduce_scatter_strided": "collectives",
    "cross_entropy_sharded_loss": "sharded",
    "cross_entropy_sharded_wr_loss": "sharded",
    "layer_norm_distributed": "sharded",
    "fp8_amax_scale": "fp8",
    "fp8_mse_scale": "fp8",
    "fp8_utils": "fp8",
}
RENAMED = {
    f"popxl_addons.ops.{theirs}{inner}": f"{_PACKAGE}.popxl_addons.ops.{ours}"
    for theirs, ours in _ADDONS_OPS.items()
    for inner in ("", f".{theirs}")
} | {
    "popxl_addons.ops.static_sparse_ops": f"{_PACKAGE}.popxl_addons.ops.simple",
    "popxl_addons.ops.replicated_strided_collectives": f"{_PACKAGE}.popxl_addons.ops.collectives",
}

# Modules that collect names from several of ours: name of the module -> {our module: names}.
_CORE = {
    "builder": "_BuilderCore",
    "model.tensor_info": "_TensorInfoCore",
    "session.cores": "_InferenceSessionCore _TrainingSessionCore",
    "_throw": (
        "_throw_popart_error _throw_popart_internal_error _throw_popart_runtime_error _throw_poplibs_error "
        "_throw_poplar_error _throw_poplar_runtime_error _throw_application_runtime_error _throw_system_runtime_error "
        "_throw_recoverable_runtime_error _throw_unrecoverable_runtime_error _throw_unknown_runtime_error"
    ),
}
FACES: dict[str, Mapping[str, str]] = {
    "popart": {},
    "popart_core": _CORE,
    "popart.builder": {
        "builder": "Builder",
        "builder.opsets": (
            "Opset AiOnnx AiOnnx6 AiOnnx7 AiOnnx8 AiOnnx9 AiOnnx10 AiOnnx11 AiOnnxMl AiGraphcore AiGraphcoreOpset1"
        ),
    },
    "popart.session": {
        "session.inference": "InferenceSession",
        "session.training": "TrainingSession",
        "session.cores": "_initAnchorArrays",
        "session.reports.memory": "OutOfMemoryException",
        "session.weights.files": "makedirsAndCheckWritable",
    },
    "popart.tensorinfo": {"model.tensor_info": "TensorInfo _get_popart_type"},
    **{f"popart_opset{n}": {"builder.operators": f"AiOnnxOpset{n}"} for n in _OPSETS},
}
_WITH_EVERYTHING = ("popart", "popart_core")
_OWN_MODULES = {"backend", "builder", "dropin", "poponnx", "popxl", "popxl_addons", "popdist", "session"}
_ORIGINAL = "popart_core"  # the SDK's compiled module, on which all of its packages are built


class _Face(types.ModuleType):
    """A module that looks its names up in other modules on first use."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"PopART's module {name}, by {_PACKAGE}.")
        self._sources = {n: f"{_PACKAGE}.{m}" for m, names in FACES[name].items() for n in names.split()}
        public = importlib.import_module(_PACKAGE)
        self._fallback = public if name in _WITH_EVERYTHING else None
        every = (
            [n for n in public.__all__ if n[0] != "_" and n not in _OWN_MODULES] if self._fallback is not None else []
        )
        self.__all__ = sorted({*every, *(n for n in self._sources if not n.startswith("_"))})

    def __getattr__(self, name: str) -> Any:
        source = self._sources.get(name)
        if source is not None:
            value = getattr(importlib.import_module(source), name)
        elif f"{self.__name__}.{name}" in (*FACES, *ALIASES):
            return importlib.import_module(f"{self.__name__}.{name}")
        elif self._fallback is not None and name not in _OWN_MODULES and (name[0] != "_" or name == "__version__"):
            value = getattr(self._fallback, name)
        else:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*self.__all__, *self._sources})


class _Resolver(MetaPathFinder, Loader):
    """Resolves PopART's module names, before other finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in FACES:
            return ModuleSpec(fullname, self, is_package=fullname == "popart")
        ours = _aliased(fullname)
        if ours is None or importlib.util.find_spec(ours) is None:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        if spec.name in FACES:
            return _Face(spec.name)
        ours = _aliased(spec.name)
        assert ours is not None
        found = importlib.import_module(ours)
        self._own_specs[spec.name] = found.__spec__
        _enter_submodules(spec.name, ours)
        return found

    def exec_module(self, module: types.ModuleType) -> None:
        spec = module.__spec__
        if spec is not None and spec.name in self._own_specs:
            module.__spec__ = self._own_specs[spec.name]  # an alias is the module itself, with its own spec

    _own_specs: dict[str, ModuleSpec | None] = {}  # noqa: RUF012 - one resolver per process


def _enter_submodules(theirs: str, ours: str) -> None:
    """Register loaded submodules under their other names immediately.

    Importing them later would bind the module in its package and hide a function of the same name.
    """
    for name in [n for n in sys.modules if n.startswith(f"{ours}.")]:
        sys.modules.setdefault(theirs + name[len(ours) :], sys.modules[name])
    for name, target in RENAMED.items():
        if name.startswith(f"{theirs}.") and target in sys.modules:
            sys.modules.setdefault(name, sys.modules[target])


def _aliased(name: str) -> str | None:
    if name in RENAMED:
        return RENAMED[name]
    for theirs, ours in ALIASES.items():
        if name == theirs or name.startswith(f"{theirs}."):
            return ours + name[len(theirs) :]
    return None


_RESOLVER = _Resolver()


def install() -> None:
    """Make the modules of PopART and PopXL resolve to this package; calling it again does nothing.

    Raises
    ------
    ImportError
        The original packages are installed: one process cannot have both.
    """
    if _RESOLVER in sys.meta_path:
        return
    found = _original()
    if found is not None:
        raise ImportError(
            f"Graphcore's SDK can be imported here ('{found}'); {_PACKAGE} does not take its place. "
            f"Use an environment without it, or import {_PACKAGE} by its own name."
        )
    sys.meta_path.insert(0, _RESOLVER)


def _original() -> str | None:
    """Path of the SDK's compiled module, if installed; Python files and folders named popart or popxl are user code."""
    try:
        spec = importlib.util.find_spec(_ORIGINAL)
    except (ImportError, ValueError):
        return None
    origin = None if spec is None else spec.origin
    return origin if origin is not None and origin.endswith(tuple(EXTENSION_SUFFIXES)) else None


def uninstall() -> None:
    """Undo `install`."""
    if _RESOLVER in sys.meta_path:
        sys.meta_path.remove(_RESOLVER)
    names = (*FACES, *ALIASES)
    for name in list(sys.modules):
        if any(name == n or name.startswith(f"{n}.") for n in names):
            del sys.modules[name]


def module(name: str) -> types.ModuleType:
    """One of PopART's modules by its name, without installing anything.

    Raises
    ------
    ImportError
        PopART has no module of this name.
    """
    if name in FACES:
        return _Face(name)
    ours = _aliased(name)
    if ours is None:
        raise ImportError(f"PopART has no module {name!r}.")
    return importlib.import_module(ours)


def core_names() -> dict[str, Any]:
    """The names that only `popart_core` has, as far as they exist here."""
    face = _Face("popart_core")
    found: dict[str, Any] = {}
    for name in face._sources:
        try:
            found[name] = getattr(face, name)
        except (AttributeError, ImportError):
            continue
    return found
