"""The only module that touches version-sensitive JAX names."""

from __future__ import annotations

import contextlib
import io
import os
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from copy import copy
from functools import cache, partial
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, TypeVar, cast

import jax
import jax.monitoring
from jax._src import config, core, xla_bridge
from jax._src.dispatch import runtime_tokens
from jax._src.interpreters import partial_eval
from jax.core import Tracer as _Tracer
from jax.experimental import serialize_executable, xla_metadata
from jax.experimental.compilation_cache import compilation_cache as persistent_cache

from ..logs import module_logger

try:  # jax.extend.core has them as well, but its package imports Pallas, which takes 25 ms at every start
    from jax._src.core import Literal as Literal
    from jax._src.core import Primitive as Primitive
except ImportError:
    from jax.extend.core import Literal as Literal
    from jax.extend.core import Primitive as Primitive

try:
    from jax._src import api_util, linear_util, source_info_util
    from jax._src.interpreters.partial_eval import DynamicJaxprTrace
except ImportError:
    api_util = linear_util = source_info_util = DynamicJaxprTrace = None

R = TypeVar("R")

Tracer = cast("type[jax.Array]", _Tracer)
"""The class of values that stand for arrays while tracing, and are arrays to `isinstance` too."""


def primitive(name: str) -> Any:
    """A new primitive; JAX gives neither its rules nor its `bind` types."""
    return Primitive(name)


def flat_tree(tree: Any) -> tuple[list[Any], Any]:
    """`jax.tree.flatten`: leaves, and the structure, whose class has no types."""
    return cast("tuple[list[Any], Any]", jax.tree.flatten(tree))


def outside_traces() -> contextlib.AbstractContextManager[None]:
    """Scope in which arrays are computed immediately, even inside a trace.

    JAX's public `ensure_compile_time_eval` leaves functions with custom derivatives in the trace.
    """
    inner = getattr(core, "eval_context", None)
    return jax.ensure_compile_time_eval() if inner is None else inner()


def is_symbolic_dim(size: Any) -> bool:
    """Whether a dimension's size is a symbol of `jax.export`."""
    return core.is_symbolic_dim(size)


def max_dim(a: Any, b: Any) -> Any:
    """The larger of two sizes, which may be symbols."""
    return core.max_dim(a, b)


def min_dim(a: Any, b: Any) -> Any:
    """The smaller of two sizes, which may be symbols."""
    return core.min_dim(a, b)


def checks_varying_axes() -> bool:
    """Whether tracing is inside a `jax.shard_map` that checks along which mesh axes values vary."""
    return config._check_vma.value and bool(jax.sharding.get_abstract_mesh().manual_axes)  # pyright: ignore


def varying_axes(x: Any) -> frozenset[str]:
    """Mesh axes along which a value, or a type, may differ between devices."""
    held = x if isinstance(x, jax.ShapeDtypeStruct) else jax.typeof(x)
    axes = getattr(held, "manual_axis_type", None)  # 0.10.0 has the set directly, as `vma`
    return (getattr(held, "vma", None) or frozenset()) if axes is None else axes.varying


def type_of(x: Any) -> jax.ShapeDtypeStruct:
    """A value's type, with its varying axes, as what JAX's transformations take in place of the value."""
    kind = jax.typeof(x)
    axes = getattr(kind, "manual_axis_type", None)
    varying: dict[str, Any] = {"vma": varying_axes(x)} if axes is None else {"manual_axis_type": axes}
    return jax.ShapeDtypeStruct(kind.shape, kind.dtype, **varying)


def enable_x64(on: bool = True):
    """Scope in which 64-bit types are kept (or not); the global configuration is not changed."""
    return jax.enable_x64(on)


def usual_promotion() -> contextlib.AbstractContextManager[Any]:
    """Scope in which operands of different ranks and types meet by JAX's default rules, whatever the caller has set."""
    if setting("jax_numpy_rank_promotion") == "allow" and setting("jax_numpy_dtype_promotion") == "standard":
        return contextlib.nullcontext()
    scope = contextlib.ExitStack()
    scope.enter_context(jax.numpy_rank_promotion("allow"))
    scope.enter_context(jax.numpy_dtype_promotion("standard"))
    return scope


_NOT_OF_THIS_RELEASE = re.compile(
    r"No such compile option: '(?P<name>\w+)'|While setting option (?P<of>\w+), .* is not a valid enum value"
)


def compile_with(lowered: Any, options: Mapping[str, str]) -> Any:
    """Compile with the options that this XLA knows; names, and names of choices, change between releases.

    An option that is left out is told of; any other error, such as a text where XLA wants a number, is raised.
    """
    known = dict(options)
    while known:
        try:
            return lowered.compile(compiler_options=known)
        except Exception as err:  # its class differs between releases
            found = _NOT_OF_THIS_RELEASE.search(str(err))
            name = found and (found["name"] or found["of"])
            if name not in known:
                raise
            module_logger("session").warning("Compiling without the option %s=%s: %s", name, known.pop(name), err)
    return lowered.compile()


def writes_programs() -> bool:
    """Whether JAX writes the programs that it compiles now to a folder, for other processes."""
    return bool(setting("jax_compilation_cache_dir") and setting("jax_enable_compilation_cache", True))


def compiles_for_this_process(context: Any) -> bool:
    """Whether a program being lowered (`context` of a lowering rule) is for one device of this process alone."""
    module = context.module_context
    axes = module.axis_context
    devices = axes.num_devices if hasattr(axes, "num_devices") else getattr(getattr(axes, "mesh", None), "size", 2)
    return devices == 1 and not module.lowering_parameters.for_export and not writes_programs()


def library_call(
    target: str, result: jax.ShapeDtypeStruct, config: str, *operands: Any, orders: Sequence[Any] | None = None
) -> jax.Array:
    """A custom call that XLA knows by name, with the backend configuration that XLA gives such calls.

    `orders` has for each operand the dimensions from the slowest to the fastest in memory, or None for the usual order.
    """
    call = jax.ffi.ffi_call(
        target, result, vmap_method="sequential", custom_call_api_version=1, legacy_backend_config=config,
        input_layouts=orders,
    )  # fmt: skip
    return call(*operands)


def bind(equation: Any, operands: Sequence[Any], params: Mapping[str, Any] | None = None) -> Sequence[Any]:
    """Evaluate one equation of a jaxpr on other operands, and with other parameters if given."""
    primitive = equation.primitive
    found = primitive.get_bind_params(equation.params if params is None else dict(params))
    functions, keywords = cast("tuple[Any, Any]", found if isinstance(found, tuple) else ((), found))
    with equation.ctx.manager:
        results = primitive.bind(*functions, *operands, **keywords)
    return results if primitive.multiple_results else [results]


def bind_as_traced(equation: Any, operands: Sequence[Any]) -> Sequence[Any]:
    """`bind`, inside the scopes in which the equation was traced."""
    if source_info_util is None:
        return bind(equation, operands)
    stack = source_info_util.current_name_stack() + equation.source_info.name_stack
    with source_info_util.user_context(equation.source_info.traceback, name_stack=stack):
        return bind(equation, operands)


def scopes_of(equation: Any) -> tuple[str, ...]:
    """Names of the scopes and transformations in which an equation was traced, outermost first."""
    return tuple(part.name for part in equation.source_info.name_stack.stack)


def evaluate_part(closed: Any, wanted: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """Values of some variables of a closed jaxpr; what they do not need is not computed."""
    whole = partial_eval.convert_constvars_jaxpr(closed.jaxpr)
    whole = whole.replace(outvars=list(wanted), debug_info=whole.debug_info.with_unknown_names())
    part, _ = partial_eval.dce_jaxpr(whole, [True] * len(wanted), instantiate=True)
    return list(core.eval_jaxpr(part, (), *closed.consts, *arguments))


_FEW_EQUATIONS = 4
"""Most equations that are cheaper to bind one by one than by a call of JAX."""


def staging() -> Callable[[Any, Sequence[Any]], Sequence[Any]] | None:
    """A function that adds an equation to the jaxpr being traced; None inside other transformations.

    It takes the types of the results from the equation. Binding the primitive would infer them again, which takes
    several times as long.
    """
    trace = getattr(getattr(core, "trace_ctx", None), "trace", None)
    if DynamicJaxprTrace is None or source_info_util is None or not isinstance(trace, DynamicJaxprTrace):
        return None
    where = source_info_util.current

    def stage(equation: Any, operands: Sequence[Any]) -> Sequence[Any]:
        source = where()
        tracers: list[Any] = [trace.to_jaxpr_tracer(x, source) for x in operands]
        types = [v.aval for v in equation.outvars]
        facts = equation.primitive, equation.params, equation.effects, source, equation.ctx
        return trace.emit_eqn(tracers, types, *facts)

    return stage


def replayer(closed: Any) -> Callable[..., Sequence[Any]]:
    """A function that replays the equations of a closed jaxpr into the current trace."""
    equations = closed.jaxpr.eqns
    calls = any(True for eqn in equations for _ in core.jaxprs_in_params(eqn.params))
    long = calls or len(equations) > _FEW_EQUATIONS
    high = bool(getattr(closed.jaxpr, "is_high", False))  # operations that become others where a program is lowered
    whole = cast("Callable[..., Any]", jax.jit(core.jaxpr_as_fun(closed), inline=True)) if long else None

    def write(*arguments: Any) -> Sequence[Any]:
        stage = None if high else staging()
        if stage is None and whole is not None:
            return whole(*arguments)
        env = dict(zip((*closed.jaxpr.constvars, *closed.jaxpr.invars), (*closed.consts, *arguments), strict=True))
        for eqn in equations:
            operands = [v.val if isinstance(v, Literal) else env[v] for v in eqn.invars]
            env.update(zip(eqn.outvars, (stage or bind)(eqn, operands), strict=True))
        return [v.val if isinstance(v, Literal) else env[v] for v in closed.jaxpr.outvars]

    return write


def one_kernel(function: Callable[..., R], *operands: Any) -> R:
    """The function's result; on CPUs by `kept_call`, so that equal calls share one kernel, compiled once.

    What it merges with its surroundings is a kernel of its own in each place, and networks have hundreds of them.
    """
    return cast("R", jax.lax.platform_dependent(*operands, cpu=partial(kept_call, function), default=function))


def kept_call(function: Callable[..., R], *operands: Any) -> R:
    """The function's result, by a call that XLA:CPU keeps: nothing of it is merged with its surroundings."""
    label: Callable[..., contextlib.AbstractContextManager[None]] = cast("Any", xla_metadata).set_xla_metadata

    def merged_inside(*operands: Any) -> R:
        with label(inlineable=None):
            return function(*operands)

    with label(inlineable="false"):
        return cast("R", jax.jit(merged_inside)(*operands))


def computed_once(x: R) -> R:
    """The operand, which XLA:CPU computes before its readers, and not again in each of them."""
    return kept_call(_same, x)


def _same(x: Any) -> Any:
    return x


def is_kept(equation: Any) -> bool:
    """Whether an equation is the call that `kept_call` makes."""
    labels: Mapping[str, Any] = getattr(equation.ctx, "xla_metadata", None) or {}
    return labels.get("inlineable") == "false"


def _closed(jaxpr: Any, consts: Sequence[Any]) -> Any:
    """A jaxpr with its constants; since JAX 0.12 every jaxpr holds its own."""
    made: Callable[..., Any] | None = getattr(core, "ClosedJaxpr", None)
    return jaxpr.with_consts(consts) if made is None else made(jaxpr, consts)


def jaxpr_of(function: Callable[..., Sequence[Any]], arguments: Sequence[Any], *, lower: bool = False) -> Any:
    """The closed jaxpr of a function on arguments of these types, without the checks of `jax.make_jaxpr`.

    With `lower` operations stand for what JAX 0.12 would put in their place only where a program is lowered.
    """
    trace: Callable[..., Any] | None = getattr(partial_eval, "trace_to_jaxpr_dynamic", None)
    if trace is None or linear_util is None or api_util is None:
        return jax.make_jaxpr(function)(*arguments)
    about = api_util.debug_info("jaxpr_of", function, tuple(arguments), {})
    wrapped = linear_util.wrap_init(function, debug_info=about)
    jaxpr, _, consts = trace(wrapped, [jax.typeof(x) for x in arguments], lower=lower)[:3]
    return _closed(jaxpr, consts)


def lowered_now(function: Callable[..., Sequence[Any]], *operands: Any) -> list[Any]:
    """The function's results, by operations that stay as they are.

    Since JAX 0.12 `jax.numpy.nonzero` and others become operations where a program is lowered, and then with integers
    of the width that is set there, not where they were traced.
    """
    closed = jaxpr_of(function, operands, lower=True)
    return list(core.eval_jaxpr(closed.jaxpr, closed.consts, *operands))


def shortest_call(compiled: Any) -> Callable[..., Any]:
    """The fastest function to call a compiled program that has run before."""
    return getattr(compiled, "_call", None) or compiled


def forget_effects() -> None:
    """Drop the effects of a run that failed: JAX would wait for them at the end of the process, and print the error."""
    runtime_tokens.clear()


def has_cpu_alone() -> bool:
    """Whether JAX uses the CPU in every process on this machine, because no other backend is installed or allowed."""
    if jax.default_backend() != "cpu":
        return False
    others = find_spec("jax_plugins") or find_spec("libtpu") or entry_points(group="jax_plugins")
    return not others or setting("jax_platforms") == "cpu"


def code_of(written: bytes) -> bytes:
    """XLA's part of a compiled program that JAX has serialised."""
    found: list[bytes] = []

    class Reader(serialize_executable._JaxPjrtUnpickler):
        def persistent_load(self, pid: Any) -> Any:
            if pid[0] == "exec":
                found.append(pid[1])
                return None  # XLA would load the program here, which takes a twentieth of the time to compile it
            return cast("Any", super().persistent_load(pid))

    Reader(io.BytesIO(written), cast("Any", jax.devices()[0]).client).load()
    (code,) = found
    return code


def kept_arguments(compiled: Any) -> list[int]:
    """Indices of the flat arguments that a compiled program reads; JAX drops the others."""
    return sorted(compiled._executable._kept_var_idx)


def call_of_trees(compiled: Any, arguments: tuple[Any, ...], results: Any) -> Callable[..., Any] | None:
    """A fast call with pytrees for a compiled program of flat arguments, as `jax.jit` has it; None if there is none.

    Raises TypeError, before anything runs, for arguments of other shapes, types or structure than these.
    """
    try:
        _, structure = flat_tree((arguments, {}))
        about = structure.unflatten(jax.tree.leaves(compiled.args_info))
        made = jax.stages.Compiled(
            _without_effects(compiled._executable), compiled._params.const_args, about, results, True
        )
        return made._executable.create_cpp_call(made._params)
    except (AttributeError, TypeError, ValueError):
        return None


def _without_effects(executable: Any) -> Any:
    """The executable as JAX's short way takes it, which refuses pure callbacks that `jax.jit` does not."""
    run = executable.unsafe_call
    if not run.has_host_callbacks or run.has_unordered_effects or run.ordered_effects:
        return executable
    made, quick = copy(executable), copy(run)
    made._unsafe_call, quick.has_host_callbacks = quick, False
    return made


@cache
def _hits() -> list[str]:
    """Events of programs loaded from JAX's persistent compilation cache; recording starts with the first call."""
    found: list[str] = []

    def listen(event: str, **_: Any) -> None:
        if event.endswith("/cache_hits"):
            found.append(event)

    jax.monitoring.register_event_listener(listen)
    return found


def cache_hits() -> int:
    """Number of programs loaded from JAX's persistent compilation cache since the first call."""
    return len(_hits())


def setting(name: str, default: Any = None) -> Any:
    """One of JAX's settings in the current scope; the default where this JAX has no such setting."""
    return getattr(jax.config, name, default)


def compute_in_callers_thread() -> None:
    """Let XLA compute on a CPU in the thread that calls a program, if this is the first use of JAX's devices.

    XLA else wakes another thread at each call, which a caller that waits for the result pays for (10 to 40 us). Where
    the process has several CPU devices, their programs must run at the same time, and nothing is changed.
    """
    several = setting("jax_num_cpu_devices", -1) > 1 or "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if several or xla_bridge.backends_are_initialized():
        return
    with contextlib.suppress(AttributeError):  # a release without this setting
        jax.config.update("jax_cpu_enable_async_dispatch", False)


def computes_in_callers_thread() -> bool:
    """Whether programs are computed in the thread that calls them, once their arguments are there."""
    flag = getattr(xla_bridge, "_CPU_ENABLE_ASYNC_DISPATCH", None)
    return jax.default_backend() == "cpu" and flag is not None and not flag.value


def settings() -> dict[str, Any]:
    """All of JAX's settings in the current scope."""
    return {name: getattr(jax.config, name, value) for name, value in cast("dict[str, Any]", jax.config.values).items()}


@contextlib.contextmanager
def compilation_cache(folder: str | None) -> Generator[None]:
    """Scope in which JAX stores every compiled program in a folder and looks there first; None disables the cache."""
    wanted = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in wanted}
    _set_cache(wanted)
    try:
        yield
    finally:
        _set_cache(before)


def _set_cache(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        jax.config.update(name, value)
    persistent_cache.reset_cache()  # JAX reads the setting only once


def cluster_member(kind: str | None) -> tuple[int, int] | None:
    """Number of this process and of all processes in the cluster that JAX detects; None where it detects none."""
    from jax._src.clusters import ClusterEnv

    for one in ClusterEnv._cluster_types:
        asked = one.name == kind if kind else not one.opt_in_only_method
        if asked and one.is_env_present():
            return one.get_process_id(), one.get_process_count()
    return None


def job_values(key: str, mine: str, seconds: float) -> list[str | None]:
    """The value that each process of a `jax.distributed` job sets for a key; None for those that are too late."""
    from jax._src.distributed import global_state

    client = cast("Any", global_state.client)
    client.key_value_set(f"{key}/{global_state.process_id}", mine)
    found: list[str | None] = []
    limit = time.monotonic() + seconds
    for index in range(global_state.num_processes):
        left = max(1, int(1000 * (limit - time.monotonic())))
        try:
            found.append(client.blocking_key_value_get(f"{key}/{index}", left))
        except jax.errors.JaxRuntimeError:
            found.append(None)
    return found
