"""Keeps the test run short and each of its workers small.

Programs are compiled to plain machine code (`_compile_quickly`): XLA's passes over a program all run, those over its
machine code do not. That halves the run. ``JAX_DISABLE_MOST_OPTIMIZATIONS=0 python -m pytest`` compiles as users do.
What programs have in common is made once (`quick`). Python keeps byte code (`_keep_byte_code`), also where the
environment forbids it.

Compiled programs are dropped as a worker grows, and its peak has a limit. Memory is read from ``/proc``; on systems
without it nothing is dropped or checked.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any


def _compile_quickly() -> None:
    """Ask for it where JAX will look, once it is imported, and where processes of tests inherit it."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # PyTorch's threads wait actively: another worker needs the core
    if "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
        if metadata.version("jaxlib").startswith("0.10."):  # other versions may end at a flag that they do not know
            # the programs are small: cut into pieces, for threads that the other worker needs, they take longer
            pieces = "--xla_cpu_parallel_codegen_split_count=1"
            os.environ.setdefault("XLA_FLAGS", f"--xla_cpu_use_fusion_emitters=false {pieces}")


def _keep_byte_code() -> None:
    """Let Python keep what it compiled, as it does by default: the run starts a hundred processes that import us."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


_compile_quickly()
_keep_byte_code()

import jax  # noqa: E402
import pytest  # noqa: E402

from .quick import forget, share  # noqa: E402

share()
if jax.default_backend() != "cpu":  # GPUs and TPUs round operands of products, unless asked not to
    jax.config.update("jax_default_matmul_precision", "highest")

GROWTH = 80  # MB after which a worker drops what was compiled: rarely enough that shared programs are compiled once
STATUS = Path("/proc/self/status")
_PEAKS = pytest.StashKey[dict[str, int]]()
_START = pytest.StashKey[int]()


def memory(field: str) -> int:
    """MB of this process: ``VmRSS`` is what it has now, ``VmHWM`` the most it ever had; 0 where nothing tells."""
    if not STATUS.exists():
        return 0
    (kilobytes,) = (line.split()[1] for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(kilobytes) // 1024


def pytest_addoption(parser: pytest.Parser) -> None:
    """The limit is a setting in pyproject.toml."""
    parser.addini("worker_memory", "MB that a worker of the run may have at its peak")


def pytest_configure(config: pytest.Config) -> None:
    """Start the account."""
    config.stash[_PEAKS] = {}
    config.stash[_START] = memory("VmRSS")


def pytest_collection_finish() -> None:
    """Let the garbage collector never look again at what collecting the tests made."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Drop compiled programs, JAX's traces and garbage when the worker has grown."""
    if memory("VmRSS") - item.config.stash[_START] < GROWTH:
        return
    jax.clear_caches()
    forget()
    _drop_plans()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # glibc gives freed pages back only when asked
    item.config.stash[_START] = memory("VmRSS")


def _drop_plans() -> None:
    """Empty the IPU model's memories of what it planned and priced."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("ipu_model.planner", "ipu_model.costs", "ipu_model.walk", "ipu_model.published")):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


@pytest.hookimpl(optionalhook=True)  # of xdist, which may be absent
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file stay with one worker: what they share is made and compiled once."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over the peak of a worker that has ended."""
    node.config.stash[_PEAKS][node.gateway.id] = getattr(node, "workeroutput", {}).get("peak", 0)


PYTORCH_CUDA = 600  # MB that importing PyTorch takes where it is built for GPUs: libraries, not what tests made


def _peak() -> int:
    torch = sys.modules.get("torch")
    return memory("VmHWM") - (PYTORCH_CUDA if torch is not None and torch.version.cuda else 0)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the peak, and fail a run in which a worker was too large."""
    config = session.config
    if (output := getattr(config, "workeroutput", None)) is not None:  # a worker of xdist
        output["peak"] = _peak()
    elif not config.stash[_PEAKS]:
        config.stash[_PEAKS]["this process"] = _peak()
    if _too_large(config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """One line for all workers, and one for each that is above the limit."""
    peaks = ", ".join(f"{name} {peak} MB" for name, peak in config.stash[_PEAKS].items())
    terminalreporter.write_line(f"peak memory: {peaks} (limit {config.getini('worker_memory')} MB)")
    for name in _too_large(config):
        terminalreporter.write_line(f"ERROR: {name} took more memory than the limit (worker_memory)", red=True)


def _too_large(config: pytest.Config) -> list[str]:
    if jax.default_backend() != "cpu":  # the driver's share is not ours
        return []
    limit = int(str(config.getini("worker_memory")))
    return [name for name, peak in config.stash[_PEAKS].items() if peak > limit]


@pytest.fixture(scope="module")
def optimised() -> Iterator[None]:
    """For tests that promise last bits: programs are compiled as users compile them, here and in processes."""
    before = os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")
        jax.config.update("jax_disable_most_optimizations", False)
        yield
    jax.config.update("jax_disable_most_optimizations", before not in ("0", "false"))


@pytest.fixture
def own_process() -> Iterator[None]:
    """For tests of what sets the log, the warnings and the limits of a whole process: afterwards they are as before."""
    import popart_jax

    with popart_jax.limits.set(), warnings.catch_warnings():
        yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="session", autouse=True)
def own_seal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A key to seal executables with that is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture
def popart_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program that imports ``popart``: PopART's refusals hold."""
    import popart_jax

    monkeypatch.setitem(sys.modules, "popart", popart_jax)
