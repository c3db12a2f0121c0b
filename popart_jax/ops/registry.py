"""The table of operator translations, keyed by domain, operator type and since-version.

A translation is a pure function whose signature is its specification: positional-only parameters are the
inputs (a default of None or the annotation `Gap` marks an optional one, ``*args`` a variadic tail), keyword-only
parameters are the attributes with their ONNX defaults. Annotations give the rest: `Static` marks an input whose
value is needed while tracing; `Key`, `OutputCount`, `Training`, `Options`, `Opset`, `OutputType`, `NodeRef` and
`Context` ask for facts of the node or the walk.

If PopART's rule differs from ONNX's, it has a separate row (``popart=True``), which PopART's sessions use; without one
they use ONNX's row.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from types import SimpleNamespace
from typing import Annotated, Any, Protocol, TypeVar, cast, get_type_hints

import jax
import onnx_ir as ir

from .contents import DECLARED_IN, MODULES, places
from .operator import Operator, declared
from .options import OperatorOptions


@dataclass(frozen=True, slots=True)
class FromContext:
    """Annotation metadata: the interpreter fills this parameter, it is no ONNX attribute."""

    what: str


class _StaticInput:
    """Annotation metadata: the input must be a NumPy value while tracing."""


class _MayBeAbsent:
    """Annotation metadata: the input may be left out although later ones are required."""


class Subgraph(Protocol):
    """A graph attribute as translations get it: a function over array values.

    `n_inputs` and `n_outputs` count the graph's own inputs and outputs; tensors of enclosing graphs are captured.
    `iteration` makes the random numbers of loop iterations differ. With `uncut`, results whose size depends on data
    come with their padding and its mask (`lowering.dynamic_sizes.padded.Uncut`), else they are refused in a trace.
    """

    n_inputs: int
    n_outputs: int
    graph: ir.Graph

    def __call__(self, *args: Any, iteration: Any = None, uncut: bool = False) -> tuple[Any, ...]:
        """Run the subgraph on values of its own inputs."""
        ...

    def varying(self, axes: frozenset[str]) -> Subgraph:
        """The same subgraph, with values of enclosing graphs varying along axes of a mesh; see `ops.varying`."""
        ...


Static = Annotated[Any, _StaticInput()]
"""A NumPy array (or None where the input is absent) while tracing."""
Gap = Annotated[Any, _MayBeAbsent()]
"""An input that may be left out (None) although later ones are required; Python allows it no default."""
Key = Annotated[jax.Array, FromContext("key")]
OutputCount = Annotated[int, FromContext("n_outputs")]
Training = Annotated[bool, FromContext("training")]
Opset = Annotated[int, FromContext("opset")]
NodeRef = Annotated[ir.Node, FromContext("node")]
Context = Annotated[Any, FromContext("context")]
Options = Annotated[OperatorOptions, FromContext("options")]
OutputType = Annotated[str, FromContext("output_type")]
"""The result type in PopART's annotation of the node, '' without one."""

Bound = Annotated[int | None, FromContext("bound")]
"""The size given for the data-dependent dimension of the results, None without one."""
Fill = Annotated[Any, FromContext("fill")]
"""The value that pads results to their `Bound`; None for the operator's default."""

ProgramState = Annotated[Any, FromContext("program")]

ONNX_DOMAIN = ""
TRANSLATION = "translation"
"""Entry of the `meta` of nodes that carry PopART's types (PopXL's): domain, type and version of the translation."""
REQUIRED: Any = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Lowering:
    """One row of the table: a translation and the facts of its signature."""

    domain: str
    op: str
    since: int  # the opset version from which the row holds
    fn: Callable[..., Any]  # the translation
    inputs: tuple[str, ...]
    optional: frozenset[int]  # positions of inputs that may be left out
    variadic: bool  # whether more inputs may follow
    static: frozenset[int]  # positions of inputs that must be known while tracing
    attributes: Mapping[str, Any] = field(repr=False)  # defaults by name
    # parameters that the interpreter fills, and the fact that each one gets
    context: Mapping[str, str] = field(repr=False)
    popart: bool = False  # whether the row holds in PopART's sessions only
    refuses: bool = False  # whether the row exists only to refuse what ONNX allows

    @property
    def takes_fill(self) -> bool:
        """Whether the size of the result depends on data, so that a bound needs padding."""
        return "fill" in self.context.values()

    @property
    def takes_bound(self) -> bool:
        """Whether the size of the results depends on data and may be bounded."""
        return "bound" in self.context.values()

    @property
    def least_inputs(self) -> int:
        """Number of inputs that may not be left out."""
        return max((i + 1 for i in range(len(self.inputs)) if i not in self.optional), default=0)

    def is_static(self, position: int) -> bool:
        """Whether the input at `position` must be known while tracing."""
        if self.variadic and position >= len(self.inputs):
            return len(self.inputs) in self.static
        return position in self.static


Rows = dict[tuple[str, str], dict[int, Lowering]]

_TABLE: Rows = {}
_POPART: Rows = {}
_PACKAGES = [__name__.rpartition(".")[0]]
_PLACES = places(_PACKAGES[0], MODULES)


def normal_domain(domain: str) -> str:
    """ONNX writes its own domain both as '' and as 'ai.onnx'; the table uses ''."""
    return "" if domain == "ai.onnx" else domain


def add(lowering: Lowering, *, replace: bool = False) -> None:
    """Enter a row; entering a key twice is an error unless `replace`."""
    if replace:
        _load((lowering.domain, lowering.op))
    rows = _POPART if lowering.popart else _TABLE
    versions = rows.setdefault((lowering.domain, lowering.op), {})
    if lowering.since in versions and not replace:
        raise ValueError(f"{lowering.domain}.{lowering.op}:{lowering.since} already has a translation")
    versions[lowering.since] = lowering


def _metadata(fn: Callable[..., Any]) -> dict[str, tuple[Any, ...]]:
    """What the annotations of a function's parameters carry beside the type."""
    scope = getattr(inspect.unwrap(fn), "__globals__", {})
    return {name: _carried(hint, scope) for name, hint in getattr(fn, "__annotations__", {}).items()}


def _carried(hint: Any, scope: dict[str, Any]) -> tuple[Any, ...]:
    """The metadata of one annotation; names are looked up, since to evaluate all annotations takes long."""
    if isinstance(hint, str):
        first, *rest = hint.partition("[")[0].split(".")
        named = reduce(lambda found, part: getattr(found, part, None), rest, scope.get(first))
        try:
            hint = _written_out(hint, scope) if named is Annotated else named
        except (NameError, TypeError):
            return ()
    return getattr(hint, "__metadata__", ())


def _written_out(hint: str, scope: dict[str, Any]) -> Any:
    holder = SimpleNamespace(__annotations__={"hint": hint})
    return get_type_hints(holder, scope, include_extras=True)["hint"]


def describe(fn: Callable[..., Any], op: str, since: int, domain: str = ONNX_DOMAIN) -> Lowering:
    """Read a translation's signature into a table row."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except ValueError:  # NumPy ufuncs and the like: one or two arrays
        parameters = [inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY)]
    tags = _metadata(fn)
    context = {n: t.what for n, ts in tags.items() for t in ts if isinstance(t, FromContext)}
    inputs = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    tail = [p for p in parameters if p.kind is p.VAR_POSITIONAL]
    is_static = [any(isinstance(t, _StaticInput) for t in tags.get(p.name, ())) for p in inputs + tail]
    return Lowering(
        domain=normal_domain(domain),
        op=op,
        since=since,
        fn=fn,
        inputs=tuple(p.name for p in inputs),
        optional=frozenset(
            i
            for i, p in enumerate(inputs)
            if p.default is not REQUIRED or any(isinstance(t, _MayBeAbsent) for t in tags.get(p.name, ()))
        ),
        variadic=bool(tail),
        static=frozenset(i for i, s in enumerate(is_static) if s),
        attributes={p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in context},
        context=context,
    )


F = TypeVar("F", bound=Callable[..., Any])


def lowers(
    op: str,
    *since: int,
    domain: str = ONNX_DOMAIN,
    popart: bool = False,
    refuses: bool = False,
    like: Callable[..., Any] | None = None,
    takes: str | None = None,
) -> Callable[[F], F]:
    """Register the decorated function for `op`.

    Parameters
    ----------
    op : str
        Operator type.
    *since : int
        Since-versions of this definition of the operator; 1 if none is given.
    domain : str
        Of the operator.
    popart : bool
        Whether this is PopART's rule, where ONNX's differs.
    refuses : bool
        Whether PopART's rule only refuses what ONNX allows; see `session.preparing.rules`.
    like : callable, optional
        Translation whose signature this one shares.
    takes : str, optional
        The attributes of these versions, where the function has those of later ones too.
    """

    def register(fn: F) -> F:
        row = replace(describe(like or fn, op, 1, domain), fn=fn, popart=popart, refuses=refuses)
        if takes is not None:
            row = replace(row, attributes={name: row.attributes[name] for name in takes.split()})
        for version in since or (1,):
            add(replace(row, since=version))
        return fn

    return register


def direct(functions: Mapping[str, Callable[..., Any]], *since: int, arity: int = 1, domain: str = ONNX_DOMAIN) -> None:
    """Register operators without attributes, each a function of `arity` arrays."""
    names = ("x", "y", "z")[:arity]
    for op, fn in functions.items():
        for version in since or (1,):
            add(Lowering(normal_domain(domain), op, version, fn, names, frozenset(), False, frozenset(), {}, {}))


def add_package(package: str, modules: Mapping[str, Mapping[str, str]]) -> None:
    """Register another package with translations, as domain -> module -> names of its operators.

    A module is imported when one of its operators is looked up.
    """
    _PACKAGES.append(package)
    _PLACES.update(places(package, modules))
    _owners.cache_clear()


def operators_of(domain: str) -> tuple[str, ...]:
    """Names of the operators that a domain's contents list, without importing their modules."""
    return tuple(op for place, op in _PLACES if place == domain)


_KNOWN = ("popart_jax.ops.", "popart_jax.lowering.", "jax.", "jaxlib.", "numpy.")


def full_name(fn: Callable[..., Any]) -> str:
    """Module and name of a translation."""
    return f"{getattr(fn, '__module__', 'jax')}.{getattr(fn, '__qualname__', '')}"


def is_known(fn: Callable[..., Any]) -> bool:
    """Whether a translation comes with this package, which every process has, and not from a program."""
    return full_name(fn).startswith(_KNOWN)


@cache
def _import(module: str) -> None:
    importlib.import_module(module)


def _load(key: tuple[str, str]) -> None:
    """Import the module of an operator, which enters its rows; all modules if the contents do not name the operator."""
    if key in _PLACES:
        _import(_PLACES[key])
    elif key not in _TABLE:
        _load_families()


def load_domain(domain: str) -> None:
    """Import every module with operators of a domain."""
    for module in dict.fromkeys(module for (own, _), module in _PLACES.items() if own == domain):
        _import(module)


def _load_families() -> None:
    """Import every operator module, so that the table is full."""
    for package in _PACKAGES:
        _load_package(package)


@cache
def _load_package(package: str) -> None:
    path = importlib.import_module(package).__path__
    for module in pkgutil.walk_packages(path, f"{package}."):
        importlib.import_module(module.name)


@cache
def _owners() -> dict[str, str]:
    """Module that declares an operator, by PopART's type: ONNX's translation first, then PopART's, then PopXL's."""
    order = {ONNX_DOMAIN: 0, "ai.graphcore": 1, "popxl": 2}
    ranked = sorted(_PLACES.items(), key=lambda item: -order.get(item[0][0], len(order)))
    declared_in = {op: f"{_PACKAGES[0]}.{module}" for op, module in DECLARED_IN.items()}
    return {op: module for (_, op), module in ranked} | declared_in


@cache
def _declaring(op_type: str) -> tuple[str, ...]:
    """Modules that may declare a type: its own, then those of possible forward operators."""
    owners = _owners()
    return tuple(owners[op_type[:end]] for end in range(len(op_type), 0, -1) if op_type[:end] in owners)


def facts(op_type: str) -> Operator:
    """The row of an operator type of PopART, gradient and in-place operators included.

    An undeclared operator has a row without facts.
    """
    known = declared()
    for module in _declaring(op_type):
        _import(module)
        if op_type in known:
            break
    return known.get(op_type) or Operator(op_type)


def operators() -> Mapping[str, Operator]:
    """The rows of all operator types."""
    _load_families()
    return declared()


def table(*, popart: bool = False) -> Mapping[tuple[str, str], Mapping[int, Lowering]]:
    """The whole table: (domain, op) -> since-version -> row; with `popart` PopART's own rows alone."""
    _load_families()
    return _POPART if popart else _TABLE


def resolve(domain: str, op: str, opset: int, *, popart: bool = False) -> Lowering | None:
    """The row that a node of this opset uses: the newest version not above it, or None.

    With `popart` PopART's rules hold: its rows then come before ONNX's.
    """
    key = (normal_domain(domain), op)
    _load(key)
    own = _newest(_POPART, key, opset) if popart else None
    return own or _newest(_TABLE, key, opset)


def resolve_node(node: ir.Node, opsets: Mapping[str, int], *, popart: bool = False) -> Lowering | None:
    """The row of a node: the one in its `meta`, else by its type and its version or the model's opset."""
    named = cast("tuple[str, str, int | None] | None", node.meta.get(TRANSLATION))
    domain, op, version = named or (normal_domain(node.domain), node.op_type, node.version)
    return resolve(domain, op, version or opsets.get(domain, 1), popart=popart)


def _newest(rows: Rows, key: tuple[str, str], opset: int) -> Lowering | None:
    versions = rows.get(key, {})
    usable = [v for v in versions if v <= opset]
    return versions[max(usable)] if usable else None
