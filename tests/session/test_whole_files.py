"""What we write appears whole or not at all: on a full disk, in a closed folder, and when the process is killed."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popart_jax as popart
from ipu_model.whole_files import write_whole
from popart_jax import to_jax
from popart_jax.execution.stored import container

WIDTH = 300
OLD = b"what was there before"


def builder() -> Any:
    made = popart.Builder()
    x = made.addInputTensor(popart.TensorInfo("FLOAT", [WIDTH, WIDTH]), "x")
    w = made.addInitializedInputTensor(np.ones((WIDTH, WIDTH), np.float32), "w")
    made.addOutputTensor(made.aiOnnx.matmul([x, w], "mm"))
    return made


@cache
def model() -> bytes:
    return builder().getModelProto()


@cache
def session() -> Any:
    proto = popart.Builder(model())
    flow = popart.DataFlow(1, {proto.getOutputTensorIds()[0]: popart.AnchorReturnType("All")})
    made = popart.InferenceSession(model(), flow, popart.DeviceManager().createIpuModelDevice({}))
    made.prepareDevice()
    return made


@cache
def report() -> Any:
    import ipu_model

    return ipu_model.profile(lambda x: (x @ x).sum(), np.ones((64, 64), np.float32))


def save_by_builder(path: Path) -> None:
    popart.Builder(model()).saveModelProto(str(path))


def save_initializers(path: Path) -> None:
    made = popart.Builder(model())
    made.saveInitializersExternally([i for i in made.getInputTensorIds() if made.isInitializer(i)], str(path))


def save_by_session(path: Path) -> None:
    session().modelToHost(str(path))


def save_by_function(path: Path) -> None:
    fn, params = to_jax(model())
    fn.save(path, params)


def save_program(path: Path) -> None:
    container.write(path, "1", {}, {"w": np.random.default_rng(0).normal(size=(WIDTH, WIDTH))})


def save_page(path: Path) -> None:
    from ipu_model.report import html

    html.save(report(), path)


def save_trace(path: Path) -> None:
    from ipu_model.report import trace

    trace.save(report(), path)


WRITERS: dict[str, Callable[[Path], object]] = {
    "Builder.saveModelProto": save_by_builder,
    "Builder.saveInitializersExternally": save_initializers,
    "modelToHost": save_by_session,
    "to_jax's save": save_by_function,
    "programs": save_program,
    "a report": lambda path: report().save(path),
    "a page": save_page,
    "a trace": save_trace,
    "text": lambda path: write_whole(path, "ü" * 40_000),
}


@contextlib.contextmanager
def full_disk(size: int = 400) -> Iterator[None]:
    """No file of this process grows beyond so many bytes."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def check_untouched(path: Path) -> None:
    assert path.read_bytes() == OLD
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.skipif(sys.platform != "linux", reason="limits of a process as Linux has them")
@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk(writer: str, tmp_path: Path) -> None:
    path = tmp_path / "made.onnx"
    WRITERS[writer](path)
    assert path.stat().st_size > 400
    path.unlink()
    for other in tmp_path.iterdir():
        other.unlink()
    path.write_bytes(OLD)
    with full_disk(), pytest.raises((OSError, popart.popart_exception), match="File too large"):
        WRITERS[writer](path)
    check_untouched(path)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_that_may_only_be_read(writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "made.onnx"
    path.write_bytes(OLD)
    with monkeypatch.context() as patch:

        def refuse(*_: Any, **__: Any) -> str:
            raise PermissionError(13, "Permission denied")

        patch.setattr(tempfile, "mkdtemp", refuse)
        with pytest.raises((OSError, popart.popart_exception), match="Permission denied"):
            WRITERS[writer](path)
    check_untouched(path)


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.session.test_whole_files import WRITERS
path = Path(sys.argv[2])
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
WRITERS[sys.argv[1]](path)
"""


@pytest.mark.processes
@pytest.mark.parametrize("writer", ["Builder.saveModelProto", "modelToHost", "a report"])
def test_a_process_killed_while_writing(writer: str, tmp_path: Path) -> None:
    path = tmp_path / "made.onnx"
    path.write_bytes(OLD)
    command = [sys.executable, "-c", KILLED, writer, str(path)]
    ended = subprocess.run(command, cwd=Path(__file__).parents[2], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert path.read_bytes() == OLD


def test_links_devices_and_pipes_are_written_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "link", "a")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "a"
    write_whole("/dev/null", "a")
    assert not Path("/dev/null").is_file()
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", "a")
    assert os.read(reader, 9) == b"a"
    os.close(reader)


def test_initializers_that_could_not_be_written_stay_in_the_model(tmp_path: Path) -> None:
    made = popart.Builder(model())
    (name,) = (i for i in made.getInputTensorIds() if made.isInitializer(i))
    with full_disk(), pytest.raises(OSError, match="File too large"):
        made.saveInitializersExternally([name], str(tmp_path / "w.bin"))
    _, params = to_jax(made.getModelProto())
    np.testing.assert_array_equal(params[name], np.ones((WIDTH, WIDTH)))
    made.saveInitializersExternally([name], str(tmp_path / "w.bin"))
    assert (tmp_path / "w.bin").stat().st_size == 4 * WIDTH**2
